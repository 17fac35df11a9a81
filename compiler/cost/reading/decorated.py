"""A decorated kernel, read once: what its axes, products and streams are."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.kernel.operands import (
    left_operand,
    read_back,
    stays_in_registers,
)
from treadle.compiler.cost.kernel.plan import LEAVING_WIDTHS
from treadle.compiler.cost.kernel.roles import (
    lies_in_rows,
    product_axes,
    steps_singly,
    stream_use,
)
from treadle.compiler.cost.kernel.work import Labour, width_of
from treadle.compiler.cost.reading.steps import Steps
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.bounded import loaded_factor
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes.kernels.near import comes_to_shared
from treadle.passes.kernels.outer import outer_axes
from treadle.passes.streams.changes import BEFORE


class Decorated:
    """A kernel and its schedule, whose sizes need not be chosen."""

    def __init__(self, kernel: KernelOp, group: tuple[str, ...], stream: str | None, schedule: ScheduleAttr):
        self.kernel = kernel
        self.group = group
        self.stream = stream
        self.schedule = schedule
        self.whole = tuple(schedule.whole.as_dict())
        *self.operations, terminator = kernel.body.block.ops
        self.results = tuple(terminator.operands)
        self.products = [op for op in self.operations if isinstance(op, ContractOp)]
        self.use = stream_use(kernel, stream)
        step = None if stream is None else schedule.stream.as_dict().get(stream)
        self.roles = product_axes(kernel, group, stream, step)
        self.steps_singly = steps_singly(kernel, group, stream, step)
        self.outer = frozenset[str]() if self.products else outer_axes(self.operations, stream)

    def comes_to_shared(self, value: SSAValue) -> bool:
        return comes_to_shared(value, self.products, self.roles.row, self.stream)

    def lies_in_rows(self, axes: tuple[str, ...]) -> bool:
        return lies_in_rows(axes, self.products, self.roles.single)

    def read_back(self, value: SSAValue) -> Labour:
        return read_back(value, self.lies_in_rows(axes_of(value.type)))

    def in_shared(self, product: ContractOp, operand: SSAValue) -> bool:
        """Inputs always, what is computed unless it is there already."""
        return not isinstance(operand.owner, Operation) or not stays_in_registers(product, operand, self.roles.row)

    def left_of(self, op: ContractOp) -> str:
        operand = loaded_factor(left_operand(op, self.roles.row))
        if not self.in_shared(op, operand):
            return "registers"
        changes = self.stream is None or self.stream in axes_of(operand.type)
        if changes or isinstance(operand.owner, Operation):
            return "shared"
        return "kept" if self.schedule.left.data == "registers" else "lasting"

    def leaves(self, value: SSAValue) -> bool:
        """Whether a result goes out by way of shared memory: what products make, at the end, of 16 bits; words where it
        pays."""
        leaves = width_of(value.type) in LEAVING_WIDTHS
        return bool(self.products) and leaves and self.stream not in axes_of(value.type)

    def streams_of(self, op: Operation) -> tuple[int | None, ...]:
        """The streams in whose steps an operation is."""
        return tuple(stream for stream, step in enumerate(self.use.steps) if op in step) or (None,)

    def made(self) -> Iterator[tuple[Operation, int | None]]:
        """What is computed, repairs of states included, and the stream whose steps do it."""
        if self.use.plan is None:
            return ((op, None) for op in self.operations)
        return Steps(self.use.plan).operations()

    def repairing(self) -> frozenset[SSAValue]:
        """The states by whose changes others are repaired."""
        if self.use.plan is None:
            return frozenset()
        repairs = [verdict.repair for verdict in self.use.plan.verdicts.values() if verdict.repair is not None]
        found = (leaf for repair in repairs for leaf in repair.leaves)
        return frozenset(leaf.value for leaf in found if leaf.version == BEFORE)

    def sums_beside_stream(self, op: Operation) -> bool:
        if not isinstance(op, ContractOp):
            return False
        sizes = sizes_of(op.lhs.type) | sizes_of(op.rhs.type)
        columns = [axis for axis in axes_of(op.result.type) if axis not in self.group and sizes[axis] != 1]
        if self.stream in columns and (len(columns) > 1 or self.steps_singly):
            return True
        if self.stream not in op.over_axes:
            return False
        return any(axis != self.stream and sizes[axis] != 1 for axis in op.over_axes)
