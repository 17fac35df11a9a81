"""Which clusters become one kernel whose groups hold a long axis whole, or repeat a product: the cost model tells.

Clusters that no usual roles make one kernel may still be one (`kernels.roles`, `wide`): what products only sum over
is held whole as far as tiles fit the memory of the machine, and an axis that a product lacks, and that is too long to
be held or that a map spreads that product along (`kernels.spread`), is cut into groups, each of which makes the product
again. Then nothing is saved between the two, and tiles are smaller, or products more. So they are joined where that
takes no more time at the sizes that the program states, nor where axes known only at launch are long: of two that take
the same time, the one is better that needs no memory for what goes between."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import inf

from xdsl.ir import Operation

from treadle.dialects.diagram.array import size_text
from treadle.passes._functions import label
from treadle.passes._parts import Part, part_of
from treadle.passes.kernels.by_time import NO_SLOWER, WORTH, Clock
from treadle.passes.kernels.roles import Refusal, Roles, may_repeat, repeated_products, roles_of
from treadle.passes.kernels.sized import Cluster, Sized


@dataclass(frozen=True)
class Verdict:
    """Whether clusters become one, and why: what the one kernel does that several do not, and the times of both."""

    joins: bool
    reason: str


def wide_chains(clusters: Collection[Cluster], limit: int) -> Iterator[tuple[Cluster, ...]]:
    """Clusters each of which uses values of the one before, and that only wide roles make one kernel: two, and then
    three, of which two alone may be no gain (scores, what is reduced of them, and a product with that)."""
    pairs: list[tuple[Cluster, Cluster]] = []
    for one, other in combinations(clusters, 2):
        first, second = (other, one) if _uses(one, other) else (one, other)
        if _uses(second, first) and not _uses(first, second):
            pairs.append((first, second))
    chains = [*pairs, *((one, two, last) for one, two in pairs for also, last in pairs if also == two)]
    yield from (each for each in chains if wide_roles(part_of(joined(each)), limit))


def joined(chain: Iterable[Cluster]) -> Cluster:
    return frozenset[Operation]().union(*chain)


def wide_roles(part: Part, limit: int) -> Roles | None:
    """The roles of the axes of what is one kernel only if they are wide."""
    if isinstance(roles_of(part, limit), Roles):
        return None
    found = roles_of(part, limit, wide=True)
    return None if isinstance(found, Refusal) else found


def judged(clock: Clock, chain: Sequence[Cluster]) -> Verdict | None:
    """None where the model does not tell, or no sizes of the one kernel fit the machine. Of a product that is repeated
    along a short axis it tells however little there is to do: one kernel is one launch less, and its groups more. There
    a tenth that is saved at the stated sizes is worth less than a tenth where axes are long."""
    whole = joined(chain)
    part = part_of(whole)
    roles = wide_roles(part, clock.limit)
    if roles is None:
        return None
    short = [axis for axis in may_repeat(part, clock.limit) if axis in roles.group]
    found = clock.sized(whole, even_short=bool(short))
    if found is None:
        return None
    together, apart = clock.time([whole], found.sizes), clock.time(chain, found.sizes)
    if together == inf:
        return None
    most = 1 / WORTH if short and together <= WORTH * apart else NO_SLOWER
    joins = together <= apart and (found.longer == found.sizes or _is_no_slower(clock, found, chain, most))
    times = f"estimated {together:.3g} us together, {apart:.3g} us apart{found.at}"
    return Verdict(joins, f"{'; '.join(_widened(part, roles, clock.limit, short))}: {times}")


def _is_no_slower(clock: Clock, found: Sized, chain: Sequence[Cluster], most: float) -> bool:
    """Whether the one kernel takes at most so many times as long as several where axes are long."""
    whole = joined(chain)
    return clock.time([whole], found.longer) <= most * clock.time(chain, found.longer)


def _widened(part: Part, roles: Roles, limit: int, repeated: Collection[str]) -> Iterator[str]:
    for axis in roles.group:
        if products := repeated_products(part, axis, limit, repeated):
            yield f"every group along '{axis}' repeats {' and '.join(label(op.result) for op in products)}"
    for axis, size in roles.whole.items():
        if size > limit:
            yield f"a group holds all {size_text(size)} of '{axis}'"


def _uses(one: Cluster, other: Cluster) -> bool:
    return any(isinstance(operand.owner, Operation) and operand.owner in other for op in one for operand in op.operands)
