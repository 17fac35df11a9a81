"""Prints how fragments are read from tiles in shared memory and written to them, in vectors as wide as both allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.compiler.layouts.operations import widest_in_tile
from treadle.compiler.printer.indices import Loop, replicas, subscripts
from treadle.compiler.printer.scalars import bare, c_type
from treadle.compiler.printer.text import Text
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import layout_of, rows_of
from treadle.dialects.diagram.array import axes_of


class Writer(Protocol):
    """What the printer of a kernel gives to that of its tiles."""

    text: Text
    values: dict[SSAValue, str]

    def call(self, primitive: str) -> str: ...
    def number(self, value: SSAValue, register: str) -> str: ...
    def loops(self, layout: LayoutAttr) -> list[Loop]: ...
    def tile_place(self, tile: SSAValue, layout: LayoutAttr, loops: Sequence[Loop]) -> tuple[str, str | None]: ...


class TilePrinter:
    """Prints `cuda.read` and `cuda.write` of one kernel."""

    def __init__(self, kernel: Writer):
        self.kernel = kernel

    def read(self, op: cuda.ReadOp | cuda.ReadClusterOp, name: str) -> None:
        """Into the fragments `name`, from its block's memory or another's; what the tile does not have becomes zero."""
        kernel, layout, type = self.kernel, layout_of(op.result.type), c_type(op.result.type)
        width = widest_in_tile(layout, op.source.type)
        loops, headers = self._loops(layout, width)
        place, fits = kernel.tile_place(op.source, layout, loops)
        load, block = "load_shared", ""
        if isinstance(op, cuda.ReadClusterOp):
            load, block = "load_cluster", f", int({bare(kernel.values[op.block])})"
        value = f"{kernel.call(load)}({self._pointer(place, width)}{block})"
        if fits is not None:
            value = f"{fits} ? {value} : {f'{type}(0)' if width == 1 else f'Vec<{type}, {width}>{{}}'}"
        held = _held(name, layout, loops, width)
        kernel.text.nest(
            headers, [f"{held} = {value};" if width == 1 else f"{kernel.call('unpack')}({held}, {value});"]
        )

    def write(self, op: cuda.WriteOp) -> None:
        """From the fragments, padding included; of threads that hold copies, the first."""
        kernel, layout = self.kernel, layout_of(op.value.type)
        _check_padding(op, layout)
        width = widest_in_tile(layout, op.destination.type)
        loops, headers = self._loops(layout, width)
        place, fits = kernel.tile_place(op.destination, layout, loops)
        held = _held(kernel.values[op.value], layout, loops, width)
        value = kernel.number(op.value, held) if width == 1 else f"{kernel.call('pack')}<{width}>({held})"
        store = f"{kernel.call('store_shared')}({self._pointer(place, width)}, {value});"
        tests = [test for test in (replicas(layout), fits) if test is not None]
        kernel.text.nest(headers, [f"if ({' && '.join(tests)}) {store}" if tests else store])

    def _pointer(self, place: str, width: int) -> str:
        return f"&{place}" if width == 1 else f"{self.kernel.call('vec')}<{width}>(&{place})"

    def _loops(self, layout: LayoutAttr, width: int) -> tuple[list[Loop], list[Loop | str]]:
        """The loops over the vectors of a fragment, and their text: the fastest digit goes in steps of `width`, or
        needs no loop."""
        loops = self.kernel.loops(layout)
        if width == 1:
            return loops, list(loops)
        last = loops.pop()
        if width == last.mode.size:
            return loops, list(loops)
        name = last.variable
        steps = f"UNROLL for (int {name} = 0; {name} < {last.mode.size}; {name} += {width})"
        return [*loops, last], [*loops, steps]


def _held(name: str, layout: LayoutAttr, loops: Sequence[Loop], width: int) -> str:
    """An element of a fragment's array, or for a vector the pointer to its first."""
    element = f"{name}{subscripts(layout, loops, len(loops))}"
    return f"&{element}" if width > 1 and len(loops) == len(tuple(layout.register)) else element


def _check_padding(op: cuda.WriteOp, layout: LayoutAttr) -> None:
    for axis, extent in zip(axes_of(op.destination.type), rows_of(op.destination.type).shape, strict=True):
        if layout.extent(axis) < extent:
            raise Refusal(
                op,
                f"fragments reach {layout.extent(axis)} along '{axis}', the tile {extent}: its padding would "
                "not be zero",
            )
