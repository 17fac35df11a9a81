"""Print how the fragments of an accumulator are read from a tile of 16-bit numbers, four 8 x 8 matrices at a time
(`ldmatrix`)."""

from __future__ import annotations

from treadle.compiler.errors import Refusal
from treadle.compiler.printer.indices import Loop, add, subscripts, times
from treadle.compiler.printer.products import ProductPrinter
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator_axes
from treadle.dialects.cuda.tiles import boxes_of, format_bytes, is_boxed, layout_of, rows_of
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


def _is_covered(op: cuda.ReadOp, layout: LayoutAttr) -> bool:
    """Whether every row that the lanes point at is one of the tile."""
    tile = op.source.type
    shape = boxes_of(tile).shape if is_boxed(tile) else rows_of(tile).shape
    return all(layout.extent(axis) <= extent for axis, extent in zip(axes_of(tile), shape, strict=True))


def _matrix(writer: KernelWriter, op: cuda.ReadOp, layout: LayoutAttr, row: Loop, pair: Loop) -> tuple[str, str]:
    """The primitive, and the place that a lane gives it."""
    rows, columns = row.mode.axis, pair.mode.axis
    if not is_boxed(op.source.type):
        return ProductPrinter(writer).matrices(op.source, layout, row, pair)
    if row.mode.size > 1:
        raise Refusal(op, f"a warp has {16 * row.mode.size} rows of a tile in boxes: warpgroups have 16 a warp")
    boxes, type = boxes_of(op.source.type), op.source.type
    turned = axes_of(type)[boxes.row_axis] == rows
    own = ("lane / 8 % 2 * 8", "lane / 16 * 8 + lane % 8") if turned else ("lane % 16", "lane / 16 * 8")
    at = {rows: f"warp * 16 + {own[0]}", columns: add([times(pair.variable, 16), own[1]])}
    in_boxes = f"{writer.call('in_boxes')}<{boxes.span.data}, {boxes.rows}, {format_bytes(type)}>"
    order = (columns, rows) if turned else (rows, columns)
    place = f"{writer.values[op.source]}[{in_boxes}({', '.join(at[axis] for axis in order)})]"
    return writer.call("load_matrix_x4_trans" if turned else "load_matrix_x4"), place
