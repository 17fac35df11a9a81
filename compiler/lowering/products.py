"""Contractions: products on tensor cores, and where their operands lie."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.absent import is_met_by_absent
from treadle.compiler.lowering.conditions import present
from treadle.compiler.lowering.conversions import is_exchanged, renumbered
from treadle.compiler.lowering.fragments import fill, filled, fragment_of, fragment_type, is_filled, masked
from treadle.compiler.lowering.layouts import FROM_REGISTERS, depth_of, operands_of
from treadle.compiler.lowering.names import hinted, named, placed
from treadle.compiler.lowering.numbers import neutral_of
from treadle.compiler.lowering.plan import KernelPlan
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import tile_of
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode, row_operand
from treadle.dialects.cuda.products import DEPTHS
from treadle.dialects.cuda.tiles import is_shared, layout_of, rows_of
from treadle.dialects.diagram import CastOp, ContractOp
from treadle.dialects.diagram.array import Number, array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import SIXTEEN_BIT

MOST_SHARED_FRAGMENTS = 32
"""Registers that a left operand may take for the whole of a stream."""


def lower_contract(lowering: KernelLowering, op: ContractOp) -> SSAValue:
    _check_formats(op)
    instruction = lowering.layouts.instructions[op]
    layout = lowering.layouts.of(op.result)
    depth = depth_of(lowering.plan, op)
    rows, columns = operands_of(lowering.plan, op)
    left = _product_operand(lowering, op, rows, depth, in_registers=instruction in FROM_REGISTERS)
    same = columns is rows and is_shared(left.type)
    right = left if same else _product_operand(lowering, op, columns, depth, in_registers=False)
    type = array_type(op.accumulate, sizes_of(op.result.type), "register", layout)
    init = (
        fill(lowering, type, neutral_of("add", format_of(type)), op.result)
        if op.init is None
        else fragment_of(lowering, op.init, layout)
    )
    subloop = lowering.plan.subloops.get(depth)
    if subloop is not None:
        _check_subloop(op, depth, subloop, left, instruction)
    promote = lowering.plan.promoted_every(op)
    product = lowering.emit(cuda.ProductOp(left, right, init, depth, instruction, subloop, promote))
    result = placed(product, op, product.result, op.result)
    if format_of(op.result.type) == op.accumulate:
        return filled(lowering, op.result, result, layout) if op.init is None else result
    cast = lowering.emit(CastOp(result, fragment_type(lowering, op.result, layout)))
    return placed(cast, op, cast.result, op.result)


def _check_formats(op: ContractOp) -> None:
    if op.init is not None and format_of(op.init.type) != op.accumulate:
        raise Refusal(
            op,
            f"a product is added to {format_of(op.init.type)}, but accumulated in {op.accumulate}: "
            "keep the state of a stream in the accumulator's format",
        )
    if str(op.accumulate) in SIXTEEN_BIT:
        raise Refusal(
            op,
            f"kernels accumulate products in f32 or i32, not in {op.accumulate}: write 'accumulate f32', and cast "
            "the result if it is to be narrow",
        )


def _check_subloop(op: ContractOp, depth: str, size: int, left: SSAValue, instruction: str) -> None:
    where = f"the schedule walks '{depth}' in pieces of {size}, but"
    if not is_shared(left.type):
        raise Refusal(op, f"{where} the left operand is made in registers, at which no loop can point")
    if size % DEPTHS.get(instruction, 1):
        raise Refusal(op, f"{where} {instruction} takes multiples of {DEPTHS[instruction]}: choose one of those")


def _product_operand(
    lowering: KernelLowering, op: ContractOp, operand: SSAValue, depth: str, in_registers: bool
) -> SSAValue:
    """A tile in shared memory, or fragments in the layout of a left operand."""
    lowered = lowering.values[operand]
    if isinstance(lowered, SSAValue) and is_shared(lowered.type):
        return _left_fragments(lowering, lowered, depth) if in_registers else lowered
    layout = lowering.layouts.of(operand)
    value = fragment_of(lowering, operand, layout)
    zero = neutral_of("add", format_of(value.type))
    value = present(lowering, operand, value, layout, 0)
    is_met = is_met_by_absent(operand, depth)
    with lowering.holding(operand):
        begin, stop = (ends.get(depth) if is_met else None for ends in (lowering.begins, lowering.stops))
    if begin is not None or stop is not None or not is_filled(lowering, operand, depth):
        value = masked(lowering, value, depth, zero, layout, begin, stop)
    if in_registers and _is_left_operand(layout, lowering.plan, depth):
        return value
    wanted = lowering.layouts.left_operand(operand) if in_registers else None
    if wanted is not None and is_exchanged(layout, wanted, value.type):
        moved = lowering.emit(cuda.ExchangeOp(value, fragment_type(lowering, operand, wanted)))
        return hinted(moved.result, operand)
    tile = tile_of(lowering, (lowering.twin(op), 0 if operand is op.lhs else 1), operand)
    lowering.emit(cuda.WriteOp(_as_far_as(lowering, tile, value, zero), tile))
    return tile


def _as_far_as(lowering: KernelLowering, tile: SSAValue, value: SSAValue, zero: Number) -> SSAValue:
    """The fragments with zeros in further registers, where the tile reaches further than they do: products take more
    elements at a time than a short axis has."""
    layout, sizes = layout_of(value.type), sizes_of(value.type)
    for axis, extent in zip(axes_of(tile.type), rows_of(tile.type).shape, strict=True):
        reach = layout.extent(axis)
        if reach >= extent:
            continue
        layout = LayoutAttr((*layout.register, Mode(axis, -(-extent // reach), reach)), layout.lane, layout.warp)
        longer = renumbered(value, array_type(format_of(value.type), sizes, "register", layout))
        start, end = lowering.index(0), lowering.index(sizes[axis])
        value = lowering.emit(cuda.MaskOp(lowering.emit(longer).result, axis, start, end, zero)).result
    return value


def _left_fragments(lowering: KernelLowering, tile: SSAValue, depth: str) -> SSAValue:
    """A left operand that all steps of a stream share is read into registers once, if the schedule says so, or says
    nothing and it takes few of them. Warpgroups read it from shared memory unless it says so, and a kernel beside them,
    whose pieces were chosen for theirs, has no registers for it."""
    schedule = lowering.plan.kernel.schedule
    stated = schedule.left.data if schedule is not None else ""
    if (
        (lowering.is_of_roles and stated != "registers")
        or depth in lowering.plan.subloops
        or lowering.offsets.keys() & set(axes_of(tile.type)) - lowering.plan.group_axes.keys()
    ):
        return tile
    if lowering.block is lowering.top:  # warpgroups multiply what is left behind a loop as they do within
        return lowering.left_fragments.get(tile, tile) if lowering.is_of_roles else tile
    rows, warps = lowering.plan.rows, lowering.plan.warps.get(lowering.plan.rows or "", 1)
    if rows is None:
        return tile
    row_tiles = -(-lowering.plan.pieces[rows] // (16 * warps))
    pack = 4 // format_of(tile.type).size
    depth_tiles = -(-lowering.plan.pieces[depth] // (8 * pack))
    many = 4 * row_tiles * depth_tiles > MOST_SHARED_FRAGMENTS
    if stated == "shared" or (many and not stated):
        return tile
    if tile not in lowering.left_fragments:
        along = (Mode("", lowering.plan.warp_count // warps, 0), Mode(rows, warps, 16 * row_tiles))
        if lowering.plan.across is None:  # warps along columns that groups cut are the faster digit
            along = along[::-1]
        layout = row_operand(rows, depth, row_tiles, depth_tiles, along, pack)
        type = array_type(format_of(tile.type), sizes_of(tile.type), "register", layout)
        with lowering.inside(lowering.top):
            read = lowering.emit(cuda.ReadOp(tile, type))
        lowering.left_fragments[tile] = named(read.result, (tile.name_hint or "").removesuffix("_shared") or None)
    return lowering.left_fragments[tile]


def _is_left_operand(layout: LayoutAttr, plan: KernelPlan, depth: str) -> bool:
    modes = tuple(layout.register)
    rows = plan.rows or ""
    return any(modes[-3:] == (Mode(depth, 2, 4 * pack), Mode(rows, 2, 8), Mode(depth, pack, 1)) for pack in (2, 4))
