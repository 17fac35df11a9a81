"""Print scans: of neighbours that a thread has, of the lanes that share a row, of registers further along it."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import pairwise

from treadle.compiler.errors import Refusal
from treadle.compiler.printer.indices import Loop, subscripts
from treadle.compiler.printer.reductions import NEUTRAL, NEUTRAL_INTEGERS, combination
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import ScanOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import NARROW


def print_scan(writer: KernelWriter, op: ScanOp) -> None:
    """For each row, and each of its stretches that a thread and its neighbours have, in their order: the thread scans
    its own elements, lanes exchange what they have in all (as a sum of lanes does), each keeps what is before it, and
    that goes into its elements with what the stretches before have."""
    axis, kind, format = op.axis.data, op.kind.data, str(format_of(op.result.type))
    if format in NARROW or str(format_of(op.operand.type)) in NARROW:
        raise Refusal(op, f"'{kind}' scans in {format}: scan in f32 and cast the result")
    layout = layout_of(op.result.type)
    combine, neutral = combination(writer, kind, op.result), (NEUTRAL_INTEGERS if format == "i32" else NEUTRAL)[kind]
    rows, far, near = _stretches(op, layout)
    name = writer.over(op.result, [op.operand], op)
    masks, type = _lane_masks(layout, axis), c_type(op.result.type)
    with writer.names.scope():
        outer, inner = writer.loops_over(rows), writer.loops_over(far)
        own = writer.loops_over(near)
        so_far, all, before = (writer.names.fresh(each) for each in ("so_far", "all", "before"))
        other = writer.names.fresh("other")
        start = neutral if op.init is None else writer.element(op.init, outer)
        along = _as_declared(layout, [*outer, *inner, *own])
        here, there = f"{name}{subscripts(layout, along)}", writer.element(op.operand, along)
        with _nested(writer, outer):
            writer.text.line(f"{type} {so_far} = {start};")
            with _nested(writer, inner):
                writer.text.line(f"{type} {all} = {neutral};")
                writer.text.nest(own, [f"{here} = {all} = {combine.format(all, there)};"])
                writer.text.line(f"{type} {before} = {so_far};")
                for mask in masks:
                    with writer.text.block(""):
                        writer.text.line(f"const {type} {other} = {writer.call('shuffle_xor')}({all}, {mask});")
                        writer.text.line(f"if (lane & {mask}) {before} = {combine.format(before, other)};")
                        writer.text.line(f"{all} = {combine.format(all, other)};")
                writer.text.nest(own, [f"{here} = {combine.format(before, here)};"])
                writer.text.line(f"{so_far} = {combine.format(so_far, all)};")


def _stretches(op: ScanOp, layout: LayoutAttr) -> tuple[list[Mode], list[Mode], list[Mode]]:
    """The register modes of a layout: those of the rows, those along the scanned axis that lie beyond the lanes of a
    row, and those within a lane; of the axis the slowest first (Refusal where lanes do not lie between)."""
    axis = op.axis.data
    along = sorted((mode for mode in layout.register if mode.axis == axis), key=lambda mode: -mode.stride)
    lanes = [mode for mode in layout.lane if mode.axis == axis]
    first = min((mode.stride for mode in lanes), default=layout.extent(axis))
    near, far = [mode for mode in along if mode.stride < first], [mode for mode in along if mode.stride >= first]
    digits = [*near[::-1], *sorted(lanes, key=lambda mode: mode.stride), *far[::-1]]
    if any(below.stride * below.size > above.stride for below, above in pairwise(digits)):
        raise Refusal(op, f"positions along '{axis}' lie in an order in the threads that no scan follows: {layout}")
    return [mode for mode in layout.register if mode.axis != axis], far, near


def _lane_masks(layout: LayoutAttr, axis: str) -> list[int]:
    """The bits of a lane's number that lie along an axis, the nearest first."""
    masks: dict[int, int] = {}
    below = 1
    for mode in reversed(tuple(layout.lane)):
        if mode.axis == axis:
            masks |= {mode.stride << bit: below << bit for bit in range(mode.size.bit_length() - 1)}
        below *= mode.size
    return [masks[stride] for stride in sorted(masks)]


def _as_declared(layout: LayoutAttr, loops: Sequence[Loop]) -> list[Loop]:
    """Loops in the order of the dimensions of a fragment."""
    by_mode = {loop.mode: loop for loop in loops}
    return [by_mode[mode] for mode in layout.register]


@contextmanager
def _nested(writer: KernelWriter, loops: Sequence[Loop]) -> Generator[None]:
    """In loops around what follows; in braces of its own without any."""
    with ExitStack() as stack:
        for loop in loops or [""]:
            stack.enter_context(writer.text.block(str(loop)))
        yield


__all__ = ["print_scan"]
