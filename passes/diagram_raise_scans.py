"""`diagram-raise-scans`: a sum with a triangle of ones is a scan, where that saves time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block

from treadle.passes.kernels.function_trial import COMPOSED
from treadle.passes.kernels.where_faster import ValuesWhereFaster
from treadle.passes.products.scanned import LAW, Scanned, scan, scanned_in


@dataclass(frozen=True)
class DiagramRaiseScansPass(ValuesWhereFaster[Scanned]):
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

    name = "diagram-raise-scans"
    option = "sums"
    kind = "sum"
    described = "sum with a triangle of ones"
    wanted = LAW
    then = COMPOSED

    sums: tuple[str, ...] = ()

    def candidates(self, block: Block) -> Sequence[Scanned]:
        return scanned_in(block)

    def make(self, function: func.FuncOp, each: Scanned, why: str) -> None:
        scan(function, each, self.name, why)


__all__ = ["DiagramRaiseScansPass"]
