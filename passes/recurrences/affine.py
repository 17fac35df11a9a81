"""Recurrences whose steps are affine in each of their states, `S -> M S + b`: so are such steps together."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import RecurrenceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, is_array, sizes_of
from treadle.passes.recurrences.linear import Linear, NotAffineError, linear_part

LAW = "affine steps compose: M' (M S + b) + b' = (M' M) S + (M' b + b')"


@dataclass(frozen=True)
class Affine:
    """A recurrence whose step is affine in each of its states, and in how long chunks it is taken."""

    op: RecurrenceOp
    length: int = 0

    @property
    def value(self) -> SSAValue:
        """By which a derivation calls it."""
        return self.op.last[0]

    @property
    def axis(self) -> str:
        return self.op.axis.data

    @property
    def size(self) -> int:
        """How many positions there are, DYNAMIC where the launch knows it."""
        return next(sizes_of(each.type)[self.axis] for each in self.op.inputs if is_along(each, self.axis))


def is_along(value: SSAValue, axis: str) -> bool:
    """Whether a value is an array that has an axis."""
    return is_array(value.type) and axis in sizes_of(value.type)


def affine_in(block: Block) -> list[Affine]:
    """Those of a block, in order."""
    return [Affine(op) for op in block.ops if isinstance(op, RecurrenceOp) and why_not(op) is None]


def why_not(op: RecurrenceOp) -> str | None:
    """Why a recurrence has to be taken from position to position; None if it may be in chunks."""
    if absences_of(op.inputs):
        return "what it is fed lacks elements"
    try:
        parts = [linear_part(op, place) for place in range(len(op.states))]
    except NotAffineError as error:
        return str(error)
    return next((why for part, state in zip(parts, op.states, strict=True) if (why := _unknown(part, state))), None)


def _unknown(part: Linear, state: SSAValue) -> str | None:
    """Matrices have an axis twice, of one size."""
    sizes = sizes_of(state.type)
    axis = next((axis for axis in part.mixed if sizes[axis] == DYNAMIC), None)
    return None if axis is None else f"elements of its state meet along '{axis}', the size of which is not known"


__all__ = ["LAW", "Affine", "affine_in", "is_along", "why_not"]
