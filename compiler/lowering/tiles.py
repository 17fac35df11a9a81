"""Tiles in shared memory."""

from __future__ import annotations

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.layouts import columns_of, depth_of, operands_of
from treadle.compiler.lowering.names import named, plain_name
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import RowsAttr, is_interleaved, rows_layout
from treadle.dialects.cuda.products import least_depth
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import ArrayEncoding, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import FORMAT_BYTES
from treadle.dialects.hierarchy import LoadOp


def tile_of(lowering: KernelLowering, key: object, value: SSAValue, rows: RowsAttr | None = None) -> SSAValue:
    """The tile in shared memory for one operand, the same wherever the operation is lowered again; it lies as
    copies and products like it, unless told."""
    rows = rows or _rows_of(lowering, value)
    place = (key, rows)
    if place not in lowering.tiles:
        lowering.tiles[place] = allocate(lowering, value, rows).result
    return lowering.tiles[place]


def allocate(lowering: KernelLowering, value: SSAValue, rows: RowsAttr, alias: bool = False) -> cuda.SharedOp:
    type = MemRefType(
        format_of(value.type),
        tuple(sizes_of(value.type).values()),
        memory_space=ArrayEncoding(axes_of(value.type), "shared", rows),
    )
    op = cuda.SharedOp(0, type, alias=alias)
    named(op.result, f"{plain_name(value) or 'tile'}_shared")
    return declare(lowering, op)


def declare(lowering: KernelLowering, op: cuda.SharedOp) -> cuda.SharedOp:
    """A tile stands at the beginning of the kernel, behind those before it."""
    if lowering.allocated:
        lowering.top.insert_op_after(op, lowering.allocated[-1])
    elif (first := lowering.top.first_op) is None:
        lowering.top.add_op(op)
    else:
        lowering.top.insert_op_before(op, first)
    lowering.allocated.append(op)
    return op


def _rows_of(lowering: KernelLowering, value: SSAValue) -> RowsAttr:
    """Padding: as deep as products take at a time, the last step at least, and as wide as they take."""
    for axis, size in sizes_of(value.type).items():
        if size == 0:
            uses = list(value.uses)
            raise Refusal(
                uses[0].operation if uses else lowering.plan.kernel,
                f"axis '{axis}' has no elements, and every group holds it whole: let diagram-compose-maps leave out "
                "what is computed along it",
            )
    extents = [_padded(lowering, axis, size, value) for axis, size in sizes_of(value.type).items()]
    rows = rows_layout(extents, 16 // FORMAT_BYTES[str(format_of(value.type))])
    if rows.swizzle_bits and _is_read_along_rows(lowering, value):
        return RowsAttr(rows.shape, rows.pitch.data)
    if 0 < rows.swizzle_bits < 3 and _is_interleaved(lowering, value):
        # Rows 0, 1, 4, 5, 8, 9, 12, 13 are read together: what tells 0 from 4, 8 and 12 lies one bit higher.
        return RowsAttr(rows.shape, rows.pitch.data, (rows.swizzle_bits, rows.swizzle_shift + 1))
    return rows


def _is_read_along_rows(lowering: KernelLowering, value: SSAValue) -> bool:
    """Whether lanes only ever read neighbours of a row, as they copy it: then no two meet in a bank, and what they read
    lies a constant apart."""
    uses = [use.operation for use in value.uses]
    axes = [axis for axis, size in sizes_of(value.type).items() if size != 1]
    if not isinstance(value.owner, LoadOp):
        return False
    if not lowering.plan.contractions:
        return all(mode.axis in ("", *axes[-1:]) or mode.size == 1 for mode in lowering.layouts.of(value).lane)
    return all(
        isinstance(op, ContractOp)
        and lowering.layouts.instructions[op] == "fma"
        and not set(axes[-1:]) & set(op.over_axes)
        for op in uses
    )


def _is_interleaved(lowering: KernelLowering, value: SSAValue) -> bool:
    """Whether products read the columns of a right operand in the order of an interleaved accumulator."""
    products = [use.operation for use in value.uses if isinstance(use.operation, ContractOp)]
    right = [op for op in products if operands_of(lowering.plan, op)[1] is value]
    return any(is_interleaved(lowering.layouts.of(op.result)) for op in right)


def _padded(lowering: KernelLowering, axis: str, size: int, value: SSAValue) -> int:
    """How far a tile reaches along an axis, so that every product that uses it stays inside."""
    extents = [size]
    for use in value.uses:
        op = use.operation
        if not isinstance(op, ContractOp) or lowering.layouts.instructions[op] == "fma":
            continue
        if axis in op.over_axes:
            if axis == depth_of(lowering.plan, op):
                step = least_depth(lowering.layouts.instructions[op])
                extents.append(-(-size // step) * step)
        elif axis in (lowering.plan.rows, columns_of(lowering.plan, op)):
            extents.append(lowering.layouts.of(op.result).extent(axis))
    return max(extents)
