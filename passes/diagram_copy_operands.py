"""`diagram-copy-operands`: operands of a product in an order in which what it sums lies side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.passes._decisions import decide
from treadle.passes._functions import diagrams, functions, label, note
from treadle.passes.products.copied import Copying, Ways, copy_operands, ways_in
from treadle.passes.products.copied_trial import CopyTrial

PASS = "diagram-copy-operands"
NONE = "none"
"""In place of axes: what a derivation says where nothing is copied."""


@dataclass(frozen=True)
class DiagramCopyOperandsPass(ModulePass):
    """Copy an operand of a product that sums over several axes into an order in which these lie side by side, where
    that saves time. A group is fed one axis: of several that lie apart, it would make a product for each index of the
    others, or be fed a few elements at a time. So it is with patches of an image, of which a kernel makes rows.

    With `axes` products that sum these have them in this order, and what is copied for that are the `operands`, as few
    as do if these are not said, whatever the model says; with `axes=none` nothing is copied.

    Before:

    ```
    !A = tensor<?x?x?x32xf16, #diagram.array<[a, m, b, k]>>
    !B = tensor<?x?x32x?xf16, #diagram.array<[a, b, k, n]>>
    !C = tensor<?x?xf32, #diagram.array<[m, n]>>
    func.func @f(%A: !A, %B: !B) -> !C {
      %C = diagram.contract %A, %B over [a, b, k] accumulate f32 : !A, !B -> !C
      func.return %C : !C
    }
    ```

    After `diagram-copy-operands{axes=a,b,k operands=A}`:

    ```
    !A = tensor<?x?x?x32xf16, #diagram.array<[a, m, b, k]>>
    !A_copy = tensor<?x?x?x32xf16, #diagram.array<[m, a, b, k]>>
    !A_flat = tensor<?x?xf16, #diagram.array<[m, a_b_k]>>
    !B = tensor<?x?x32x?xf16, #diagram.array<[a, b, k, n]>>
    !B_flat = tensor<?x?xf16, #diagram.array<[a_b_k, n]>>
    !C = tensor<?x?xf32, #diagram.array<[m, n]>>
    func.func @f(%A: !A, %B: !B) -> !C {
      %A_copy = diagram.map (%a = %A : !A) -> !A_copy {
        diagram.yield %a : f16
      }
      %A_flat = diagram.collapse %A_copy [a, b, k] as a_b_k : !A_copy -> !A_flat
      %B_flat = diagram.collapse %B [a, b, k] as a_b_k : !B -> !B_flat
      %C = diagram.contract %A_flat, %B_flat over [a_b_k] accumulate f32 : !A_flat, !B_flat -> !C
      func.return %C : !C
    }
    ```

    Legal always where no element is absent: operations find the axes of an array by name, and a sum over several axes
    is one over all their indices. The model times all kernels of the function with every operand copied that leaves
    fewer axes apart, and with both, and as it is: a tenth must be saved at the sizes that the program states, and no
    time lost where axes known only at launch are long."""

    name = PASS

    axes: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        done = set[str]()
        for function in diagrams(op):
            found = ways_in(function)
            if self.axes:
                asked = [each for ways in found if (each := self._asked(ways)) is not None]
                _copy(function, asked, "asked for")
                done |= {axis for each in asked for axis in each.order}
            elif found:
                _where_it_pays(op, function, found)
        if missing := [axis for axis in self.axes if axis not in (*done, NONE)]:
            raise Refusal(op, self._why_not(op, missing[0]))

    def _asked(self, ways: Ways) -> Copying | None:
        """What the options say of a product."""
        asked = [each for each in ways.copyings if each.order == tuple(a for a in self.axes if a in each.order)]
        if not self.operands:
            return min(asked, key=lambda each: len(each.names), default=None)
        named = [each for each in asked if {*each.names} <= {*self.operands}]
        return max(named, key=lambda each: len(each.names), default=None)

    def _why_not(self, module: ModuleOp, axis: str) -> str:
        ways = [each for function in functions(module) for ways in ways_in(function) for each in ways.copyings]
        known = "; ".join(f"[{', '.join(each.order)}] with {_names(each)}" for each in ways)
        of = f" with operands={','.join(self.operands)}" if self.operands else ""
        return (
            f"no product sums over axis '{axis}' and others that lie side by side once its operands are copied into "
            f"the order [{', '.join(self.axes)}]{of}: {f'such are {known}' if known else 'there are none'}"
        )


def _names(copying: Copying) -> str:
    return f"operands={','.join(copying.names)}"


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Ways]) -> None:
    chosen, why = CopyTrial(module, function, PASS).fastest(found)
    if not chosen:
        products = ", ".join(label(each.product.result) for each in found)
        note(function, f"decline {PASS}", f"operands of {products}", "a tenth must be saved", why)
    _copy(function, chosen, why)
    axes = dict.fromkeys(axis for each in chosen for axis in each.order)
    names = dict.fromkeys(name for each in chosen for name in each.names)
    decide(function, axes=tuple(axes) or (NONE,), operands=tuple(names) or None)


def _copy(function: func.FuncOp, chosen: Sequence[Copying], why: str) -> None:
    for each in chosen:
        copy_operands(function, each, PASS, why)


__all__ = ["DiagramCopyOperandsPass"]
