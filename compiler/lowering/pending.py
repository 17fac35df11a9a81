"""Values that are made where they are used, in the layout that the use asks for."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Attribute, Block, SSAValue

from treadle.dialects.cuda.placed import Padding, Scatter
from treadle.dialects.diagram import FillOp
from treadle.dialects.hierarchy import LoadOp


@dataclass(frozen=True)
class PendingLoad:
    """A piece that goes to registers: loaded where it is used, in the layout that the use asks for."""

    op: LoadOp
    buffer: SSAValue
    offsets: tuple[SSAValue, ...]
    bounds: tuple[tuple[str, SSAValue], ...]
    begins: tuple[tuple[str, SSAValue], ...]
    padding: Padding
    scatter: Scatter | None
    block: Block
    """Where the piece is loaded: once, whatever loop uses it."""
    loaded: dict[Attribute, SSAValue]
    """Its fragments, by type, as far as they were asked for."""


@dataclass(frozen=True)
class PendingFill:
    """A constant array: made where it is used."""

    op: FillOp


@dataclass(frozen=True)
class PendingIndex:
    """Positions along an axis: made where they are used."""

    axis: str
    offset: SSAValue


@dataclass(frozen=True)
class Listed:
    """Pieces that are selected, in a list in shared memory."""

    tile: SSAValue
    count: SSAValue
    """How many are on the list."""
    turns: SSAValue
    """How many there are, with those that the list has no room for."""
    rest: SSAValue | None
    """Where those begin; None if there are none."""
    step: int


Lowered = SSAValue | PendingLoad | PendingFill | PendingIndex
