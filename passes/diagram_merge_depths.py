"""`diagram-merge-depths`: two axes that a product sums over are one depth, which it is fed piece by piece."""

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
from treadle.passes.products.depths import Depth, depths_in, fastest_depths, merge_depth, of_unknown_sizes

PASS = "diagram-merge-depths"
NONE = "none"
"""In place of axes: what a derivation says where none are made one."""


@dataclass(frozen=True)
class DiagramMergeDepthsPass(ModulePass):
    """Make one axis of two that a product sums over and that lie apart in memory, where that saves time. A group is
    fed one axis: of two long ones, it would make a product for each index of the other, which another kernel sums.
    The inner axis, whose size is known, is cut in pieces (of 128 bytes, or 64, or 32), and one axis goes over all
    pieces of all indices of the outer one. So does a sum of products that nothing else uses.

    With `axes` these are made one, whatever the model says; with `axes=none` none are.

    Before:

    ```
    !A = tensor<?x?x128xf16, #diagram.array<[b, m, k]>>
    !B = tensor<?x128x?xf16, #diagram.array<[b, k, n]>>
    !C = tensor<?x?xf32, #diagram.array<[m, n]>>
    func.func @f(%A: !A, %B: !B) -> !C {
      %C = diagram.contract %A, %B over [b, k] accumulate f32 : !A, !B -> !C
      func.return %C : !C
    }
    ```

    After `diagram-merge-depths{axes=b,k}`:

    ```
    !A = tensor<?x?x128xf16, #diagram.array<[b, m, k]>>
    !B = tensor<?x128x?xf16, #diagram.array<[b, k, n]>>
    !A_pieces = tensor<?x?x2x64xf16, #diagram.array<[b, m, k_piece, k_within]>>
    !B_pieces = tensor<?x2x64x?xf16, #diagram.array<[b, k_piece, k_within, n]>>
    !A_depth = tensor<?x?x64xf16, #diagram.array<[b_k, m, k_within]>>
    !B_depth = tensor<?x64x?xf16, #diagram.array<[b_k, k_within, n]>>
    !C = tensor<?x?xf32, #diagram.array<[m, n]>>
    func.func @f(%A: !A, %B: !B) -> !C {
      %A_pieces = diagram.expand %A k as [k_piece, k_within] : !A -> !A_pieces
      %A_depth = diagram.read %A_pieces at "b_k // 2, m, b_k % 2, k_within" padded : !A_pieces -> !A_depth
      %B_pieces = diagram.expand %B k as [k_piece, k_within] : !B -> !B_pieces
      %B_depth = diagram.read %B_pieces at "b_k // 2, b_k % 2, k_within, n" padded : !B_pieces -> !B_depth
      %C = diagram.contract %A_depth, %B_depth over [b_k, k_within] accumulate f32 : !A_depth, !B_depth -> !C
      func.return %C : !C
    }
    ```

    Legal: a sum over two axes is one over all pieces of the inner one, of sums over each, in any order. Factors are
    arguments or arrays between kernels, or made of such element by element; of these one has both axes, or the outer
    one's size is known, too, for else nothing tells how many pieces there are. The model times all kernels of the
    function both ways: a tenth must be saved at the sizes that the program states, and no time lost where axes known
    only at launch are long."""

    name = PASS

    axes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = depths_in(function)
            seen |= {axis for depth in found for axis in depth.axes}
            if self.axes:
                _merge(function, [depth for depth in found if {*depth.axes} <= {*self.axes}], "asked for")
            elif found:
                _where_it_pays(op, function, found)
            for axes in () if self.axes else of_unknown_sizes(function):
                names = " or ".join(f"'{axis}'" for axis in axes)
                why = f"no size is known before launch: say that of {names}, in the types or as --size {axes[-1]}=..."
                note(function, f"decline {PASS}", f"[{', '.join(axes)}]", "pieces of an axis are counted", why)
        if missing := [axis for axis in self.axes if axis not in seen and axis != NONE]:
            known = f"such are {', '.join(sorted(seen))}" if seen else "there are none"
            what = (
                f"sums over axis '{missing[0]}' and another one, of which one has several pieces of 32 bytes at least"
            )
            raise Refusal(op, f"no product {what}, by a size that the types tell: {known}")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Depth]) -> None:
    chosen, why = fastest_depths(module, function, found, PASS)
    if not chosen:
        names = ", ".join(f"[{', '.join(depth.axes)}]" for depth in found)
        note(function, f"decline {PASS}", names, "a tenth must be saved", why)
    _merge(function, chosen, why)
    decide(function, axes=tuple(dict.fromkeys(axis for depth in chosen for axis in depth.axes)) or (NONE,))


def _merge(function: func.FuncOp, depths: Sequence[Depth], why: str) -> None:
    for depth in depths:
        merge_depth(function, depth, depth.sum, PASS, why)


__all__ = ["DiagramMergeDepthsPass"]
