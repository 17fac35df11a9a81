"""Print reductions: of a thread's own elements, then of lanes."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.printer.elementwise import map_element
from treadle.compiler.printer.indices import Loop, subscripts
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.summands import summand
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import PARTIAL, lane_masks
from treadle.dialects.cuda.tiles import is_fragment, layout_of
from treadle.dialects.diagram import MapOp, ReduceOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import NARROW
from treadle.dialects.diagram.map import is_square

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
    combine = combination(writer, kind, op.result)
    neutral = (NEUTRAL_INTEGERS if integer else NEUTRAL)[kind]
    if str(format_of(op.result.type)) in NARROW:
        raise Refusal(op, f"'{kind}' reduces in {format_of(op.result.type)}: reduce in f32 and cast the result")
    layout, source = layout_of(op.result.type), layout_of(op.operand.type)
    name = writer.declare(op.result)
    if op.init is not None and (scaled := scaled_start(op.init)) is not None:
        return _print_scaled_sum(writer, op, name, scaled)
    partial = PARTIAL in op.attributes
    masks = [] if partial else lane_masks(source, op.over_axes)
    # Every lane would combine what it starts from: right if that changes nothing, or if lanes keep apart.
    early = kind in ("max", "min") or partial
    loops = writer.loops(layout)
    here = f"{name}{subscripts(layout, loops)}"
    start = writer.element(op.init, loops) if op.init is not None and early else neutral
    writer.text.nest(loops, [f"{here} = {start};"])
    with writer.names.scope():
        every = writer.loops_over(tuple(source.register))
        target = f"{name}{subscripts(layout, every)}"
        if (squares := _summed_squares(writer, op)) is not None:
            statements, root = map_element(writer, squares, every, is_square=True)
            further = f"fmaf({root}, {root}, {target})"
        else:
            statements, element = _element(writer, op, every)
            further = combine.format(target, element)
        writer.text.nest(every, [*statements, f"{target} = {further};"])
    shuffle = writer.call("shuffle_xor")
    statements = [f"{here} = {combine.format(here, f'{shuffle}({here}, {mask})')};" for mask in masks]
    if op.init is not None and not early:
        statements.append(f"{here} = {combine.format(writer.element(op.init, loops), here)};")
    if statements:
        writer.text.nest(loops, statements)


def _summed_squares(writer: KernelWriter, op: ReduceOp) -> MapOp | None:
    """The map that a sum makes its elements by, if these are squares: then a square and the sum are one multiply-add,
    which rounds once. Squares are never negative, so that no two of them are meant to cancel."""
    map = summand(op)
    if map is None or op.kind.data != "add" or op.operand in writer.values:
        return None
    return map if is_square(map) and str(format_of(op.result.type)) == "f32" else None


def _element(writer: KernelWriter, op: ReduceOp, loops: Sequence[Loop]) -> tuple[list[str], str]:
    """What a reduction takes at the loops: what is computed before, and the expression."""
    map = summand(op)
    if map is not None and op.operand not in writer.values:
        statements, text = map_element(writer, map, loops)
        constant = writer.names.fresh(op.operand.name_hint, "summand")
        return [*statements, f"const {c_type(op.operand.type)} {constant} = {text};"], constant
    element = writer.element(op.operand, loops)
    return [], f"{writer.call('to_float')}({element})" if str(format_of(op.operand.type)) in NARROW else element


def scaled_start(value: SSAValue) -> MapOp | None:
    """The map of a value that is a product and nothing but what a sum begins with, right after it: then the first
    summand and the product are one multiply-add."""
    map = value.owner
    if not isinstance(map, MapOp) or len(map.body.block.ops) != 2 or len(map.inputs) != 2:
        return None
    sum = map.next_op
    if (
        not isinstance(sum, ReduceOp)
        or sum.kind.data != "add"
        or sum.init is not value
        or PARTIAL not in sum.attributes
    ):
        return None
    is_used_once = len(list(value.uses)) == 1
    is_product = isinstance(map.yielded.owner, arith.MulfOp) and {*map.yielded.owner.operands} == {*map.body.block.args}
    layouts = {layout_of(each.type) for each in (*map.inputs, sum.result) if is_fragment(each.type)}
    formats = {str(format_of(each.type)) for each in (*map.inputs, sum.operand, sum.result)}
    return map if is_used_once and is_product and len(layouts) == 1 and formats == {"f32"} else None


def _print_scaled_sum(writer: KernelWriter, op: ReduceOp, name: str, start: MapOp) -> None:
    every = writer.loops(layout_of(op.operand.type))
    element = writer.element(op.operand, every)
    target = f"{name}{subscripts(layout_of(op.result.type), every)}"
    factors = ", ".join(writer.element(each, every) for each in start.inputs)
    first = [f"{loop.variable} == 0" for loop in every if loop.mode.axis in op.over_axes]
    begin, further = f"fmaf({factors}, {element})", f"{target} + {element}"
    value = f"{' && '.join(first)} ? {begin} : {further}" if first else begin
    writer.text.nest(every, [f"{target} = {value};"])


def print_combine(writer: KernelWriter, op: cuda.CombineOp) -> None:
    layout = layout_of(op.result.type)
    name = writer.over(op.result, [op.value], op)
    loops = writer.loops(layout)
    combine = combination(writer, op.kind.data, op.result)
    here, there = f"{name}{subscripts(layout, loops)}", writer.element(op.value, loops)
    statements: list[str] = []
    for mask in op.masks:
        other = f"{writer.call('shuffle_xor')}({there}, {mask})"
        statements.append(f"{here} = {combine.format(there, other)};")
        there = here
    writer.text.nest(loops, statements)


def combination(writer: KernelWriter, kind: str, value: SSAValue) -> str:
    if str(format_of(value.type)) == "i32":
        if kind in PRIMITIVES:
            writer.call(PRIMITIVES[kind])
        return COMBINE_INTEGERS[kind]
    if kind in ("max", "min"):
        writer.call({"max": "maximum", "min": "minimum"}[kind])
    return COMBINE[kind]
