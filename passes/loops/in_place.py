"""Copies to tiles of which a block has memory for one place: each is asked for where nobody reads the tile any more.

Of attention a turn multiplies with `K`, computes, and multiplies with `V`. While it multiplies with `K` the place of
`V` is free, and from then on that of `K`. So with one place each, one of the two is on its way while the other is read.
It takes a meeting of the block for each tile, where two places take one for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from treadle.compiler.lowering.barriers import accesses, base_of
from treadle.dialects import cuda


@dataclass(frozen=True)
class Phase:
    """Tiles that a turn begins to read at a time, and has read before it begins with those of the next phase."""

    copies: tuple[cuda.CopyOp, ...]
    first: Operation
    """In the body of the loop: what reads them first."""


def phases_of(loop: scf.ForOp, copies: Sequence[cuda.CopyOp]) -> list[Phase]:
    """The phases of a turn, in order. Empty if there are not two, so that no tile can come while others are read, or if
    something else writes a tile."""
    reads = [_reads(loop, copy) for copy in copies]
    if not all(reads) or len({base_of(copy.tile) for copy in copies}) < len(copies):
        return []
    place = {op: number for number, op in enumerate(loop.body.block.ops)}
    ops, groups = list(place), apart([[place[op] for op in read] for read in reads])
    found = [
        Phase(tuple(copies[each] for each in group), ops[min(place[op] for op in reads[group[0]])]) for group in groups
    ]
    return found if len(found) > 1 else []


def apart(reads: Sequence[Sequence[int]]) -> list[list[int]]:
    """Tiles by number, each read in these places, in groups of which one has been read before the next one is; within a
    group by where they are first read."""
    groups: list[list[int]] = []
    until = -1
    for number in sorted(range(len(reads)), key=lambda number: min(reads[number])):
        if not groups or min(reads[number]) > until:
            groups.append([])
        groups[-1].append(number)
        until = max(until, *reads[number])
    return groups


def _reads(loop: scf.ForOp, copy: cuda.CopyOp) -> list[Operation]:
    """What reads the tile of a copy in a loop, as it stands in the body; none if anything else is done with it."""
    body = loop.body.block
    found: list[Operation] = []
    for op in _users(copy.tile):
        at = body.find_ancestor_op_in_block(op)
        if at is None or op is copy:
            continue
        written, read = accesses(op)
        if copy.tile in written or copy.tile not in read or not copy.is_before_in_block(at):
            return []
        found.append(at)
    return found


def _users(value: SSAValue) -> Iterable[Operation]:
    return [use.operation for use in value.uses]
