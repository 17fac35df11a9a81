"""Print copies between device memory and shared memory: `cuda.copy`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from math import prod

from treadle.compiler.layouts.copies import line_span
from treadle.compiler.layouts.operations import is_one_request, looks_at_sectors, span_of_rows
from treadle.compiler.layouts.run_order import Runs, runs_of
from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.boxed_copies import BoxedCopyPrinter
from treadle.compiler.printer.dealt import DealtPrinter
from treadle.compiler.printer.indices import scaled, strided
from treadle.compiler.printer.run_copies import RunCopyPrinter
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.scattered import Rows, Scattered, axes_asked
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import extents_of, is_boxed, rows_of
from treadle.dialects.diagram.array import axes_of, format_of, shape_of
from treadle.dialects.diagram.condition import Entry
from treadle.dialects.diagram.formats import FORMAT_BYTES

WHOLE = f"ALIGNED >= {cuda.WHOLE_SECTORS}"
"""In C: rows begin with a sector."""


@dataclass(frozen=True)
class Running:
    """The names of what a loop carries for one of its copies."""

    pointer: str
    """Where this thread copies from next."""
    down: str
    """Bytes to the thread's next row."""
    turn: str
    """Bytes from its last row in one turn to its first in the next; `down` if the pieces follow on each other."""


class CopyPrinter:
    """Prints the copies of one kernel. Those of a pipelined loop run along by a pointer that the loop carries."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter):
        self.kernel = kernel
        self.addresses = addresses
        self.dealt = DealtPrinter(kernel, addresses)
        self.boxed = BoxedCopyPrinter(kernel, addresses)
        self.runs = RunCopyPrinter(kernel, addresses)
        self.fixed: dict[Entry, str] = {}
        """The names of the entries of what is copied, where it has one of each."""
        self.running: dict[cuda.CopyOp, Running] = {}
        """Copies whose loop carries their pointer (`running_copies`)."""
        self.has_whole_sectors = cuda.WHOLE_SECTORS in cuda.alignments(kernel.kernel)

    def copy(self, op: cuda.CopyOp) -> None:
        way = "from" if op.is_outward else "to"
        name = f"{self.kernel.values[op.buffer]}[{', '.join(axes_of(op.tile.type))}]"
        with self.addresses.width(op, f"{name} {way} shared memory"):
            self.move(op)

    def move(self, op: cuda.CopyOp, below: int = EVERYWHERE) -> None:
        """A copy whose width is in scope, in variants for rows aligned to fewer than so many bytes."""
        if is_boxed(op.tile.type):
            return self.boxed.copy(op, self._fixed)
        if op.place is not None:
            return self._gather(op, below)
        if is_one_request(op.tile.type) or op.divisors:
            return self._copy_linear(op, wide_axes(op), together=False)
        if self._whole_or_less(op, below):
            return self.dealt.copy(op)
        with self.kernel.names.scope(), self.kernel.text.block(f"if constexpr ({WHOLE})", "} else {"):
            self._copy_whole(op, wide_axes(op))
        self.kernel.text.depth += 1
        self.dealt.copy(op)
        self.kernel.text.depth -= 1
        self.kernel.text.line("}")

    def _gather(self, op: cuda.CopyOp, below: int) -> None:
        """A copy of what is scattered: where rows are whole sectors row by row, so that each asks for its entries once;
        elsewhere run by run, where rows begin; vector by vector if there are no runs."""
        wide, narrow = wide_axes(op), self._whole_or_less(op, below)
        runs = None if is_one_request(op.tile.type) else runs_of(op, op.tile.type)
        self.fixed = self._fixed(op)
        span = span_of_rows(op, self.kernel.threads)
        if runs is None and (span is None or not self.has_whole_sectors):
            return self._copy_linear(op, wide)
        if runs is not None and narrow:
            return self._gather_runs(op, runs)
        with self.kernel.names.scope(), self.kernel.text.block(f"if constexpr ({WHOLE})", "} else {"):
            if span is None:
                self._copy_linear(op, wide)
            else:
                self._gather_rows(op, wide, span)
        self.kernel.text.depth += 1
        if runs is None:
            self._copy_linear(op, wide)
        else:
            self._gather_runs(op, runs)
        self.kernel.text.depth -= 1
        self.kernel.text.line("}")

    def _whole_or_less(self, op: cuda.CopyOp, below: int) -> bool:
        """Whether no variant in which a copy stands finds rows to be whole sectors."""
        return self._is_dealt(op) or below <= cuda.WHOLE_SECTORS

    def _gather_runs(self, op: cuda.CopyOp, runs: Runs) -> None:
        def place(indices: Mapping[str, str]) -> str:
            offset = self.kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes_of(op.tile.type)])
            return f"{self.kernel.values[op.tile]}[{offset}]"

        self.runs.copy(op, runs, self.fixed, place, lambda: None)

    def _fixed(self, op: cuda.CopyOp) -> dict[Entry, str]:
        """The names of the entries of a tile that has one, loaded before its loops."""
        asked = axes_asked(op)
        if asked & {axis for axis, _ in wide_axes(op)}:
            return {}
        found = Scattered(self.kernel, self.addresses, op, {})
        for statement in found.find(self.addresses.tests(op, {}, asked)):
            self.kernel.text.line(statement)
        return found.names

    def _gather_rows(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]], span: int) -> None:
        """As `_copy_rows`, with a pointer that is found for each row."""
        kernel, text = self.kernel, self.kernel.text
        (row, count), (column, length) = wide
        step, down, along = (kernel.names.fresh(name) for name in (f"{row}_step", f"{row}_down", f"{column}_along"))
        text.line(f"constexpr int {step} = {kernel.threads} * width / {span};  // rows that the block copies at once")
        indices, axes = self.own_place(wide, span), {*axes_of(op.tile.type)}
        asked = axes_asked(op) - {column}
        near = self._row_offset(op, indices, step, down)
        with text.block(f"UNROLL_8 for (int {down} = 0; {down} < {count}; {down} += {step})"):
            here = {row: f"{indices[row]} + {down}", column: indices[column]}
            known = Rows(row, indices[row], down, kernel.threads * max(op.width_list) // span)
            found = Scattered(kernel, self.addresses, op, dict(here), known, names=dict(self.fixed))
            for statement in found.find(self.addresses.tests(op, here, asked)):
                text.line(statement)
            tests = [*found.tests, *self.addresses.tests(op, here, axes - asked - {column})]
            pointer, there = kernel.names.fresh("there"), kernel.names.fresh("is_there")
            text.line(f"{pointer_type(op)} const {pointer} = {found.where(together=True)};")
            text.line(f"const bool {there} = {' && '.join(tests) or 'true'};")
            far = pointer
            if span < length:
                here[column] = f"{indices[column]} + {along}"
                near, far = f"{near} + {along}", f"{pointer} + {along}"
                text.line(f"UNROLL for (int {along} = 0; {along} < {length}; {along} += {span})")
                text.depth += 1
            valid = " && ".join([there, *self.addresses.tests(op, here, {column})])
            self._move_vector(op, f"{kernel.call('vec')}<width>({far})", near, valid)
            text.depth -= 1 if span < length else 0

    def _is_dealt(self, op: cuda.CopyOp) -> bool:
        """Whether a copy looks where in its sector each row begins in all variants of the kernel."""
        return not self.has_whole_sectors or looks_at_sectors(op, cuda.WHOLE_SECTORS)

    def _copy_whole(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]]) -> None:
        """A copy of rows that are whole sectors, at the widest vector."""
        span = self.span(op)
        if span is None:
            self._copy_linear(op, wide)
        else:
            self._copy_rows(op, wide, span)

    def span(self, op: cuda.CopyOp) -> int | None:
        """Neighbours that neighbouring threads take before they go down, of a copy of whole sectors; None if it goes
        in the order of the tile."""
        if self._is_dealt(op) or is_one_request(op.tile.type) or op.divisors or is_boxed(op.tile.type):
            return None
        bytes = FORMAT_BYTES[str(format_of(op.tile.type))]
        return line_span(dict(wide_axes(op)), max(op.width_list, default=1), self.kernel.threads, bytes)

    def _copy_rows(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]], span: int) -> None:
        """Some rows at a time: a thread keeps its place in the line, goes along the row line by line, and then down
        by as many rows as the block copies at once."""
        kernel, text = self.kernel, self.kernel.text
        (row, count), (column, length) = wide
        threads = kernel.threads
        step, down, along = (kernel.names.fresh(name) for name in (f"{row}_step", f"{row}_down", f"{column}_along"))
        text.line(f"constexpr int {step} = {threads} * width / {span};  // rows that the block copies at once")
        indices = self.own_place(wide, span)
        running = self.running.get(op)
        pointer = kernel.names.fresh("there") if running is None else running.pointer
        if running is None:
            text.line(f"{pointer_type(op)} {pointer} = {self.addresses.where(op, indices, together=True)};")
        here = {row: f"{indices[row]} + {down}", column: indices[column]}
        near, far = self._row_offset(op, indices, step, down), pointer
        with text.block(f"UNROLL_8 for (int {down} = 0; {down} < {count}; {down} += {step})"):
            if span < length:
                here[column] = f"{indices[column]} + {along}"
                near += f" + {along}"
                far = f"{pointer} + {along}"
                text.line(f"UNROLL for (int {along} = 0; {along} < {length}; {along} += {span})")
                text.depth += 1
            self._copy_vector(op, here, f"{kernel.call('vec')}<width>({far})", near)
            text.depth -= 1 if span < length else 0
            if running is None:
                text.line(f"{pointer} += {strided(step, kernel.strides[op.buffer][row])};")
            else:
                last = f"{down} + {step} < {count} ? {running.down} : {running.turn}"
                bytes = running.down if running.turn == running.down else last
                text.line(f"{kernel.call('advance')}({pointer}, {bytes});")

    def own_place(self, wide: Sequence[tuple[str, int]], span: int) -> dict[str, str]:
        """This thread's first row, and its place in the line."""
        (row, _), (column, _) = wide
        indices = {axis: self.kernel.names.fresh(f"{axis}_i") for axis in (row, column)}
        self.kernel.text.line(
            f"const int {indices[row]} = thread * width / {span}, {indices[column]} = thread * width % {span};"
        )
        return indices

    def _row_offset(self, op: cuda.CopyOp, indices: dict[str, str], step: str, down: str) -> str:
        """Where the vector so many rows further down lies in the tile."""
        rows = rows_of(op.tile.type)
        near = self.kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes_of(op.tile.type)])
        if not rows.swizzle_bits:
            return f"{near} + {scaled(down, rows.pitch.data)}"
        head, _, tail = near.partition(">(")
        head = head.replace("swizzled<", f"{self.kernel.call('swizzled_down')}<")
        return f"{head}, {step}>({tail[:-1]}, {down})"

    def _copy_linear(self, op: cuda.CopyOp, wide: Sequence[tuple[str, int]], together: bool = True) -> None:
        """Vector by vector, in the order of the tile."""
        kernel = self.kernel
        total, threads = prod(extent for _, extent in wide), kernel.threads
        first = kernel.names.fresh("first")
        # The loop counts what all threads copy, so the compiler knows its turns, and unrolls them without tests.
        with kernel.text.block(f"UNROLL_4 for (int {first} = 0; {first} < {total}; {first} += {threads} * width)"):
            kernel.text.line(f"const int i = {first} + thread * width;")
            is_even = total % (threads * max(op.width_list)) == 0
            with nullcontext() if is_even else kernel.text.block(f"if (i < {total})"):
                indices = self._split_index(wide)
                if op.place is not None:
                    self._gather_vector(op, indices)
                else:
                    far = f"{kernel.call('vec')}<width>({self.addresses.where(op, indices, together=together)})"
                    offset = kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes_of(op.tile.type)])
                    self._copy_vector(op, indices, far, offset)

    def _copy_vector(self, op: cuda.CopyOp, indices: dict[str, str], far: str, offset: str) -> None:
        """Move one vector of a tile between `far` in device memory and its place, `offset` elements into the tile."""
        type = op.tile.type
        valid = self.addresses.valid(op, axes_of(type), shape_of(type), rows_of(type).shape, indices)
        self._move_vector(op, far, offset, valid)

    def _gather_vector(self, op: cuda.CopyOp, indices: dict[str, str]) -> None:
        """Move one vector of a scattered tile, whose entries it asks for itself."""
        kernel, axes = self.kernel, axes_of(op.tile.type)
        asked = axes_asked(op)
        found = Scattered(kernel, self.addresses, op, indices, names=dict(self.fixed))
        for statement in found.find(self.addresses.tests(op, indices, asked)):
            kernel.text.line(statement)
        tests = [*found.tests, *self.addresses.tests(op, indices, {*axes} - asked)]
        far = f"{kernel.call('vec')}<width>({found.where(together=False)})"
        offset = kernel.tile_offset(op.tile, [indices.get(axis, "0") for axis in axes])
        self._move_vector(op, far, offset, " && ".join(tests) or None)

    def _move_vector(self, op: cuda.CopyOp, far: str, offset: str, valid: str | None) -> None:
        kernel, text = self.kernel, self.kernel.text
        near = f"{kernel.call('vec')}<width>(&{kernel.values[op.tile]}[{offset}])"
        if op.is_outward:
            value = f"{kernel.call('load_shared')}({near})"
            if valid is None:
                text.line(f"{kernel.call('store_global')}({far}, {value});")
            else:
                text.line(f"{kernel.call('store_global_if')}({far}, {value}, {valid});")
        elif op.asynchronous is not None:
            text.line(f"{kernel.call('copy_async_or_now')}({near}, {far}, {valid or 'true'});")
        else:
            text.line(f"{kernel.call('store_shared')}({near}, {self.addresses.load_global(far, valid)});")

    def _split_index(self, wide: Sequence[tuple[str, int]]) -> dict[str, str]:
        """Coordinates within the tile from the linear index `i`, the last axis fastest."""
        indices: dict[str, str] = {}
        below = 1
        parts: list[str] = []
        for position, (axis, extent) in enumerate(reversed(wide)):
            text = "i" if below == 1 else f"i / {below}"
            if position < len(wide) - 1:
                text += f" % {extent}"
            indices[axis] = self.kernel.names.fresh(f"{axis}_i")
            parts.insert(0, f"{indices[axis]} = {text}")
            below *= extent
        if parts:
            self.kernel.text.line(f"const int {', '.join(parts)};")
        return indices


def wide_axes(op: cuda.CopyOp) -> list[tuple[str, int]]:
    """Axes along which the tile has more than one element, with its extents."""
    extents = extents_of(op.tile.type)
    return [(axis, extent) for axis, extent in zip(axes_of(op.tile.type), extents, strict=True) if extent != 1]


def pointer_type(op: cuda.CopyOp) -> str:
    return f"{'' if op.is_outward else 'const '}{c_type(op.buffer.type)}*"
