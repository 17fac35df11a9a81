"""What operations share that say where the elements of one array lie in another: `read`, and `scatter`."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import SSAValue
from xdsl.irdl import opt_prop_def, prop_def, var_operand_def
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import axes_of, check_array, format_of, sizes_of
from treadle.dialects.diagram.condition import Entry, Linear
from treadle.dialects.diagram.operation import DiagramOperation, quote
from treadle.dialects.diagram.place import (
    PlaceAttr,
    divisors_in,
    entries_in,
    is_scattered,
    least,
    reach,
    within_remainder,
)


class PlacedOperation(DiagramOperation):
    """A place says, for each axis of one array, the `whole`, where the elements of the other, the `part`, lie."""

    inputs = var_operand_def()
    place = prop_def(PlaceAttr)
    names = opt_prop_def(ArrayAttr[StringAttr])

    @property
    def whole(self) -> SSAValue:
        raise NotImplementedError

    @property
    def part(self) -> SSAValue:
        raise NotImplementedError

    @property
    def named(self) -> dict[str, SSAValue]:
        """The arrays of entries, by the names that the place gives them."""
        names = () if self.names is None else self.names
        return {name.data: value for name, value in zip(names, self.inputs, strict=True)}

    @property
    def is_scattered(self) -> bool:
        """Whether its elements have no strides, one for each axis: data say where they are, or remainders do."""
        return is_scattered(self.place.forms)

    def entry_forms(self, entry: Entry) -> dict[str, Linear]:
        """The position of an entry along each axis of its array."""
        return dict(zip(axes_of(self.named[entry.name].type), entry.places, strict=True))

    @property
    def forms(self) -> dict[str, Linear]:
        """The position along each axis of the whole."""
        return dict(zip(axes_of(self.whole.type), self.place.forms, strict=True))

    @property
    def outside(self) -> dict[str, Linear]:
        """The positions that may lie outside of the whole, by the axes of which."""
        return {along: form for along, form in self.forms.items() if not self._is_within(along)}

    def _is_within(self, along: str) -> bool:
        """Whether no position along an axis of the whole lies outside, whatever the size of a symbolic axis."""
        form, sizes, length = self.forms[along], sizes_of(self.part.type), sizes_of(self.whole.type)[along]
        if form == Linear({along: 1}):
            return True
        if divisors_in([form]) or is_scattered([form]):
            return within_remainder(form, length)
        is_known = length >= 0 and all(sizes[str(axis)] > 0 for axis in form.terms)
        return is_known and least(form, sizes) >= 0 and reach(form, sizes) <= length

    def check_entries(self, axes: Sequence[str]) -> None:
        """That arrays of entries are named, and read as they are (VerifyException). The places have these axes."""
        names, entries = [*self.named], entries_in(self.place.forms)
        if clash := [name for name in names if name in axes or names.count(name) > 1]:
            raise VerifyException(f"input '{clash[0]}' has the name of another input, or of an axis")
        if unused := [name for name in names if name not in {entry.name for entry in entries}]:
            raise VerifyException(f"input '{unused[0]}' does not appear in the place")
        for entry in entries:
            value = self.named.get(entry.name)
            if value is None:
                raise VerifyException(f"'{entry}' reads no input: name it after 'with'")
            check_array(value.type, f"input '{entry.name}'")
            if str(format_of(value.type)) != "i32":
                raise VerifyException(f"input '{entry.name}' of a place has elements {format_of(value.type)}, not i32")
            if len(entry.places) != len(axes_of(value.type)):
                own = quote(axes_of(value.type))
                raise VerifyException(f"'{entry}' has {len(entry.places)} positions for the axes {own} of its array")
