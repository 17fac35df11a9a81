"""Print how a block lists the pieces that data leave of a stream, and how turns read the list."""

from __future__ import annotations

from treadle.compiler.printer.arithmetic import define_index, short
from treadle.compiler.printer.control_flow import outermost
from treadle.compiler.printer.scalars import bare, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.selections import COUNTS


def print_select(writer: KernelWriter, op: cuda.SelectOp) -> None:
    """A loop in which each thread asks of a piece; kept ones are appended, turn by turn."""
    writer.comment_of(op)
    text, threads, step = writer.text, writer.kernel.threads.data, op.step.data
    tile, first, end = writer.values[op.tile], bare(writer.values[op.first]), short(writer, op.end)
    count = writer.names.fresh(op.count.name_hint, "count")
    text.line(f"int {count} = 0;")
    with outermost(writer), writer.names.scope():
        position = op.body.block.args[0]
        mine, place = writer.names.fresh(position.name_hint, "piece"), writer.names.fresh("counts")
        all_of = writer.names.fresh(f"{mine}_of_block")
        header = f"int64_t {all_of} = {first}, {place} = 0; {all_of} < {end}; {all_of} += {threads * step}"
        with text.block(f"for ({header}, {place} ^= {COUNTS // 2})"):
            text.line(f"const int64_t {mine} = {all_of} + int64_t(threadIdx.x) * {step};")
            writer.values[position] = mine
            writer.block(op.body.block)
            append = f"{writer.call('append_kept')}<{threads // LANES}>"
            kept = f"{writer.values[op.kept]} && {mine} < {end}"
            text.line(f"{count} = {append}({tile} + {COUNTS}, {tile} + {place}, {kept}, int({mine}), {count});")
    writer.values[op.count] = count


def print_selected(writer: KernelWriter, op: cuda.SelectedOp) -> None:
    turn, listed = term(writer.values[op.turn]), writer.values[op.tile]
    element = f"{writer.call('load_shared')}({listed} + {COUNTS} + {turn})"
    if op.count is None or op.rest is None:
        return define_index(writer, op, f"int64_t({element})")
    # In 32 bits, which a position has: a choice of 64 would take twice the registers in all that is made of it.
    count, rest = writer.values[op.count], bare(writer.values[op.rest])
    behind = f"int({rest}) + int({turn} - {count}) * {op.step.data}"
    define_index(writer, op, f"int64_t({turn} < {count} ? {element} : {behind})")


def print_selected_before(writer: KernelWriter, op: cuda.SelectedBeforeOp) -> None:
    position, count = bare(writer.values[op.position]), bare(writer.values[op.count])
    text = f"{writer.call('count_before')}({writer.values[op.tile]} + {COUNTS}, {count}, {position})"
    define_index(writer, op, text)
