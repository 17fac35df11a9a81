"""`diagram-raise-scans`: a sum with a triangle of ones is a scan, where that saves time."""

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
from treadle.passes.products.scanned import LAW, Scanned, scan, scanned_called, scanned_in
from treadle.passes.products.scanned_trial import fastest_scanned

PASS = "diagram-raise-scans"
NONE = "none"
"""In place of sums: what a derivation says where none are scans."""


@dataclass(frozen=True)
class DiagramRaiseScansPass(ModulePass):
    """Make a scan of a sum of all elements up to each, or from each on, which a program writes as a product with ones
    where the order of two positions lets an element count (`tl.cumsum`). What is scanned need not be saved to be read
    along another axis, and a stream along the axis has what came before a piece as its state.

    With `sums` these are made so, whatever the model says, by name; with `sums=none` none are.

    Before:

    ```
    !L = tensor<?x?xf32, #diagram.array<[q, x]>>
    !U = tensor<?x?xf32, #diagram.array<[q, u]>>
    !T = tensor<?x?xf32, #diagram.array<[x, u]>>
    func.func @f(%L: !L) -> !L {
      %L_read = diagram.read %L at "q, u" : !L -> !U
      %one = diagram.fill 1.0 : f32 -> !T
      %kept = diagram.where %one if "u <= x" : !T
      %C = diagram.contract %kept, %L_read over [u] accumulate f32 : !T, !U -> !L
      func.return %C : !L
    }
    ```

    After `diagram-raise-scans{sums=C}`:

    ```
    !L = tensor<?x?xf32, #diagram.array<[q, x]>>
    func.func @f(%L: !L) -> !L {
      %C = diagram.scan add %L over x : !L -> !L
      func.return %C : !L
    }
    ```

    Legal as the sum has the same elements, of which absent ones count in neither. An element that is infinite or NaN
    reaches no sum that it is not in. The model times all kernels of the function both ways, in chunks where
    `diagram-reassociate` makes some: a tenth must be saved at the sizes that the program states, and no time lost where
    axes known only at launch are long."""

    name = PASS

    sums: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = scanned_in(function.body.block)
            for each in found:  # a derivation says which by name
                each.product.result.name_hint = each.name or fresh_hint(each.product.result, "sum")
            seen |= {each.name for each in found}
            if self.sums:
                _scan(function, self.sums, "asked for")
            elif found:
                _where_it_pays(op, function, found)
        if missing := [name for name in self.sums if name not in seen and name != NONE]:
            known = f"such are {', '.join(f'%{name}' for name in sorted(seen))}" if seen else "there are none"
            raise Refusal(op, f"%{missing[0]} is no sum with a triangle of ones: {known}")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Scanned]) -> None:
    chosen, why = fastest_scanned(module, function, found, PASS)
    if not chosen:
        names = ", ".join(label(each.product.result) for each in found)
        note(function, f"decline {PASS}", names, LAW, why)
    names = tuple(each.name for each in chosen)
    _scan(function, names, why)
    decide(function, sums=names or (NONE,))


def _scan(function: func.FuncOp, names: Sequence[str], why: str) -> None:
    for each in list(scanned_called(function.body.block, names)):
        scan(function, each, PASS, why)


__all__ = ["DiagramRaiseScansPass"]
