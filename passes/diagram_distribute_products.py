"""`diagram-distribute-products`: a product with a sum is a sum of products, where its terms wait for different sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block

from treadle.passes._functions import label, note
from treadle.passes.kernels.where_faster import ValuesWhereFaster
from treadle.passes.products.distributed import LAW, Distributed, distribute, distributed_in


@dataclass(frozen=True)
class DiagramDistributeProductsPass(ValuesWhereFaster[Distributed]):
    """Multiply the terms of a sum one by one, and add up the products, where that saves time. A sum of two softmaxes
    moves with two maxima and two sums, so that no one factor repairs a product with it: it would be made in a further
    stream, with all scores anew. Each term alone is a share, whose product is summed with its maximum.

    With `products` these are made so, whatever the model says, by name, also where terms may cancel; with
    `products=none` none are.

    Before:

    ```
    !E = tensor<?x?xf32, #diagram.array<[q, x]>>
    !r = tensor<?xf32, #diagram.array<[q]>>
    !V = tensor<?x64xf32, #diagram.array<[x, e]>>
    !O = tensor<?x64xf32, #diagram.array<[q, e]>>
    func.func @f(%A: !E, %B: !E, %V: !V) -> !O {
      %a = diagram.reduce add %A over [x] : !E -> !r
      %b = diagram.reduce add %B over [x] : !E -> !r
      %D = diagram.map (%s = %A : !E, %t = %B : !E, %k = %a : !r, %l = %b : !r) -> !E {
        %p = arith.divf %s, %k : f32
        %c = arith.divf %t, %l : f32
        %d = arith.subf %p, %c : f32
        diagram.yield %d : f32
      }
      %O = diagram.contract %D, %V over [x] accumulate f32 : !E, !V -> !O
      func.return %O : !O
    }
    ```

    After `diagram-distribute-products{products=O}`:

    ```
    !E = tensor<?x?xf32, #diagram.array<[q, x]>>
    !r = tensor<?xf32, #diagram.array<[q]>>
    !V = tensor<?x64xf32, #diagram.array<[x, e]>>
    !O = tensor<?x64xf32, #diagram.array<[q, e]>>
    func.func @f(%A: !E, %B: !E, %V: !V) -> !O {
      %a = diagram.reduce add %A over [x] : !E -> !r
      %b = diagram.reduce add %B over [x] : !E -> !r
      %D_term = diagram.map (%s = %A : !E, %k = %a : !r) -> !E {
        %p = arith.divf %s, %k : f32
        diagram.yield %p : f32
      }
      %O_term = diagram.contract %D_term, %V over [x] accumulate f32 : !E, !V -> !O
      %D_term_b = diagram.map (%t = %B : !E, %l = %b : !r) -> !E {
        %c = arith.divf %t, %l : f32
        diagram.yield %c : f32
      }
      %O_term_b = diagram.contract %D_term_b, %V over [x] accumulate f32 : !E, !V -> !O
      %O = diagram.map (%first = %O_term : !O, %second = %O_term_b : !O) -> !O {
        %d = arith.subf %first, %second : f32
        diagram.yield %d : f32
      }
      func.return %O : !O
    }
    ```

    Legal by linearity, `(A + B) V = A V + B V`, where each term lacks just the elements that the sum lacks. Terms are
    rounded as the sum was, so that where they cancel the result has the rounding of the terms: what may cancel is left
    unless it is asked for. At most one term may be beyond the format, for then the sum is, too; sums of 8 bits, which
    saturate, stay, and so do those that the program fixes. Terms that wait for the same sums are one. Tried where there
    are several. The model times all kernels of the function both ways: a tenth must be saved at the sizes that the
    program states, and no time lost where axes known only at launch are long."""

    name = "diagram-distribute-products"
    option = "products"
    kind = "product"
    described = "product with a sum whose terms wait for different sums along what it sums"
    then = ("diagram-hoist-factors", "diagram-compose-maps")

    products: tuple[str, ...] = ()

    def candidates(self, block: Block) -> Sequence[Distributed]:
        return distributed_in(block)

    def make(self, function: func.FuncOp, each: Distributed, why: str) -> None:
        distribute(function, each, self.name, why)

    def found_in(self, function: func.FuncOp) -> Sequence[Distributed]:
        """Only those that are exact, if none are asked for."""
        found = super().found_in(function)
        if self.products:
            return found
        for each in (each for each in found if not each.is_exact):
            (name,) = self.names(each)
            why = f"its terms may cancel, and would be rounded before: products={name} does it all the same"
            note(function, f"decline {self.name}", label(each.value), LAW, why)
        return [each for each in found if each.is_exact]


__all__ = ["DiagramDistributeProductsPass"]
