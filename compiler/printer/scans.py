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
    that goes into its elements with what the stretches before have. In reverse, all in the other order."""
    axis, format = op.axis.data, str(format_of(op.result.type))
    if format in NARROW:
        raise Refusal(op, f"'{op.kind.data}' scans in {format}: scan in f32 and cast the result")
    layout = layout_of(op.result.type)
    rows, far, near = _stretches(op, layout)
    name = writer.over(op.result, [op.operand], op)
    with writer.names.scope():
        outer, inner, own = (writer.loops_over(modes) for modes in (rows, far, near))
        text = _Scan(writer, op, combination(writer, op.kind.data, op.result))
        along = _as_declared(layout, [*outer, *inner, *own])
        here, element = f"{name}{subscripts(layout, along)}", writer.element(op.operand, along)
        if str(format_of(op.operand.type)) in NARROW:
            element = f"{writer.call('to_float')}({element})"
        with _nested(writer, outer):
            writer.text.line(f"{text.type} {text.so_far} = {text.start(outer)};")
            with _nested(writer, [text.walked(loop) for loop in inner]):
                writer.text.line(f"{text.type} {text.all} = {text.neutral};")
                writer.text.nest([text.walked(loop) for loop in own], text.of_thread(here, element))
                writer.text.line(f"{text.type} {text.before} = {text.so_far};")
                for mask in _lane_masks(layout, axis):
                    text.of_lanes(mask)
                writer.text.nest(own, [f"{here} = {text.combine.format(text.before, here)};"])
                writer.text.line(f"{text.so_far} = {text.combine.format(text.so_far, text.all)};")


class _Scan:
    """The names and the statements of one scan."""

    def __init__(self, writer: KernelWriter, op: ScanOp, combine: str):
        self.writer, self.op, self.combine = writer, op, combine
        self.type = c_type(op.result.type)
        self.neutral = (NEUTRAL_INTEGERS if self.type == "int32_t" else NEUTRAL)[op.kind.data]
        fresh = writer.names.fresh
        self.so_far, self.all, self.before, self.other = map(fresh, ("so_far", "all", "before", "other"))

    def start(self, rows: Sequence[Loop]) -> str:
        """What each row begins with."""
        return self.neutral if self.op.init is None else self.writer.element(self.op.init, rows)

    def walked(self, loop: Loop) -> str:
        """A loop in the order of the scan."""
        if not self.op.is_reverse:
            return str(loop)
        return f"UNROLL for (int {loop.variable} = {loop.turns - 1}; {loop.variable} >= 0; --{loop.variable})"

    def of_thread(self, here: str, element: str) -> list[str]:
        """An element, of what the thread has up to it."""
        further = self.combine.format(self.all, element)
        if not self.op.is_exclusive:
            return [f"{here} = {self.all} = {further};"]
        element_of = self.other
        return [f"const {self.type} {element_of} = {element};", f"{here} = {self.all};", self._and(element_of)]

    def _and(self, element: str) -> str:
        return f"{self.all} = {self.combine.format(self.all, element)};"

    def of_lanes(self, mask: int) -> None:
        """Meet with the lanes that lie on the other side of a bit: what they have counts before what lies behind."""
        text = self.writer.text
        behind = f"!(lane & {mask})" if self.op.is_reverse else f"lane & {mask}"
        with text.block(""):
            text.line(f"const {self.type} {self.other} = {self.writer.call('shuffle_xor')}({self.all}, {mask});")
            text.line(f"if ({behind}) {self.before} = {self.combine.format(self.before, self.other)};")
            text.line(self._and(self.other))


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
def _nested(writer: KernelWriter, loops: Sequence[Loop | str]) -> Generator[None]:
    """In loops around what follows; in braces of its own without any."""
    with ExitStack() as stack:
        for loop in loops or [""]:
            stack.enter_context(writer.text.block(str(loop)))
        yield


__all__ = ["print_scan"]
