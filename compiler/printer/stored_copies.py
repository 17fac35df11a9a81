"""Print copies by lanes of what is narrower than `cp.async` copies: loads to registers, then stores to the boxes of a
tile. Several loads are on their way before the first is stored."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.compiler.printer.addresses import AddressPrinter
from treadle.compiler.printer.indices import add, strided
from treadle.compiler.printer.lane_walk import Walk, along_row, valid_at
from treadle.compiler.printer.scalars import c_type
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.runs import SWIZZLED_ROWS
from treadle.dialects.cuda.tiles import format_bytes

BESIDE_LOADS, FEWEST_LOADS, MOST_LOADS = 40, 8, 32
"""Registers of a lane beside what it has loaded, and how many loads it has on their way, at least and at most: whole
periods of the swizzle."""


@dataclass(frozen=True)
class StoredCopyPrinter:
    """Prints them in one kernel. `width` is in scope."""

    kernel: KernelWriter
    addresses: AddressPrinter

    def copy(self, op: cuda.CopyOp, walk: Walk, pointer: str) -> None:
        """The rows of a tile whose first a lane finds at a pointer."""
        text, loads = self.kernel.text, loads_at_once(self.kernel)
        came, each, period, far = (self.kernel.names.fresh(name) for name in ("came", "each", "period", "from"))
        text.line(f"constexpr int {period} = {walk.step} < {SWIZZLED_ROWS} ? {SWIZZLED_ROWS} / {walk.step} : 1;")
        every = f"UNROLL for (int {each} = 0; {each} < {loads}; ++{each})"
        rows = f"{walk.down} < {walk.boxes.rows}; {walk.down} += {loads} * {walk.step}"
        with walk.over_boxes(text, "UNROLL_1"), text.block(""):
            if walk.row not in op.divisors:
                text.line(f"const {c_type(op.buffer.type)}* {far} = {along_row(self.kernel, op, walk, pointer)};")
            with text.block(f"UNROLL_1 for (int {walk.down} = 0; {rows})"):
                text.line(f"Vec<{c_type(op.tile.type)}, width> {came}[{loads}];  // on their way together")
                with text.block(every):
                    self._load(op, walk, f"{came}[{each}]", each, far)
                text.line(every)
                near = f"{self.kernel.call('vec')}<width>(&{self._near(op, walk, each, period)})"
                is_row = f"{_row(walk, each)} < {walk.boxes.rows}"
                text.line(f"  {self.kernel.call('store_shared_if')}({near}, {came}[{each}], {is_row});")

    def _load(self, op: cuda.CopyOp, walk: Walk, came: str, each: str, far: str) -> None:
        kernel, is_at_quotients = self.kernel, walk.row in op.divisors
        here = {walk.row: _row(walk, each), walk.column: add([walk.place, walk.behind or "0"])}
        # A row of which the compiler does not know that it is there: else it would store between loads.
        is_row = f"{_row(walk, each)} < {kernel.call('kept')}({walk.boxes.rows})"
        valid = " && ".join(test for test in (is_row, valid_at(self.addresses, op, here)) if test != "true")
        place = self.addresses.where(op, here) if is_at_quotients else far
        vector = f"{kernel.call('vec')}<width>({place})"
        kernel.text.line(f"{came} = {kernel.call('load_global_if')}({vector}, {valid});")
        if not is_at_quotients:
            down = strided(walk.step, kernel.strides[op.buffer][walk.row])
            kernel.text.line(f"{kernel.call('advance')}({far}, {down} * {format_bytes(op.tile.type)});")

    def _near(self, op: cuda.CopyOp, walk: Walk, each: str, period: str) -> str:
        """Where one of those on their way is stored: whole periods of the swizzle only add."""
        row = f"{walk.first} + {each} % {period} * {walk.step}"
        down = f"{walk.down} + {each} / {period} * {period} * {walk.step}"
        shape = f"{walk.boxes.span.data}, {walk.boxes.rows}, {format_bytes(op.tile.type)}, {walk.step} * {period}"
        place = f"{self.kernel.call('in_boxes_down')}<{shape}>({row}, {walk.place}, {down}, {walk.behind or '0'})"
        return f"{self.kernel.values[op.tile]}[{place}]"


def loads_at_once(kernel: KernelWriter) -> int:
    """What a lane of the producer has registers for."""
    granted = kernel.roles.registers[0] if kernel.roles is not None and any(kernel.roles.registers) else None
    return MOST_LOADS if granted is None else min(MOST_LOADS, max(FEWEST_LOADS, granted - BESIDE_LOADS))


def _row(walk: Walk, each: str) -> str:
    """The row of one of those that are on their way together."""
    return f"{walk.first} + {walk.down} + {each} * {walk.step}"
