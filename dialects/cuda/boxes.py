"""How tensor copies leave a tile in shared memory, and products of warpgroups find it there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

CHUNK_BYTES = 16
"""What a swizzle moves together."""

SPANS = (128, 64, 32)
"""Bytes of a row of a box, the widest first: the swizzles of tensor copies (PTX ISA 5.5.7)."""

MOST_ROWS = 256
"""Elements of one side of a box."""


@irdl_attr_definition
class BoxesAttr(ParametrizedAttribute):
    """`#cuda.boxes<extents = [128, 128], span = 64>`: a tile in shared memory, cut along its last wide axis into boxes
    of `span` elements, one after another; the rows of a box follow each other without padding.

    A row is 32, 64 or 128 bytes, and the index of a 16-byte chunk within it is XORed with bits 7 and up of the address,
    as tensor copies swizzle (PTX ISA 5.5.7) and products of warpgroups read (9.7.15.5.1). A box begins at a multiple
    of 1024 bytes."""

    name = "cuda.boxes"

    extents: ArrayAttr[IntAttr] = param_def()
    span: IntAttr = param_def()

    def __init__(self, extents: Iterable[int], span: int):
        super().__init__(ArrayAttr(IntAttr(extent) for extent in extents), IntAttr(span))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(extent.data for extent in self.extents)

    @property
    def row_axis(self) -> int:
        """Position of the axis along which elements are neighbours: the last with more than one element."""
        wide = [i for i, extent in enumerate(self.shape) if extent != 1]
        return wide[-1] if wide else len(self.shape) - 1

    @property
    def rows(self) -> int:
        """Rows of a box."""
        return self.elements // self.shape[self.row_axis]

    @property
    def count(self) -> int:
        """Boxes."""
        return self.shape[self.row_axis] // self.span.data

    @property
    def box(self) -> tuple[int, ...]:
        """Elements of one box along each axis."""
        return tuple(self.span.data if i == self.row_axis else extent for i, extent in enumerate(self.shape))

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def offset(self, coordinates: Sequence[int], element_bytes: int) -> int:
        """Where an element lies, in bytes from the beginning of the tile."""
        row = 0
        for i, (index, extent) in enumerate(zip(coordinates, self.shape, strict=True)):
            if i != self.row_axis:
                row = row * extent + index
        box, column = divmod(coordinates[self.row_axis], self.span.data)
        row_bytes = self.span.data * element_bytes
        at = (box * self.rows + row) * row_bytes + column * element_bytes
        return at ^ ((at >> 7 & (row_bytes // CHUNK_BYTES - 1)) << 4)

    def verify(self) -> None:
        if not self.shape or self.span.data < 1 or self.shape[self.row_axis] % self.span.data:
            raise VerifyException(f"boxes of {self.span.data} elements do not divide a tile of {list(self.shape)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("extents")
            parser.parse_punctuation("=")
            extents = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            parser.parse_punctuation(",")
            parser.parse_keyword("span")
            parser.parse_punctuation("=")
            return (ArrayAttr(IntAttr(extent) for extent in extents), IntAttr(parser.parse_integer()))

    def print_parameters(self, printer: Printer) -> None:
        extents = ", ".join(str(extent) for extent in self.shape)
        with printer.in_angle_brackets():
            printer.print_string(f"extents = [{extents}], span = {self.span.data}")


def boxes_layout(extents: Sequence[int], element_bytes: int) -> BoxesAttr | None:
    """The boxes of a tile with the widest swizzle that divides its rows; None if none does."""
    wide = [extent for extent in extents if extent != 1]
    if not wide:
        return None
    span = next((bytes for bytes in SPANS if wide[-1] * element_bytes % bytes == 0), None)
    return None if span is None else BoxesAttr(extents, span // element_bytes)
