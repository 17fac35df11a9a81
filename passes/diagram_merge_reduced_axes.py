"""`diagram-merge-reduced-axes`: axes that are reduced together are one in what is made with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from treadle.passes.kernels.where_faster import WhereFaster, such_are
from treadle.passes.products.reduced import Reduced, reduced_along, reduced_in
from treadle.passes.products.reduced_as_one import reduce_as_one
from treadle.passes.products.scaled_sums import ScaledSum, scaled_sums_in, sum_pieces

Merging: TypeAlias = "Reduced | ScaledSum"
"""Axes that are reduced together, or by a sum and the product that it adds up."""


@dataclass(frozen=True)
class DiagramMergeReducedAxesPass(WhereFaster[Merging]):
    """Make one axis of axes that are reduced together, in all that is made with them, where that saves time: of such
    that are not one, since some array lacks one, or has them apart, or a condition asks for positions along one. A
    group is fed one axis: of two it would hold one whole, or what a product gives along both would be saved. So it is
    with scores of a query and of pairs of keys, of which all pairs share one softmax (2-simplicial attention); with
    windows in images; and with a sum of products each of which has a scale of its own (a mixture of layers).

    With `axes` these are made one, whatever the model says; with `axes=none` none are.

    Before:

    ```
    !Q = tensor<?x32xf16, #diagram.array<[q, d]>>
    !K = tensor<?x32xf16, #diagram.array<[x, d]>>
    !L = tensor<64x32xf16, #diagram.array<[y, d]>>
    !pairs = tensor<?x64x32xf16, #diagram.array<[x, y, d]>>
    !S = tensor<?x?x64xf32, #diagram.array<[q, x, y]>>
    !m = tensor<?xf32, #diagram.array<[q]>>
    func.func @f(%Q: !Q, %K: !K, %L: !L) -> !m {
      %KL = diagram.map (%k = %K : !K, %l = %L : !L) -> !pairs {
        %kl = arith.mulf %k, %l : f16
        diagram.yield %kl : f16
      }
      %S = diagram.contract %Q, %KL over [d] accumulate f32 : !Q, !pairs -> !S
      %m = diagram.reduce max %S over [x, y] : !S -> !m
      func.return %m : !m
    }
    ```

    After `diagram-merge-reduced-axes{axes=x,y}`:

    ```
    !Q = tensor<?x32xf16, #diagram.array<[q, d]>>
    !K = tensor<?x32xf16, #diagram.array<[x, d]>>
    !L = tensor<64x32xf16, #diagram.array<[y, d]>>
    !pairs = tensor<?x32xf16, #diagram.array<[x_y, d]>>
    !S = tensor<?x?xf32, #diagram.array<[q, x_y]>>
    !m = tensor<?xf32, #diagram.array<[q]>>
    func.func @f(%Q: !Q, %K: !K, %L: !L) -> !m {
      %K_x_y = diagram.read %K at "x_y // 64, d" padded : !K -> !pairs
      %L_x_y = diagram.read %L at "x_y % 64, d" padded : !L -> !pairs
      %KL_flat = diagram.map (%k = %K_x_y : !pairs, %l = %L_x_y : !pairs) -> !pairs {
        %kl = arith.mulf %k, %l : f16
        diagram.yield %kl : f16
      }
      %S_flat = diagram.contract %Q, %KL_flat over [d] accumulate f32 : !Q, !pairs -> !S
      %m = diagram.reduce max %S_flat over [x_y] : !S -> !m
      func.return %m : !m
    }
    ```

    Legal: `(x, y)` is `x * Y + y`, under which each operation with both axes is itself, and an array with one of
    them is read at the quotient, or the remainder. So inner axes have static sizes, no array that is read has
    absent elements, and conditions on positions ask for those. What has all axes, two or three, is made with a
    product of two matrices, and nothing else uses what that gives; or a product sums over them what it reads of an
    array at other positions, with zeros around, as in windows of an image. A sum over `e` of products along `k`, of
    which a map scales each, is one over `e` and all pieces of 128 of `k`, each of them scaled: of a scale that is
    infinite, pieces of zero are NaN. The model times all kernels of the function both ways: a tenth must be saved
    at the sizes that the program states, and no time lost where axes known only at launch are long."""

    name = "diagram-merge-reduced-axes"
    option = "axes"
    then = ("diagram-copy-operands", "diagram-merge-free-axes", "diagram-merge-depths")

    axes: tuple[str, ...] = ()

    def found_in(self, function: func.FuncOp) -> Sequence[Merging]:
        return [*reduced_in(function), *scaled_sums_in(function)]

    def names(self, each: Merging) -> Sequence[str]:
        return each.axes

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Merging], why: str) -> None:
        for axes in [each.axes for each in chosen]:  # found anew: one may be made of what another one made
            for each in [each for each in self.found_in(function) if each.axes == axes]:
                own = sum_pieces(function, each) if isinstance(each, ScaledSum) else each.axes
                if (found := reduced_along(function, own)) is not None:
                    reduce_as_one(function, found, self.name, why)

    def subject(self, found: Sequence[Merging]) -> str:
        return ", ".join(f"[{', '.join(each.axes)}]" for each in found)

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        what = f"a product has axis '{name}' and others of static sizes, which are reduced together and are not one"
        return f"nowhere {what}: {such_are(known)}"


__all__ = ["DiagramMergeReducedAxesPass"]
