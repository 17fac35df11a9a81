"""Print copies by lanes of tiles in boxes whose rows are in order: dealt by whole sectors
(`compiler/layouts/box_order.py`), which primitives do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treadle.compiler.layouts.box_order import row_and_column
from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.indices import add
from treadle.compiler.printer.scalars import c_type, term
from treadle.compiler.printer.scattered import Scattered
from treadle.compiler.printer.stored_copies import loads_at_once
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.runs import moving
from treadle.dialects.cuda.tiles import WORD, boxes_of, format_bytes
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import Entry

FEWEST = 4
"""Bytes on their way together."""


class OrderedCopyPrinter:
    """Prints them in one kernel. `width` is in scope."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter):
        self.kernel = kernel
        self.addresses = addresses

    def copy(self, op: cuda.CopyOp, names: Mapping[Entry, str]) -> None:
        """`names` of the entries that say where the tile lies."""
        kernel, text, call = self.kernel, self.kernel.text, self.kernel.call
        boxes, (row, column) = boxes_of(op.tile.type), row_and_column(op.tile.type)
        there, tests, down, along = self._where(op, row, column, names)
        rows, columns = self._part(op, row, column, tests), self._part(op, column)
        shape = f"width, {boxes.span.data}, {boxes.rows}, {boxes.span.data * boxes.count}, {kernel.threads}"
        given = f"{kernel.values[op.tile]}, {there}, {rows}, {columns}"

        def copied() -> str:
            return f"{call('copy_to_boxes')}<{shape}>({given}, {down}, thread);"

        def stored() -> str:
            loads = loads_at_once(kernel) // 2  # of more, ptxas 13.0 spills up to 576 bytes: rows of 64 bytes, windows
            loads = max(FEWEST, loads // 4) if format_bytes(op.tile.type) == 1 else loads
            return f"{call('store_to_boxes')}<{shape}, {loads}>({given}, {down}, {along}, thread);"

        if max(op.width_list) * format_bytes(op.tile.type) < WORD:  # of a vector some elements may be absent
            return text.line(stored())
        if all(each >= WORD for each in cuda.alignments(kernel.kernel)):
            return text.line(copied())
        text.line(f"if constexpr (ALIGNED >= {WORD}) {copied()}")
        text.line(f"else {stored()}")

    def _where(
        self, op: cuda.CopyOp, row: str, column: str, names: Mapping[Entry, str]
    ) -> tuple[str, list[str], str, str]:
        """The name of where a tile begins, what must hold for any of it to be there, and the strides of its rows and
        columns."""
        kernel, strides, there = self.kernel, self.kernel.strides[op.buffer], self.kernel.names.fresh("there")
        place, tests, axes = "", list[str](), (row, column)
        if op.place is None:
            place = self.addresses.where(op, {})
        else:
            found = Scattered(kernel, self.addresses, op, {}, names=dict(names))
            assert not found.find([])
            forms = list(op.forms.values())
            place, tests = found.where(together=False), found.tests
            axes = tuple(axes_of(op.buffer.type)[moving(forms, axis) or 0] for axis in axes)
        kernel.text.line(f"const {c_type(op.buffer.type)}* const {there} = {place};")
        return there, tests, strides[axes[0]], strides[axes[1]]

    def _part(self, op: cuda.CopyOp, axis: str, but: str = "", tests: Sequence[str] = ()) -> str:
        """`{0, at_most(176, x - x0)}`: what the array has of a tile along an axis. Along its rows it has none where it
        ends, along an axis of which the tile has one position, before that; `but` names the columns."""
        kernel, size = self.kernel, str(sizes_of(op.tile.type)[axis])
        offset = kernel.values[self.addresses.offset(op, axis)]
        begins = dict(zip(op.begun_axes, op.begins, strict=True))
        limits = dict(zip(op.bound_axes, op.limits, strict=True))
        begin, end = "0", size
        if axis in begins:
            begin = f"{kernel.call('at_most')}({size}, {add([term(kernel.values[begins[axis]])])} - {offset})"
        if axis in limits:
            end = f"{kernel.call('at_most')}({size}, {term(kernel.values[limits[axis]])} - {offset})"
        others = {*axes_of(op.tile.type)} - {axis, but} if but else set[str]()
        if tests := [*tests, *self.addresses.tests(op, {}, others)]:
            end = f"{' && '.join(tests)} ? {end} : 0"
        return f"{{{begin}, {end}}}"
