"""Print tensor copies of tiles whose rows lie where data say: each lane finds the entries of its runs, and starts the
copies of their boxes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import SSAValue

from treadle.compiler.printer.indices import add, scaled
from treadle.compiler.printer.scalars import term
from treadle.compiler.printer.scattered import Rows, Scattered
from treadle.compiler.printer.tensor_stores import print_for_each_box
from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.multiples import constant_of
from treadle.dialects.diagram.array import axes_of


@dataclass(frozen=True)
class GatherPrinter:
    """Prints them in one kernel."""

    writer: KernelWriter

    def print(self, op: cuda.TensorGatherOp, barrier: str) -> None:
        """The copies of a tile, which complete on a barrier."""
        writer, text = self.writer, self.writer.text
        place = op.place
        assert place is not None
        text.line(f"// {writer.values[op.map]}[{place.text.data}], runs of {op.rows}")
        with writer.names.scope():
            run = writer.names.fresh("run") if op.runs > 1 else "0"
            with text.block(self._head(op, run)):
                self._run(op, run, barrier)

    def _head(self, op: cuda.TensorGatherOp, run: str) -> str:
        """Which runs a lane copies."""
        if op.runs == 1:
            return "if (lane == 0)" if gathers_by_lanes(self.writer.roles) else ""
        self.writer.text.line(f"{self.writer.call('barrier_warp')}();  // no lane is a turn behind")
        return f"for (int {run} = lane; {run} < {op.runs}; {run} += {LANES})"

    def _run(self, op: cuda.TensorGatherOp, run: str, barrier: str) -> None:
        writer, text, row = self.writer, self.writer.text, op.row_axis
        first = "0"
        if run != "0":
            first = writer.names.fresh(f"{row}_i")
            text.line(f"const int {first} = {scaled(run, op.rows)};")
        rows = Rows(row, "0", first, op.rows) if first != "0" else None
        found = Scattered(writer, self, op, {row: first} if first != "0" else {}, rows, mapped=True)
        for statement in found.find(self._tests(op, first)):
            text.line(statement)
        at = found.coordinates()
        if found.tests:
            there = writer.names.fresh("is_there")
            text.line(f"const bool {there} = {' && '.join(found.tests)};")
            at[op.along] = f"{there} ? {at[op.along]} : -{op.rows}"
        self._copies(op, run, first, at, barrier)

    def _copies(self, op: cuda.TensorGatherOp, run: str, first: str, at: list[str], barrier: str) -> None:
        writer, span = self.writer, op.boxes.span.data
        box, ends = writer.names.fresh("box"), ""
        load, maps = writer.call("tensor_load" if op.row_map is None else "tensor_load_run"), writer.values[op.map]
        if op.row_map is not None:
            load += f"<{op.rows}, {len(at) - 1 - op.along}>"  # coordinates are innermost first
            maps += f", {writer.values[op.row_map]}"
            ends = f", {self._end(op, first, 'begin')}, {self._end(op, first, 'end')}"
        tile = add([writer.values[op.tile], scaled(run, op.rows * span)])
        if op.boxes.count > 1:
            tile = add([tile, scaled(box, op.boxes.rows * span)])
            at[-1] = add([at[-1], scaled(box, span)])
        given = f"{{{', '.join(reversed(at))}}}"
        print_for_each_box(writer, op.boxes, box, f"{load}({tile}, {maps}, {barrier}, {given}{ends});")

    def _bounds(self, op: cuda.TensorGatherOp) -> tuple[list[SSAValue], list[SSAValue]]:
        """The positions along the rows from which on, and before which, there are elements."""
        begins = [begin for axis, begin in zip(op.begun_axes, op.begins, strict=True) if axis == op.row_axis]
        limits = [limit for axis, limit in zip(op.bound_axes, op.limits, strict=True) if axis == op.row_axis]
        return begins, limits

    def _tests(self, op: cuda.TensorGatherOp, first: str) -> list[str]:
        """That some row of a run is within the bounds."""
        begins, limits = self._bounds(op)
        here, values = self.position(op, op.row_axis, {op.row_axis: first}), self.writer.values
        last = here if op.rows == 1 else add([here, str(op.rows - 1)])
        tests = [f"{last} >= {term(values[begin])}" for begin in begins]
        return tests + [f"{here} < {term(values[limit])}" for limit in limits]

    def _end(self, op: cuda.TensorGatherOp, first: str, which: str) -> str:
        """Where the rows that are wanted begin or end, counted from the first of a run."""
        begins, limits = self._bounds(op)
        ends = begins if which == "begin" else limits
        if not ends:
            return "0" if which == "begin" else str(op.rows)
        here = self.position(op, op.row_axis, {op.row_axis: first})
        return f"{term(self.writer.values[ends[0]])} - ({here})"

    def offset(self, op: cuda.PlacedAccess, axis: str) -> SSAValue:
        """Where the tile begins along an axis."""
        return dict(zip(axes_of(op.piece_type), op.offsets, strict=True))[axis]

    def position(self, op: cuda.PlacedAccess, axis: str, indices: Mapping[str, str]) -> str:
        """The position of an element of the tile along an axis of it."""
        offset = self.offset(op, axis)
        number = constant_of(offset)
        return add([self.writer.values[offset] if number is None else str(number), indices.get(axis, "0")])


def gathers_by_lanes(roles: cuda.RolesOp | None) -> bool:
    """Whether a whole warp is the producer: its lanes copy lines of words, or the runs of a tile."""
    if roles is None:
        return False
    return any(
        isinstance(op, cuda.ArriveOp) or (isinstance(op, cuda.TensorGatherOp) and op.runs > 1)
        for op in roles.producer.walk()
    )
