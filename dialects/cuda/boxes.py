"""How tensor copies leave a tile in shared memory, and products of warpgroups find it there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition, param_def
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.layout import Mode, ModesAttr, parse_modes_after_equals, spelled

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

    Extents may be more than the tile has elements along an axis: behind those lie zeros, in rows for which boxes are
    too wide (`reach_of_row`), and as far as products sum.

    A row is 32, 64 or 128 bytes, and the index of a 16-byte chunk within it is XORed with bits 7 and up of the address,
    as tensor copies swizzle (PTX ISA 5.5.7) and products of warpgroups read (9.7.15.5.1). A box begins at a multiple
    of 1024 bytes.

    `order = [x:2:2, x:28:4, x:2:1]` says which element along x each row of a box holds, by the digits of the row's
    number, the slowest first: here 0, 1, 4, 5, .., 108, 109, then 2, 3, 6, 7, .. A copy brings what all but the first
    digit count, each as a dimension of its tensor map: so an order costs copies, and nothing where it is read."""

    name = "cuda.boxes"

    extents: ArrayAttr[IntAttr] = param_def()
    span: IntAttr = param_def()
    order: ModesAttr = param_def()

    def __init__(self, extents: Iterable[int], span: int, order: Iterable[Mode] = ()):
        super().__init__(ArrayAttr(IntAttr(extent) for extent in extents), IntAttr(span), ModesAttr(order))

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

    @property
    def firsts(self) -> tuple[int, ...]:
        """The first element, along the axis of the order, of each copy of a box."""
        first = next(iter(self.order), None)
        return (0,) if first is None else tuple(i * first.stride for i in range(first.size))

    def offset(self, coordinates: Sequence[int], element_bytes: int) -> int:
        """Where an element lies, in bytes from the beginning of the tile."""
        row = 0
        for i, (index, extent) in enumerate(zip(coordinates, self.shape, strict=True)):
            if i != self.row_axis:
                row = row * extent + row_of(tuple(self.order), index)
        box, column = divmod(coordinates[self.row_axis], self.span.data)
        row_bytes = self.span.data * element_bytes
        at = (box * self.rows + row) * row_bytes + column * element_bytes
        return at ^ ((at >> 7 & (row_bytes // CHUNK_BYTES - 1)) << 4)

    def verify(self) -> None:
        if not self.shape or self.span.data < 1 or self.shape[self.row_axis] % self.span.data:
            raise VerifyException(f"boxes of {self.span.data} elements do not divide a tile of {list(self.shape)}")
        if tuple(self.order) and (problem := why_no_order(tuple(self.order), self.rows)) is not None:
            raise VerifyException(problem)

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            parser.parse_keyword("extents")
            parser.parse_punctuation("=")
            extents = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
            parser.parse_punctuation(",")
            parser.parse_keyword("span")
            parser.parse_punctuation("=")
            span = parser.parse_integer()
            order = ModesAttr(())
            if parser.parse_optional_punctuation(",") is not None:
                parser.parse_keyword("order")
                order = parse_modes_after_equals(parser)
            return (ArrayAttr(IntAttr(extent) for extent in extents), IntAttr(span), order)

    def print_parameters(self, printer: Printer) -> None:
        extents = ", ".join(str(extent) for extent in self.shape)
        with printer.in_angle_brackets():
            order = f", order = {spelled(self.order)}" if tuple(self.order) else ""
            printer.print_string(f"extents = [{extents}], span = {self.span.data}{order}")


def row_of(order: Sequence[Mode], index: int) -> int:
    """The row of a box that holds an element, under an order of its rows; without one they are in theirs."""
    if not order:
        return index
    digits = dict.fromkeys(order, 0)
    for mode in sorted(order, key=lambda mode: -mode.stride):
        digits[mode], index = divmod(index, mode.stride)
    row = 0
    for mode in order:
        row = row * mode.size + digits[mode]
    return row


def why_no_order(order: Sequence[Mode], rows: int) -> str | None:
    """Why no tensor copies bring the rows of a box in an order; None if they do. The digits must count every row once,
    and those within a copy must be dimensions of an array: strides that divide each other, down to 1."""
    strides = sorted((mode.stride, mode.size) for mode in order)
    reached = 1
    for stride, size in strides:
        if stride != reached:
            break
        reached *= size
    if reached != rows:
        return f"the order {spelled(order)} does not count {rows} rows"
    inner = [mode.stride for mode in order[1:]]
    if not inner or inner[-1] != 1 or any(slow % fast or slow == fast for slow, fast in pairwise(inner)):
        return f"no tensor copy brings rows in the order {spelled(order)}: strides within a copy must divide each other"
    return None


def cut(order: Sequence[Mode]) -> tuple[Mode, ...]:
    """The digits of an order that one copy brings, each of which is a dimension of its tensor map."""
    return tuple(order)[1:]


def reach_of_row(elements: int, element_bytes: int) -> int:
    """How far the boxes of rows of so many elements reach. Rows of whole spans end with their boxes; others take the
    fewest boxes, and of these the narrowest: where a row is cut, two boxes may ask for the same sector, and zeros
    behind it cost no request."""
    bytes = elements * element_bytes
    if elements == 1 or bytes % SPANS[-1] == 0:
        return elements
    count = -(-bytes // SPANS[0])
    span = min(span for span in SPANS if span * count >= bytes)
    return count * span // element_bytes


def boxes_layout(extents: Sequence[int], element_bytes: int, order: Iterable[Mode] = ()) -> BoxesAttr | None:
    """The boxes of a tile with the widest swizzle that divides its rows; None if none does."""
    wide = [extent for extent in extents if extent != 1]
    if not wide:
        return None
    span = next((bytes for bytes in SPANS if wide[-1] * element_bytes % bytes == 0), None)
    return None if span is None else BoxesAttr(extents, span // element_bytes, order)
