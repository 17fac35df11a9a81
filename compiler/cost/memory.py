"""M: what a group holds at each level, against what the machine has."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.compiler.cost.plan import Plan, Tile
from treadle.compiler.machines.machine import WARP

ROW_PADDING = 16
"""Bytes added to each row of a shared tile, so that rows start in different banks."""

BASE_REGISTERS = 40
"""Registers a thread needs for addresses, sizes and loop counters. With this and FRAGMENT_REGISTERS, ptxas 13.0
takes for the examples from 20 more to 55 fewer than is estimated: fewer where pieces of the stream are long, as
it converts them in place; more where products have long rows, which it keeps as fragments (attention with
d = 256 takes all 255 and spills 27 words, whatever the pieces)."""

FRAGMENT_REGISTERS = 16
"""Registers for the operands of the products in flight."""


@dataclass(frozen=True)
class Footprint:
    """Estimated needs of one block."""

    warps: int
    shared_bytes: int
    registers_per_thread: int


def shared_tile_bytes(tile: Tile) -> int:
    if not tile.shape:
        return tile.width
    row = tile.shape[-1] * tile.width + ROW_PADDING
    return tile.elements // tile.shape[-1] * row


def footprint(plan: Plan) -> Footprint:
    warps = plan.warp_count
    shared = sum(shared_tile_bytes(tile) for tile in plan.tiles if tile.role == "shared")
    registers = sum(_registers(tile, warps, plan.has_products) for tile in plan.tiles)
    fixed = BASE_REGISTERS + (FRAGMENT_REGISTERS if plan.has_products else 0)
    return Footprint(warps, shared, registers + fixed)


def _registers(tile: Tile, warps: int, has_products: bool) -> int:
    """32-bit registers of one thread."""
    if tile.role == "shared":
        return 0
    words = -(-tile.elements * tile.width // 4)
    if tile.role == "row":
        # In a fragment four lanes share a row; without products all lanes of a warp do.
        lanes = WARP // 4 if has_products else 1
        return -(-words // (lanes * warps))
    return -(-words // (WARP * warps))
