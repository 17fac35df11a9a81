"""`diagram-merge-depths`: two axes that a product sums over are one depth, which it is fed piece by piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes._functions import diagrams, note
from treadle.passes.kernels.where_faster import WhereFaster, such_are
from treadle.passes.products.depths import Depth, depths_in, merge_depth, of_unknown_sizes


@dataclass(frozen=True)
class DiagramMergeDepthsPass(WhereFaster[Depth]):
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
    one's size is known, too, for else nothing tells how many pieces there are. Of the products under a sum a condition
    may leave rows, others at each index that is summed (`first[b] <= m and m < end[b]`: rows that are sorted by what
    they meet): what is absent of a product is absent of a factor that has the other axes of the condition. Between
    which indices it may hold is found once for each row. The model times all kernels of the function both ways: a tenth
    must be saved at the sizes that the program states, and no time lost where axes known only at launch are long."""

    name = "diagram-merge-depths"
    option = "axes"

    axes: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        super().apply(ctx, op)
        for function in () if self.axes else diagrams(op):
            for axes in of_unknown_sizes(function):
                names = " or ".join(f"'{axis}'" for axis in axes)
                why = f"no size is known before launch: say that of {names}, in the types or as --size {axes[-1]}=..."
                note(function, f"decline {self.name}", f"[{', '.join(axes)}]", "pieces of an axis are counted", why)

    def found_in(self, function: func.FuncOp) -> Sequence[Depth]:
        return depths_in(function)

    def names(self, each: Depth) -> Sequence[str]:
        return each.axes

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Depth], why: str) -> None:
        for each in chosen:
            merge_depth(function, each, self.name, why)

    def in_copy(self, each: Depth, values: Mapping[SSAValue, SSAValue]) -> Depth:
        return replace(each, sum=values[each.sum])

    def subject(self, found: Sequence[Depth]) -> str:
        return ", ".join(f"[{', '.join(each.axes)}]" for each in found)

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        what = f"sums over axis '{name}' and another one, of which one has several pieces of 32 bytes at least"
        return f"no product {what}, by a size that the types tell: {such_are(known)}"


__all__ = ["DiagramMergeDepthsPass"]
