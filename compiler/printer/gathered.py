"""Print tensor copies of tiles whose rows lie where data say: each lane finds the entries of its runs, and starts the
copies of their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith
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
class Run:
    """Where the run of a lane lies: its first row in the tile, and in the array."""

    first: str
    place: Scattered
    tests: Sequence[str]
    """What must hold for any of it to be copied."""


@dataclass
class GatherPrinter:
    """Prints them in one kernel."""

    writer: KernelWriter
    found: dict[cuda.TensorGatherOp, Run] = field(default_factory=dict[cuda.TensorGatherOp, Run])
    """Of the copies for whose stage the producer waits."""

    def before(self, wait: cuda.AcquireOp) -> None:
        """Load the entries of a copy before the wait for its stage: memory answers meanwhile."""
        op = wait.next_op
        while isinstance(op, cuda.ExpectOp | arith.AddiOp):
            op = op.next_op
        if isinstance(op, cuda.TensorGatherOp) and self._is_known(op):
            self.found[op] = self._find(op)

    def print(self, op: cuda.TensorGatherOp, barrier: str) -> None:
        """The copies of a tile, which complete on a barrier."""
        writer, text = self.writer, self.writer.text
        if op.runs > 1:
            text.line(f"{writer.call('barrier_warp')}();  // no lane is a turn behind")
        with writer.names.scope():
            run = self.found.pop(op, None) or self._find(op)
            with text.block(self._where(op)):
                self._copies(op, run, barrier)

    def _where(self, op: cuda.TensorGatherOp) -> str:
        """The lanes that copy, each a run: of the first warp."""
        if op.runs > 1:
            return f"if ({self._own(op.runs)[0]})" if self._own(op.runs) else ""
        return f"if ({self._lane} == 0)" if is_warp(self.writer.roles) else ""

    @property
    def _lane(self) -> str:
        """What tells the lanes of the first warp apart, and from others."""
        roles = self.writer.roles
        return "lane" if roles is None or roles.copying_warps == 1 else "thread"

    def _own(self, runs: int) -> list[str]:
        """The test that a lane has one of the runs, if not all have."""
        return [f"{self._lane} < {runs}"] if runs < LANES or self._lane == "thread" else []

    def _is_known(self, op: cuda.TensorGatherOp) -> bool:
        """Whether what says where a copy lies stands before."""
        asked = (*op.offsets, *op.limits, *op.begins, *op.lengths)
        return all(value in self.writer.values or constant_of(value) is not None for value in asked)

    def _find(self, op: cuda.TensorGatherOp) -> Run:
        """Where a lane's run lies, by statements that load its entries."""
        writer, row = self.writer, op.row_axis
        if op.runs == 1:
            own, first, place = [], "0", Scattered(writer, self, op, {}, mapped=True)
        else:
            own, first = self._own(op.runs), writer.names.fresh(f"{row}_i")
            writer.text.line(f"const int {first} = {scaled('lane', op.rows)};")
            place = Scattered(writer, self, op, {row: first}, Rows(row, "0", first, op.rows), mapped=True)
        for statement in place.find([*own, *self._tests(op, first)]):
            writer.text.line(statement)
        return Run(first, place, place.tests[len(own) :])

    def _copies(self, op: cuda.TensorGatherOp, run: Run, barrier: str) -> None:
        """The boxes of a run."""
        writer, span, at = self.writer, op.boxes.span.data, run.place.coordinates()
        if run.tests:
            at[op.along] = f"{' && '.join(run.tests)} ? {at[op.along]} : -{op.rows}"
        box, ends = writer.names.fresh("box"), ""
        load, maps = writer.call("tensor_load" if op.row_map is None else "tensor_load_run"), writer.values[op.map]
        if op.row_map is not None:
            load += f"<{op.rows}, {len(at) - 1 - op.along}>"  # coordinates are innermost first
            maps += f", {writer.values[op.row_map]}"
            ends = f", {self._end(op, run.first, 'begin')}, {self._end(op, run.first, 'end')}"
        tile = [writer.values[op.tile], *([scaled("lane", op.rows * span)] if op.runs > 1 else [])]
        if op.boxes.count > 1:
            tile.append(scaled(box, op.boxes.rows * span))
            at[-1] = add([at[-1], scaled(box, span)])
        given = f"{{{', '.join(reversed(at))}}}"
        print_for_each_box(writer, op.boxes, box, f"{load}({add(tile)}, {maps}, {barrier}, {given}{ends});")

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


def is_warp(roles: cuda.RolesOp | None) -> bool:
    """Whether a whole warp is the producer, not one thread: its lanes copy lines of words, or the runs of a tile."""
    if roles is None:
        return False
    return any(
        isinstance(op, cuda.ArriveOp) or (isinstance(op, cuda.TensorGatherOp) and op.runs > 1)
        for op in roles.producer.walk()
    )
