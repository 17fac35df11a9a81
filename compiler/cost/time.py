"""A time estimate: how long the units of the machine are busy, and how long one block waits.

An SM with `n` blocks is a closed line of stations. Two bounds hold, and the larger is taken: the busiest unit
needs the work of all `n` blocks, one after another; and no block is faster than alone, when the units work
one after another and each step waits for its loads. Blocks run in waves; over the whole launch the traffic
of device memory and of L2 is a bound as well. An estimate, to choose by: launches, synchronisation and
instructions that only move things are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from treadle.compiler.cost.memory import Footprint, footprint
from treadle.compiler.cost.plan import Plan
from treadle.compiler.machines import Machine

SUB_PARTITIONS = 4
"""A warp uses the units of its quarter of an SM."""

L2_PORT = 64
"""Bytes a clock from L2 into one SM [NVIDIA A100 white paper]."""

LAUNCH_CLOCKS = 1000
"""From the start of a block to its first load, and from its last result to its end."""


@dataclass(frozen=True)
class Estimate:
    """`time_us` is an estimate; `units_us` says how long each unit is busy, all SMs sharing the work."""

    time_us: float
    bottleneck: str
    units_us: Mapping[str, float]
    footprint: Footprint
    blocks: int
    blocks_per_sm: int
    waves: float


def estimate(plan: Plan, machine: Machine, sizes: Mapping[str, int]) -> Estimate | None:
    """None where not one block fits on an SM."""
    needs = footprint(plan)
    resident = machine.blocks_on_sm(needs.warps, needs.registers_per_thread, needs.shared_bytes)
    if resident == 0:
        return None
    blocks = plan.blocks(sizes)
    clocks = _block_clocks(plan, machine, sizes, blocks)
    alone = _alone(plan, machine, sizes, clocks)
    slots = machine.sms * resident
    full, rest = divmod(blocks, slots)
    waves = [resident] * min(full, 1) + ([-(-rest // machine.sms)] if rest else [])
    times = [max(max(clocks.values(), default=0.0) * n, alone) for n in waves]
    on_sms = (full * times[0] if full else 0.0) + (times[-1] if rest else 0.0)

    traffic = _traffic_clocks(plan, machine, sizes, slots)
    total = max(on_sms, *traffic.values())
    unit_clocks = {unit: used * blocks / machine.sms for unit, used in clocks.items()} | traffic
    return Estimate(
        time_us=_microseconds(total, machine),
        bottleneck=_bottleneck(unit_clocks, total),
        units_us={unit: _microseconds(used, machine) for unit, used in unit_clocks.items()},
        footprint=needs,
        blocks=blocks,
        blocks_per_sm=resident,
        waves=blocks / slots,
    )


def _microseconds(clocks: float, machine: Machine) -> float:
    return clocks / machine.clock * 1e6


def _bottleneck(units: Mapping[str, float], total: float) -> str:
    """The unit that is busy longest, or `latency` if even that one idles half of the time."""
    if not units or total == 0:
        return "nothing"
    unit = max(units, key=lambda name: units[name])
    return unit if units[unit] >= total / 2 else "latency"


def _block_clocks(plan: Plan, machine: Machine, sizes: Mapping[str, int], blocks: int) -> dict[str, float]:
    """How long one block keeps each unit of its SM busy."""
    amounts: dict[str, float] = {}
    for work in plan.work:
        times = prod(pieces.count(sizes) for pieces in work.streams)
        amounts[work.unit] = amounts.get(work.unit, 0.0) + work.amount * times
    clocks = {unit: amount / _rate(unit, machine) for unit, amount in amounts.items()}
    moved = {"shared": 0.0, "register": 0.0}
    for transfer in plan.transfers:
        moved[transfer.level] += transfer.values(sizes) * transfer.width / max(blocks, 1)
    # What is loaded to shared memory is also written there.
    clocks["shared"] = clocks.get("shared", 0.0) + moved["shared"] / machine.bytes_per_clock("shared")
    clocks["loads"] = sum(moved.values()) / L2_PORT
    return {unit: used for unit, used in clocks.items() if used}


def _rate(unit: str, machine: Machine) -> float:
    if unit == "float":
        return machine.rates.float
    if unit == "special":
        return machine.rates.special
    if unit == "shared":
        return machine.bytes_per_clock("shared")
    return machine.rates.tensor[unit.removeprefix("tensor ")]


def _alone(plan: Plan, machine: Machine, sizes: Mapping[str, int], clocks: Mapping[str, float]) -> float:
    """One block by itself: its own warps overlap only as far as they sit on different quarters."""
    quarters = min(SUB_PARTITIONS, plan.warp_count)
    work = sum(used for unit, used in clocks.items() if unit != "loads") * SUB_PARTITIONS / quarters
    latency = machine.levels["device"].latency * (plan.steps(sizes) + 1)
    return work + clocks.get("loads", 0.0) + latency + LAUNCH_CLOCKS


def _traffic_clocks(plan: Plan, machine: Machine, sizes: Mapping[str, int], slots: int) -> dict[str, float]:
    """Device memory and L2. Blocks of one wave that read the same piece fetch it from device memory once
    (the last group axis runs fastest), and an array that fits L2 is fetched once altogether."""
    together: dict[str, int] = {}
    left = slots
    for pieces in reversed(plan.groups):
        together[pieces.axis] = min(max(left, 1), pieces.count(sizes))
        left //= max(pieces.count(sizes), 1)
    device = l2 = 0.0
    for transfer in plan.transfers:
        l2 += transfer.values(sizes) * transfer.width
        once = transfer.width * prod(sizes[axis] for axis in transfer.axes)
        device += once * (
            1
            if once <= machine.levels["l2"].capacity
            else prod(-(-pieces.count(sizes) // max(together[pieces.axis], 1)) for pieces in transfer.again)
        )
    return {
        "device memory": device / machine.bytes_per_clock("device"),
        "L2": l2 / machine.bytes_per_clock("l2"),
    }
