"""M: what a group holds at each level, against what the machine has."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from treadle.compiler.cost.plan import Plan, Tile
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda.layout import rows_layout
from treadle.passes.pipelining import FIRST_ARCH, PipeliningPass

STAGES = PipeliningPass.stages
"""Places of each tile that a stream loads, where a block has memory for so many."""

TILE_UNIT = 128
"""Tiles begin at multiples of this many bytes."""

BASE_REGISTERS = 40
"""Registers of a kernel without products, for addresses, sizes and counters."""

PRODUCT_BASE = 26
"""And of one with products."""

CARRIED = 1.55
"""Registers for each accumulator that is carried: itself, half a one on its way out in 16 bits, and operands that are
loaded ahead, of which there are more where there are more accumulators."""

PASSING = 1.2
"""For each register of what a step makes and uses up."""

FROM_SM_90 = 13
"""Registers that ptxas takes more for sm_90 and newer. With these numbers, what ptxas 13.0 takes is within about 10 %
of the estimate for attention and matmul at the sizes in `benchmarks/results/model.md`."""

SPILL_MOST = 48
"""Registers that a thread may lack: with more of its values in local memory, a kernel is not worth trying."""


@dataclass(frozen=True)
class Footprint:
    """Estimated needs of one block."""

    warps: int
    stages: int
    shared_bytes: int
    registers_per_thread: int
    spilled: int = 0
    """Registers that a thread lacks: its values go to local memory."""


def footprint(plan: Plan, machine: Machine) -> Footprint:
    wanted = registers(plan, machine)
    most = machine.limits.registers_per_thread
    spilled = max(0, wanted - most) if wanted <= most + SPILL_MOST else 0
    stages = stages_on(plan, machine)
    return Footprint(plan.warp_count, stages, shared_bytes(plan, stages), wanted - spilled, spilled)


def stages_on(plan: Plan, machine: Machine) -> int:
    """How many pieces of each streamed tile are in shared memory at once: as `pipelining` decides it."""
    if machine.capability < FIRST_ARCH or not any(tile.role == "staged" for tile in plan.tiles):
        return 1
    return STAGES if shared_bytes(plan, STAGES) <= machine.limits.shared_per_block else 1


def shared_bytes(plan: Plan, stages: int) -> int:
    """Of a block: results on their way out lie where the tiles were."""
    places = {"shared": 1, "staged": stages}
    tiles = sum(places[tile.role] * tile_bytes(tile.shape, tile.width) for tile in plan.tiles if tile.role in places)
    leaving = (tile_bytes(tile.shape, tile.width) for tile in plan.tiles if tile.role == "leaving")
    return max((tiles, *leaving))


@cache
def tile_bytes(shape: tuple[int, ...], width: int) -> int:
    """One place of a tile, in the layout that the lowering gives it."""
    size = rows_layout(shape, 16 // width).elements * width
    return -(-size // TILE_UNIT) * TILE_UNIT


def registers(plan: Plan, machine: Machine) -> int:
    """32-bit registers of one thread, however many there are."""
    if not plan.has_products:
        return BASE_REGISTERS + sum(_words(tile, plan) for tile in plan.tiles if tile.role in ("value", "row"))
    weights = {"carried": CARRIED, "passing": PASSING, "value": 1, "row": 1}
    held = sum(weights[tile.role] * _words(tile, plan) for tile in plan.tiles if tile.role in weights)
    return round(PRODUCT_BASE + (FROM_SM_90 if machine.capability >= 90 else 0) + held)


def _words(tile: Tile, plan: Plan) -> int:
    """Registers that a lane needs for its part of a tile."""
    words = -(-tile.elements * tile.width // 4)
    # In a fragment four lanes share a row; without products all lanes of a warp do.
    lanes = (WARP // 4 if plan.has_products else 1) if tile.role == "row" else WARP
    return -(-words // (lanes * plan.warp_count))
