"""`diagram-bubble-up-reads`: what is read of an array that is computed is computed of what is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReadOp
from treadle.passes._functions import unite_equal
from treadle.passes.kernels.by_time import WORTH
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import fastest_of
from treadle.passes.kernels.where_faster import ValuesWhereFaster
from treadle.passes.products.kept import kept_product
from treadle.passes.reads.bubble import bubble_up
from treadle.passes.reads.found import Computed, computed_in

ANY = 0.999
"""Of the time before, what is less: enough where nothing is computed twice, for then less is saved and read."""


@dataclass(frozen=True)
class DiagramBubbleUpReadsPass(ValuesWhereFaster[Computed]):
    """Read what an array is made of, in place of the array, where that saves time: a read at other positions is a view
    of an array in memory, so what is read must be saved first, all of it. Two parts of a product that are combined (the
    gate and the values of a gated layer, whose weights are one matrix) become two products, which share a kernel; what
    nobody reads is not computed.

    With `arrays` these are read so, whatever the model says, by name; with `arrays=none` none are.

    Before:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<2x32x64xf16, #diagram.array<[s, j, i]>>
    !P = tensor<?x2x32xf32, #diagram.array<[t, s, j]>>
    !H = tensor<?x32xf32, #diagram.array<[t, j]>>
    func.func @f(%X: !X, %W: !W) -> !H {
      %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
      %gate = diagram.read %P at "t, 0, j" : !P -> !H
      %value = diagram.read %P at "t, 1, j" : !P -> !H
      %H = diagram.map (%g = %gate : !H, %v = %value : !H) -> !H {
        %h = arith.mulf %g, %v : f32
        diagram.yield %h : f32
      }
      func.return %H : !H
    }
    ```

    After `diagram-bubble-up-reads{arrays=P}`:

    ```
    !X = tensor<?x64xf16, #diagram.array<[t, i]>>
    !W = tensor<2x32x64xf16, #diagram.array<[s, j, i]>>
    !W_part = tensor<32x64xf16, #diagram.array<[j, i]>>
    !H = tensor<?x32xf32, #diagram.array<[t, j]>>
    func.func @f(%X: !X, %W: !W) -> !H {
      %W_b = diagram.read %W at "0, j, i" : !W -> !W_part
      %gate = diagram.contract %X, %W_b over [i] accumulate f32 : !X, !W_part -> !H
      %W_c = diagram.read %W at "1, j, i" : !W -> !W_part
      %value = diagram.contract %X, %W_c over [i] accumulate f32 : !X, !W_part -> !H
      %H = diagram.map (%g = %gate : !H, %v = %value : !H) -> !H {
        %h = arith.mulf %g, %v : f32
        diagram.yield %h : f32
      }
      func.return %H : !H
    }
    ```

    Legal, because what is weaved over an axis treats all of its positions alike: maps, products and reductions give at
    another position what they give of operands that are read there. Not where an element may lie outside of the array
    or be absent, nor what decides comparisons to the last digit (`expressions.decisions`), nor where a read alone says
    how long an axis is. The model times all kernels of the function both ways. A tenth must be saved where an element
    is computed twice, otherwise anything; and no time lost where axes known only at launch are long. (MLIR's
    `bubble-up-extract-slice` does so for slices.)"""

    name = "diagram-bubble-up-reads"
    option = "arrays"
    kind = "array"
    described = "array that is computed, read at other positions that lie within it, and made of what can be read there"
    wanted = "time must be saved"
    then = ("diagram-compose-maps",)

    arrays: tuple[str, ...] = ()

    def candidates(self, block: Block) -> Sequence[Computed]:
        """Once what is computed twice is one, parts of it among others."""
        if not computed_in(block):
            return []
        unite_equal(block)
        return [each for each in computed_in(block) if self.arrays or not _is_of_sorted_rows(each.value)]

    def make(self, function: func.FuncOp, each: Computed, why: str) -> None:
        bubble_up(function, each, self.name, why)

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Computed], why: str) -> None:
        """As they were found: of what is read once another one is, each reads what it did."""
        for each in chosen:
            self.make(function, each, why)

    def in_copy(self, each: Computed, values: Mapping[SSAValue, SSAValue]) -> Computed:
        reads = [values[read.result].owner for read in each.reads]
        return Computed(values[each.value], tuple(read for read in reads if isinstance(read, ReadOp)))

    def fastest(self, trial: FunctionTrial, found: Sequence[Computed]) -> tuple[Sequence[Computed], str]:
        repeats = any(each.repeats(trial.stated) for each in found)
        return fastest_of(found, lambda chosen: self.times(trial, chosen), trial.longer, WORTH if repeats else ANY)


def _is_of_sorted_rows(value: SSAValue) -> bool:
    """Whether an array is made of a product whose rows are sorted by what they meet: of parts of its factors that would
    be no product (`diagram-merge-depths`)."""
    op = value.owner
    if isinstance(op, CastOp | MapOp):
        return any(map(_is_of_sorted_rows, op.operands))
    return kept_product(op) is not None


__all__ = ["DiagramBubbleUpReadsPass"]
