"""Where an access finds the elements of a tile in an array of device memory, and where there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ArrayAttr, IndexType, MemRefType, StringAttr
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AttrSizedOperandSegments, IRDLOperation, opt_prop_def, prop_def, var_operand_def
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.condition import Linear, axes_in, spelled
from treadle.dialects.diagram.place import PlaceAttr, axes_of_forms, entries_in
from treadle.dialects.syntax import print_inputs

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


class PlacedAccess(IRDLOperation):
    """What all accesses to device memory share: the offset of the tile along each axis, the axes along which the tile
    may reach past the end with the sizes to test against, and those along which it may reach before a position from
    which on elements are wanted with that position. Where the buffer is a view that may leave its array, `inside` are
    the positions in that which must be from 0 to below its sizes. With `at`, the axes of the buffer are not those of
    the tile: it says the position along each, of which entries of integer buffers may be part. The offsets are along
    the axes of the tile, and no entry is read where what is `inside` without it does not hold."""

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

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    @property
    def buffer_type(self) -> Attribute:
        """The type of the array at device level."""
        raise NotImplementedError

    @property
    def piece_type(self) -> Attribute:
        """The type of the tile or fragment that it moves."""
        raise NotImplementedError

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

    def check_place(self, tile: Attribute) -> None:
        """That positions are those of elements of a tile, and what is given fits them (VerifyException)."""
        axes = axes_of(tile)
        if len(self.offsets) != len(axes):
            raise VerifyException(f"{len(self.offsets)} offsets for {len(axes)} axes")
        if len(self.limits) != len(self.bounds):
            raise VerifyException(f"{len(self.limits)} limits for {len(self.bounds)} bounded axes")
        if len(self.begins) != len(self.begun_axes):
            raise VerifyException(f"{len(self.begins)} beginnings for {len(self.begun_axes)} axes that have one")
        for axis in (*self.begun_axes, *self.bound_axes):
            if axis not in axes:
                raise VerifyException(f"bounded axis '{axis}' is not an axis of the buffer")
        forms = () if self.inside is None else self.inside.forms
        if len(forms) != len(self.lengths):
            raise VerifyException(f"{len(self.lengths)} sizes for {len(forms)} positions in the array")
        if unknown := [term for form in forms for term in form.terms if not {*axes_in(term)} <= {*axes}]:
            raise VerifyException(f"'{unknown[0]}' of a position in the array is not an axis of the buffer")
        if self.place is not None:
            self._check_scattered(self.place, axes)

    def _check_scattered(self, place: PlaceAttr, axes: Sequence[str]) -> None:
        scatter = self.scatter
        assert scatter is not None
        if len(place.forms) != len(axes_of(self.buffer_type)):
            raise VerifyException(f"{len(place.forms)} positions for {len(axes_of(self.buffer_type))} axes")
        if unknown := [axis for axis in axes_of_forms(place.forms) if axis not in axes]:
            raise VerifyException(f"'{unknown[0]}' of a position in the buffer is not an axis of the tile")
        forms = (*place.forms, *(() if self.inside is None else self.inside.forms))
        for entry in entries_in(forms):
            value = scatter.entries.get(entry.name)
            if value is None:
                raise VerifyException(f"'{entry}' reads no input: name it after 'with'")
            if str(format_of(value.type)) != "i32" or len(axes_of(value.type)) != len(entry.places):
                raise VerifyException(f"'{entry}' reads {value.type}: it wants i32, and a position for each axis")

    def print_offsets(self, printer: Printer, buffer: SSAValue) -> None:
        """`%Q[%b, %q0]`"""
        printer.print_operand(buffer)
        printer.print_string("[")
        printer.print_list(self.offsets, printer.print_operand)
        printer.print_string("]")

    def print_place(self, printer: Printer) -> None:
        """` at "..." with (...) bounds [...] inside "..." of [...]`, what there is of it."""
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


def place_operands(
    bounds: Bounds, begins: Bounds, padding: Padding = (), scatter: Scatter | None = None
) -> tuple[list[SSAValue], ...]:
    """What stands behind the offsets: where axes end and begin, lengths of arrays that views may leave, and buffers of
    entries."""
    ends = [limit for _, limit in bounds], [begin for _, begin in begins], [length for _, length in padding]
    return *ends, [] if scatter is None else list(scatter.entries.values())


def place_properties(
    bounds: Bounds, begins: Bounds, padding: Padding = (), scatter: Scatter | None = None
) -> dict[str, Attribute | None]:
    return {
        "bounds": ArrayAttr(StringAttr(axis) for axis, _ in bounds),
        "begun": _named(axis for axis, _ in begins) if begins else None,
        "inside": PlaceAttr(", ".join(spelled(form) for form, _ in padding)) if padding else None,
        "place": None if scatter is None else scatter.place,
        "names": None if scatter is None else _named(scatter.entries),
    }


def _named(names: Iterable[str]) -> ArrayAttr[StringAttr]:
    return ArrayAttr(StringAttr(name) for name in names)
