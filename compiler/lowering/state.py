"""What lowering one kernel knows: what became of each value, where pieces start, what shared memory holds."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, UnitAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.compiler.lowering.held import Held
from treadle.compiler.lowering.layouts import Layouts
from treadle.compiler.lowering.pending import Listed, Lowered
from treadle.compiler.lowering.plan import KernelPlan
from treadle.dialects import cuda
from treadle.dialects.cuda.placed import Padding, Scatter
from treadle.dialects.diagram import ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of
from treadle.dialects.diagram.padding import Inside
from treadle.dialects.hierarchy import StreamOp

OperationT = TypeVar("OperationT", bound=Operation)


@dataclass
class KernelLowering:
    """The state of lowering one kernel: what became of each value, where pieces start, what shared memory holds."""

    plan: KernelPlan
    layouts: Layouts
    arguments: dict[SSAValue, SSAValue]
    """Buffers and scalars of the source kernel, in the new one."""
    size_arguments: dict[str, SSAValue]
    """Sizes of symbolic axes."""
    lower_op: Callable[[KernelLowering, Operation], None]
    """What each operation becomes."""
    held: Held = field(default_factory=dict[Any, Any])
    """Where values that are multiplied begin and end along axes that a group holds whole."""
    has_room: bool = True
    """Whether threads have registers to spare."""
    is_of_roles: bool = False
    """Whether its pieces were chosen for warps with roles."""
    padding: Mapping[SSAValue, Sequence[Inside]] = field(default_factory=dict[Any, Any])
    """Where arrays that the source kernel is given as views may leave those that they are of."""
    scattered: Mapping[SSAValue, Scatter] = field(default_factory=dict[Any, Any])
    """Where the elements of arrays of the source kernel lie in the buffers that the new one is given for them."""
    turn_registers: Mapping[StreamOp, int] = field(default_factory=dict[Any, Any])
    """Of a thread in a turn of each stream, where there are no products."""
    values: dict[SSAValue, Lowered] = field(default_factory=dict[Any, Any])
    offsets: dict[str, SSAValue] = field(default_factory=dict[Any, Any])
    partial: str | None = None
    """The streamed axis, in the last piece."""
    bounded: set[str] = field(default_factory=set[Any])
    """Axes whose piece may reach past the end here."""
    begins: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """Before which position along an axis all is absent here, if not positions alone say so."""
    stops: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """From where on along an axis all is absent here, if not positions alone say so."""
    ends: dict[Operation, tuple[SSAValue | None, SSAValue]] = field(default_factory=dict[Any, Any])
    """Between which rows copies bring what conditions keep, where all steps of a group have the same."""
    listed: dict[SSAValue, Listed] = field(default_factory=dict[SSAValue, Listed])
    """Lists of selected pieces."""
    tiles: dict[object, SSAValue] = field(default_factory=dict[Any, Any])
    allocated: list[cuda.SharedOp] = field(default_factory=list[cuda.SharedOp])
    left_fragments: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])
    """Left operands that the steps of a stream share, by tile: read once, before the loop."""
    shared_reads: dict[tuple[SSAValue, Attribute], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, Attribute], SSAValue]
    )
    """Lines that the steps of a stream share, by tile and fragment: likewise."""
    unfilled: set[WhereOp] = field(default_factory=set[WhereOp])
    """Conditions that are tested before each reduction, because no one number serves for what they exclude."""
    filled: dict[str, set[SSAValue]] = field(default_factory=dict[str, set[SSAValue]])
    """By axis, values in which a number stands past its end that changes nothing in what they meet along it."""
    twins: dict[Operation, Operation] = field(default_factory=dict[Operation, Operation])
    """For operations of a border, the operation of the step that does the same."""
    apart: set[ReduceOp] = field(default_factory=set[ReduceOp])
    """Reductions of a stream whose lanes keep to their own elements until it ends."""
    block: Block = field(default_factory=Block)
    """Where operations are appended."""
    top: Block = field(default_factory=Block)
    """The body of the kernel, at whose beginning tiles are declared."""

    def lower(self, op: Operation) -> None:
        """Lower an operation here: what a region holds is lowered as its surroundings are."""
        self.lower_op(self, op)

    # -- emitting ----------------------------------------------------------------------------------

    def emit(self, op: OperationT) -> OperationT:
        self.block.add_op(op)
        return op

    def index(self, number: int) -> SSAValue:
        return self.emit(arith.ConstantOp.from_int_and_width(number, IndexType())).result

    @contextmanager
    def inside(self, block: Block) -> Generator[None]:
        """Append to another block for a while."""
        outside, self.block = self.block, block
        yield
        self.block = outside

    @contextmanager
    def between(self, axis: str, begin: SSAValue | None, stop: SSAValue | None) -> Generator[None]:
        """Say for a while before where, and from where on, all of an axis is absent."""
        for ends, end in ((self.begins, begin), (self.stops, stop)):
            if end is not None:
                ends[axis] = end
        yield
        self.begins.pop(axis, None)
        self.stops.pop(axis, None)

    @contextmanager
    def holding(self, value: SSAValue) -> Generator[None]:
        """Say for a while what nothing needs of a value along axes that the group holds."""
        with ExitStack() as stack:
            for axis in axes_of(value.type):
                ends = [None if end is None else self.scalar(end) for end in self.held.get((value, axis), ())]
                if ends:
                    stack.enter_context(self.between(axis, *ends))
            yield

    # -- axes --------------------------------------------------------------------------------------

    def size(self, axis: str) -> SSAValue:
        size = self.plan.sizes[axis]
        return self.size_arguments[axis] if size == DYNAMIC else self.index(size)

    def offset(self, axis: str) -> SSAValue:
        return self.offsets[axis] if axis in self.offsets else self.index(0)

    def bounds(
        self, axes: Sequence[str], stops: Callable[[str], bool] = lambda axis: False
    ) -> tuple[tuple[str, SSAValue], ...]:
        """Where an access ends along axes: with the array, or before what is absent if it `stops` there."""
        ends: dict[str, SSAValue] = {}
        for axis in axes:
            if axis in self.stops and stops(axis):
                ends[axis] = self.stops[axis]
            elif axis in self.bounded:
                ends[axis] = self.size(axis)
        return tuple(ends.items())

    def beginnings(self, axes: Sequence[str], begins: Callable[[str], bool]) -> tuple[tuple[str, SSAValue], ...]:
        """Where an access begins along axes: behind what is absent, if it `begins` there."""
        return tuple((axis, self.begins[axis]) for axis in axes if axis in self.begins and begins(axis))

    def padding_of(self, source: SSAValue) -> Padding:
        """Where a piece of an array that the source kernel is given may leave the array that it is a view of."""
        return [(each.form, self._length(each)) for each in self.padding.get(source, ())]

    def _length(self, inside: Inside) -> SSAValue:
        return self.size_arguments[inside.axis] if inside.size == DYNAMIC else self.index(inside.size)

    def partial_mark(self, bounds: Sequence[tuple[str, SSAValue]]) -> UnitAttr | None:
        return UnitAttr() if any(axis == self.partial for axis, _ in bounds) else None

    # -- values ------------------------------------------------------------------------------------

    def scalar(self, value: SSAValue) -> SSAValue:
        lowered = self.values[value]
        assert isinstance(lowered, SSAValue)
        return lowered

    def twin(self, op: Operation) -> Operation:
        """The operation whose tiles an operation of a border takes over."""
        return self.twins.get(op, op)
