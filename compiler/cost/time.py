"""A time estimate: how long the units of the machine are busy, and how long a warp waits.

A warp goes round a line of two stations: products, while operands are read and multiplied (these overlap), and
scalar work with everything else that is issued; it also waits, for first loads and at barriers. `n` warps on a quarter
of an SM share the stations: mean value analysis of a closed line says how long a round takes them. No unit is ever
busier than the whole time. Blocks run in waves; over the whole launch the traffic of device memory and of L2 is a
bound as well. An estimate, to choose by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from treadle.compiler.cost.issue import PRODUCT_FLOP, SHARED_BYTES
from treadle.compiler.cost.memory import Footprint, footprint
from treadle.compiler.cost.plan import Plan
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP

SUB_PARTITIONS = 4
"""A warp uses the units of its quarter of an SM, which issues one instruction a clock."""

L2_PORT = 64
"""Bytes a clock from L2 into one SM [NVIDIA A100 white paper]."""

LAUNCH_CLOCKS = 1000
"""From the start of a block to its first load, and from its last result to its end."""

TURN_CLOCKS = 60
"""A turn of a pipelined loop: the wait, the barrier, and operands for the first product."""

SPILL_CLOCKS = 4
"""For each register that is missing, in each turn: a store and a load of a thread's own memory."""

EXPOSED = 0.1
"""The part of the reads and the issue of products that does not hide behind the multiplication, or the other way
round: no unit of three is busy all the time."""

OF_PRODUCTS = ("products", "ldmatrix", "shared")
"""Instructions that overlap with the products that they feed."""


@dataclass(frozen=True)
class Estimate:
    """`time_us` is an estimate; `units_us` says how long each unit is busy, all SMs sharing the work."""

    time_us: float
    bottleneck: str
    units_us: Mapping[str, float]
    footprint: Footprint
    blocks: int
    blocks_per_sm: int
    limited_by: str
    """What keeps an SM from holding more blocks: `registers`, `shared memory` or `threads`."""
    waves: float


@dataclass(frozen=True)
class _Round:
    """What one warp does in all, in clocks of its quarter of an SM."""

    stations: tuple[float, float]
    busiest: float
    """Of all units."""
    waits: float

    def clocks(self, warps: int) -> float:
        """A round of so many warps on one quarter, by mean value analysis."""
        waiting = [0.0 for _ in self.stations]
        total = 0.0
        for n in range(1, warps + 1):
            times = [demand * (1 + queue) for demand, queue in zip(self.stations, waiting, strict=True)]
            total = self.waits + sum(times)
            waiting = [n * time / total for time in times]
        return max(total, warps * self.busiest)


def estimate(plan: Plan, machine: Machine, sizes: Mapping[str, int]) -> Estimate | None:
    """None where not one block fits on an SM."""
    needs = footprint(plan, machine)
    resident = machine.blocks_on_sm(needs.warps, needs.registers_per_thread, needs.shared_bytes)
    if resident == 0:
        return None
    blocks = plan.blocks(sizes)
    clocks = _block_clocks(plan, machine, sizes, blocks)
    round_ = _round(plan, machine, sizes, clocks, needs)

    def together(count: int) -> float:
        """So many blocks on one SM."""
        return round_.clocks(max(1, -(-count * needs.warps // SUB_PARTITIONS)))

    slots = machine.sms * resident
    full, rest = divmod(blocks, slots)
    on_sms = (full * together(resident) if full else 0.0) + (together(-(-rest // machine.sms)) if rest else 0.0)

    traffic = _traffic_clocks(plan, machine, sizes, slots)
    total = max(on_sms, *traffic.values())
    unit_clocks = {unit: used * blocks / machine.sms for unit, used in _units(clocks).items()} | traffic
    return Estimate(
        time_us=_microseconds(total, machine),
        bottleneck=_bottleneck(unit_clocks, total),
        units_us={unit: _microseconds(used, machine) for unit, used in unit_clocks.items()},
        footprint=needs,
        blocks=blocks,
        blocks_per_sm=resident,
        limited_by=_limit(machine, needs, resident),
        waves=blocks / slots,
    )


def _limit(machine: Machine, needs: Footprint, resident: int) -> str:
    if machine.blocks_on_sm(needs.warps, 1, needs.shared_bytes) > resident:
        return "registers"
    return "shared memory" if machine.blocks_on_sm(needs.warps, 1, 0) > resident else "threads"


def _microseconds(clocks: float, machine: Machine) -> float:
    return clocks / machine.clock * 1e6


def _bottleneck(units: Mapping[str, float], total: float) -> str:
    """The unit that is busy longest, or `latency` if even that one idles half of the time."""
    if not units or total == 0:
        return "nothing"
    unit = max(units, key=lambda name: units[name])
    return unit if units[unit] >= total / 2 else "latency"


def _block_clocks(plan: Plan, machine: Machine, sizes: Mapping[str, int], blocks: int) -> dict[str, float]:
    """How long one block keeps each unit of its SM busy. `issue products` is what the products take of `issue`."""
    clocks: dict[str, float] = defaultdict(float)
    for issue in plan.issues:
        count = issue.count * plan.warp_count * prod(pieces.mean(sizes) for pieces in issue.streams)
        kind = issue.kind.split()[0]
        clocks["issue products" if kind in OF_PRODUCTS else "issue others"] += count / SUB_PARTITIONS
        if kind in SHARED_BYTES:
            clocks["shared"] += count * SHARED_BYTES[kind] / machine.bytes_per_clock("shared")
        elif kind == "products":
            format = issue.kind.split()[1]
            clocks[f"tensor {format}"] += count * PRODUCT_FLOP[format] / machine.rates.tensor[format]
        elif kind in ("float", "special"):
            clocks[kind] += count * WARP / (machine.rates.float if kind == "float" else machine.rates.special)
    loaded = sum(transfer.values(sizes) * transfer.width for transfer in plan.transfers)
    clocks["loads"] = loaded / max(blocks, 1) / L2_PORT
    return clocks


def _units(clocks: Mapping[str, float]) -> dict[str, float]:
    units = {unit: used for unit, used in clocks.items() if used and not unit.startswith("issue ")}
    return units | {"issue": clocks["issue products"] + clocks["issue others"]}


def _round(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], clocks: Mapping[str, float], needs: Footprint
) -> _Round:
    """A quarter of an SM has a quarter of each unit, and of the warps."""
    share = SUB_PARTITIONS / needs.warps
    tensor = max((used for unit, used in clocks.items() if unit.startswith("tensor")), default=0.0)
    feeding = (tensor, clocks["shared"] if plan.has_products else 0.0, clocks["issue products"])
    products = share * (max(feeding) + EXPOSED * (sum(feeding) - max(feeding)))
    scalars = share * max(clocks["float"], clocks["special"], clocks["issue others"])
    steps = plan.steps(sizes)
    latency = machine.levels["device"].latency
    waits_of_step = TURN_CLOCKS if needs.stages > 1 else latency + share * clocks["loads"] / max(steps, 1)
    waits = LAUNCH_CLOCKS + latency + steps * (waits_of_step + SPILL_CLOCKS * needs.spilled)
    return _Round((products, scalars), share * max(_units(clocks).values()), waits)


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
        kept = transfer.values(sizes) / max(transfer.unlimited(sizes), 1)
        once = kept * transfer.width * prod(sizes[axis] for axis in transfer.axes)
        device += once * (
            1
            if once <= machine.levels["l2"].capacity
            else prod(-(-pieces.count(sizes) // max(together[pieces.axis], 1)) for pieces in transfer.again)
        )
    return {
        "device memory": device / machine.bytes_per_clock("device"),
        "L2": l2 / machine.bytes_per_clock("l2"),
    }
