"""`diagram-distribute-products`: a product with a sum is a sum of products, where its terms wait for different sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.compiler.errors import Refusal
from treadle.passes._decisions import decide
from treadle.passes._functions import fresh_hint, functions, kernels, label, note
from treadle.passes.products.distributed import LAW, Distributed, distribute, distributed_called, distributed_in
from treadle.passes.products.distributed_trial import fastest_distributed

PASS = "diagram-distribute-products"
NONE = "none"
"""In place of products: what a derivation says where none are made term by term."""


@dataclass(frozen=True)
class DiagramDistributeProductsPass(ModulePass):
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

    name = PASS

    products: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = distributed_in(function.body.block)
            for each in found:  # a derivation says which by name
                each.product.name_hint = each.name or fresh_hint(each.product, "product")
            seen |= {each.name for each in found if each.name}
            if self.products:
                _distribute(function, [each for each in found if each.name in self.products], "asked for")
            else:
                _where_it_pays(op, function, found)
        if missing := [name for name in self.products if name not in seen and name != NONE]:
            known = f"such are {', '.join(f'%{name}' for name in sorted(seen))}" if seen else "there are none"
            what = "product with a sum whose terms wait for different sums along what it sums"
            raise Refusal(op, f"%{missing[0]} is no {what}: {known}")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Distributed]) -> None:
    for each in (each for each in found if not each.is_exact):
        why = f"its terms may cancel, and would be rounded before: products={each.name} does it all the same"
        note(function, f"decline {PASS}", label(each.product), LAW, why)
    if not (exact := [each for each in found if each.is_exact]):
        return
    chosen, why = fastest_distributed(module, function, exact, PASS)
    if not chosen:
        names = ", ".join(label(each.product) for each in exact)
        note(function, f"decline {PASS}", names, "a tenth must be saved", why)
    _distribute(function, chosen, why)
    decide(function, products=tuple(each.name for each in chosen if each.name) or (NONE,))


def _distribute(function: func.FuncOp, found: Sequence[Distributed], why: str) -> None:
    for name in [each.name for each in found]:
        if (each := distributed_called(function.body.block, name)) is not None:
            distribute(function, each, PASS, why)


__all__ = ["DiagramDistributeProductsPass"]
