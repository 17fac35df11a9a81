"""Print how fragments are read from a tile, four 8 x 8 matrices at a time (`ldmatrix`): those of an accumulator, and
those of a left operand that warpgroups keep."""

from __future__ import annotations

from treadle.compiler.errors import Refusal
from treadle.compiler.layouts.tiles import CHUNK_BYTES
from treadle.compiler.printer.indices import Loop, add, subscripts, times, warp_place
from treadle.compiler.printer.products import ProductPrinter
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator_axes, left_operand_axes
from treadle.dialects.cuda.tiles import WORD, boxes_of, format_bytes, is_boxed, layout_of, rows_of
from treadle.dialects.diagram.array import axes_of


def read_accumulator(writer: KernelWriter, op: cuda.ReadOp, name: str) -> bool:
    """Read a tile into the fragments `name`; False where the layout, the format or the tile is another."""
    layout, axes = layout_of(op.result.type), accumulator_axes(layout_of(op.result.type))
    if axes is None or format_bytes(op.result.type) != 2 or not _is_covered(op, layout):
        return False
    rows, columns = axes
    tiles = next(mode for mode in layout.register if (mode.axis, mode.stride) == (columns, 8))
    if tiles.size % 2:
        return False
    outer = [loop for loop in writer.loops(layout) if loop.mode.axis == rows and loop.mode.stride == 16]
    with writer.names.scope():
        pair = Loop(Mode(columns, tiles.size // 2, 16), writer.names.fresh(f"{columns}16"))
        row = next(iter(outer), Loop(Mode(rows, 1, 16), "0"))
        load, place = _matrix(writer, op, layout, row, pair)
        held = f"{name}{subscripts(layout, outer, len(outer))}[{times(pair.variable, 2)}]"
        four = f"reinterpret_cast<{c_type(op.result.type)}(&)[4][2]>({held})"
        writer.text.nest([*outer, pair], [f"{load}({four}, &{place});"])
    return True


def read_left_in_boxes(writer: KernelWriter, op: cuda.ReadOp, name: str) -> bool:
    """Read a tile in boxes into the fragments `name` of a left operand, each step along the depth by one load; False
    where the layout or the tile is another. Rows of 8-bit numbers lie along the depth, as products take them."""
    layout, pack = layout_of(op.result.type), WORD // format_bytes(op.result.type)
    axes = left_operand_axes(layout, pack)
    if axes is None or not is_boxed(op.source.type):
        return False
    rows, depth = axes
    loops = writer.loops(layout)[:-3]
    row = next((loop for loop in loops if loop.mode.axis == rows), Loop(Mode(rows, 1, 16), "0"))
    step = next((loop for loop in loops if loop.mode.axis == depth), Loop(Mode(depth, 1, 8 * pack), "0"))
    with writer.names.scope():
        load, place = _matrix(writer, op, layout, row, step)
    writer.text.nest(loops, [f"{load}({name}{subscripts(layout, loops, len(loops))}, &{place});"])
    return True


def _is_covered(op: cuda.ReadOp, layout: LayoutAttr) -> bool:
    """Whether every row that the lanes point at is one of the tile."""
    tile = op.source.type
    shape = boxes_of(tile).shape if is_boxed(tile) else rows_of(tile).shape
    return all(layout.extent(axis) <= extent for axis, extent in zip(axes_of(tile), shape, strict=True))


def _matrix(writer: KernelWriter, op: cuda.ReadOp, layout: LayoutAttr, row: Loop, pair: Loop) -> tuple[str, str]:
    """The primitive that loads 16 rows of 32 bytes, and the place that a lane gives it."""
    rows, columns = row.mode.axis, pair.mode.axis
    chunk = CHUNK_BYTES // format_bytes(op.result.type)
    if not is_boxed(op.source.type):
        return ProductPrinter(writer).matrices(op.source, layout, row, pair)
    if row.mode.size > 1:
        raise Refusal(op, f"a warp has {16 * row.mode.size} rows of a tile in boxes: warpgroups have 16 a warp")
    boxes, type = boxes_of(op.source.type), op.source.type
    turned = axes_of(type)[boxes.row_axis] == rows
    own = ("lane / 8 % 2 * 8", "lane / 16 * 8 + lane % 8") if turned else ("lane % 16", f"lane / 16 * {chunk}")
    first = times(pair.variable, 2 * chunk) if pair.mode.size > 1 else "0"
    at = {rows: warp_place(layout, rows, own[0]), columns: add([warp_place(layout, columns), first, own[1]])}
    in_boxes = f"{writer.call('in_boxes')}<{boxes.span.data}, {boxes.rows}, {format_bytes(type)}>"
    order = (columns, rows) if turned else (rows, columns)
    place = f"{writer.values[op.source]}[{in_boxes}({', '.join(at[axis] for axis in order)})]"
    return writer.call("load_matrix_x4_trans" if turned else "load_matrix_x4"), place
