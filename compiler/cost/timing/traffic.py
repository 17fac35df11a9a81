"""How long device memory and L2 are busy over a whole launch.

Blocks that work at a time and read the same piece fetch it from device memory once, and an array that fits L2 is
fetched once altogether. What a block reads again, in a later stream, it finds in L2 if that holds what all blocks at
work have read since. Blocks that each read a part of an array, since conditions leave out the rest, read more of it
together than each alone: in windows, all of it. Where data choose what blocks read (keys that a table names for each
query), the same is chosen again and again: L2 has it with the probability that is its share of the array."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod

import numpy as np

from treadle.compiler.amounts import Amount, ceil_div, choice, is_any, least, most
from treadle.compiler.cost.kernel.plan import Pieces, Plan, Transfer
from treadle.compiler.cost.timing.turns import together
from treadle.compiler.machines import Machine


def traffic_clocks(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: Amount, turns: Amount, spared: Amount
) -> dict[str, Amount]:
    """Of each memory, for blocks that work so many (`slots`) at a time, in turns or not, and of which clusters spare L2
    so many bytes. The steps of a stream come one at a time."""
    return {
        "device memory": device_bytes(plan, machine, sizes, slots, turns) / machine.bytes_per_clock("device"),
        "L2": l2_bytes(plan, machine, sizes, slots, turns, spared) / machine.bytes_per_clock("l2"),
    }


def device_bytes(plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: Amount, turns: Amount) -> Amount:
    """Between device memory and L2, for blocks that work so many at a time, in turns or not."""
    at_a_time = together(plan, machine, sizes, slots, turns)
    capacity = machine.levels["l2"].capacity
    crossings = list(_crossings(plan.transfers))
    again = _again(crossings, sizes)
    costs = [_ways(parts[0], capacity) * _fetched(parts, sizes, at_a_time, capacity) for parts in crossings]
    if any(map(is_any, again)):
        blocks = most(plan.blocks(sizes), 1)
        since = _read_by(crossings, sizes, least(slots, blocks) / blocks)
        stays = choice(_read_by(crossings, sizes, 1) <= capacity, 1.0, np.exp(-since / capacity))
        costs = [cost * (1 - is_again * stays) for cost, is_again in zip(costs, again, strict=True)]
    return sum(costs)


def l2_bytes(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: Amount, turns: Amount, spared: Amount
) -> Amount:
    """That L2 gives and takes: what crosses, but for what clusters spare it and what is coalesced before it."""
    return crossing_bytes(plan, sizes) - spared - coalesced_bytes(plan, machine, sizes, slots, turns, spared)


def coalesced_bytes(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: Amount, turns: Amount, spared: Amount
) -> Amount:
    """For which L2 is not asked, since blocks read them alike and at a time: they are at the same place if they start
    together, or take turns."""
    alike = sum(each.sector_bytes(sizes) for each in plan.transfers if _is_read_alike(plan, each)) - spared
    in_step = turns | (plan.blocks(sizes) <= slots)
    return alike * choice(in_step, 1 - machine.levels["l2"].coalesced, 0)


def _is_read_alike(plan: Plan, transfer: Transfer) -> bool:
    groups = {pieces.axis for pieces in plan.groups}
    return not transfer.saves and any(pieces.axis in groups for pieces in transfer.again)


def crossing_bytes(plan: Plan, sizes: Mapping[str, int]) -> Amount:
    """Between L2 and the processors, each block by itself: whole sectors. What is added there L2 reads and writes."""
    return sum(each.sector_bytes(sizes) * (2 if each.added else 1) for each in plan.transfers)


def reads_again(plan: Plan, sizes: Mapping[str, int]) -> bool:
    """Whether a block loads an array more than once, so that L2 may give it what it loaded before."""
    return any(map(is_any, _again(_crossings(plan.transfers), sizes)))


def _crossings(transfers: Iterable[Transfer]) -> Iterable[list[Transfer]]:
    """The parts of each crossing: of a stream that conditions limit, pieces that are tested are loaded apart. What two
    streams read of one array, one after another, are two crossings."""
    found: dict[object, list[Transfer]] = {}
    met: dict[object, int] = defaultdict(int)
    for number, each in enumerate(transfers):
        if each.fed is None:
            found[number] = [each]
            continue
        crossing = (each.array, each.level, each.saves, each.fed.stream.axis)
        found.setdefault((crossing, met[crossing, each.part]), []).append(each)
        met[crossing, each.part] += 1
    return found.values()


def _again(crossings: Iterable[list[Transfer]], sizes: Mapping[str, int]) -> list[Amount]:
    """Of each crossing, whether an earlier one loaded the array, or what lies there, too."""
    seen, found = list[Transfer](), list[Amount]()
    for first, *_ in crossings:
        again: Amount = False
        for earlier in () if first.saves else seen:
            again = again | first.lies_near(earlier, sizes)
        found.append(again)
        seen += [] if first.saves else [first]
    return found


def _read_by(crossings: Iterable[list[Transfer]], sizes: Mapping[str, int], part: Amount) -> Amount:
    """Bytes of all arrays that the blocks at work, this `part` of all, load or save; of one that all share, it is no
    more than there is."""
    read: dict[str, Amount] = {}
    for parts in crossings:
        first = parts[0]
        of_all = first.width * sum(each.elements(sizes) for each in parts)
        read[first.array] = least(first.width * first.whole(sizes), part * of_all)
    return sum(read.values())


def _fetched(
    parts: list[Transfer], sizes: Mapping[str, int], at_a_time: Mapping[str, Amount], capacity: float
) -> Amount:
    """Bytes from device memory. Blocks that differ in what limits depend on read all that any of them reads once, and
    each round of them that works at a time again what its first block reads beside its own. So it is, edges aside, of
    windows, which overlap where rounds meet, and nearly so below a diagonal. What lies in several windows of a
    view comes once, too: neighbours are at work at a time."""
    first = parts[0]
    around = () if first.fed is None else [pieces.axis for pieces in first.fed.around]
    whole = first.width * first.in_view(sizes)
    share = sum(each.values(sizes) / most(each.unlimited(sizes), 1) for each in parts)
    of_one = first.width * first.seen(sizes) * share
    telling = [pieces for pieces in first.again if pieces.axis in around]
    others = [pieces for pieces in first.again if pieces.axis not in around]
    crossing = of_one * prod(pieces.count(sizes) for pieces in telling)
    once = least(whole, crossing)
    beside = most(of_one - once / most(prod(pieces.count(sizes) for pieces in telling), 1), 0)
    again = once + (_rounds(telling, sizes, at_a_time) - 1) * beside
    fetched = choice(once <= capacity, once, _rounds(others, sizes, at_a_time) * least(crossing, again))
    return _chosen(fetched, first.width * first.among, capacity) if first.among else fetched


def _chosen(fetched: Amount, array: int, capacity: float) -> Amount:
    """Bytes from device memory of an array of so many, of which data choose `fetched`, evenly and each by itself: all
    of it once, and then what L2 does not hold. So an array that fits L2 comes once, however often it is chosen."""
    missed = max(1 - capacity / array, 0)
    return choice(fetched <= array, fetched, array + (fetched - array) * missed)


def _ways(transfer: Transfer, capacity: float) -> int:
    """How often an element crosses: what is added to comes and goes, but where L2 holds all of the array, which was
    made right before."""
    return 2 if transfer.added * transfer.width > capacity else 1


def addition_clocks(plan: Plan, machine: Machine, sizes: Mapping[str, int]) -> dict[str, Amount]:
    """How long additions take at one element each, one after another, if data spread them evenly; empty where nothing
    is added so. Where they fall on fewer, they take longer."""
    added = [each.values(sizes) / each.added for each in plan.transfers if each.added]
    return {"additions": most(*added) / machine.rates.additions} if added else {}


def _rounds(again: Iterable[Pieces], sizes: Mapping[str, int], at_a_time: Mapping[str, Amount]) -> Amount:
    """How many times blocks that differ in these pieces begin anew."""
    return prod(ceil_div(pieces.count(sizes), at_a_time.get(pieces.axis, 1)) for pieces in again)
