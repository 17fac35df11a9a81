"""Arrays that kernels are given in which elements stand for blocks of neighbours, or lie where data say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.dialects.diagram.condition import Linear, Term, axis_in, divisor_in, modulus_in
from treadle.dialects.diagram.padding import Scattered, padding_of, scatter_of, scattered_read, scattered_sum
from treadle.dialects.diagram.place import axes_of_forms, divisors_in, is_scattered
from treadle.dialects.diagram.read import ReadOp
from treadle.dialects.hierarchy import given_for

ENTRY_BYTES = 4


@dataclass(frozen=True)
class Entries:
    """The entries that say where the elements of an array are: one for each position along these axes."""

    name: str
    axes: tuple[str, ...]
    blocks: Mapping[str, int]
    """The axes along which so many neighbours have one entry."""


def blocks_of(argument: SSAValue) -> Mapping[str, int]:
    """For each axis along which an argument of a kernel has blocks, how many neighbours are one element."""
    given = given_for(argument)
    if given is None or not isinstance(given.owner, ReadOp):  # asked for each way to cut a kernel: seldom is it a view
        return {}
    if (op := scattered_read(given)) is None:
        return divisors_in(each.form for each in padding_of(given))
    return _blocks(op.forms)


@dataclass(frozen=True)
class Step:
    """By how much a position moves with each one along an axis, or with each quotient or remainder of it, or with each
    remainder of a quotient."""

    axis: str
    by: int
    divisor: int = 1
    modulus: int = 0


Window: TypeAlias = tuple[Step, ...]
"""What moves along one axis of an array together."""


def windows_of(argument: SSAValue) -> tuple[Window, ...]:
    """The axes of a view that step along one axis of its array together, so that elements may lie in several places:
    those of windows, `t + k`, and of parts of axes that are one, `8 * row + t // 16`; and those that no position asks
    for, along which elements are read again."""
    given = given_for(argument)
    read = given.owner if given is not None else None
    if given is None or not isinstance(read, ReadOp):
        return ()
    if read.is_scattered:
        return _scattered_windows(given)
    if divisors_in(read.place.forms):
        return ()
    found = [form.terms for form in read.place.forms if len(form.terms) > 1]
    named = [axis for terms in found for axis in terms]
    alone = [axis for form in read.place.forms if len(form.terms) == 1 for axis in form.terms]
    if len({*named}) < len(named) or not {*named}.isdisjoint(alone):  # a diagonal
        return ()
    return tuple(tuple(Step(str(axis), factor) for axis, factor in terms.items()) for terms in found)


def _scattered_windows(given: SSAValue) -> tuple[Window, ...]:
    op = scattered_read(given)
    if op is None or op.entries:
        return ()
    asked = {*axes_of_forms(op.forms)}
    again = [(Step(axis, 0),) for axis in sizes_of(given.type) if axis not in asked]
    moving = [form.terms for form in op.forms if len(form.terms) > 1 or divisors_in([form]) or is_scattered([form])]
    if not {*axes_of_forms([form for form in op.forms if form.terms not in moving])}.isdisjoint(
        axis_in(term) for terms in moving for term in terms
    ):
        return ()
    return (*(tuple(_steps(terms)) for terms in moving), *again)


def _steps(terms: Mapping[Term, int]) -> Iterator[Step]:
    """The steps of a form: `x // 4 - 8 * (x // 32)` is one, the remainder of a quotient."""
    left = dict(terms)
    for term in terms:
        if term in left:
            factor, axis, divisor = left.pop(term), axis_in(term), divisor_in(term)
            if (wrap := next((each for each in left if _wraps(each, left[each], term, factor)), None)) is not None:
                del left[wrap]
            yield Step(axis, factor, divisor, modulus_in(term) if wrap is None else divisor_in(wrap) // divisor)


def _wraps(outer: Term, by: int, inner: Term, factor: int) -> bool:
    """Whether a quotient takes away what another one of its axis gains in each of its steps."""
    is_quotient = axis_in(outer) == axis_in(inner) and not modulus_in(outer) and not modulus_in(inner)
    return is_quotient and divisor_in(outer) * factor == -by * divisor_in(inner)


@dataclass(frozen=True)
class Source:
    """Where the elements of an argument of a kernel lie: in which array, and at which position along each axis of it,
    as the axes that it moves with, by how many, and a constant."""

    array: SSAValue
    places: tuple[tuple[tuple[tuple[str, int], ...], int], ...]


def source_of(argument: SSAValue) -> Source | None:
    """None for what is no argument, and for places that are no sums of positions."""
    given = given_for(argument)
    if given is None:
        return None
    if not isinstance(read := given.owner, ReadOp):
        return Source(given, tuple((((axis, 1),), 0) for axis in sizes_of(given.type)))
    forms = read.place.forms
    if read.is_scattered or divisors_in(forms):
        return None
    terms = (tuple(sorted((str(axis), factor) for axis, factor in form.terms.items())) for form in forms)
    return Source(read.operand, tuple(zip(terms, (form.constant for form in forms), strict=True)))


def may_leave(argument: SSAValue) -> bool:
    """Whether elements of a view that a kernel is given may lie outside of the array, where nothing is loaded: how many
    depends on where it ends. Of blocks, the last one does."""
    given = given_for(argument)
    return given is not None and any(not divisors_in([each.form]) for each in padding_of(given))


def entries_of(argument: SSAValue) -> Sequence[Entries]:
    """What is read beside an argument of a kernel to find its elements."""
    given = given_for(argument)
    return _entries(None if given is None else scattered_read(given))


def entries_added(output: SSAValue) -> Sequence[Entries]:
    """What is read to find where a result of a kernel is added up, if it is."""
    return _entries(scattered_sum(output))


def places_added(output: SSAValue) -> int:
    """Over how many elements the additions of a result are spread, as large as its program expects the array to be; 0
    for what is saved for itself."""
    if (op := scatter_of(output)) is None:
        return 0
    stated = default_sizes(function_around(op))
    sizes = sizes_of(op.result.type)
    return max(prod(stated.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size for axis, size in sizes.items()), 1)


def places_read(argument: SSAValue) -> int:
    """Among how many elements data choose those of an argument of a kernel, as large as its program expects the array
    to be; 0 for what lies where positions say, and where nothing says how large the array is."""
    given = given_for(argument)
    op = None if given is None else scattered_read(given)
    if given is None or op is None or not op.entries:
        return 0
    assert isinstance(given.owner, ReadOp)
    stated = default_sizes(function_around(given.owner))
    sizes = [stated.get(axis, 0) if size == DYNAMIC else size for axis, size in sizes_of(op.operand.type).items()]
    return prod(sizes)


def function_around(op: Operation) -> FuncOp:
    """The function that an operation stands in."""
    around = op.parent_op()
    while not isinstance(around, FuncOp):
        assert around is not None
        around = around.parent_op()
    return around


def _entries(op: Scattered | None) -> Sequence[Entries]:
    if op is None:
        return ()
    return [
        Entries(op.named[entry.name].name_hint or entry.name, entry.axes, _blocks(entry.places)) for entry in op.entries
    ]


def _blocks(forms: Sequence[Linear]) -> Mapping[str, int]:
    """The divisors of axes that stand nowhere but in one quotient each."""
    taken = divisors_in(forms)
    others = [form for form in forms for term in form.terms if modulus_in(term)]
    plain = axes_of_forms(others)
    return {axis: divisor for axis, divisor in taken.items() if axis not in plain}
