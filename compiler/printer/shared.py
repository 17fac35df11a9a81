"""Print where tiles lie in shared memory, and their stages."""

from __future__ import annotations

from treadle.compiler.printer.indices import scaled
from treadle.compiler.printer.scalars import c_type, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import boxes_of, is_boxed, rows_of
from treadle.dialects.diagram.array import axes_of


def print_shared(writer: KernelWriter, op: cuda.SharedOp) -> None:
    type = c_type(op.result.type)
    name = writer.names.fresh(op.result.name_hint, "tile")
    if is_boxed(op.result.type):
        return _boxed(writer, op)
    rows = rows_of(op.result.type)
    shape = " x ".join(str(extent) for extent in rows.shape if extent != 1) or "1"
    stages = f"{op.stages.data} stages of " if op.stages.data != 1 else ""
    order = f", swizzled by {1 << rows.swizzle_bits} rows" if rows.swizzle_bits else f", rows {rows.pitch.data} apart"
    base = f"{writer.call('shared_memory')}() + {op.offset.data}"
    writer.text.line(
        f"{type}* const {name} = reinterpret_cast<{type}*>({base});"
        f"  // [{', '.join(axes_of(op.result.type))}]: {stages}{shape}{order}"
    )
    writer.values[op.result] = name


def _boxed(writer: KernelWriter, op: cuda.SharedOp) -> None:
    type, boxes = c_type(op.result.type), boxes_of(op.result.type)
    name = writer.names.fresh(op.result.name_hint, "tile")
    shape = " x ".join(str(extent) for extent in boxes.shape if extent != 1)
    count = f"{op.stages.data} stage{'s' * (op.stages.data > 1)}"
    writer.text.line(
        f"{type}* const {name} = reinterpret_cast<{type}*>({writer.call('shared_memory')}() + {op.offset.data});"
        f"  // [{', '.join(axes_of(op.result.type))}]: {count} of {shape} in "
        f"boxes of {boxes.span.data}, swizzled"
    )
    writer.values[op.result] = name


def print_stage(writer: KernelWriter, op: cuda.StageOp) -> None:
    type = c_type(op.result.type)
    source = op.tile.owner
    assert isinstance(source, cuda.SharedOp)
    name = writer.names.fresh(op.result.name_hint, "stage")
    index = term(writer.values[op.index])
    place = writer.values[op.tile]
    if index != "0":
        place = f"{writer.call('stage_at')}({place}, {scaled(index, source.stage_bytes)})"
    writer.text.line(f"{type}* const {name} = {place};")
    writer.values[op.result] = name
