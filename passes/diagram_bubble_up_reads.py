"""`diagram-bubble-up-reads`: what is read of an array that is computed is computed of what is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.passes._decisions import decide
from treadle.passes._functions import fresh_hint, functions, kernels, label, note, unite_equal
from treadle.passes.reads.bubble import bubble_up
from treadle.passes.reads.fastest import fastest_reads
from treadle.passes.reads.found import Computed, computed_in

PASS = "diagram-bubble-up-reads"
NONE = "none"
"""In place of arrays: what a derivation says where none are read otherwise."""


@dataclass(frozen=True)
class DiagramBubbleUpReadsPass(ModulePass):
    """Read what an array is made of, in place of the array, where that saves time: a read at other positions is a view
    of an array in memory, so what is read must be saved first, all of it. Two parts of a product that are combined (the
    gate and the values of a gated layer, whose weights are one matrix) become two products, which share a kernel; what
    nobody reads is not computed.

    With `arrays` these are read so, whatever the model says, by name; with `arrays=none` none are.

    Before:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<2x32x64xf16, #diagram.array<[s, j, i]>>
    !P = tensor<?x2x32xf32, #diagram.array<[t, s, j]>>
    !H = tensor<?x32xf32, #diagram.array<[t, j]>>
    func.func @f(%X: !X, %W: !W) -> !H {
      %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
      %gate = diagram.read %P at "t, 0, j" : !P -> !H
      %value = diagram.read %P at "t, 1, j" : !P -> !H
      %H = diagram.map (%g = %gate : !H, %v = %value : !H) -> !H {
        %h = arith.mulf %g, %v : f32
        diagram.yield %h : f32
      }
      func.return %H : !H
    }
    ```

    After `diagram-bubble-up-reads{arrays=P}`:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<2x32x64xf16, #diagram.array<[s, j, i]>>
    !W_part = tensor<32x64xf16, #diagram.array<[j, i]>>
    !H = tensor<?x32xf32, #diagram.array<[t, j]>>
    func.func @f(%X: !X, %W: !W) -> !H {
      %W_b = diagram.read %W at "0, j, i" : !W -> !W_part
      %gate = diagram.contract %X, %W_b over [i] accumulate f32 : !X, !W_part -> !H
      %W_c = diagram.read %W at "1, j, i" : !W -> !W_part
      %value = diagram.contract %X, %W_c over [i] accumulate f32 : !X, !W_part -> !H
      %H = diagram.map (%g = %gate : !H, %v = %value : !H) -> !H {
        %h = arith.mulf %g, %v : f32
        diagram.yield %h : f32
      }
      func.return %H : !H
    }
    ```

    Legal, because what is weaved over an axis treats all of its positions alike: maps, products and reductions give at
    another position what they give of operands that are read there. Not where an element may lie outside of the array
    or be absent, nor what decides comparisons to the last digit (`expressions.decisions`), nor where a read alone says
    how long an axis is. The model times all kernels of the function both ways. A tenth must be saved where an element
    is computed twice, otherwise anything; and no time lost where axes known only at launch are long. (MLIR's
    `bubble-up-extract-slice` does so for slices.)"""

    name = PASS

    arrays: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = _found_in(function.body.block)
            seen |= {each.name for each in found if each.name}
            if self.arrays:
                _bubble_up(function, [each for each in found if each.name in self.arrays], "asked for")
            elif found:
                _where_it_pays(op, function, found)
        if missing := [name for name in self.arrays if name not in seen and name != NONE]:
            known = f"such are {', '.join(f'%{name}' for name in sorted(seen))}" if seen else "there are none"
            what = "computed, read at other positions that lie within it, and made of what can be read there"
            raise Refusal(op, f"%{missing[0]} is no array that is {what}: {known}")


def _found_in(block: Block) -> list[Computed]:
    """Those of a function in which what is computed twice is one, parts of it among others."""
    if not computed_in(block):
        return []
    unite_equal(block)
    found = computed_in(block)
    for each in found:  # a derivation says which by name
        each.value.name_hint = each.name or fresh_hint(each.value, "array")
    return found


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Computed]) -> None:
    chosen, why = fastest_reads(module, function, found, PASS)
    if not chosen:
        names = ", ".join(label(each.value) for each in found)
        note(function, f"decline {PASS}", names, "time must be saved", why)
    names = tuple(each.name for each in chosen if each.name)
    _bubble_up(function, chosen, why)
    decide(function, arrays=names or (NONE,))


def _bubble_up(function: func.FuncOp, found: Sequence[Computed], why: str) -> None:
    for each in found:
        bubble_up(function, each, PASS, why)


__all__ = ["DiagramBubbleUpReadsPass"]
