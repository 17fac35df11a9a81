"""What accesses to device memory share, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import ArrayAttr, IndexType, IntAttr, UnitAttr
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.irdl import opt_prop_def
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.placed import Bounds, Padding, PlacedAccess, Scatter, place_properties
from treadle.dialects.cuda.staging import StagedAttr
from treadle.dialects.cuda.tiles import check_tile, format_bytes, is_buffer
from treadle.dialects.diagram.array import axes_of, format_of, level_of
from treadle.dialects.diagram.place import PlaceAttr, divisors_in
from treadle.dialects.syntax import parse_inputs

WIDEST_VECTOR = 16
"""Bytes."""

NEAR = ("shared", "register")
"""Levels of the other side of an access."""


class GlobalAccess(PlacedAccess):
    """What threads access of device memory, element by element or in vectors. Only what is read has a place `at`.

    `widths` are the vector widths, in elements, among which the alignment chooses at run time; `coalescing` sets
    them. `partial` says that the tile surely reaches past the end. Elements outside are read as zero and not
    written. With `staged`, which is for fragments, they go through shared memory where rows are aligned to less."""

    widths = opt_prop_def(ArrayAttr[IntAttr])
    partial = opt_prop_def(UnitAttr)
    staged = opt_prop_def(StagedAttr)

    @property
    def buffer_type(self) -> Attribute:
        """The type of the array at device level."""
        others = {*self.entries}
        values = (value for value in (*self.operands, *self.results) if value not in others)
        return next(value.type for value in values if level_of(value.type) == "device")

    @property
    def piece_type(self) -> Attribute:
        """The type of the tile or fragment that it moves."""
        return next(value.type for value in (*self.operands, *self.results) if level_of(value.type) in NEAR)

    @property
    def divisors(self) -> dict[str, int]:
        """The axes of a view along which elements of the array count for several neighbours, and for how many."""
        return divisors_in(() if self.inside is None or self.place is not None else self.inside.forms)

    @property
    def width_list(self) -> tuple[int, ...]:
        return () if self.widths is None else tuple(width.data for width in self.widths)

    def is_staged(self, aligned: int) -> bool:
        """Whether it goes through shared memory in the variant for rows aligned to so many bytes."""
        return self.staged is not None and aligned < self.staged.below.data

    @property
    def meets_with(self) -> tuple[GlobalAccess, ...]:
        """The accesses that go through shared memory together with this one: those of its kind right before and behind
        it whose tiles lie behind one another. The block meets once for all of them between their two sides, and if it
        has to before the tiles are touched, once for all, too."""
        found: list[GlobalAccess] = [self]
        while isinstance(other := found[0].prev_op, GlobalAccess) and _go_together(other, found[0]):
            found.insert(0, other)
        while isinstance(other := found[-1].next_op, GlobalAccess) and _go_together(found[-1], other):
            found.append(other)
        return tuple(found)

    @property
    def has_widest_vectors(self) -> bool:
        """Whether it moves 16 bytes a thread where alignment allows: the widest vector there is."""
        return max(self.width_list, default=1) * format_bytes(self.buffer_type) >= WIDEST_VECTOR

    def check_access(self, buffer: Attribute, tile: Attribute) -> None:
        if not is_buffer(buffer) or level_of(buffer) != "device":
            raise VerifyException(f"{buffer} is not a buffer at device level")
        if self.place is None and axes_of(buffer) != axes_of(tile):
            raise VerifyException(
                f"the tile has axes [{', '.join(axes_of(tile))}], its buffer [{', '.join(axes_of(buffer))}]"
            )
        if format_of(buffer) != format_of(tile):
            raise VerifyException(f"a tile of {format_of(tile)} of a buffer of {format_of(buffer)}")
        self._check_widths(buffer)
        self.check_place(tile)

    def _check_widths(self, buffer: Attribute) -> None:
        """Vectors are those that lanes can move, the widest first; alignment chooses among them."""
        widths, most = self.width_list, WIDEST_VECTOR // format_bytes(buffer)
        if any(width < 1 or most % width for width in widths) or any(one <= other for one, other in pairwise(widths)):
            raise VerifyException(f"widths {[*widths]}: they are powers of two, at most {most}, the widest first")

    def check_fragment_access(self, buffer: Attribute, piece: Attribute) -> None:
        """What holds for accesses from and to registers beside."""
        self.check_access(buffer, piece)
        if self.staged is not None:
            check_tile(self.staged.tile(piece), "the tile on the way")

    def print_tail(self, printer: Printer) -> None:
        self.print_place(printer)
        if self.partial is not None:
            printer.print_string(" partial")
        if self.widths is not None:
            printer.print_string(f" widths [{', '.join(str(width) for width in self.width_list)}]")
        if self.staged is not None:
            printer.print_string(" through ")
            printer.print_attribute(self.staged)
        printer.print_op_attributes(self.attributes)


def _go_together(first: GlobalAccess, second: GlobalAccess) -> bool:
    if first.staged is None or second.staged is None or type(first) is not type(second):
        return False
    return first.staged.end(first.piece_type) <= second.staged.at.data


def is_extent(limit: SSAValue) -> bool:
    """Whether a limit is the end of the array: the size of an axis, as kernels are given it."""
    return isinstance(limit, BlockArgument) or isinstance(limit.owner, arith.ConstantOp)


_Built = TypeVar("_Built", bound=GlobalAccess)


class ParsedAccess:
    """The parsed parts of a global access."""

    def __init__(self, parser: Parser, may_be_bare: bool = False):
        self.buffer = parser.parse_unresolved_operand()
        offsets = parser.parse_optional_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        if offsets is None and not may_be_bare:
            parser.raise_error("expected the offsets of the tile in its buffer")
        self.has_offsets = offsets is not None
        self.offsets: list[UnresolvedOperand] = offsets or []
        self.bounds: list[tuple[str, UnresolvedOperand]] = []
        self.begins: list[tuple[str, UnresolvedOperand]] = []
        self.scatter: Scatter | None = None
        self.inside: PlaceAttr | None = None
        self.lengths: list[UnresolvedOperand] = []
        self.widths: list[int] | None = None
        self.staged: StagedAttr | None = None

    def parse_destination(self, parser: Parser) -> UnresolvedOperand:
        """The other side of a copy, with offsets if the source had none."""
        destination = parser.parse_unresolved_operand()
        if not self.has_offsets:
            self.offsets = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)
        return destination

    def parse_place(self, parser: Parser) -> None:
        """What `PlacedAccess.print_place` prints."""

        def bound() -> None:
            axis = parser.parse_identifier()
            is_begin = parser.parse_optional_punctuation(">") is not None
            parser.parse_punctuation("=" if is_begin else "<")
            (self.begins if is_begin else self.bounds).append((axis, parser.parse_unresolved_operand()))

        if parser.parse_optional_keyword("at"):
            self.scatter = Scatter(PlaceAttr(parser.parse_str_literal()), parse_inputs(parser))
        if parser.parse_optional_keyword("bounds"):
            parser.parse_comma_separated_list(parser.Delimiter.SQUARE, bound)
        if parser.parse_optional_keyword("inside"):
            self.inside = PlaceAttr(parser.parse_str_literal())
            parser.parse_keyword("of")
            self.lengths = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_unresolved_operand)

    def parse_tail(self, parser: Parser) -> None:
        self.parse_place(parser)
        self.partial = parser.parse_optional_keyword("partial") is not None
        if parser.parse_optional_keyword("widths"):
            self.widths = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
        if parser.parse_optional_keyword("through"):
            staged = parser.parse_attribute()
            if not isinstance(staged, StagedAttr):
                parser.raise_error("expected #cuda.staged")
            self.staged = staged
        self.attributes = parser.parse_optional_attr_dict()

    def operands(self, parser: Parser) -> tuple[list[SSAValue], Bounds, Bounds, Padding]:
        """The offsets, the bounded axes with their limits, those with a beginning, and the positions in the array."""

        def index(operand: UnresolvedOperand) -> SSAValue:
            return parser.resolve_operand(operand, IndexType())

        bounds, begins = ([(axis, index(end)) for axis, end in ends] for ends in (self.bounds, self.begins))
        forms = () if self.inside is None else self.inside.forms
        padding = list(zip(forms, map(index, self.lengths), strict=True))
        return [index(operand) for operand in self.offsets], bounds, begins, padding

    def marked(self, op: _Built) -> _Built:
        """The operation, with what stood after its operands."""
        op.attributes |= self.attributes
        op.partial = UnitAttr() if self.partial else None
        op.staged = self.staged
        return op


def access_properties(
    bounds: Bounds,
    begins: Bounds,
    widths: Iterable[int] | None,
    padding: Padding = (),
    scatter: Scatter | None = None,
) -> dict[str, Attribute | None]:
    widest = None if widths is None else ArrayAttr(IntAttr(width) for width in widths)
    return {**place_properties(bounds, begins, padding, scatter), "widths": widest}
