"""Print swaps of blocks: each register is another one of the same thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from treadle.compiler.printer.indices import Loop, subscripts
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import Mode
from treadle.dialects.cuda.tiles import layout_of


def print_swap(writer: KernelWriter, op: cuda.SwapOp) -> None:
    """In loops where one digit of the registers changes in one bit or more; otherwise every register along the axis by
    itself."""
    layout = layout_of(op.value.type)
    name = writer.declare(op.result)
    with writer.names.scope():
        loops = writer.loops(layout)
        if (flipped := _flipped(op)) is not None:
            mode, bits = flipped
            source = [
                replace(each, variable=f"({each.variable} ^ {bits})") if each.mode == mode else each for each in loops
            ]
            return writer.text.nest(loops, [_moved(writer, op, name, loops, source)])
        around = [loop for loop in loops if loop.mode.axis != op.axis.data]
        pairs = ([_at(op, loops, digits) for digits in pair] for pair in op.moves.items())
        return writer.text.nest(around, [_moved(writer, op, name, to, source) for to, source in pairs])


def _moved(writer: KernelWriter, op: cuda.SwapOp, name: str, to: Sequence[Loop], source: Sequence[Loop]) -> str:
    layout = layout_of(op.value.type)
    element = writer.number(op.value, f"{writer.values[op.value]}{subscripts(layout, source)}")
    return f"{name}{subscripts(layout, to)} = {element};"


def _flipped(op: cuda.SwapOp) -> tuple[Mode, int] | None:
    """The register digit that alone changes, and its bits that do in all registers; None if there is none."""
    modes = [mode for mode in layout_of(op.value.type).register if mode.axis == op.axis.data]
    changes = {tuple(old ^ new for old, new in zip(*pair, strict=True)) for pair in op.moves.items()}
    changed = [(mode, bits) for mode, bits in zip(modes, next(iter(changes)), strict=True) if bits]
    return changed[0] if len(changes) == 1 and len(changed) == 1 else None


def _at(op: cuda.SwapOp, loops: Sequence[Loop], digits: Sequence[int]) -> list[Loop]:
    """The place where the digits along the axis are these."""
    left = iter(digits)
    return [Loop(each.mode, str(next(left))) if each.mode.axis == op.axis.data else each for each in loops]


__all__ = ["print_swap"]
