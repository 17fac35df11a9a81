"""How a lane goes over a tile in boxes that it copies with others, and what is asked of an element on the way."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.indices import add, strided
from treadle.compiler.printer.text import Text
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.boxes import BoxesAttr
from treadle.dialects.cuda.tiles import extents_of
from treadle.dialects.diagram.array import axes_of, shape_of


@dataclass(frozen=True)
class Walk:
    """The names of how a lane goes over a tile: from its first row, and its place in the rows of a box, down and along
    the row."""

    boxes: BoxesAttr
    row: str
    column: str
    first: str
    place: str
    step: str
    """Rows that all lanes copy at once; then those of a warp."""
    of_warp: str
    at_once: str
    """Turns of a lane that are one stretch of code."""
    down: str
    along: str

    @property
    def own(self) -> dict[str, str]:
        """Where a lane begins."""
        return {self.row: self.first, self.column: self.place}

    def at(self, behind: str = "") -> dict[str, str]:
        """Where it has come, and so far along the row."""
        return {self.row: f"{self.first} + {self.down}", self.column: add([self.place, behind or "0"])}

    @property
    def behind(self) -> str:
        """How far it is along the row, within the loop over boxes."""
        return self.along if self.boxes.count > 1 else ""

    def down_from(self, begin: str = "0", end: str = "") -> str:
        """The loop over a lane's rows."""
        below = f"{self.down} < {self.boxes.rows}"
        tests = below if not end else f"{self.down} < {end} && {below}"
        return f"unroll_by({self.at_once}) for (int {self.down} = {begin}; {tests}; {self.down} += {self.step})"

    @contextmanager
    def over_boxes(self, text: Text, unrolled: str = "") -> Generator[None]:
        """The loop over the boxes that a row goes through."""
        if self.behind:
            span, extent = self.boxes.span.data, self.boxes.span.data * self.boxes.count
            head = f"for (int {self.along} = 0; {self.along} < {extent}; {self.along} += {span})"
            text.line(f"{unrolled or f'unroll_by({self.at_once})'} {head}")
        text.depth += bool(self.behind)
        yield
        text.depth -= bool(self.behind)


def valid_at(addresses: AddressPrinter, op: cuda.CopyOp, here: Mapping[str, str]) -> str:
    """The test that an element is in the tile and in the array; true if it must be."""
    axes, shape, extents = axes_of(op.tile.type), shape_of(op.tile.type), extents_of(op.tile.type)
    return addresses.valid(op, axes, shape, extents, dict(here)) or "true"


def along_row(kernel: KernelWriter, op: cuda.CopyOp, walk: Walk, pointer: str) -> str:
    """Where a lane has come in the row that begins at a pointer."""
    stride = kernel.strides[op.buffer][axes_of(op.buffer.type)[-1]]
    return add([pointer, *([strided(walk.behind, stride)] if walk.behind else [])])
