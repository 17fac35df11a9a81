"""Print copies of tiles whose rows begin anywhere: dealt by whole sectors (`compiler/layouts/order.py`)."""

from __future__ import annotations

from treadle.compiler.layouts.operations import dealt_axes
from treadle.compiler.layouts.sectors import SECTOR_BYTES
from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.indices import add, strided
from treadle.compiler.printer.scalars import c_type, term
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.tiles import format_bytes, is_line, rows_of
from treadle.dialects.diagram.array import axes_of, shape_of, sizes_of

WIDE_BLOCK = 256
"""Threads of a block that can have 255 registers each; of a larger one the register file holds fewer for each."""


def _whole_warps(slots: int) -> int:
    """Every lane of a warp takes part in a request."""
    return -(-slots // LANES) * LANES


class DealtPrinter:
    """Prints copies that look where in its sector each row begins. `width` is in scope."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter):
        self.kernel = kernel
        self.addresses = addresses
        products = cuda.ProductOp | cuda.ProductOfWarpgroupsOp
        self.has_products = any(isinstance(op, products) for op in kernel.kernel.walk())

    def copy(self, op: cuda.CopyOp) -> None:
        """One matrix of the tile after another: what the array has, slot by slot, then zeros in the rest."""
        if op.asynchronous is not None and is_line(op.tile.type) and max(op.width_list) == 1:
            return self.line(op)
        text = self.kernel.text
        *outer, row, column = ("", "", *(wide := dealt_axes(op.tile.type)))[-max(len(wide), 2) :]
        extents = dict(zip(axes_of(op.tile.type), rows_of(op.tile.type).shape, strict=True))
        at = {axis: self.kernel.names.fresh(f"{axis}_i") for axis in outer}
        counts = {axis: self._count(op, axis) for axis in (row, column)}
        for axis, index in at.items():
            text.line(f"for (int {index} = 0; {index} < {extents[axis]}; ++{index}) {{")
            text.depth += 1
            counts[row] = f"{index} < {self._count(op, axis)} ? {counts[row]} : 0"
        rows, columns = (self._named(counts[axis], axis) for axis in (row, column))
        self._matrix(op, at, (row, rows), (column, columns))
        if not op.is_outward:
            self._rest(op, at, (row, rows, extents.get(row, 1)), (column, columns, extents.get(column, 1)))
        for _ in outer:
            text.depth -= 1
            text.line("}")

    def _count(self, op: cuda.CopyOp, axis: str) -> str:
        """Elements that the array has along an axis of the tile."""
        if not axis:
            return "1"
        values, size = self.kernel.values, str(sizes_of(op.tile.type)[axis])
        limits = dict(zip(op.bound_axes, op.limits, strict=True))
        if axis not in limits:
            return size
        offset = dict(zip(axes_of(op.tile.type), op.offsets, strict=True))[axis]
        return f"{self.kernel.call('at_most')}({size}, {term(values[limits[axis]])} - {values[offset]})"

    def _begun(self, op: cuda.CopyOp, indices: dict[str, str], test: str = ">=") -> list[str]:
        """The tests that an element of the tile lies behind the beginnings of the copy, or before one."""
        values, offsets = self.kernel.values, dict(zip(axes_of(op.tile.type), op.offsets, strict=True))
        return [
            f"{add([values[offsets[axis]], indices.get(axis, '0')])} {test} {term(values[begin])}"
            for axis, begin in zip(op.begun_axes, op.begins, strict=True)
        ]

    def _named(self, count: str, axis: str) -> str:
        """A number as it is; else the name of a constant."""
        if count.isdigit():
            return count
        name = self.kernel.names.fresh(f"{axis}_count")
        self.kernel.text.line(f"const int {name} = {count};")
        return name

    def _matrix(self, op: cuda.CopyOp, at: dict[str, str], rows: tuple[str, str], columns: tuple[str, str]) -> None:
        kernel, text, fresh = self.kernel, self.kernel.text, self.kernel.names.fresh
        (row, row_count), (column, column_count) = rows, columns
        strides, type = kernel.strides[op.buffer], c_type(op.buffer.type)
        there, slots, slot, is_there = (fresh(name) for name in ("there", "slots", "i", "is_there"))
        row_i, column_i = fresh(f"{row or 'row'}_i"), fresh(f"{column or 'column'}_i")
        places = [(axis, name) for axis, name in ((row, row_i), (column, column_i)) if axis]
        known = {axis: self._known_here(stride) for axis, stride in strides.items()}
        first = self.addresses.where(op, at, strides=known)
        text.line(f"{'' if op.is_outward else 'const '}{type}* const {there} = {first};")
        steps = [known.get(row, "0"), known.get(column, "1")]
        given = ", ".join([there, row_count, column_count, *steps])
        text.line(f"const {kernel.call('sector_order')}<{type}, width> {slots}({given});")
        # Unrolled by the compiler, it would make the addresses of four at once, in registers that products need.
        unroll = "UNROLL_1 " if op.asynchronous is not None and self.has_products else ""
        first, step = self._known_here("thread"), kernel.threads
        with text.block(f"{unroll}for (int {slot} = {first}; {slot} < {slots}.count; {slot} += {step})"):
            text.line(f"const auto [{row_i}, {column_i}, {is_there}] = {slots}[{slot}];")
            here = at | dict(places)
            is_there = " && ".join([is_there, *self._begun(op, here), *self.addresses.inside(op, here)])
            far = add([there, *(strided(name, strides[axis]) for axis, name in places)])
            self._vector(op, self._place(op, here), f"{kernel.call('vec')}<width>({far})", is_there)

    def line(self, op: cuda.CopyOp) -> None:
        """A line of words, word by word, of which threads start to copy those too that the array has not: zeros come.
        What follows the copies knows of no store beside them."""
        kernel, text, type = self.kernel, self.kernel.text, op.tile.type
        (axis,) = dealt_axes(type)
        extent = dict(zip(axes_of(type), rows_of(type).shape, strict=True))[axis]
        strides = kernel.strides[op.buffer]
        stride, begin = strides[axis], self.addresses.where(op, {}, strides=strides)
        there, before, first, index = (kernel.names.fresh(name) for name in ("there", "before", "first", f"{axis}_i"))
        text.line(f"const {c_type(op.buffer.type)}* const {there} = {begin};")
        text.line(f"const int {before} = {kernel.call('before_in_sector')}({there}, {stride});")
        slots, threads = _whole_warps(extent + SECTOR_BYTES // format_bytes(type) - 1), kernel.threads
        here, shape = {axis: index}, rows_of(type).shape
        valid = self.addresses.valid(op, axes_of(type), shape_of(type), shape, here) or "true"
        near = f"{kernel.call('vec')}<width>({self._place(op, here)})"
        far = f"{kernel.call('vec')}<width>({there} + {strided(index, stride)})"
        copy = f"{kernel.call('copy_async_if')}({near}, {far}, 0 <= {index} && {index} < {extent}, {valid});"
        # As all threads count, so that the compiler knows the turns; whole warps may have nothing to do.
        with text.block(f"UNROLL for (int {first} = 0; {first} < {slots}; {first} += {threads})"):
            text.line(f"const int {index} = {first} + thread - {before};")
            text.line(copy if slots % threads == 0 else f"if ({first} + thread < {slots}) {copy}")

    def _known_here(self, number: str) -> str:
        """A number, of which a fallback works out where a copy begins, and its order, where it stands: from before a
        loop on, both would take registers that a kernel whose pieces were chosen for roles needs for its sums. They
        follow from strides and from the thread, and both have to be kept."""
        is_plain = number.removeprefix("-").isdigit() or not self._is_short_of_registers()
        return number if is_plain else f"{self.kernel.call('kept')}({number})"

    def _is_short_of_registers(self) -> bool:
        """Whether threads have fewer registers than they could: in fallbacks, and in blocks of more than 8 warps."""
        return self.kernel.kernel.fallback is not None or self.kernel.kernel.threads.data > WIDE_BLOCK

    def _vector(self, op: cuda.CopyOp, place: str, far: str, is_there: str) -> None:
        """Move one vector, if the slot has one."""
        text, call = self.kernel.text, self.kernel.call
        near = f"{call('vec')}<width>({place})"
        if op.is_outward:
            text.line(f"{call('store_global_if')}({far}, {call('load_shared_if')}({near}, {is_there}), {is_there});")
        elif op.asynchronous is not None:
            text.line(f"{call('copy_async_if')}({near}, {far}, {is_there});")
        else:
            text.line(f"{call('store_shared_if')}({near}, {call('load_global_if')}({far}, {is_there}), {is_there});")

    def _rest(
        self, op: cuda.CopyOp, at: dict[str, str], rows: tuple[str, str, int], columns: tuple[str, str, int]
    ) -> None:
        """Zeros where the tile has elements that the array has not."""
        kernel, text = self.kernel, self.kernel.text
        (row, row_count, row_extent), (column, column_count, column_extent) = rows, columns
        wanting = [
            (name, count, extent)
            for name, count, extent in (("row", row_count, row_extent), ("column", column_count, column_extent))
            if count != str(extent)
        ]
        if not wanting and not op.begins and not op.padding:
            return
        slot, total = kernel.names.fresh("i"), row_extent * column_extent
        index = {"row": f"{slot} / {column_extent}", "column": f"{slot} % {column_extent}"}
        fewer = [f"{count} < {extent}" for _, count, extent in wanting] + self._begun(op, at, "<")
        if not op.padding:  # of which no one corner tells
            text.line(f"if ({' || '.join(fewer)})")
        text.line(f"  for (int {slot} = thread; {slot} < {total}; {slot} += {kernel.threads})")
        places = {axis: text for axis, text in ((row, index["row"]), (column, index["column"])) if axis}
        outside = [f"{index[name]} >= {count}" for name, count, _ in wanting] + self._begun(op, at | places, "<")
        outside += [f"!({test})" for test in self.addresses.inside(op, at | places)]
        tests = " || ".join(outside)
        near = f"{kernel.call('vec')}<1>({self._place(op, at | places)})"
        zero = f"Vec<{c_type(op.buffer.type)}, 1>{{}}"
        text.line(f"    {kernel.call('store_shared_if')}({near}, {zero}, {tests});")

    def _place(self, op: cuda.CopyOp, indices: dict[str, str]) -> str:
        offset = self.kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes_of(op.tile.type)])
        return f"&{self.kernel.values[op.tile]}[{offset}]"
