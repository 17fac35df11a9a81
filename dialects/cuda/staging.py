"""The way of a fragment through shared memory where lanes would ask for a sector twice."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr, MemRefType
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.layout import RowsAttr
from treadle.dialects.cuda.tiles import tile_bytes
from treadle.dialects.diagram.array import ArrayEncoding, axes_of, format_of, shape_of

EVERYWHERE = 64
"""More bytes than the rows of any variant are aligned to."""


@irdl_attr_definition
class StagedAttr(ParametrizedAttribute):
    """`#cuda.staged<at = 0, below = 32, rows = #cuda.rows<...>>`: in the variants of a kernel for rows that are aligned
    to fewer than `below` bytes, a fragment goes through a tile that lies `at` so many bytes in shared memory, in these
    rows: the block copies the tile by whole sectors, and threads read or write their elements there. If `below` is
    `EVERYWHERE` it does so in all variants.

    All threads that come to the access meet between the two sides of the tile, and before it is touched unless they
    have met since its place was last used (`meetings.py`), so that one place serves all such accesses; those that
    follow each other meet together if each has a place of its own."""

    name = "cuda.staged"

    at: IntAttr = param_def()
    below: IntAttr = param_def()
    rows: RowsAttr = param_def()

    def __init__(self, at: int, below: int, rows: RowsAttr):
        super().__init__(IntAttr(at), IntAttr(below), rows)

    def tile(self, piece: Attribute) -> MemRefType[Attribute]:
        """The type of the tile through which a fragment of type `piece` goes."""
        encoding = ArrayEncoding(axes_of(piece), "shared", self.rows)
        return MemRefType(format_of(piece), shape_of(piece), memory_space=encoding)

    def end(self, piece: Attribute) -> int:
        """The bytes of shared memory up to the end of that tile."""
        return self.at.data + tile_bytes(self.tile(piece))

    def verify(self) -> None:
        if self.at.data < 0 or self.at.data % 16:
            raise VerifyException(f"a tile at byte {self.at.data}: tiles are aligned to 16 bytes")
        if self.below.data < 1:
            raise VerifyException(f"no rows are aligned to fewer than {self.below.data} bytes")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("at")
            parser.parse_punctuation("=")
            at = parser.parse_integer()
            parser.parse_punctuation(",")
            parser.parse_keyword("below")
            parser.parse_punctuation("=")
            below = parser.parse_integer()
            parser.parse_punctuation(",")
            parser.parse_keyword("rows")
            parser.parse_punctuation("=")
            rows = parser.parse_attribute()
        if not isinstance(rows, RowsAttr):
            parser.raise_error("expected #cuda.rows")
        return (IntAttr(at), IntAttr(below), rows)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"at = {self.at.data}, below = {self.below.data}, rows = ")
            printer.print_attribute(self.rows)
