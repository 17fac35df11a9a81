"""`diagram-raise-scatters`: a sum of what data name the place of is scattered, where that saves time."""

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
from treadle.passes.products.scattered import LAW, Scattered, scatter_all, scattered_in
from treadle.passes.products.scattered_trial import fastest_scattered

PASS = "diagram-raise-scatters"
NONE = "none"
"""In place of sums: what a derivation says where none are scattered."""


@dataclass(frozen=True)
class DiagramRaiseScattersPass(ModulePass):
    """Scatter a sum of the elements that data send to a place, which a program writes as a sum of those at which a
    position equals an entry (`keep(X, "table[t] == r")`): each element is added where its entry says, once, instead of
    being compared with every position. A product in which such a condition keeps a factor is scattered, too, if all of
    what it sums over tells where to.

    With `sums` these are made so, whatever the model says, by name; with `sums=none` none are.

    Before:

    ```
    !X = tensor<?x?xf32, #diagram.array<[t, c]>>
    !Y = tensor<?x?x?xf32, #diagram.array<[t, r, c]>>
    !R = tensor<?x?xf32, #diagram.array<[r, c]>>
    !T = tensor<?xi32, #diagram.array<[t]>>
    func.func @f(%X: !X, %table: !T, %W: !R) -> !R {
      %Y = diagram.map (%x = %X : !X) -> !Y {
        diagram.yield %x : f32
      }
      %kept = diagram.where %Y if "table[t] == r" with (table = %table : !T) : !Y
      %S = diagram.reduce add %kept over [t] : !Y -> !R
      func.return %S : !R
    }
    ```

    After `diagram-raise-scatters{sums=S}`:

    ```
    !X = tensor<?x?xf32, #diagram.array<[t, c]>>
    !R = tensor<?x?xf32, #diagram.array<[r, c]>>
    !T = tensor<?xi32, #diagram.array<[t]>>
    func.func @f(%X: !X, %table: !T, %W: !R) -> !R {
      %Y = diagram.map (%x = %X : !X) -> !X {
        diagram.yield %x : f32
      }
      %S = diagram.scatter %Y at "table[t], c" with (table = %table : !T) : !X -> !R
      func.return %S : !R
    }
    ```

    Legal as each result is the sum of the same elements: an entry equals one position along the axis, or none if it
    lies outside. What else a condition asks stays one of the elements. They must not vary along the axis, nor what they
    are multiplied by. An element that is infinite or NaN reaches its own sum alone in both. The model times all kernels
    of the function both ways, additions at one address one after another: a tenth must be saved at the sizes that the
    program states, and no time lost where axes known only at launch are long."""

    name = PASS

    sums: tuple[str, ...] = ()

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        seen = set[str]()
        for function in functions(op):
            if kernels(function) or len(function.body.blocks) != 1:
                continue
            found = scattered_in(function.body.block)
            for each in found:  # a derivation says which by name
                each.sum.result.name_hint = each.name or fresh_hint(each.sum.result, "sum")
            seen |= {each.name for each in found}
            if self.sums:
                scatter_all(function, self.sums, PASS, "asked for")
            elif found:
                _where_it_pays(op, function, found)
        if missing := [name for name in self.sums if name not in seen and name != NONE]:
            known = f"such are {', '.join(f'%{name}' for name in sorted(seen))}" if seen else "there are none"
            raise Refusal(op, f"%{missing[0]} is no sum of what data name the place of: {known}")


def _where_it_pays(module: ModuleOp, function: func.FuncOp, found: Sequence[Scattered]) -> None:
    chosen, why = fastest_scattered(module, function, found, PASS)
    if not chosen:
        names = ", ".join(label(each.sum.result) for each in found)
        note(function, f"decline {PASS}", names, LAW, why)
    names = tuple(each.name for each in chosen)
    scatter_all(function, names, PASS, why)
    decide(function, sums=names or (NONE,))


__all__ = ["DiagramRaiseScattersPass"]
