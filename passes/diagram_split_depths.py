"""`diagram-split-depths`: a product whose summed axis is read in parts elsewhere is a sum of products of parts."""

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
from treadle.passes.products.split import Split, split, split_called, splits_in
from treadle.passes.products.split_trial import fastest_split

PASS = "diagram-split-depths"
NONE = "none"
"""In place of products: what a derivation says where none are made part by part."""


@dataclass(frozen=True)
class DiagramSplitDepthsPass(ModulePass):
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

    name = PASS

    products: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = splits_in(function.body.block)
            for each in found:  # a derivation says which by name
                result = each.product.result
                result.name_hint = each.name or fresh_hint(result, "product")
            seen |= {each.name for each in found if each.name}
            if self.products:
                _split(function, self.products, "asked for")
            elif found:
                _where_it_pays(op, function, found)
        if missing := [name for name in self.products if name not in seen and name != NONE]:
            known = f"such are {', '.join(f'%{name}' for name in sorted(seen))}" if seen else "there are none"
            raise Refusal(op, f"%{missing[0]} is no product whose summed axis is read in parts elsewhere: {known}")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Split]) -> None:
    chosen, why = fastest_split(module, function, found, PASS)
    if not chosen:
        names = ", ".join(label(each.product.result) for each in found)
        note(function, f"decline {PASS}", names, "a tenth must be saved", why)
    names = tuple(each.name for each in chosen if each.name)
    _split(function, names, why)
    decide(function, products=names or (NONE,))


def _split(function: func.FuncOp, names: Sequence[str], why: str) -> None:
    for name in names:
        if (each := split_called(function.body.block, name)) is not None:
            split(function, each, PASS, why)


__all__ = ["DiagramSplitDepthsPass"]
