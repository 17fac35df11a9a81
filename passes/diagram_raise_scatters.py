"""`diagram-raise-scatters`: a sum of what data name the place of is scattered, where that saves time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block

from treadle.passes.kernels.function_trial import COMPOSED
from treadle.passes.kernels.where_faster import ValuesWhereFaster
from treadle.passes.products.scattered import LAW, Scattered, scatter, scattered_in


@dataclass(frozen=True)
class DiagramRaiseScattersPass(ValuesWhereFaster[Scattered]):
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

    name = "diagram-raise-scatters"
    option = "sums"
    kind = "sum"
    described = "sum of what data name the place of"
    wanted = LAW
    then = COMPOSED

    sums: tuple[str, ...] = ()

    def candidates(self, block: Block) -> Sequence[Scattered]:
        return scattered_in(block)

    def make(self, function: func.FuncOp, each: Scattered, why: str) -> None:
        scatter(function, each, self.name, why)


__all__ = ["DiagramRaiseScattersPass"]
