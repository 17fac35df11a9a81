"""Which clusters are cut, because the kernels of their parts take less time: the cost model tells.

What can be one kernel is made one, for then nothing between its operations leaves the near level. That may still lose
time. Only where it may (`kernels.cuts`) the model is asked, which takes as long as a pass.

A launch may bring other sizes than those that the program states. So parts must be faster at these, and no slower where
every axis that is known only at launch is a long one, or by a tenth of what they save at the stated ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeAlias

from xdsl.ir import Operation

from treadle.compiler.machines import Machine
from treadle.dialects.diagram.array import DYNAMIC
from treadle.passes._parts import part_of
from treadle.passes.kernels.cuts import Cut, cuts, cuts_without_roles, is_of_product
from treadle.passes.kernels.roles import Roles, roles_of
from treadle.passes.kernels.sized import Cluster, Sized, Sizes

Time: TypeAlias = Callable[[Sequence[Cluster], Sizes], float]
"""Microseconds that the kernels of some operations take, launches included; infinite where they fit no machine."""

WORTH = 0.9
"""Of the time of one kernel, what its parts may take: the model is not so exact that less would be a gain."""

NO_SLOWER = 1.02
"""Of two times this near to each other none is the longer one."""

PRICE = 0.1
"""Of what is saved at the stated sizes, as a share of the time, what may be lost where axes are long: those who run the
stated sizes would else pay more for the others than the others save."""


MOST_LOST = 1.25
"""Whatever is saved, of the time where axes are long: they may be what is run."""


@dataclass(frozen=True)
class Judged:
    """A cut, whether it is worth its launches, and both times."""

    cut: Cut
    is_faster: bool
    times: str


@dataclass(frozen=True)
class Clock:
    """What the cost model says of the operations of one block, at the sizes that its program states."""

    machine: Machine
    stated: Sizes
    limit: int
    time: Time

    def sized(self, ops: Cluster, even_short: bool = False) -> Sized | None:
        """None where a size is not stated, or (not with `even_short`) what is to do takes no longer than a launch: how
        long such a kernel takes is latency, of which the model knows least."""
        part = part_of(ops)
        sizes = {axis: self.stated.get(axis, DYNAMIC) if size == DYNAMIC else size for axis, size in part.sizes.items()}
        found = Sized(part, self.limit, sizes, self.machine)
        if DYNAMIC in sizes.values():
            return None
        return found if even_short or found.least_time > self.machine.launch else None

    def cuts(self, ops: Cluster) -> list[Cut]:
        """The cuts of operations that may save time, or by which they may be kernels."""
        found = self.sized(ops)
        if found is None:
            return []
        roles = roles_of(found.part, self.limit, wide=True)
        return list(cuts(found, roles) if isinstance(roles, Roles) else cuts_without_roles(found))

    def between(self, first: Cluster, then: Cluster) -> float:
        """Microseconds that memory takes for what is made of products in one cluster and goes to another, saved and
        read."""
        found = self.sized(first | then)
        used = [value for value in part_of(first).leaving if any(use.operation in then for use in value.uses)]
        made = [value for value in used if is_of_product(first, value)]
        return 0.0 if found is None else 2e6 * found.moving_time(sum(map(found.bytes, made)))

    def cut(self, ops: Cluster) -> Judged | None:
        """The cut of a cluster that saves most time, and whether that is enough; None where there is none."""
        found = self.sized(ops)
        if found is None or not (ways := self.cuts(ops)):
            return None
        together = self.time([ops], found.sizes)
        timed = sorted((self.time(cut.parts, found.sizes), i) for i, cut in enumerate(ways))
        one = f"{together:.3g} us as one kernel" if together < inf else "one kernel does not fit"
        for apart, i in timed:
            if apart > WORTH * together:
                break
            most = most_lost(apart, together)
            if found.longer == found.sizes or self._is_no_slower(found, ways[i].parts, [ops], most):
                return Judged(ways[i], True, f"{ways[i].why}: estimated {apart:.3g} us apart, {one}{found.at}")
        apart, i = timed[0]
        if apart == inf:
            return None
        where = "" if apart > WORTH * together else ", but more than that where axes known only at launch are long"
        return Judged(ways[i], False, f"though {ways[i].why}: estimated {apart:.3g} us apart, {one}{found.at}{where}")

    def times(self, clusters: Sequence[Cluster]) -> tuple[float, ...]:
        """Of the kernels of some clusters, at the sizes that the program states, and where axes known only at launch
        are long; nothing where `sized` finds none."""
        found = self.sized(frozenset[Operation]().union(*clusters))
        if found is None:
            return ()
        sizes = [found.sizes] if found.longer == found.sizes else [found.sizes, found.longer]
        return tuple(self.time(clusters, each) for each in sizes)

    def _is_no_slower(self, found: Sized, parts: Sequence[Cluster], than: Sequence[Cluster], most: float) -> bool:
        return self.time(parts, found.longer) <= most * self.time(than, found.longer)


def most_lost(time: float, than: float) -> float:
    """Of the time where axes are long, what kernels may take that take `time` for `than` at the stated sizes."""
    return NO_SLOWER if than == inf else min(max(NO_SLOWER, 1 + PRICE * (than / time - 1)), MOST_LOST)


def is_faster(times: Sequence[float], than: Sequence[float], worth: float = WORTH) -> bool:
    """Whether kernels take a tenth less time than others at the stated sizes (`worth`: so much of it at most), and no
    more where axes are long (`most_lost`); without times there is nothing to compare."""
    if not than:
        return True
    (first, *longer), (other, *others) = times, than
    most = most_lost(first, other)
    return first <= worth * other and all(a <= most * b for a, b in zip(longer, others, strict=True))
