"""Print fragments under other names of their axes: the same registers."""

from __future__ import annotations

from treadle.compiler.printer.indices import subscripts
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import layout_of


def print_rename(writer: KernelWriter, op: cuda.RenameOp) -> None:
    """Register by register, of which the compiler makes names. An array of its own, for what is made in the place of
    the result must leave the value as it is."""
    layout = layout_of(op.result.type)
    name = writer.declare(op.result)
    with writer.names.scope():
        loops = writer.loops(layout)
        at = subscripts(layout, loops)
        element = writer.number(op.value, f"{writer.values[op.value]}{at}")
        writer.text.nest(loops, [f"{name}{at} = {element};"])


__all__ = ["print_rename"]
