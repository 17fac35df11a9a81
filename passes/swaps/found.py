"""Which reads of what a product gave swap neighbouring blocks along an axis: all of it, at positions that are computed
or turned round, or one half of it, which maps then choose by position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, IndexOp, MapOp, ReadOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import Entry, Linear
from treadle.dialects.diagram.swap import swapped
from treadle.passes.expressions.scalars import expression_of, is_plain, leaves
from treadle.passes.swaps.positions import at_position

LONGEST = 1024
"""Positions that are looked at, at most, to tell what an array of them is."""


@dataclass(frozen=True)
class Swapped:
    """A product, the axis and the length of blocks that are swapped, and the reads that do."""

    product: SSAValue
    axis: str
    block: int
    wholes: tuple[ReadOp, ...]
    """Those of the whole array, with its blocks swapped."""
    parts: tuple[ReadOp, ...]
    """Those of one of two blocks, which maps along the axis choose."""


def swapped_in(block: Block) -> list[Swapped]:
    """Those of a function, in order."""
    found: dict[tuple[SSAValue, str, int], tuple[list[ReadOp], list[ReadOp]]] = {}
    for op in block.ops:
        if not isinstance(op, ReadOp) or (product := _product_of(op.operand)) is None:
            continue
        if (whole := _swap_of(op)) is not None:
            found.setdefault((product, *whole), ([], []))[0].append(op)
        elif (part := part_of_two(op)) is not None and _is_chosen(op.result, part[0]):
            found.setdefault((product, part[0], 1), ([], []))[1].append(op)
    return [Swapped(*key, tuple(wholes), tuple(parts)) for key, (wholes, parts) in found.items()]


def _product_of(value: SSAValue) -> SSAValue | None:
    """The product that an array is, rounded or not, all of whose elements are there."""
    while isinstance(value.owner, CastOp):
        value = value.owner.operand
    return value if isinstance(value.owner, ContractOp) and not absences(value) else None


def _moved(op: ReadOp) -> tuple[str, Linear] | None:
    """The one axis of the operand along which a read is not where it was, and where it is."""
    moved = [(axis, form) for axis, form in op.forms.items() if form != Linear({axis: 1})]
    return moved[0] if len(moved) == 1 else None


def _swap_of(op: ReadOp) -> tuple[str, int] | None:
    """The axis and the length of blocks that a read swaps along it, all of the array; None if it does not."""
    if (moved := _moved(op)) is None or sizes_of(op.operand.type) != sizes_of(op.result.type):
        return None
    axis, form = moved
    size = sizes_of(op.operand.type)[axis]
    if not 2 <= size <= LONGEST or (at := _positions(op, axis, form, size)) is None:
        return None
    block = at[0]
    is_swap = block > 0 and size % (2 * block) == 0 and at == [swapped(p, block) for p in range(size)]
    return (axis, block) if is_swap and axes_of(op.operand.type) == axes_of(op.result.type) else None


def _positions(op: ReadOp, axis: str, form: Linear, size: int) -> list[int] | None:
    """Where each position along an axis is read, if that depends on nothing else."""
    if {*form.terms} <= {axis}:
        return [form.constant + form.terms.get(axis, 0) * p for p in range(size)]
    (term, *others) = form.terms
    if others or form.constant or form.terms[term] != 1 or not isinstance(term, Entry):
        return None
    if term.places != (Linear({axis: 1}),):
        return None
    found = [at_position(op.named[term.name], axis, p) for p in range(size)]
    return None if None in found else [each for each in found if each is not None]


def part_of_two(op: ReadOp) -> tuple[str, int] | None:
    """The axis of two elements of which a read has one, and which; None if it is no such read."""
    if (moved := _moved(op)) is None:
        return None
    axis, form = moved
    if (
        form.terms
        or form.constant not in (0, 1)
        or sizes_of(op.operand.type)[axis] != 2
        or axis in axes_of(op.result.type)
    ):
        return None
    return axis, form.constant


def _is_chosen(part: SSAValue, axis: str) -> bool:
    """Whether only maps along an axis use an array, rounded or not, so that each of their elements asks for one of it
    at a position along the axis."""
    users = [use.operation for use in part.uses]
    return bool(users) and all(
        _is_chosen(user.result, axis)
        if isinstance(user, CastOp)
        else isinstance(user, MapOp) and axis in axes_of(user.result.type) and is_plain(user)
        for user in users
    )


def casts_from(value: SSAValue) -> Iterator[CastOp]:
    """The conversions that made an array, from the first to the last, of a product or of a read of one."""
    if isinstance(value.owner, CastOp):
        yield from casts_from(value.owner.operand)
        yield value.owner


def choosing(part: ReadOp) -> list[tuple[MapOp, SSAValue]]:
    """The maps that use a part, each with the operand that it is, rounded or not."""
    found: list[tuple[MapOp, SSAValue]] = []
    left = [part.result]
    while left:
        value = left.pop()
        for use in value.uses:
            if isinstance(use.operation, CastOp):
                left.append(use.operation.result)
            elif isinstance(use.operation, MapOp) and (use.operation, value) not in found:
                found.append((use.operation, value))
    return found


def index_in(op: MapOp, axis: str) -> SSAValue | None:
    """The positions along an axis that a map is given."""
    found = (leaf.value for leaf in leaves(expression_of(op)))
    return next((each for each in found if isinstance(each.owner, IndexOp) and each.owner.axis == axis), None)


__all__ = ["Swapped", "casts_from", "choosing", "index_in", "part_of_two", "swapped_in"]
