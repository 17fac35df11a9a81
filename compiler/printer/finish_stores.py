"""Which results of a finish leave where they are made: stores of what maps make, and the casts before them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import CastOp, MapOp


def leaving(maps: Sequence[MapOp]) -> Iterator[tuple[Operation, ...]]:
    """For each map whose result goes from registers to its array, and nowhere else, what stores it: a store, or a cast
    and its store. Such a store may stand where the first map is, as all that it asks for is known there, and no two
    arrays of a kernel share memory."""
    for op in maps:
        found = tuple(_to_store(op.result))
        if found and all(_is_known(value, maps, found) for each in found for value in each.operands):
            yield found


def _to_store(value: SSAValue) -> Iterator[Operation]:
    users = [use.operation for use in value.uses]
    if len(users) != 1 or users[0].parent is not _block_of(value):
        return
    match users[0]:
        case cuda.StoreOp() as store if store.value is value and store.staged is None and store.place is None:
            yield store
        case CastOp() as cast if layout_of(cast.result.type) == layout_of(value.type):
            behind = tuple(_to_store(cast.result))
            yield from (cast, *behind) if behind else ()
        case _:
            return


def _is_known(value: SSAValue, maps: Sequence[MapOp], found: Sequence[Operation]) -> bool:
    """Whether a value is there where the first map stands, or made on the way."""
    owner, first = value.owner, maps[0]
    if owner in maps or owner in found or not isinstance(owner, Operation):
        return True
    return owner.parent is not first.parent or owner.is_before_in_block(first)


def _block_of(value: SSAValue) -> object:
    return value.owner.parent if isinstance(value.owner, Operation) else value.owner
