"""Phases of sums: which sums along one axis one kernel can make, where some wait for sums along another.

Shares along both axes of scores, and their gradients: the sums of columns that need sums of rows come after those, so
that one kernel along the columns cannot make all. A phase is what one kernel makes: the sums along one axis that need
nothing but each other and phases before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from treadle.passes.kernels.sums import Axes, summed_axes


@dataclass(frozen=True)
class Phase:
    """Sums along the axes of one class."""

    axes: Axes
    sums: frozenset[Operation] = frozenset()


def phases_of(ops: Sequence[Operation], classes: Sequence[Axes]) -> list[Phase]:
    """The phases in the order in which they are made: the fewest, whichever class comes first."""
    needed = _needed(ops)
    tries = [_in_order(needed, [*classes[first:], *classes[:first]]) for first in range(len(classes))]
    return min(tries, key=len) if tries else []


def phases_reached(ops: Sequence[Operation], phases: Sequence[Phase]) -> dict[SSAValue, frozenset[int]]:
    """For each array, the phases whose sums are made of it with no other sum between."""
    found: dict[SSAValue, frozenset[int]] = {}
    for op in reversed(ops):
        users = [use.operation for use in op.results[0].uses]
        summing = {i for i, phase in enumerate(phases) if not phase.sums.isdisjoint(users)}
        further = [
            found[result] for user in users if not summed_axes(user) for result in user.results if result in found
        ]
        found[op.results[0]] = frozenset(summing).union(*further)
    return found


def _in_order(needed: Mapping[Operation, frozenset[Operation]], classes: Sequence[Axes]) -> list[Phase]:
    """One class after another makes all the sums that it can."""
    phases: list[Phase] = []
    done = set[Operation]()
    while len(done) < len(needed):
        for axes in classes:
            made = set[Operation]()
            for op, before in needed.items():
                if op not in done and summed_axes(op) & axes and before <= done | made:
                    made.add(op)
            if made:
                phases.append(Phase(axes, frozenset(made)))
                done |= made
    return phases


def _needed(ops: Iterable[Operation]) -> dict[Operation, frozenset[Operation]]:
    """For each sum the sums that it needs, in the order of the program."""
    behind: dict[SSAValue, frozenset[Operation]] = {}
    found: dict[Operation, frozenset[Operation]] = {}
    for op in ops:
        before = frozenset[Operation]().union(*(behind.get(operand, frozenset()) for operand in op.operands))
        if summed_axes(op):
            found[op] = before
            before |= {op}
        behind |= dict.fromkeys(op.results, before)
    return found
