"""What no kernel can beat: every product at the datasheet's rate, every array moved once; and what quantisation
costs on top."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod

from treadle.compiler.cost.kernel.plan import Pieces, Plan, Transfer, Work
from treadle.compiler.machines import Machine


def limits_us(plan: Plan, machine: Machine, sizes: Mapping[str, int]) -> dict[str, float]:
    """The least time of each unit, in microseconds: of `device memory` for every array once, of `tensor f16` and its
    kind (`float` for products in f32) for the FLOP of the algorithm. The largest of them is the roofline."""
    limits = {"device memory": compulsory_bytes(plan, sizes) / machine.levels["device"].bandwidth * 1e6}
    for work in plan.algorithm:
        is_tensor = work.format in machine.rates.tensor
        # A lane of the CUDA cores multiplies and adds at once.
        rate = machine.tensor_flops(work.format) if is_tensor else 2 * machine.rates.float * machine.sms * machine.clock
        unit = f"tensor {work.format}" if is_tensor else "float"
        limits[unit] = limits.get(unit, 0.0) + _visited(plan, work, sizes) * work.flop(sizes) / rate * 1e6
    return limits


def flop(plan: Plan, sizes: Mapping[str, int]) -> int:
    """FLOP of the products, edges aside; of a stream that conditions limit, those of the pieces it is fed."""
    return round(sum(_visited(plan, work, sizes) * work.flop(sizes) for work in plan.algorithm))


def _visited(plan: Plan, work: Work, sizes: Mapping[str, int]) -> float:
    """The part of a product that is in pieces which conditions do not leave out."""
    for each in plan.transfers:
        if each.fed is not None and each.part == "all" and each.fed.stream.axis in work.axes:
            return each.values(sizes) / max(each.unlimited(sizes), 1)
    return 1.0


def compulsory_bytes(plan: Plan, sizes: Mapping[str, int]) -> int:
    """Every array of device memory once; of one that conditions leave out in part, no more than what crosses."""
    return sum(_bytes_once(plan, sizes).values())


def loaded_bytes(plan: Plan, sizes: Mapping[str, int]) -> int:
    """Of these bytes, those of what is loaded."""
    return sum(count for (_, saves), count in _bytes_once(plan, sizes).items() if not saves)


def _bytes_once(plan: Plan, sizes: Mapping[str, int]) -> dict[tuple[str, bool], int]:
    """By array, and whether it is saved. What lies in an array that is loaded, too, is no array of its own."""
    own = list[Transfer]()
    for each in plan.transfers:
        if each.saves or not any(each.array != one.array and each.lies_near(one, sizes) for one in own):
            own.append(each)
    arrays = {(each.array, each.saves): each.width * int(each.whole(sizes)) for each in own}
    crossing: dict[tuple[str, bool], int] = dict.fromkeys(arrays, 0)
    for each in own:
        crossing[each.array, each.saves] += each.width * int(each.elements(sizes) / _alike(each, sizes))
    return {array: min(whole, crossing[array]) for array, whole in arrays.items()}


def _alike(transfer: Transfer, sizes: Mapping[str, int]) -> float:
    """How many groups read the same, whatever conditions leave."""
    telling = set[str]() if transfer.fed is None else {pieces.axis for pieces in transfer.fed.around}
    return max(prod(pieces.count(sizes) for pieces in transfer.again if pieces.axis not in telling), 1)


def tile_use(plan: Plan, sizes: Mapping[str, int]) -> float:
    """The part of all tiles that lies within the axes: what tile quantisation leaves."""
    return prod(sizes[p.axis] / (p.size * -(-sizes[p.axis] // p.size)) for p in _cut(plan) if sizes[p.axis])


def wave_use(waves: float) -> float:
    """The part of the blocks' places that is filled in all waves: what wave quantisation leaves."""
    return waves / ceil(waves) if waves else 0.0


def _cut(plan: Plan) -> tuple[Pieces, ...]:
    return tuple(Pieces(*each) for each in dict.fromkeys((p.axis, p.size) for p in (*plan.groups, *plan.streams)))
