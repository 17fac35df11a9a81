"""`diagram-merge-free-axes`: axes that a product has side by side in one operand alone are the rows of one matrix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.passes._decisions import decide
from treadle.passes._functions import functions, kernels, note
from treadle.passes.axes.candidates import Candidates
from treadle.passes.products.apart import apart_in
from treadle.passes.products.free_axes import Merging, axes_in, fastest_merging, merge_each

PASS = "diagram-merge-free-axes"
NONE = "none"
"""In place of axes: what a derivation says where none are made one."""


@dataclass(frozen=True)
class DiagramMergeFreeAxesPass(ModulePass):
    """Make one axis of axes that one operand of a product has and the other has not, where that saves time. A group
    takes its rows along one axis: of a batch of single tokens, or of the queries that share a head of keys, each would
    be a tile of its own, most of it empty, and would copy the other operand again.

    With `axes` these are made one, whatever the model says; with `axes=none` none are.

    Before:

    ```
    !X = tensor<?x2x64xf16, #diagram.array<[b, t, i]>>
    !W = tensor<64x32xf16, #diagram.array<[i, o]>>
    !Y = tensor<?x2x32xf32, #diagram.array<[b, t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
      func.return %Y : !Y
    }
    ```

    After `diagram-merge-free-axes{axes=b,t}`:

    ```
    !X = tensor<?x2x64xf16, #diagram.array<[b, t, i]>>
    !rows = tensor<?x64xf16, #diagram.array<[b_t, i]>>
    !W = tensor<64x32xf16, #diagram.array<[i, o]>>
    !products = tensor<?x32xf32, #diagram.array<[b_t, o]>>
    !Y = tensor<?x2x32xf32, #diagram.array<[b, t, o]>>
    func.func @f(%X: !X, %W: !W) -> !Y {
      %X_flat = diagram.collapse %X [b, t] as b_t : !X -> !rows
      %Y_flat = diagram.contract %X_flat, %W over [i] accumulate f32 : !rows, !W -> !products
      %Y = diagram.expand %Y_flat b_t as [b, t] : !products -> !Y
      func.return %Y : !Y
    }
    ```

    Legal where `diagram-merge-axes` is: the axes lie one within the other in every array that has one of them, and
    every operation treats them alike: a read that leaves both as they are, too. Where another operation does not (one
    that sums `a` and `b` of what `s i a, s j b -> i a j b` gave), they are one in their product alone, between views,
    so that what uses it is another kernel. The model times all kernels of the function with them as one and apart: a
    tenth must be saved at the sizes that the program states, and no time lost where axes known only at launch have
    twice as many. For what it is given with gaps between these axes must be
    copied at each call. (FlashAttention-3 packs grouped queries so, by hand.)"""

    name = PASS

    axes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        done = list[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = _found_in(function, self.axes)
            if self.axes:
                done += _merge(function, found, "asked for")
            elif found:
                _where_it_pays(op, function, found)
        if missing := [axis for axis in self.axes if axis not in (*done, NONE)]:
            raise Refusal(
                op, f"axis '{missing[0]}' does not become one with another one: {self._why_not(op, missing[0])}"
            )

    def _why_not(self, module: ModuleOp, axis: str) -> str:
        for function in functions(module):
            for pair in (found := Candidates(function.body.block)).free_pairs():
                if axis in pair and {*pair} <= {*self.axes} and (reason := found.why_not(pair)) is not None:
                    return reason
        return "no product has it and another one of these next to each other in its result and in one operand alone"


def _found_in(function: func.FuncOp, asked: Sequence[str]) -> list[Merging]:
    """The axes that can be one, those of `asked` if any are."""
    block = function.body.block
    everywhere = Candidates(block).free_groups(asked)
    return [*everywhere, *apart_in(block, everywhere, asked)]


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Merging]) -> None:
    chosen, why = fastest_merging(module, function, found, PASS)
    if not chosen:
        names = ", ".join(f"[{', '.join(axes_in(each))}]" for each in found)
        note(function, f"decline {PASS}", names, "a tenth must be saved", why)
    decide(function, axes=tuple(dict.fromkeys(_merge(function, chosen, why))) or (NONE,))


def _merge(function: func.FuncOp, found: Sequence[Merging], why: str) -> list[str]:
    merge_each(function, found, PASS, why)
    return [axis for each in found for axis in axes_in(each)]
