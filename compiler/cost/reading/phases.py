"""In how many phases steps of streams read their tiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Operation, SSAValue

from treadle.passes.loops.in_place import apart


def phases_of_step(tiles: Iterable[SSAValue], step: Sequence[Operation]) -> int:
    """In how many groups, one after another, the operations of a step read these; 0 where they read none."""
    place = {op: number for number, op in enumerate(step)}
    users = [{use.operation for use in value.uses} for value in tiles]
    return len(apart([found for each in users if (found := [place[op] for op in each if op in place])]))
