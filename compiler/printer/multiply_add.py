"""Print a `cuda.product` on the CUDA cores: loops of fused multiply-adds.

A thread has rows and columns of the result, and loads what it needs of both operands once for all of its products.
Where a row of a tile lies along the axis that is summed, four steps come in one load; where it lies along neighbours of
the result, those do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from xdsl.ir import SSAValue

from treadle.compiler.printer.indices import Loop, coordinate, subscripts
from treadle.compiler.printer.names import Names
from treadle.compiler.printer.text import Text
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import format_bytes, layout_of, lies_along, rows_of
from treadle.dialects.diagram.array import axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import NARROW

WORD = 4
"""Bytes of what a thread multiplies; narrower numbers become that one by one."""
TOGETHER = 16 // WORD
"""Words that one load brings at most."""
UNROLLED = 4
"""Steps of the summed axis that are under way at a time."""


class Writer(Protocol):
    """What printing multiply-adds needs of the printer of its kernel."""

    text: Text
    names: Names
    values: dict[SSAValue, str]

    def call(self, primitive: str) -> str: ...
    def loops(self, layout: LayoutAttr) -> list[Loop]: ...
    def tile_offset(self, tile: SSAValue, coordinates: Sequence[str]) -> str: ...


Walk = Callable[[cuda.ProductOp, str, str, int, int], AbstractContextManager[None]]
"""The loop over the summed axis: of an operation, the head, the variable, the depth of a step, the steps of a turn."""


@dataclass(frozen=True)
class Operand:
    """One operand, as a thread holds it."""

    tile: SSAValue
    name: str
    layout: LayoutAttr
    """Of the thread's elements at one step."""
    steps: int
    """How many steps of the summed axis one load brings."""
    neighbours: int
    """How many neighbours of the result one load brings."""

    @property
    def shape(self) -> str:
        sizes = [*self.layout.register_shape, *([self.steps] if self.steps > 1 else [])]
        return "".join(f"[{size}]" for size in sizes)


def print_multiply_add(kernel: Writer, op: cuda.ProductOp, name: str, walk: Walk) -> None:
    """Add the products of this thread's elements of both operands to the fragments `name`."""
    text, layout, wide = kernel.text, layout_of(op.result.type), str(format_of(op.result.type))
    with kernel.names.scope():
        left, right = (_operand(op, tile, layout, name) for tile, name in ((op.lhs, "lhs"), (op.rhs, "rhs")))
        steps = max(left.steps, right.steps)
        depth, extent = kernel.names.fresh(f"{op.axis}_i"), sizes_of(op.rhs.type)[op.axis]
        forth = f"++{depth}" if steps == 1 else f"{depth} += {steps}"
        head = f"UNROLL_{UNROLLED // steps} for (int {depth} = 0; {depth} < {extent}; {forth})"
        with walk(op, head, depth, 1, steps):
            for operand in (left, right):
                if operand.steps == steps:
                    _load(kernel, op, operand, depth, wide)
            if steps == 1:
                return _multiply(kernel, layout, name, left, right, "", wide)
            one = kernel.names.fresh(f"{op.axis}_one")
            with text.block(f"UNROLL for (int {one} = 0; {one} < {steps}; ++{one})"):
                for operand in (left, right):
                    if operand.steps < steps:
                        _load(kernel, op, operand, f"{depth} + {one}", wide)
                _multiply(kernel, layout, name, left, right, one, wide)


def _operand(op: cuda.ProductOp, tile: SSAValue, layout: LayoutAttr, name: str) -> Operand:
    own = layout.slice(axes_of(tile.type))
    if format_bytes(tile.type) != WORD or _tests(op, tile, own):
        return Operand(tile, name, own, 1, 1)
    rows, walked = rows_of(tile.type), sizes_of(op.rhs.type)[op.axis] if op.subloop is None else op.subloop.data
    if rows.pitch.data % TOGETHER == 0 and lies_along(tile.type, op.axis):
        return Operand(tile, name, own, TOGETHER if walked % TOGETHER == 0 else 1, 1)
    return Operand(tile, name, own, 1, _neighbours(tile, own))


def _neighbours(tile: SSAValue, own: LayoutAttr) -> int:
    """How many elements of a thread lie together in a tile."""
    if not tuple(own.register):
        return 1
    *others, last = own.register
    if last.stride != 1 or last.size not in (2, TOGETHER) or not lies_along(tile.type, last.axis):
        return 1
    along = [mode.stride for mode in (*others, *own.lane, *own.warp) if mode.axis == last.axis]
    return last.size if all(each % last.size == 0 for each in (*along, rows_of(tile.type).pitch.data)) else 1


def _tests(op: cuda.ProductOp, tile: SSAValue, own: LayoutAttr) -> list[str]:
    """The axes on which a thread has elements that the tile has not."""
    shape = zip(axes_of(tile.type), rows_of(tile.type).shape, strict=True)
    return [axis for axis, extent in shape if axis != op.axis and own.extent(axis) > extent]


def _load(kernel: Writer, op: cuda.ProductOp, operand: Operand, depth: str, wide: str) -> None:
    """What this thread needs of one operand at one step, or at some."""
    tile, own = operand.tile, operand.layout
    loops = kernel.loops(own)
    if operand.neighbours > 1:
        loops = loops[:-1]
    axes, rows = axes_of(tile.type), rows_of(tile.type)
    positions = [depth if axis == op.axis else coordinate(own, axis, loops) for axis in axes]
    extents = dict(zip(axes, rows.shape, strict=True))
    places = dict(zip(axes, positions, strict=True))
    place = f"&{kernel.values[tile]}[{kernel.tile_offset(tile, positions)}]"
    kernel.text.line(f"{'int32_t' if wide == 'i32' else 'float'} {operand.name}{operand.shape};")
    target = f"{operand.name}{subscripts(own, loops, len(loops))}"
    together = max(operand.steps, operand.neighbours)
    if together > 1:
        value = f"{kernel.call('load_shared')}({kernel.call('vec')}<{together}>({place}))"
        return kernel.text.nest(loops, [f"{kernel.call('unpack')}({target}, {value});"])
    load = f"{kernel.call('load_shared')}({place})"
    if str(format_of(tile.type)) in NARROW:
        load = f"{kernel.call('to_float')}({load})"
    if tests := [f"{places[axis]} < {extents[axis]}" for axis in _tests(op, tile, own)]:
        load = f"{' && '.join(tests)} ? {load} : 0"
    kernel.text.nest(loops, [f"{target} = {load};"])


def _multiply(
    kernel: Writer, layout: LayoutAttr, name: str, left: Operand, right: Operand, step: str, wide: str
) -> None:
    """All products of one step."""
    loops = kernel.loops(layout)
    here = f"{name}{subscripts(layout, loops)}"
    one, other = (
        f"{each.name}{subscripts(each.layout, loops)}{f'[{step}]' if each.steps > 1 else ''}" for each in (left, right)
    )
    text = f"fmaf({one}, {other}, {here})"
    if wide == "i32":
        text = f"{kernel.call('wrapped_sum')}({here}, {kernel.call('wrapped_product')}({one}, {other}))"
    kernel.text.nest(loops, [f"{here} = {text};"])
