"""Print what the lanes of a warp answer together."""

from __future__ import annotations

from itertools import product

from treadle.compiler.printer.scalars import float_literal
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import layout_of


def print_exceeds(writer: KernelWriter, op: cuda.ExceedsOp) -> None:
    """`!(x <= limit)` holds of what is no number, too."""
    name = writer.names.fresh(op.result.name_hint, "grown")
    places = product(*(range(mode.size) for mode in layout_of(op.value.type).register))
    elements = (writer.values[op.value] + "".join(f"[{digit}]" for digit in place) for place in places)
    limit = float_literal(op.limit.value.data)
    asked = " || ".join(f"!({each} <= {limit})" for each in elements)
    writer.text.line(f"const bool {name} = {writer.call('any_lane')}({asked});")
    writer.values[op.result] = name
