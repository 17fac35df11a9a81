"""Print copies of tiles whose rows lie where data say, and begin anywhere: dealt run by run, by whole sectors
(`compiler/layouts/run_order.py`)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from treadle.compiler.layouts.operations import dealt_axes
from treadle.compiler.layouts.run_order import CHUNK, Runs
from treadle.compiler.printer.addresses import AddressPrinter, bounds_of
from treadle.compiler.printer.indices import add, strided
from treadle.compiler.printer.scalars import c_type, term
from treadle.compiler.printer.scattered import Scattered, axes_asked
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import extents_of, is_boxed
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import Entry

Place = Callable[[Mapping[str, str]], str]
"""Where an element lies in the tile, by the place along each axis."""


class RunCopyPrinter:
    """Prints them in one kernel. `width` is in scope."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter):
        self.kernel = kernel
        self.addresses = addresses

    def copy(
        self, op: cuda.CopyOp, runs: Runs, fixed: Mapping[Entry, str], place: Place, wait: Callable[[], None]
    ) -> None:
        """`fixed` are the names of the entries of a tile that has one of each; `place` says where elements lie in it;
        `wait` prints what waits for the place of the tile, which entries need not."""
        with self._found_here(op) as thread:
            self._copy(op, runs, fixed, place, wait, thread)

    @contextmanager
    def _found_here(self, op: cuda.CopyOp) -> Generator[str]:
        """The name of the thread. What follows from it and from strides is found here, and not before a loop, where
        lanes that copy have few registers."""
        if not is_boxed(op.tile.type):
            yield "thread"
            return
        kernel, own = self.kernel, self.kernel.strides[op.buffer]
        thread = kernel.names.fresh("own")
        kernel.text.line(f"const int {thread} = {kernel.call('kept')}(thread);")
        found = {axis: kernel.names.fresh(f"{axis}_step") for axis, stride in own.items() if not stride.isdigit()}
        for axis, name in found.items():
            kernel.text.line(f"const int64_t {name} = {kernel.call('kept')}({own[axis]});")
        kernel.strides[op.buffer] = {**own, **found}
        yield thread
        kernel.strides[op.buffer] = own

    def _copy(
        self,
        op: cuda.CopyOp,
        runs: Runs,
        fixed: Mapping[Entry, str],
        place: Place,
        wait: Callable[[], None],
        thread: str,
    ) -> None:
        kernel, text, fresh = self.kernel, self.kernel.text, self.kernel.names.fresh
        order, slot = fresh("order"), fresh("i")
        inside = self._inside(op, runs.row) if runs.total == 1 and runs.rows > 1 else str(runs.rows)
        inside = inside, self._inside(op, runs.column)
        strides, axes = kernel.strides[op.buffer], axes_of(op.buffer.type)
        down = "0" if runs.down is None else strides[axes[runs.down]]
        along, type = strides[axes[runs.along]], c_type(op.buffer.type)
        shape = f"{type}, width, {runs.rows}, {runs.columns}"
        text.line(f"const {kernel.call('run_order')}<{shape}> {order}({', '.join(inside)}, {down}, {along});")
        chunk, count = "0", str(runs.total)
        if is_several := runs.total > CHUNK:
            wait()
            chunk = fresh("chunk")
            count = f"{kernel.call('at_most')}({CHUNK}, {runs.total} - {chunk})"
            text.line(f"UNROLL_1 for (int {chunk} = 0; {chunk} < {runs.total}; {chunk} += {CHUNK}) {{")
            text.depth += 1
        asked = axes_asked(op) & {*runs.outer, runs.row, runs.column}
        names = self._entries(op, runs, chunk) if asked else fixed
        if not is_several:
            wait()
        slots = f"{order}.count({count})"
        with text.block(f"UNROLL_1 for (int {slot} = {thread}; {slot} < {slots}; {slot} += {kernel.threads})"):
            run = fresh("run")
            text.line(f"const int {run} = {order}.run({slot});")
            given = dict(names)
            for entry, name in names.items() if asked else ():
                given[entry] = fresh(entry.name)
                text.line(f"const int {given[entry]} = {kernel.call('shuffle')}({name}, {run} % {CHUNK});")
            self._slot(op, runs, given, place, (order, slot, run), (chunk, count), (down, along))
        if is_several:
            text.depth -= 1
            text.line("}")
        self._gaps(op, runs, inside, order, place)

    def _inside(self, op: cuda.CopyOp, axis: str) -> str:
        """Elements of the tile that the array has along an axis."""
        limits, size = dict(zip(op.bound_axes, op.limits, strict=True)), sizes_of(op.tile.type)[axis]
        if axis not in limits:
            return str(size)
        kernel, offset = self.kernel, self.kernel.values[self.addresses.offset(op, axis)]
        name, limit = kernel.names.fresh(f"{axis}_count"), term(kernel.values[limits[axis]])
        kernel.text.line(f"const int {name} = {kernel.call('at_most')}({size}, {limit} - {offset});")
        return name

    def _first(self, runs: Runs, number: str) -> dict[str, str]:
        """The place of the first element of a run, of those of the tile in order."""
        indices, below = dict[str, str](), 1
        axes = [*runs.outer.items(), *([(runs.row, runs.count)] if runs.row else [])]
        for position, (axis, extent) in enumerate(reversed(axes)):
            text = number if below == 1 else f"{number} / {below}"
            text += f" % {extent}" if position < len(axes) - 1 else ""
            indices[axis] = f"{f'({text})' if ' ' in text else text} * {runs.rows}" if axis == runs.row else text
            if axis == runs.row and runs.rows == 1:
                indices[axis] = text
            below *= extent
        return indices

    def _entries(self, op: cuda.CopyOp, runs: Runs, chunk: str) -> dict[Entry, str]:
        """The entries of a run for each lane, of a chunk of them."""
        text, number = self.kernel.text, self.kernel.names.fresh("number")
        text.line(f"const int {number} = {add([chunk, 'lane'])};")
        first = self._named(self._first(runs, number))
        tests = [f"{number} < {runs.total}"] if runs.total % CHUNK else []
        found = Scattered(self.kernel, self.addresses, op, first, mapped=True)
        for statement in found.find([*tests, *self._tests_of_run(op, runs, first)]):
            text.line(statement)
        return found.names

    def _named(self, indices: dict[str, str]) -> dict[str, str]:
        """Names of constants for places."""
        names = {axis: self.kernel.names.fresh(f"{axis}_first") for axis in indices}
        for axis, index in indices.items():
            self.kernel.text.line(f"const int {names[axis]} = {index};")
        return names

    def _tests_of_run(self, op: cuda.CopyOp, runs: Runs, first: Mapping[str, str]) -> list[str]:
        """That some row of a run is in the tile, and within bounds: the first before an end, the last behind a
        beginning."""
        axes = {*axes_of(op.tile.type)} - {runs.column}
        if runs.rows == 1:
            return self.addresses.tests(op, first, axes)
        tests, values = self.addresses.tests(op, first, axes - {runs.row}), self.kernel.values
        extents = dict(zip(axes_of(op.tile.type), extents_of(op.tile.type), strict=True))
        if (size := sizes_of(op.tile.type)[runs.row]) < extents[runs.row]:
            tests.append(f"{first[runs.row]} < {size}")
        here = self.addresses.position(op, runs.row, first)
        for axis, sign, end in bounds_of(op):
            if axis == runs.row:
                tests.append(f"{here if sign == '<' else f'{here} + {runs.rows - 1}'} {sign} {term(values[end])}")
        return tests

    def _slot(
        self,
        op: cuda.CopyOp,
        runs: Runs,
        names: Mapping[Entry, str],
        place: Place,
        at: tuple[str, str, str],
        chunk: tuple[str, str],
        steps: tuple[str, str],
    ) -> None:
        """A vector, if the slot has one."""
        kernel, text, fresh, call = self.kernel, self.kernel.text, self.kernel.names.fresh, self.kernel.call
        (order, slot, run), (begin, count) = at, chunk
        first = self._named(self._first(runs, f"({begin} + {run})" if begin != "0" else run))
        begins = Scattered(kernel, self.addresses, op, first, mapped=True, names=dict(names))
        there = fresh("there")
        text.line(f"const {c_type(op.buffer.type)}* const {there} = {begins.where(together=False)};")
        row, column, is_there = fresh(f"{runs.row or 'row'}_i"), fresh(f"{runs.column}_i"), fresh("is_there")
        text.line(f"const auto [{row}, {column}, {is_there}] = {order}.find({slot}, {run}, {there});")
        here = {**first, runs.column: column}
        if runs.rows > 1:
            here[runs.row] = row if runs.total == 1 else f"{first[runs.row]} + {row}"
        found = Scattered(kernel, self.addresses, op, here, names=dict(names))
        assert not found.find(self.addresses.tests(op, here, {*axes_of(op.tile.type)}))
        valid = " && ".join(found.tests) or "true"
        far = add([there, *([strided(row, steps[0])] if runs.rows > 1 else []), strided(column, steps[1])])
        far, near = f"{call('vec')}<width>({far})", f"{call('vec')}<width>(&{place(here)})"
        is_slot = f"{is_there} && {run} < {count}"
        if op.asynchronous is not None:
            return text.line(f"{call('copy_async_if')}({near}, {far}, {is_slot}, {valid});")
        value = f"{call('load_global_if')}({far}, {is_slot} && {valid})"
        return text.line(f"{call('store_shared_if')}({near}, {value}, {is_slot});")

    def _gaps(self, op: cuda.CopyOp, runs: Runs, inside: tuple[str, str], order: str, place: Place) -> None:
        """Zeros behind what the array has of a line, where the next line follows at once."""
        kernel, text, slot = self.kernel, self.kernel.text, self.kernel.names.fresh("i")
        if runs.rows == 1 or inside == (str(runs.rows), str(runs.columns)):
            return
        extents = dict(zip(axes_of(op.tile.type), extents_of(op.tile.type), strict=True))
        names, places, total = dict[str, str](), list[str](), 1
        for axis in reversed(dealt_axes(op.tile.type)):
            names[axis] = kernel.names.fresh(f"{axis}_i")
            places.append(f"{names[axis]} = {slot} / {total} % {extents[axis]}")
            total *= extents[axis]
        text.line(f"if ({order}.has_gaps())")
        with text.block(f"  for (int {slot} = thread; {slot} < {total}; {slot} += {kernel.threads})"):
            text.line(f"const int {', '.join(places)};")
            place_in_line = f"({order}.is_turned ? {names[runs.row]} : {names[runs.column]})"
            test = f"{place_in_line} >= {order}.places"
            zero, near = f"Vec<{c_type(op.buffer.type)}, 1>{{}}", f"{kernel.call('vec')}<1>(&{place(names)})"
            text.line(f"{kernel.call('store_shared_if')}({near}, {zero}, {test});")
