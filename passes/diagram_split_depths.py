"""`diagram-split-depths`: a product whose summed axis is read in parts elsewhere is a sum of products of parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block

from treadle.passes.kernels.where_faster import ValuesWhereFaster
from treadle.passes.products.split import Split, split, splits_in


@dataclass(frozen=True)
class DiagramSplitDepthsPass(ValuesWhereFaster[Split]):
    """Multiply the parts of a summed axis one by one, and add up the products, where that saves time. Keys of which the
    first columns are the values, too, are two arrays as long as scores take all columns: both would be loaded, and no
    group has room for them. As a product of its own, what both read is one array; the rest is a product that
    begins with that.

    With `products` these are made so, whatever the model says, by name; with `products=none` none are.

    Before:

    ```
    !Q = tensor<?x96xf16, #diagram.array<[q, d]>>
    !K = tensor<?x96xf16, #diagram.array<[x, d]>>
    !V = tensor<?x64xf16, #diagram.array<[x, c]>>
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !P = tensor<?x?xf16, #diagram.array<[q, x]>>
    !O = tensor<?x64xf32, #diagram.array<[q, c]>>
    func.func @f(%Q: !Q, %K: !K) -> !O {
      %V = diagram.read %K at "x, c" : !K -> !V
      %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
      %P = diagram.cast %S : !S -> !P
      %O = diagram.contract %P, %V over [x] accumulate f32 : !P, !V -> !O
      func.return %O : !O
    }
    ```

    After `diagram-split-depths{products=S}`:

    ```
    !Q = tensor<?x96xf16, #diagram.array<[q, d]>>
    !K = tensor<?x96xf16, #diagram.array<[x, d]>>
    !C = tensor<?x64xf16, #diagram.array<[q, c]>>
    !R = tensor<?x32xf16, #diagram.array<[q, d_part]>>
    !V = tensor<?x64xf16, #diagram.array<[x, c]>>
    !U = tensor<?x32xf16, #diagram.array<[x, d_part]>>
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !P = tensor<?x?xf16, #diagram.array<[q, x]>>
    !O = tensor<?x64xf32, #diagram.array<[q, c]>>
    func.func @f(%Q: !Q, %K: !K) -> !O {
      %V = diagram.read %K at "x, c" : !K -> !V
      %C = diagram.read %Q at "q, c" : !Q -> !C
      %S_c = diagram.contract %C, %V over [c] accumulate f32 : !C, !V -> !S
      %R = diagram.read %Q at "q, d_part + 64" : !Q -> !R
      %U = diagram.read %K at "x, d_part + 64" : !K -> !U
      %S_part = diagram.contract %R, %U over [d_part] accumulate f32 : !R, !U -> !S
      %S = diagram.map (%s = %S_c : !S, %t = %S_part : !S) -> !S {
        %both = arith.addf %s, %t : f32
        diagram.yield %both : f32
      }
      %P = diagram.cast %S : !S -> !P
      %O = diagram.contract %P, %V over [x] accumulate f32 : !P, !V -> !O
      func.return %O : !O
    }
    ```

    Legal for any sum of numbers: all parts together are the axis, and each is in one of them. So the axis has a size
    that is known, and parts are read at all other positions as they lie. Operands without some of their elements, and
    integers, stay. Tried where a part is read. The model times all kernels of the function both ways: a tenth must be
    saved at the sizes that the program states, and no time lost where axes known only at launch are long."""

    name = "diagram-split-depths"
    option = "products"
    kind = "product"
    described = "product whose summed axis is read in parts elsewhere"
    then = (
        "diagram-hoist-factors",
        "diagram-reassociate",
        "diagram-bubble-up-reads",
        "diagram-compose-maps",
        "diagram-merge-free-axes",
    )

    products: tuple[str, ...] = ()

    def candidates(self, block: Block) -> Sequence[Split]:
        return splits_in(block)

    def make(self, function: func.FuncOp, each: Split, why: str) -> None:
        split(function, each, self.name, why)


__all__ = ["DiagramSplitDepthsPass"]
