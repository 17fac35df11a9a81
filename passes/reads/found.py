"""Which arrays are computed and then read at other positions, and what they are made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import CastOp, ContractOp, FillOp, IndexOp, MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import DYNAMIC, axes_of, is_array, sizes_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.condition import Linear, forms_of, placed, read_condition
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.place import divisors_in
from treadle.passes.expressions.decisions import decides


@dataclass(frozen=True)
class Computed:
    """An array, and all reads of it that may be reads of what it is made of."""

    value: SSAValue
    reads: tuple[ReadOp, ...]

    def repeats(self, sizes: Mapping[str, int]) -> bool:
        """Whether elements would be computed twice: some are read twice, or used by another operation, too."""
        others = [use.operation for use in self.value.uses if use.operation not in self.reads]
        read = sum(_elements(each.result, sizes) for each in self.reads)
        return bool(others) or read > _elements(self.value, sizes)


def computed_in(block: Block) -> list[Computed]:
    """Those of a function, in order."""
    found = dict[SSAValue, list[ReadOp]]()
    given = {axis for argument in block.args if is_array(argument.type) for axis in axes_of(argument.type)}
    for op in block.ops:
        if isinstance(op, ReadOp) and _has_places(op) and _says_no_size(op, given) and may_move(op):
            found.setdefault(op.operand, []).append(op)
    return [Computed(value, tuple(reads)) for value, reads in found.items()]


def _elements(value: SSAValue, sizes: Mapping[str, int]) -> int:
    own = sizes_of(value.type)
    return prod(sizes.get(axis, UNKNOWN_SIZE) if size == DYNAMIC else size for axis, size in own.items())


def _has_places(op: ReadOp) -> bool:
    """Whether each element is one of the operand's, at a sum of positions."""
    return not op.is_scattered and not divisors_in(op.place.forms) and not op.leaving


def _says_no_size(op: ReadOp, given: Iterable[str]) -> bool:
    """Whether each axis has a size without it."""
    return all(size != DYNAMIC or axis in given for axis, size in sizes_of(op.result.type).items())


def moved_by(op: ReadOp) -> dict[str, Linear]:
    """The axes along which a read is not where it was, and where it is."""
    return {axis: form for axis, form in op.forms.items() if form != Linear({axis: 1})}


def may_move(op: ReadOp) -> bool:
    """Whether all that the operand is made of can be read there in its place, and what sums give decides nothing: two
    kernels may add up the same elements in different orders."""
    return _can_move(op) and not decides(op.result) and not any(map(_decides, _moving(op)))


def may_move_alone(op: ReadOp, besides: Iterable[Operation]) -> bool:
    """Whether all that the operand is made of can be read there in its place, and nothing else uses any of it, besides
    some operations that will be gone: then each sum is made once, and may decide what it did before."""
    moving = [value for value in _moving(op) if is_computed(value)]
    users = {value.owner for value in moving} | {op, *besides}
    return _can_move(op) and all(use.operation in users for value in moving for use in value.uses)


def _moving(op: ReadOp) -> list[SSAValue]:
    return list(made_of(op.operand, moved_by(op)))


def _can_move(op: ReadOp) -> bool:
    if not is_computed(op.operand) or absences(op.operand):
        return False
    if not (moved := moved_by(op)):
        return op.operand.type == op.result.type
    names = {*moved, *(str(term) for form in moved.values() for term in form.terms)}
    return all(_passes(each, moved, names) for each in _moving(op))


def _decides(value: SSAValue) -> bool:
    return isinstance(value.owner, ContractOp | ReduceOp) and decides(value)


def is_computed(value: SSAValue) -> bool:
    """Whether an array is made by an operation of which its elements are asked, and no view of another."""
    owner = value.owner
    return isinstance(owner, DiagramOperation) and not isinstance(owner, ReadOp | Regrouping)


def made_of(value: SSAValue, moved: Iterable[str]) -> Iterator[SSAValue]:
    """An array and what it is made of, as far as these axes go."""
    axes = {*moved}
    left, seen = [value], set[SSAValue]()
    while left:
        each = left.pop()
        if each in seen or not is_array(each.type) or axes.isdisjoint(axes_of(each.type)):
            continue
        seen.add(each)
        yield each
        if is_computed(each):
            assert isinstance(each.owner, Operation)
            left += each.owner.operands


def _passes(value: SSAValue, moved: Mapping[str, Linear], names: set[str]) -> bool:
    """Whether what makes an array gives its elements at other positions of what it is given there."""
    match value.owner:
        case MapOp() | CastOp() | FillOp():
            return True
        case WhereOp() as op:
            return _may_ask(op, moved, names)
        case IndexOp() as op:
            return is_number(moved[op.axis]) or is_axis(moved[op.axis])
        case ContractOp() | ReduceOp() as op:
            return op.init is None and names.isdisjoint(op.over_axes)
        case ReadOp() as op:
            return not op.is_padded and not op.is_scattered
        case _:
            return not is_computed(value)


def _may_ask(op: WhereOp, moved: Mapping[str, Linear], names: set[str]) -> bool:
    """Whether a condition can be asked at other positions: it names them, and no data along them."""
    if not names.isdisjoint(each.data for each in op.names):
        return False
    if any(not moved.keys().isdisjoint(axes_of(value.type)) for value in op.inputs if is_array(value.type)):
        return False
    asked = [read_condition(placed(each.text.data, moved)) for each in op.told.values()]
    return all(form.terms for each in asked for form in forms_of(each))


def is_number(form: Linear) -> bool:
    """Whether a position is the same everywhere."""
    return not form.terms


def is_axis(form: Linear) -> bool:
    """Whether a position is that along an axis."""
    return not form.constant and [*form.terms.values()] == [1]


__all__ = [
    "Computed",
    "computed_in",
    "is_axis",
    "is_computed",
    "is_number",
    "made_of",
    "may_move",
    "may_move_alone",
    "moved_by",
]
