"""Where views may leave the arrays that they are of: what lies outside is zero (`diagram.read .. padded`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.condition import Entry, Linear, axis_in, divisor_in, spelled
from treadle.dialects.diagram.place import PlaceAttr, composed, divisors_in, entries_in
from treadle.dialects.diagram.placed import PlacedOperation
from treadle.dialects.diagram.read import ReadOp
from treadle.dialects.diagram.scatter import ScatterOp


@dataclass(frozen=True)
class Inside:
    """A position along an axis of an array, over the axes of a view of it: there is something from 0 to below the
    size."""

    form: Linear
    axis: str
    size: int
    """DYNAMIC where the launch knows it."""


@dataclass(frozen=True)
class Scattered:
    """An array whose elements have no strides: what it is read from, and where its elements lie there."""

    operand: SSAValue
    forms: tuple[Linear, ...]
    named: Mapping[str, SSAValue]
    """The arrays of entries, by the names that the forms give them."""
    inside: tuple[Inside, ...]
    """Where entries lie in their arrays, then where positions may leave the operand."""

    @property
    def place(self) -> PlaceAttr:
        return PlaceAttr(", ".join(map(spelled, self.forms)))

    @property
    def entries(self) -> list[Entry]:
        """Those of different arrays or positions."""
        found = {(self.named[entry.name], entry.places): entry for entry in entries_in(self.forms)}
        return list(found.values())


def padding_of(value: SSAValue) -> list[Inside]:
    """Where an array may leave those that it is a view of, a view of a view perhaps; of one that is scattered, where
    its entries may, too."""
    if (scattered := scattered_read(value)) is not None:
        return list(scattered.inside)
    found: list[Inside] = []
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    while isinstance(op := value.owner, ReadOp):
        places = {along: composed(form, places) for along, form in op.forms.items()}
        sizes = sizes_of(op.operand.type)
        found += [Inside(places[along], along, sizes[along]) for along in op.leaving]
        value = op.operand
    return found


def scattered_read(value: SSAValue) -> Scattered | None:
    """How an array is read, or one that it is a view of, whose elements have no strides: kernels are given what that is
    read from, and find them. None if they have."""
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    is_whole = True
    while isinstance(op := value.owner, ReadOp):
        if op.is_scattered:
            forms = {along: composed(form, places) for along, form in op.forms.items()}
            inside = dict.fromkeys((*_of_entries(op, places, is_whole), *_of_operand(op, forms)))
            return Scattered(op.operand, tuple(forms.values()), op.named, tuple(inside))
        places, is_whole = {along: composed(form, places) for along, form in op.forms.items()}, False
        value = op.operand
    return None


def scatter_of(value: SSAValue) -> ScatterOp | None:
    """The operation that adds up the elements of an array, to another one, which kernels make for nothing else."""
    users = [use.operation for use in value.uses]
    only = users[0] if len(users) == 1 else None
    return only if isinstance(only, ScatterOp) and only.operand is value and only.init is not None else None


def scattered_sum(value: SSAValue) -> Scattered | None:
    """Where the elements of an array are added up, if they are."""
    if (op := scatter_of(value)) is None or op.init is None:
        return None
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    sizes = sizes_of(op.result.type)
    inside = dict.fromkeys(
        (
            *_of_entries(op, places, is_whole=False),
            *(Inside(form, along, sizes[along]) for along, form in op.outside.items()),
        )
    )
    return Scattered(op.init, op.place.forms, op.named, tuple(inside))


def padded_read(value: SSAValue) -> Scattered | None:
    """How an array that is a view lies in its own, which it may leave, as if its elements were scattered there: what is
    outside is so by its positions alone. None if it does not leave, if elements stand for several neighbours, or if it
    is a view of another that has zeros around it, where the array may have elements."""
    if scattered_read(value) is not None:
        return None
    reads: list[ReadOp] = []
    places = {axis: Linear({axis: 1}) for axis in axes_of(value.type)}
    while isinstance(op := value.owner, ReadOp):
        places = {along: composed(form, places) for along, form in op.forms.items()}
        reads.append(op)
        value = op.operand
    if not reads or any(op.leaving for op in reads[:-1]) or divisors_in(places.values()):
        return None
    sizes = sizes_of(value.type)
    inside = [Inside(places[along], along, sizes[along]) for along in reads[-1].leaving]
    return Scattered(value, tuple(places.values()), {}, tuple(inside)) if inside else None


def _of_entries(op: PlacedOperation, places: Mapping[str, Linear], is_whole: bool) -> Iterator[Inside]:
    for entry in entries_in(op.place.forms):
        sizes = sizes_of(op.named[entry.name].type)
        for along, form in op.entry_forms(entry).items():
            whole = composed(form, places)
            is_told = is_whole and isinstance(op, ReadOp) and _is_told(op, along, form)
            if whole != Linear({along: 1}) and not is_told:
                yield Inside(whole, along, sizes[along])


def _of_operand(op: ReadOp, forms: Mapping[str, Linear]) -> Iterator[Inside]:
    sizes = sizes_of(op.operand.type)
    return (Inside(forms[along], along, sizes[along]) for along in op.leaving)


def _is_told(op: ReadOp, along: str, form: Linear) -> bool:
    """Whether a position of an entry lies in its array whatever sizes a launch has: along an axis that has its size
    from the entries."""
    if len(form.terms) != 1 or not isinstance(block := op.parent, Block):
        return False
    axis, divisor = axis_in(term := next(iter(form.terms))), divisor_in(term)
    if any(axis in axes_of(argument.type) for argument in block.args):
        return False
    makers = (each for each in block.ops for result in each.results if axis in axes_of(result.type))
    first = next(makers, None)
    if not isinstance(first, ReadOp) or sizes_of(first.result.type)[axis] != DYNAMIC:
        return False
    return first.takes_size(axis) and (along, divisor) in first.blocks_along(axis)
