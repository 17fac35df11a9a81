"""Print reductions: of a thread's own elements, then of lanes."""

from __future__ import annotations

from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.printer.indices import subscripts
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import NARROW

COMBINE = {"add": "{0} + {1}", "mul": "{0} * {1}", "max": "maximum({0}, {1})", "min": "minimum({0}, {1})"}
COMBINE_INTEGERS = {
    "add": "wrapped_sum({0}, {1})",
    "mul": "wrapped_product({0}, {1})",
    "max": "max({0}, {1})",
    "min": "min({0}, {1})",
}
PRIMITIVES = {"add": "wrapped_sum", "mul": "wrapped_product"}
"""Those of them that are device primitives."""
NEUTRAL = {"add": "0.0f", "mul": "1.0f", "max": "-INFINITY", "min": "INFINITY"}
NEUTRAL_INTEGERS = {"add": "0", "mul": "1", "max": "(-2147483647 - 1)", "min": "2147483647"}


def print_reduce(writer: KernelWriter, op: ReduceOp) -> None:
    kind, integer = op.kind.data, str(format_of(op.result.type)) == "i32"
    combine = _combination(writer, kind, op.result)
    neutral = (NEUTRAL_INTEGERS if integer else NEUTRAL)[kind]
    if str(format_of(op.result.type)) in NARROW:
        raise Refusal(op, f"'{kind}' reduces in {format_of(op.result.type)}: reduce in f32 and cast the result")
    layout, source = layout_of(op.result.type), layout_of(op.operand.type)
    name = writer.declare(op.result)
    partial = PARTIAL in op.attributes
    masks = [] if partial else lane_masks(source, op.over_axes)
    # Every lane would combine what it starts from: right if that changes nothing, or if lanes keep apart.
    early = kind in ("max", "min") or partial
    loops = writer.loops(layout)
    here = f"{name}{subscripts(layout, loops)}"
    start = writer.element(op.init, loops) if op.init is not None and early else neutral
    writer.text.nest(loops, [f"{here} = {start};"])
    every = writer.loops(source)
    element = writer.element(op.operand, every)
    if str(format_of(op.operand.type)) in NARROW:
        element = f"{writer.call('to_float')}({element})"
    target = f"{name}{subscripts(layout, every)}"
    writer.text.nest(every, [f"{target} = {combine.format(target, element)};"])
    shuffle = writer.call("shuffle_xor")
    statements = [f"{here} = {combine.format(here, f'{shuffle}({here}, {mask})')};" for mask in masks]
    if op.init is not None and not early:
        statements.append(f"{here} = {combine.format(writer.element(op.init, loops), here)};")
    if statements:
        writer.text.nest(loops, statements)


def print_combine(writer: KernelWriter, op: cuda.CombineOp) -> None:
    layout = layout_of(op.result.type)
    name = writer.over(op.result, [op.value], op)
    loops = writer.loops(layout)
    combine = _combination(writer, op.kind.data, op.result)
    here, there = f"{name}{subscripts(layout, loops)}", writer.element(op.value, loops)
    statements: list[str] = []
    for mask in op.masks:
        other = f"{writer.call('shuffle_xor')}({there}, {mask})"
        statements.append(f"{here} = {combine.format(there, other)};")
        there = here
    writer.text.nest(loops, statements)


def _combination(writer: KernelWriter, kind: str, value: SSAValue) -> str:
    if str(format_of(value.type)) == "i32":
        if kind in PRIMITIVES:
            writer.call(PRIMITIVES[kind])
        return COMBINE_INTEGERS[kind]
    if kind in ("max", "min"):
        writer.call({"max": "maximum", "min": "minimum"}[kind])
    return COMBINE[kind]
