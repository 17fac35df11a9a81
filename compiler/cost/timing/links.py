"""What passes between each memory and the next over a launch, and what a memory is worth to the one above it.

By section 4 of "FlashAttention on a Napkin" (arXiv 2412.03317): results stay in the processors until they are complete
(*intermediate caching*), so that towards device memory all blocks that work at a time are as one group that has the
memory of all; and blocks of a cluster bring each other what they read alike (*cross transfer*). Links one after another
cost the sum of their times, links that overlap the largest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Protocol

from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.scaling import cached_memory
from treadle.compiler.cost.timing.clusters import ACROSS, bytes_across, bytes_exchanged, spared_by
from treadle.compiler.cost.timing.roofline import compulsory_bytes, loaded_bytes
from treadle.compiler.cost.timing.time import Estimate
from treadle.compiler.cost.timing.traffic import coalesced_bytes, crossing_bytes, device_bytes, reads_again
from treadle.compiler.machines import Machine


@dataclass(frozen=True)
class Link:
    """From one memory to the next nearer one, or between two of a kind."""

    source: str
    target: str
    bytes: int
    """Both ways, over the launch."""
    bandwidth: float
    """Bytes a second, of the whole machine."""
    time_us: float
    """For which it is busy: L2 with what it is asked for, before which reads of blocks in step are coalesced."""
    at_a_time: Mapping[str, int]
    """How many pieces along each axis fetch together what they read alike."""
    group: Mapping[str, int]
    """What these pieces hold of each axis: the group that the source sees."""
    memory_bytes: int
    """What the target behaves as if it had: the near memory of all these pieces."""
    least_bytes: int | None = None
    """What no sizes bring below (`with_least`); None where that was not asked, or conditions leave pieces out."""

    @property
    def least_us(self) -> float | None:
        return None if self.least_bytes is None else self.least_bytes / self.bandwidth * 1e6


class Bound(Protocol):
    """The closed form of the least transfers, in bytes (`leading.LeadingTerms`)."""

    def at(self, memory: float, sizes: Mapping[str, int]) -> float: ...


def links_of(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], time: Estimate, memory_bytes: int
) -> tuple[Link, ...]:
    """Of a kernel on a machine, the farthest first; `memory_bytes` is what one group holds near."""
    cluster = {} if time.cluster is None else dict(time.cluster.sides)
    across = 0 if time.cluster is None else bytes_across(plan, sizes, time.cluster)
    exchanged = round(bytes_exchanged(plan, sizes))
    slots = machine.sms * time.blocks_per_sm
    fetched = round(device_bytes(plan, machine, sizes, slots, time.in_turns))
    spared = 0 if time.cluster is None else spared_by(plan, sizes, time.cluster)
    passed = round(crossing_bytes(plan, sizes)) - across
    unasked = coalesced_bytes(plan, machine, sizes, slots, time.in_turns, spared)
    to_device, to_l2 = machine.levels["device"].bandwidth, machine.levels["l2"].bandwidth

    def link(source: str, target: str, count: int, bandwidth: float, pieces: Mapping[str, int]) -> Link:
        together = {each.axis: pieces.get(each.axis, 1) for each in plan.groups}
        group = {each.axis: min(sizes[each.axis], each.size * together[each.axis]) for each in plan.groups}
        memory = round(cached_memory(memory_bytes, prod(together.values())))
        return Link(source, target, count, bandwidth, count / bandwidth * 1e6, together, group, memory)

    from_l2 = link("L2", "SM", passed, to_l2, cluster)
    from_l2 = replace(from_l2, time_us=float(from_l2.time_us - unasked / to_l2 * 1e6))
    found = [link("device memory", "L2", fetched, to_device, time.at_a_time), from_l2]
    if time.cluster is not None:
        found.append(link("SM", "SM of its cluster", across, to_l2 * ACROSS[time.cluster.blocks], {}))
    if exchanged:
        across_rate = ACROSS.get(int(plan.cluster), ACROSS[max(ACROSS)])
        found.append(link("SM", "SM of its cluster", exchanged, to_l2 * across_rate, {}))
    return tuple(found)


def with_least(
    links: Sequence[Link], plan: Plan, machine: Machine, sizes: Mapping[str, int], bound: Bound
) -> tuple[Link, ...]:
    """The links from device memory and from L2 with what must pass, whatever the sizes of groups: every array once, and
    `H*` of all memory that lies beyond the link; from device memory the former alone where streams load an array again,
    for L2 may hold it, and where the chip holds all that is loaded. What blocks of a cluster bring each other has no
    least of its own: the more they bring, the less comes from above."""
    if any(each.fed is not None for each in plan.transfers):
        return tuple(links)
    near = machine.levels["shared"].capacity + machine.levels["register"].capacity
    of_chip = machine.levels["l2"].capacity + cached_memory(near, machine.sms)
    of_cluster = cached_memory(near, prod(links[1].at_a_time.values()))
    once = compulsory_bytes(plan, sizes)
    least = [max(once, int(bound.at(memory, sizes))) for memory in (of_chip, of_cluster)]
    if reads_again(plan, sizes) or loaded_bytes(plan, sizes) <= of_chip:
        least[0] = once
    bounded = (replace(link, least_bytes=count) for link, count in zip(links[:2], least, strict=True))
    return (*bounded, *links[2:])
