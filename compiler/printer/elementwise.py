"""Print what each thread does with its own elements: constants, positions, maps, casts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from itertools import product
from math import copysign

from xdsl.dialects import scf
from xdsl.ir import SSAValue

from treadle.compiler.printer.indices import Loop, add, coordinate, subscripts
from treadle.compiler.printer.scalars import ScalarPrinter, bare, c_type, literal
from treadle.compiler.printer.sharing import print_shared
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import Mode
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import CastOp, FillOp, MapOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import BYTES, EIGHT_BIT, NARROW, SIXTEEN_BIT, STORED
from treadle.dialects.diagram.lagging import skips_ones
from treadle.dialects.diagram.sharing import sharing_in

MOST_WRITTEN_OUT = 4
"""Neighbours of which pairs are converted without a loop."""


def print_fill(writer: KernelWriter, op: FillOp) -> None:
    layout = layout_of(op.result.type)
    if not layout.register_shape:
        writer.declare(op.result, f" = {literal(op.value, writer.uses)}")
        return
    if op.number == 0 and copysign(1, op.number) > 0:
        name = writer.declare(op.result, " = {}")
        if _is_summed_to(op.result):  # zeros are there before the fence: ptxas would fence once more (C7519)
            writer.text.line(f"{writer.call('keep')}({name});")
        return
    name = writer.declare(op.result)
    loops = writer.loops(layout)
    writer.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {literal(op.value, writer.uses)};"])


def _is_summed_to(value: SSAValue) -> bool:
    """Whether products of warpgroups add to it, at once, behind a branch or in the first turn of a loop, and nothing
    else reads it."""
    found = False
    for use in value.uses:
        match use.operation:
            case cuda.WarpgroupProductOp() as product if product.accumulator is value:
                found = True
            case scf.ForOp() as loop if use.index >= 3 and _is_summed_to(loop.body.block.args[use.index - 2]):
                found = True
            case scf.YieldOp() as end:
                branch = end.parent_op()
                found = found or (isinstance(branch, scf.IfOp) and _is_summed_to(branch.results[use.index]))
            case _:
                return False
    return found


def print_index(writer: KernelWriter, op: cuda.IndexOp) -> None:
    layout = layout_of(op.result.type)
    name = writer.declare(op.result)
    loops = writer.loops(layout)
    start = f"int32_t({bare(writer.values[op.offset])})"
    place = add([start, coordinate(layout, op.axis, loops)])
    writer.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {place};"])


def print_map(writer: KernelWriter, op: MapOp, is_kept: bool = False) -> None:
    """A map; `is_kept` says that what follows from each element stays behind it."""
    if (shared := sharing_in(op.body.block)) is not None and print_shared(writer, op, shared, is_kept):
        return
    layout = layout_of(op.result.type)
    name = writer.over(op.result, op.inputs, op)
    with writer.names.scope() if layout.register_shape else nullcontext():
        loops = writer.loops_over(tuple(layout.register))
        statements, text = map_element(writer, op, loops)
        statements.append(f"{name}{subscripts(layout, loops)} = {text};")
        if is_kept:
            statements.append(f"{writer.call('keep')}({name}{subscripts(layout, loops)});")
        # Where the result has registers of its own, it is to have all elements.
        is_skipped = skips_ones(op) and name == writer.values[op.inputs[0]]
        with writer.text.block(_where_not_one(writer, op.inputs[1])) if is_skipped else nullcontext():
            writer.text.nest(loops, statements)
        if (_repeats_numbers(op) or _is_used_late(op)) and _is_summed_to(op.result):
            writer.text.line(f"{writer.call('keep')}({name});")


def _repeats_numbers(op: MapOp) -> bool:
    """Whether elements are one number along some axis, as zeros that are multiplied by a number of each row: nvcc then
    has one register for them, and copies it among the products that add to it, which ptxas would fence (C7519)."""
    told = {axis for each in op.inputs if not isinstance(each.owner, FillOp) for axis in axes_of(each.type)}
    return not told.issuperset(axes_of(op.result.type))


def _is_used_late(op: MapOp) -> bool:
    """Whether a result is used in a loop, behind a branch, or behind a wait for tiles: ptxas makes elements as late
    as it may, that is, behind the fence of the product that adds to them (C7519); not so those behind a test."""
    if skips_ones(op):
        return False
    later = op.next_op
    while later is not None and op.result not in later.operands:
        if isinstance(later, cuda.AwaitOp):
            return True
        later = later.next_op
    return later is None or bool(later.regions)


def _where_not_one(writer: KernelWriter, factor: SSAValue) -> str:
    """The head of what a thread does only if one of its factors is not one."""
    places = product(*(range(mode.size) for mode in layout_of(factor.type).register))
    named = ("".join(f"[{digit}]" for digit in place) for place in places)
    return f"if ({' || '.join(f'{writer.values[factor]}{each} != 1.0f' for each in named)})"


def map_element(
    writer: KernelWriter, op: MapOp, loops: Sequence[Loop], is_square: bool = False
) -> tuple[list[str], str]:
    """The element of a map that the loops have reached: what is computed before, and the expression; of one that is a
    square, that of its root."""
    statements: list[str] = []

    def declare(type: str, hint: str | None, text: str) -> str:
        constant = writer.names.fresh(hint)
        statements.append(f"const {type} {constant} = {bare(text)};")
        return constant

    arguments: dict[SSAValue, str] = {
        arg: writer.element(operand, loops) for arg, operand in zip(op.body.block.args, op.inputs, strict=True)
    }
    scalars = ScalarPrinter(writer.uses, declare)
    text = (scalars.root if is_square else scalars.body)(op.body.block, arguments)
    return statements, bare(text)


def print_cast(writer: KernelWriter, op: CastOp) -> None:
    layout = layout_of(op.result.type)
    source, target = str(format_of(op.operand.type)), str(format_of(op.result.type))
    name = writer.declare(op.result)
    loops = writer.loops(layout)
    if source == "f32" and target in SIXTEEN_BIT and _is_pair(layout.register):
        outer, pair = loops[:-1], loops[-1]
        low, high = (writer.element(op.operand, [*outer, Loop(pair.mode, digit)]) for digit in "01")
        statement = f"{writer.call('store_pair')}({name}{subscripts(layout, outer, len(outer))}, {low}, {high});"
        writer.text.nest(outer, [statement])
        return
    if (target in EIGHT_BIT or (source in STORED and target == "f16")) and _in_pairs(layout.register):
        return _cast_pairs(writer, op, name, loops)
    element = writer.element(op.operand, loops)
    if target in BYTES and target != source:
        element = f"{writer.call('clip_to_byte')}<{c_type(op.result.type)}>({element})"
    if source in NARROW:
        element = f"{writer.call('to_float')}({element})"
    if target in NARROW:
        element = f"{writer.call('from_float')}<{c_type(op.result.type)}>({element})"
    writer.text.nest(loops, [f"{name}{subscripts(layout, loops)} = {element};"])


def _cast_pairs(writer: KernelWriter, op: CastOp, name: str, loops: list[Loop]) -> None:
    """Two neighbours at once: 8-bit numbers have conversions of pairs. Four are a register."""
    layout, outer, last = layout_of(op.result.type), loops[:-1], loops[-1]
    if last.mode.size == 4 and str(format_of(op.operand.type)) == "f32":
        places = [[*outer, Loop(last.mode, str(digit))] for digit in range(4)]
        four = ", ".join(writer.element(op.operand, place) for place in places)
        to = f"{name}{subscripts(layout, outer, len(outer))}"
        return writer.text.nest(outer, [f"{writer.call('narrow_four')}({to}, {four});"])
    few, source = last.mode.size <= MOST_WRITTEN_OUT, str(format_of(op.operand.type))
    together = 4 if source in BYTES and last.mode.size % 4 == 0 else 2
    firsts = range(0, last.mode.size, together) if few else (last.variable,)
    statements: list[str] = []
    for first in firsts:
        second = first + 1 if isinstance(first, int) else f"({first} + 1)"
        places = [[*outer, Loop(last.mode, str(digit))] for digit in (first, second)]
        low, high = (writer.element(op.operand, place) for place in places)
        to = f"&{name}{subscripts(layout, places[0])}"
        if str(format_of(op.result.type)) == "f16":
            widen = f"widen_bytes<{together}>" if source in BYTES else "widen_pair"
            writer.call(widen.partition("<")[0])
            statements.append(f"{widen}({to}, &{low});")
            continue
        if source in NARROW:
            low, high = (f"{writer.call('to_float')}({element})" for element in (low, high))
        statements.append(f"{writer.call('narrow_pair')}({to}, {low}, {high});")
    head = f"UNROLL for (int {last.variable} = 0; {last.variable} < {last.mode.size}; {last.variable} += {together})"
    writer.text.nest(outer if few else [*outer, head], statements)


def _in_pairs(modes: cuda.ModesAttr) -> bool:
    """Whether every register of a fragment has a neighbour beside it."""
    last = next(reversed(tuple(modes)), Mode("", 1, 0))
    return last.size % 2 == 0 and last.stride == 1


def _is_pair(modes: cuda.ModesAttr) -> bool:
    """Whether the registers of a fragment come in pairs of neighbours."""
    last = next(reversed(tuple(modes)), Mode("", 1, 0))
    return last.size == 2 and last.stride == 1
