"""Print copies by lanes of tiles in boxes: each lane keeps its place in the rows of a box, and goes down. Where rows
lie where data say, the lanes of a warp first load the entries of its rows, each some, and then tell each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from treadle.compiler.layouts.box_order import is_ordered, row_and_column
from treadle.compiler.layouts.run_order import Runs, runs_of
from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.indices import strided
from treadle.compiler.printer.lane_walk import Walk, along_row, valid_at
from treadle.compiler.printer.ordered_copies import OrderedCopyPrinter
from treadle.compiler.printer.run_copies import RunCopyPrinter
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.scattered import Scattered, axes_asked
from treadle.compiler.printer.stored_copies import StoredCopyPrinter
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.tiles import WORD, boxes_of, format_bytes, is_boxed
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.diagram.condition import Entry

AT_ONCE = 4
"""Copies of 16 bytes whose addresses a lane makes together. Narrower ones take more of its registers (ptxas 13.0)."""


class BoxedCopyPrinter:
    """Prints them in one kernel. `width` is in scope."""

    def __init__(self, kernel: KernelWriter, addresses: AddressPrinter):
        self.kernel = kernel
        self.addresses = addresses
        self.wait: Callable[[cuda.AcquireOp], None] = lambda _: None
        """Prints the wait for a stage."""

    def copy(self, op: cuda.CopyOp, fixed: Callable[[cuda.CopyOp], dict[Entry, str]]) -> None:
        """`fixed` loads entries that all rows have together."""
        if is_ordered(op):
            names = {} if op.place is None else fixed(op)
            self._wait_within(op)
            return OrderedCopyPrinter(self.kernel, self.addresses).copy(op, names)
        if op.place is None:
            return self._in_order(op, self._walk(op))
        runs = runs_of(op, op.tile.type)
        if runs is None:
            return self._row_by_row(op, fixed)
        kernel, whole = self.kernel, f"ALIGNED >= {cuda.WHOLE_SECTORS}"
        if cuda.WHOLE_SECTORS not in cuda.alignments(kernel.kernel):
            return self._by_runs(op, runs, fixed)
        with kernel.names.scope(), kernel.text.block(f"if constexpr ({whole})", "} else {"):
            self._row_by_row(op, fixed)
        kernel.text.depth += 1
        self._by_runs(op, runs, fixed)
        kernel.text.depth -= 1
        kernel.text.line("}")

    def _row_by_row(self, op: cuda.CopyOp, fixed: Callable[[cuda.CopyOp], dict[Entry, str]]) -> None:
        walk, asked = self._walk(op), axes_asked(op)
        names = fixed(op) if walk.row not in asked else self._entries(op, walk, asked)
        self._wait_within(op)
        self._scattered(op, walk, asked, names)

    def _wait_within(self, op: cuda.CopyOp) -> None:
        if (wait := wait_within(op)) is not None:
            self.wait(wait)

    def _by_runs(self, op: cuda.CopyOp, runs: Runs, fixed: Callable[[cuda.CopyOp], dict[Entry, str]]) -> None:
        boxes, names = boxes_of(op.tile.type), fixed(op)
        row, column = row_and_column(op.tile.type)
        shape = f"{boxes.span.data}, {boxes.rows}, {format_bytes(op.tile.type)}"

        def place(indices: Mapping[str, str]) -> str:
            here = f"{indices.get(row, '0')}, {indices.get(column, '0')}"
            return f"{self.kernel.values[op.tile]}[{self.kernel.call('in_boxes')}<{shape}>({here})]"

        RunCopyPrinter(self.kernel, self.addresses).copy(op, runs, names, place, lambda: self._wait_within(op))

    def _walk(self, op: cuda.CopyOp) -> Walk:
        kernel, boxes, axes = self.kernel, boxes_of(op.tile.type), axes_of(op.tile.type)
        column = axes[boxes.row_axis]
        row = next(axis for axis, size in sizes_of(op.tile.type).items() if size > 1 and axis != column)
        span, fresh = boxes.span.data, kernel.names.fresh
        others = (f"{row}_step", f"{row}_of_warp", "at_once", f"{row}_down", f"{column}_along")
        walk = Walk(boxes, row, column, *map(fresh, (f"{row}_i", f"{column}_i", *others)))
        at_once = f"{kernel.threads} * width / {span}"
        kernel.text.line(f"constexpr int {walk.step} = {at_once};  // rows that lanes copy at once")
        own = "thread"
        if self._has_elements(op):  # its places are found where they are used: lanes have few registers
            own = fresh("own")
            kernel.text.line(f"const int {own} = ALIGNED < {WORD} ? {kernel.call('kept')}(thread) : thread;")
        places = f"{walk.first} = {own} * width / {span}, {walk.place} = {own} * width % {span}"
        kernel.text.line(f"const int {places};")
        few = f"width * {format_bytes(op.tile.type)} < {WIDEST_VECTOR}"
        kernel.call("unroll_by")
        kernel.text.line(f"constexpr int {walk.at_once} = {few} ? 1 : {AT_ONCE};  // the producer has few registers")
        return walk

    # -- rows in order -------------------------------------------------------------------------------

    def _in_order(self, op: cuda.CopyOp, walk: Walk) -> None:
        text, pointer = self.kernel.text, self.kernel.names.fresh("there")
        text.line(f"const {c_type(op.buffer.type)}* {pointer} = {self.addresses.where(op, walk.own)};")
        if not self._has_elements(op):
            return self._by_vectors(op, walk, pointer)
        with self.kernel.names.scope(), text.block(f"if constexpr (ALIGNED < {WORD})", "} else {"):
            StoredCopyPrinter(self.kernel, self.addresses).copy(op, walk, pointer)
        text.depth += 1
        self._by_vectors(op, walk, pointer)
        text.depth -= 1
        text.line("}")

    def _has_elements(self, op: cuda.CopyOp) -> bool:
        """Whether some variant of the kernel loads what is narrower than `cp.async` copies, of rows in order."""
        return op.place is None and any(each < WORD for each in cuda.alignments(self.kernel.kernel))

    def _by_vectors(self, op: cuda.CopyOp, walk: Walk, pointer: str) -> None:
        text = self.kernel.text
        with text.block(walk.down_from()):
            if at_quotients := walk.row in op.divisors:
                text.line(f"{pointer} = {self.addresses.where(op, walk.at())};")
            with walk.over_boxes(self.kernel.text):
                self._vector(op, walk, pointer, valid_at(self.addresses, op, walk.at(walk.behind)))
            if not at_quotients:
                text.line(f"{pointer} += {strided(walk.step, self.kernel.strides[op.buffer][walk.row])};")

    # -- rows that lie where data say ----------------------------------------------------------------

    def _entries(self, op: cuda.CopyOp, walk: Walk, asked: set[str]) -> dict[Entry, str]:
        """Arrays of the entries of a warp's rows, a row for each lane."""
        text, fresh, rows = self.kernel.text, self.kernel.names.fresh, walk.boxes.rows
        span, each, number = walk.boxes.span.data, fresh("each"), fresh(f"{walk.row}_number")
        at_once = f"{LANES} * width > {span} ? {LANES} * width / {span} : 1"
        text.line(f"constexpr int {walk.of_warp} = {at_once};  // rows that a warp copies at once")
        count = f"({rows} + {walk.step} - 1) / {walk.step} * {walk.of_warp}"
        text.line(f"constexpr int {each}s = ({count} + {LANES - 1}) / {LANES};  // rows for a lane to find")
        begin = len(text.lines)
        with self.kernel.names.scope(), text.block(f"UNROLL for (int {each} = 0; {each} < {each}s; ++{each})"):
            row = fresh(f"{walk.row}_at")
            text.line(f"const int {number} = {LANES} * {each} + lane;")
            of_warp = f"thread / {LANES} * {LANES} * width / {span}"
            place = f"{number} / {walk.of_warp} * {walk.step} + {of_warp} + {number} % {walk.of_warp}"
            text.line(f"const int {row} = {place};")
            found = Scattered(self.kernel, self.addresses, op, {walk.row: row})
            own = [f"{row} < {rows}"]
            for statement in found.find([*own, *self.addresses.tests(op, {walk.row: row}, asked)]):
                text.line(statement)
            arrays = {entry: f"{name}_found" for entry, name in found.names.items()}
            for entry, name in found.names.items():
                text.line(f"{arrays[entry]}[{each}] = {name};")
        for name in arrays.values():
            text.insert(begin, f"int {name}[{each}s];")
        return arrays

    def _scattered(self, op: cuda.CopyOp, walk: Walk, asked: set[str], names: Mapping[Entry, str]) -> None:
        text = self.kernel.text
        if walk.row not in asked:
            with text.block(walk.down_from()):
                return self._row(op, walk, asked, names)
        each, reach = self.kernel.names.fresh("each"), self.kernel.names.fresh(f"{walk.row}_reach")
        text.line(f"constexpr int {reach} = {LANES} / {walk.of_warp} * {walk.step};  // rows of which lanes hold one")
        with text.block(f"UNROLL for (int {each} = 0; {each} * {reach} < {walk.boxes.rows}; ++{each})"):
            begin = f"{each} * {reach}"
            with text.block(walk.down_from(begin, f"({each} + 1) * {reach}")):
                source = self.kernel.names.fresh("source")
                number = f"({walk.down} - {begin}) / {walk.step} * {walk.of_warp}"
                text.line(f"const int {source} = {number} + lane * width / {walk.boxes.span.data};")
                given: dict[Entry, str] = {}
                for entry, name in names.items():
                    given[entry] = self.kernel.names.fresh(entry.name)
                    text.line(f"const int {given[entry]} = {self.kernel.call('shuffle')}({name}[{each}], {source});")
                self._row(op, walk, asked, given)

    def _row(self, op: cuda.CopyOp, walk: Walk, asked: set[str], names: Mapping[Entry, str]) -> None:
        """A lane's part of a row, whose entries are known."""
        text = self.kernel.text
        found = Scattered(self.kernel, self.addresses, op, walk.at(), names=dict(names))
        found.find([*self._is_row(op, walk), *self.addresses.tests(op, walk.at(), {*asked, walk.row} - {walk.column})])
        pointer, valid = self.kernel.names.fresh("there"), self.kernel.names.fresh("is_there")
        text.line(f"const {c_type(op.buffer.type)}* const {pointer} = {found.where(together=False)};")
        text.line(f"const bool {valid} = {' && '.join(found.tests) or 'true'};")
        with walk.over_boxes(self.kernel.text):
            here = walk.at(walk.behind)
            self._vector(op, walk, pointer, " && ".join([valid, *self.addresses.tests(op, here, {walk.column})]))

    # -- what both share -----------------------------------------------------------------------------

    def _vector(self, op: cuda.CopyOp, walk: Walk, pointer: str, valid: str) -> None:
        kernel, boxes = self.kernel, walk.boxes
        far = along_row(self.kernel, op, walk, pointer)
        given = f"{walk.first}, {walk.place}, {walk.down}, {walk.behind or '0'}"
        places = f"{boxes.span.data}, {boxes.rows}, {format_bytes(op.tile.type)}, {walk.step}"
        near = f"&{kernel.values[op.tile]}[{kernel.call('in_boxes_down')}<{places}>({given})]"
        ways = f"{kernel.call('vec')}<width>({near}), {kernel.call('vec')}<width>({far})"
        if uneven := self._is_row(op, walk):
            kernel.text.line(f"{kernel.call('copy_async_if')}({ways}, {uneven[0]}, {valid});")
        else:
            kernel.text.line(f"{kernel.call('copy_async_or_now')}({ways}, {valid});")

    def _is_row(self, op: cuda.CopyOp, walk: Walk) -> list[str]:
        """The test that the tile has the row that a lane has come to; none where lanes copy it in even parts."""
        at_once = self.kernel.threads * max(op.width_list) // walk.boxes.span.data
        is_even = walk.boxes.rows % at_once == 0
        return [] if is_even else [f"{walk.first} + {walk.down} < {walk.boxes.rows}"]


def wait_within(op: cuda.CopyOp) -> cuda.AcquireOp | None:
    """The wait for the stage that a copy fills, where that stands within the copy: entries are loaded before it, so
    that memory answers meanwhile."""
    before = op.prev_op
    is_one = op.place is not None and is_boxed(op.tile.type) and isinstance(before, cuda.AcquireOp)
    return before if is_one and isinstance(before, cuda.AcquireOp) else None
