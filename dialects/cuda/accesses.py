"""What accesses to device memory share, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    ArrayAttr,
    IndexType,
    IntAttr,
    MemRefType,
    StringAttr,
    UnitAttr,
)
from xdsl.ir import Attribute, BlockArgument, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    opt_prop_def,
    prop_def,
    var_operand_def,
)
from xdsl.parser import Parser, UnresolvedOperand
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.staging import StagedAttr
from treadle.dialects.cuda.tiles import check_tile, format_bytes, is_buffer
from treadle.dialects.diagram.array import (
    axes_of,
    format_of,
    level_of,
)
from treadle.dialects.diagram.condition import Linear, axes_in, spelled
from treadle.dialects.diagram.place import PlaceAttr, axes_of_forms, divisors_in, entries_in
from treadle.dialects.syntax import parse_inputs, print_inputs

WIDEST_VECTOR = 16
"""Bytes."""

Bounds = Sequence[tuple[str, SSAValue]]
"""Axes with positions along them."""

Padding = Sequence[tuple[Linear, SSAValue]]
"""Positions along axes of an array that a view may leave, affine in those along the axes of the view, and its sizes
along them."""


@dataclass(frozen=True)
class Scatter:
    """Where the elements of a tile lie in a buffer that has other axes."""

    place: PlaceAttr
    entries: Mapping[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """The buffers of entries, by the names that the place gives them."""


NEAR = ("shared", "register")
"""Levels of the other side of an access."""


class GlobalAccess(IRDLOperation):
    """What accesses to device memory share: a buffer, the offset of the tile along each axis, the axes along which
    the tile may reach past the end with the sizes to test against, those along which it may reach before a position
    from which on elements are wanted with that position, and what is known of alignment. Where the buffer is a view
    that may leave its array, `inside` are the positions in that which must be from 0 to below its sizes. With `at`,
    which only what is read has, the axes of the buffer are not those of the tile: it says the position along each, of
    which entries of integer buffers may be part. The offsets are along the axes of the tile, and no entry is read where
    what is `inside` without it does not hold.

    `widths` are the vector widths, in elements, among which the alignment chooses at run time; `coalescing` sets
    them. `partial` says that the tile surely reaches past the end. Elements outside are read as zero and not
    written. With `staged`, which is for fragments, they go through shared memory where rows are aligned to less."""

    offsets = var_operand_def(IndexType())
    limits = var_operand_def(IndexType())
    begins = var_operand_def(IndexType())
    lengths = var_operand_def(IndexType())
    entries = var_operand_def(MemRefType)
    bounds = prop_def(ArrayAttr[StringAttr])
    begun = opt_prop_def(ArrayAttr[StringAttr])
    inside = opt_prop_def(PlaceAttr)
    place = opt_prop_def(PlaceAttr)
    names = opt_prop_def(ArrayAttr[StringAttr])
    widths = opt_prop_def(ArrayAttr[IntAttr])
    partial = opt_prop_def(UnitAttr)
    staged = opt_prop_def(StagedAttr)

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

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
    def bound_axes(self) -> tuple[str, ...]:
        return tuple(axis.data for axis in self.bounds)

    @property
    def begun_axes(self) -> tuple[str, ...]:
        return () if self.begun is None else tuple(axis.data for axis in self.begun)

    @property
    def padding(self) -> Padding:
        return () if self.inside is None else tuple(zip(self.inside.forms, self.lengths, strict=True))

    @property
    def scatter(self) -> Scatter | None:
        """Where the elements of the tile lie, if the axes of the buffer are others."""
        if self.place is None:
            return None
        names = () if self.names is None else self.names
        return Scatter(self.place, {name.data: value for name, value in zip(names, self.entries, strict=True)})

    @property
    def forms(self) -> dict[str, Linear]:
        """The position along each axis of the buffer of what is scattered."""
        return {} if self.place is None else dict(zip(axes_of(self.buffer_type), self.place.forms, strict=True))

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
        if self.place is not None:
            self._check_place(self.place, tile)
        elif axes_of(buffer) != axes_of(tile):
            raise VerifyException(
                f"the tile has axes [{', '.join(axes_of(tile))}], its buffer [{', '.join(axes_of(buffer))}]"
            )
        if format_of(buffer) != format_of(tile):
            raise VerifyException(f"a tile of {format_of(tile)} of a buffer of {format_of(buffer)}")
        if len(self.offsets) != len(axes_of(tile)):
            raise VerifyException(f"{len(self.offsets)} offsets for {len(axes_of(tile))} axes")
        if len(self.limits) != len(self.bounds):
            raise VerifyException(f"{len(self.limits)} limits for {len(self.bounds)} bounded axes")
        if len(self.begins) != len(self.begun_axes):
            raise VerifyException(f"{len(self.begins)} beginnings for {len(self.begun_axes)} axes that have one")
        for axis in (*self.begun_axes, *self.bound_axes):
            if axis not in axes_of(tile):
                raise VerifyException(f"bounded axis '{axis}' is not an axis of the buffer")
        forms = () if self.inside is None else self.inside.forms
        if len(forms) != len(self.lengths):
            raise VerifyException(f"{len(self.lengths)} sizes for {len(forms)} positions in the array")
        unknown = [term for form in forms for term in form.terms if not {*axes_in(term)} <= {*axes_of(tile)}]
        if unknown:
            raise VerifyException(f"'{unknown[0]}' of a position in the array is not an axis of the buffer")

    def _check_place(self, place: PlaceAttr, tile: Attribute) -> None:
        scatter = self.scatter
        assert scatter is not None
        if len(place.forms) != len(axes_of(self.buffer_type)):
            raise VerifyException(f"{len(place.forms)} positions for {len(axes_of(self.buffer_type))} axes")
        if unknown := [axis for axis in axes_of_forms(place.forms) if axis not in axes_of(tile)]:
            raise VerifyException(f"'{unknown[0]}' of a position in the buffer is not an axis of the tile")
        forms = (*place.forms, *(() if self.inside is None else self.inside.forms))
        for entry in entries_in(forms):
            value = scatter.entries.get(entry.name)
            if value is None:
                raise VerifyException(f"'{entry}' reads no input: name it after 'with'")
            if str(format_of(value.type)) != "i32" or len(axes_of(value.type)) != len(entry.places):
                raise VerifyException(f"'{entry}' reads {value.type}: it wants i32, and a position for each axis")

    def check_fragment_access(self, buffer: Attribute, piece: Attribute) -> None:
        """What holds for accesses from and to registers beside."""
        self.check_access(buffer, piece)
        if self.staged is not None:
            check_tile(self.staged.tile(piece), "the tile on the way")

    def print_access(self, printer: Printer, buffer: SSAValue) -> None:
        printer.print_operand(buffer)
        printer.print_string("[")
        printer.print_list(self.offsets, printer.print_operand)
        printer.print_string("]")

    def print_tail(self, printer: Printer) -> None:
        if (scatter := self.scatter) is not None:
            printer.print_string(" at ")
            printer.print_string_literal(scatter.place.text.data)
            print_inputs(printer, scatter.entries.items())
        bounds = [(f"{axis} >= ", begin) for axis, begin in zip(self.begun_axes, self.begins, strict=True)]
        bounds += [(f"{axis} < ", limit) for axis, limit in zip(self.bound_axes, self.limits, strict=True)]
        if bounds:
            printer.print_string(" bounds [")

            def entry(bound: tuple[str, SSAValue]) -> None:
                printer.print_string(bound[0])
                printer.print_operand(bound[1])

            printer.print_list(bounds, entry)
            printer.print_string("]")
        if self.inside is not None:
            printer.print_string(" inside ")
            printer.print_string_literal(self.inside.text.data)
            printer.print_string(" of [")
            printer.print_list(self.lengths, printer.print_operand)
            printer.print_string("]")
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

    def parse_tail(self, parser: Parser) -> None:
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


def access_operands(
    bounds: Bounds, begins: Bounds, padding: Padding = (), scatter: Scatter | None = None
) -> tuple[list[SSAValue], ...]:
    """What stands behind `access_properties`: where axes end and begin, lengths of arrays that views may leave, and
    buffers of entries."""
    ends = [limit for _, limit in bounds], [begin for _, begin in begins], [length for _, length in padding]
    return *ends, [] if scatter is None else list(scatter.entries.values())


def access_properties(
    bounds: Bounds,
    begins: Bounds,
    widths: Iterable[int] | None,
    padding: Padding = (),
    scatter: Scatter | None = None,
) -> dict[str, Attribute | None]:
    return {
        "bounds": ArrayAttr(StringAttr(axis) for axis, _ in bounds),
        "begun": ArrayAttr(StringAttr(axis) for axis, _ in begins) if begins else None,
        "inside": PlaceAttr(", ".join(spelled(form) for form, _ in padding)) if padding else None,
        "place": None if scatter is None else scatter.place,
        "names": None if scatter is None else ArrayAttr(StringAttr(name) for name in scatter.entries),
        "widths": None if widths is None else ArrayAttr(IntAttr(width) for width in widths),
    }
