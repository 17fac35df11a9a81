"""From a function that holds kernels in explicit form to a host function that launches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, func, memref
from xdsl.dialects.builtin import (
    FunctionType,
    IndexType,
    IntAttr,
    MemRefType,
    StridedLayoutAttr,
    UnrealizedConversionCastOp,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.memory import Footprint, footprint
from treadle.compiler.cost.reading.explicit import plan_of_explicit
from treadle.compiler.cost.reading.turn_registers import registers_of_turns
from treadle.compiler.errors import Refusal
from treadle.compiler.lowering.cluster import keep_parts
from treadle.compiler.lowering.fitting import fitting_size
from treadle.compiler.lowering.held import Held, hold_limits
from treadle.compiler.lowering.kernel import lower_body, lower_op
from treadle.compiler.lowering.layouts import Layouts
from treadle.compiler.lowering.names import plain_name
from treadle.compiler.lowering.padding import (
    entries_beside,
    lengths_beside,
    padding_of_kernel,
    placed_of_kernel,
    sums_of_kernel,
)
from treadle.compiler.lowering.plan import KernelPlan, plan_kernel
from treadle.compiler.lowering.regrouped import emit_size
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import TURNS
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.placed import Scatter
from treadle.dialects.diagram import ExtentOp, ReadOp, ScatterOp
from treadle.dialects.diagram.array import (
    DYNAMIC,
    ArrayEncoding,
    BufferType,
    axes_of,
    format_of,
    is_array,
    shape_of,
    sizes_of,
)
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.padding import Inside, Scattered
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, derivation_of


def buffer_type(type: Attribute) -> BufferType:
    """The buffer at device level of an array: any strides, but a contiguous last axis."""
    shape = shape_of(type)
    layout = StridedLayoutAttr([*(None for _ in shape[1:]), *(1 for _ in shape[:1])], None)
    return MemRefType(format_of(type), shape, layout, ArrayEncoding(axes_of(type), "device"))


@dataclass
class HostLowering:
    """Lower one function in place; its kernels become `cuda.kernel`s before it."""

    function: func.FuncOp
    machine: Machine
    sizes: dict[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    """Sizes of symbolic axes, as soon as a buffer tells them."""
    arrays: dict[SSAValue, Attribute] = field(default_factory=dict[SSAValue, Attribute])
    """For each buffer the type of the array that it was."""

    def lower(self) -> None:
        block = self.function.body.block
        ops = list(block.ops)
        for arg in block.args:
            if is_array(arg.type):
                self._buffer(arg)
        self._read_sizes(block.args, InsertPoint.before(ops[0]))
        self._fit_first([op for op in ops if isinstance(op, ReadOp)], InsertPoint.before(ops[0]))
        for op in ops:
            if isinstance(op, KernelOp):
                self._launch(op)
            elif isinstance(op, ExtentOp):
                self._extent(op)
            elif isinstance(op, ReadOp):
                self._read(op)
            elif isinstance(op, Regrouping):
                self._regroup(op)
            elif isinstance(op, ScatterOp):
                self._scattered(op)
            elif not isinstance(op, func.ReturnOp):
                self._stay(op)
        self._retype(block)

    def _buffer(self, value: SSAValue) -> None:
        """The value is a buffer from now on."""
        type = value.type
        self.arrays[Rewriter.replace_value_with_new_type(value, buffer_type(type))] = type

    # -- what is in no kernel ------------------------------------------------------------------------

    def _stay(self, op: Operation) -> None:
        """An operation of another dialect stays on the arrays that it had, between conversions from and to buffers."""
        diagrams = [inner for inner in op.walk() if isinstance(inner, DiagramOperation)]
        if diagrams:
            raise Refusal(diagrams[0], f"it is in no kernel: {self._why_apart(diagrams[0])}")
        if isinstance(op, func.CallOp) and any(map(is_array, (*op.operand_types, *op.result_types))):
            raise Refusal(op, "it passes arrays to a function, whose buffers would be others: inline it first")
        if isinstance(op, UnrealizedConversionCastOp):
            return self._convert(op)
        for inner in op.walk():
            for i, operand in enumerate(inner.operands):
                if operand in self.arrays:
                    inner.operands[i] = self._converted(operand, self.arrays[operand], InsertPoint.before(op))
        after = InsertPoint.after(op)
        for result in op.results:
            if is_array(result.type):
                uses = list(result.uses)
                buffer = self._converted(result, buffer_type(result.type), after)
                for use in uses:
                    use.operation.operands[use.index] = buffer
                self.arrays[buffer] = result.type
                self._read_sizes([buffer], after)

    def _convert(self, op: UnrealizedConversionCastOp) -> None:
        """A conversion from or to an array is one from or to its buffer."""
        for result in op.results:
            if is_array(result.type):
                self._buffer(result)
        self._read_sizes(op.results, InsertPoint.after(op))

    def _converted(self, value: SSAValue, type: Attribute, place: InsertPoint) -> SSAValue:
        cast = UnrealizedConversionCastOp.get([value], [type])
        cast.results[0].name_hint = value.name_hint
        Rewriter.insert_op(cast, place)
        return cast.results[0]

    def _why_apart(self, op: Operation) -> str:
        """Why `fusion` left an operation alone, as far as the derivation tells."""
        names = {f"%{result.name_hint} from all" for result in op.results}
        for step in derivation_of(self.function.attributes):
            rewrite, subject, _, reason = step.texts()
            if rewrite == "keep apart" and subject in names:
                return reason
        if op.parent is not self.function.body.block:
            return "treadle makes kernels of what stands in a function itself, not inside another operation"
        return "run fusion first"

    def _retype(self, block: Block) -> None:
        terminator = block.last_op
        assert terminator is not None
        self.function.function_type = FunctionType.from_lists(
            [arg.type for arg in block.args], [operand.type for operand in terminator.operands]
        )

    def _read_sizes(self, buffers: Iterable[SSAValue], place: InsertPoint) -> None:
        """Symbolic axes that are met for the first time have the sizes that these buffers have."""
        for buffer in (each for each in buffers if each in self.arrays):
            for i, (axis, size) in enumerate(sizes_of(buffer.type).items()):
                if size == DYNAMIC and axis not in self.sizes:
                    index = arith.ConstantOp.from_int_and_width(i, IndexType())
                    dim = memref.DimOp(buffer, index)
                    dim.result.name_hint = axis
                    Rewriter.insert_op([index, dim], place)
                    self.sizes[axis] = dim.result

    def _size(self, axis: str) -> SSAValue:
        if axis not in self.sizes:
            raise Refusal(
                self.function, f"no argument has axis '{axis}', so its size is not known at launch: make it static"
            )
        return self.sizes[axis]

    def _extent(self, op: ExtentOp) -> None:
        axis = op.axis.data
        static = {axis: size for arg in self.function.body.block.args for axis, size in sizes_of(arg.type).items()}
        new: list[Operation]
        if static.get(axis, DYNAMIC) == DYNAMIC:
            new = [arith.IndexCastOp(self._size(axis), i32)]
        else:
            new = [arith.ConstantOp.from_int_and_width(static[axis], i32)]
        Rewriter.replace_op(op, new)

    def _read(self, op: ReadOp) -> None:
        """A view of a buffer: no data moves."""
        self._fit(op, InsertPoint.before(op))
        self._buffer(op.result)

    def _fit_first(self, reads: Iterable[ReadOp], place: InsertPoint) -> None:
        """Sizes that reads tell as soon as those of the axes that they read are known: what they read need not be made
        yet, and a kernel before it may have the axis. The first read that has an axis decides; one with zeros around
        it need not tell a size."""
        later = set[str]()
        for op in reads:
            known = all(self._is_known(value.type) for value in (op.operand, *op.inputs))
            if known and not op.is_padded and later.isdisjoint(axes_of(op.result.type)):
                self._fit(op, place)
            later |= {axis for axis, size in sizes_of(op.result.type).items() if size == DYNAMIC} - self.sizes.keys()

    def _is_known(self, type: Attribute) -> bool:
        return all(size != DYNAMIC or axis in self.sizes for axis, size in sizes_of(type).items())

    def _fit(self, op: ReadOp, place: InsertPoint) -> None:
        """Axes get the largest sizes that fit."""
        new: list[Operation] = []

        def emit(operation: Operation) -> SSAValue:
            new.append(operation)
            return operation.results[0]

        sizes = sizes_of(op.result.type)
        for axis in op.by_factor():
            if sizes[axis] == DYNAMIC and axis not in self.sizes:
                teller = self._teller(op, axis)
                self.sizes[axis] = fitting_size(teller, axis, self.sizes.__contains__, self._size, emit)
        Rewriter.insert_op(new, place)

    def _teller(self, op: ReadOp, axis: str) -> ReadOp:
        """The read that tells the size of an axis of a read: itself, or else the first behind it that does."""
        if op.limits_of(axis):
            return op
        reads = (each for each in _behind(op) if isinstance(each, ReadOp) and axis in axes_of(each.result.type))
        return next((each for each in reads if each.limits_of(axis) and self._is_known(each.operand.type)), op)

    def _regroup(self, op: Regrouping) -> None:
        """A view of a buffer, or of a copy of it without gaps."""
        new: list[Operation] = []
        emit_size(op, self.sizes, new.append)
        Rewriter.insert_op(new, InsertPoint.before(op))
        self._buffer(op.results[0])

    def _scattered(self, op: ScatterOp) -> None:
        """The kernel that makes the elements has added them to the array with which the sums begin."""
        if op.init is None or op.operand is not op.init:
            raise Refusal(op, f"its elements are made by no kernel that adds them up: {self._why_apart(op)}")
        Rewriter.replace_op(op, [], [op.init])

    # -- one kernel --------------------------------------------------------------------------------

    def _launch(self, op: KernelOp) -> None:
        held = hold_limits(op)
        keep_parts(op, self.machine)
        plan = plan_kernel(op)
        padding = padding_of_kernel(op)
        counted = plan_of_explicit(op)
        placed = placed_of_kernel(op, bool(footprint(counted, self.machine).producers))
        placed |= (sums := sums_of_kernel(op))
        kernel = lower_kernel(plan, counted, self.machine, held, padding, placed)
        parent = self.function.parent
        assert parent is not None
        parent.insert_op_before(kernel, self.function)
        ops: list[Operation] = []
        results = [
            sums[argument].operand if argument in sums else self._allocate(output, ops)
            for argument, output in zip(op.destinations, op.outputs, strict=True)
        ]
        given = list(zip(op.body.block.args, op.inputs, strict=False))
        inputs = [placed[argument].operand if argument in placed else value for argument, value in given]
        entries = entries_beside(placed)
        buffers = [value for value in (*inputs, *results, *entries) if is_array(value.type)]
        aligned = cuda.AlignmentOp(buffers)
        aligned.result.name_hint = "aligned"
        ops.append(aligned)
        symbolic = _symbolic(plan, padding)
        grid = self._grid(plan, ops)
        arguments = [*inputs, *results, *(self._size(axis) for axis in symbolic), *entries]
        launch = cuda.LaunchOp(kernel.sym_name.data, grid, aligned.result, arguments)
        launch.location = op.location
        Rewriter.insert_op([*ops, launch], InsertPoint.before(op))
        for old, new in zip(op.outputs, results, strict=True):
            if new not in self.arrays:
                new.name_hint = old.name_hint
                self.arrays[new] = old.type
            old.replace_all_uses_with(new)
        Rewriter.erase_op(op)

    def _allocate(self, output: SSAValue, ops: list[Operation]) -> SSAValue:
        type = buffer_type(output.type)
        dynamic = [self._size(axis) for axis, size in sizes_of(type).items() if size == DYNAMIC]
        alloc = memref.AllocOp(dynamic, [], type)
        ops.append(alloc)
        return alloc.memref

    def _grid(self, plan: KernelPlan, ops: list[Operation]) -> SSAValue:
        """The number of blocks: one for each combination of pieces of the grouped axes."""

        def constant(number: int) -> SSAValue:
            op = arith.ConstantOp.from_int_and_width(number, IndexType())
            ops.append(op)
            return op.result

        grid: SSAValue | None = None
        for axis, piece in plan.group_axes.items():
            size = plan.sizes[axis]
            if size != DYNAMIC:
                count = constant(-(-size // piece))
            elif piece == 1:
                count = self._size(axis)
            else:
                divide = arith.CeilDivUIOp(self._size(axis), constant(piece))
                ops.append(divide)
                count = divide.result
            if grid is not None:
                multiply = arith.MuliOp(grid, count)
                ops.append(multiply)
                count = multiply.result
            grid = count
        if grid is not None and plan.blocks > 1:
            multiply = arith.MuliOp(grid, constant(plan.blocks))
            ops.append(multiply)
            grid = multiply.result
        grid = grid or constant(plan.blocks)
        grid.name_hint = "blocks"
        return grid


def _symbolic(plan: KernelPlan, padding: Mapping[SSAValue, Iterable[Inside]]) -> list[str]:
    """The axes whose sizes a kernel is given: its own, then those of arrays that views of it may leave."""
    own = [axis for axis, size in plan.sizes.items() if size == DYNAMIC]
    return [*own, *lengths_beside(padding, own)]


def lower_kernel(
    plan: KernelPlan,
    counted: Plan,
    machine: Machine,
    held: Held,
    padding: Mapping[SSAValue, Sequence[Inside]],
    placed: Mapping[SSAValue, Scattered],
) -> cuda.KernelOp:
    """The kernel of one launch: buffers and scalars in the order of the source, then sizes of symbolic axes, then
    arrays of entries. `counted` is what it is to the cost model. PassFailedException if its tiles take more shared
    memory than a block may have on the machine."""
    source = plan.kernel
    symbolic = _symbolic(plan, padding)
    old = list(source.body.block.args)
    entries = entries_beside(placed)
    given = [placed[arg].operand if arg in placed else arg for arg in old]
    types = [buffer_type(arg.type) if is_array(arg.type) else arg.type for arg in given]
    tables = [buffer_type(value.type) for value in entries]
    block = Block(arg_types=[*types, *(IndexType() for _ in symbolic), *tables])
    for new, arg in zip(block.args, given, strict=False):
        new.name_hint = plain_name(arg)
    sizes: dict[str, SSAValue] = dict(zip(symbolic, block.args[len(old) :], strict=False))
    for axis, arg in sizes.items():
        arg.name_hint = axis
    by_array: dict[SSAValue, SSAValue] = dict(zip(old, block.args, strict=False))
    table_of = dict(zip(entries, block.args[len(old) + len(symbolic) :], strict=True))
    for value, arg in table_of.items():
        arg.name_hint = plain_name(value)
    scattered = {
        arg: Scatter(each.place, {name: table_of[value] for name, value in each.named.items()})
        for arg, each in placed.items()
    }
    needed = footprint(counted, machine)
    has_room = not counted.has_products or _has_room(needed)
    is_of_roles = bool(needed.producers)
    lowering = KernelLowering(
        plan, Layouts(plan), by_array, sizes, lower_op, held, has_room, is_of_roles, padding, scattered
    )
    lowering.turn_registers = registers_of_turns(source)
    shared_bytes = lower_body(lowering, block)
    _check_shared(plan, shared_bytes, machine.limits.shared_per_block)
    name = f"{source.kernel_name.data}_kernel"
    op = cuda.KernelOp(name, 32 * plan.warp_count, shared_bytes, Region(block), plan.blocks)
    resident = _resident(counted, needed, machine)
    op.resident = IntAttr(resident) if resident else None
    if source.schedule is not None and source.schedule.turns.data != UNDECIDED:
        op.attributes[TURNS] = source.schedule.turns
    op.location = source.location
    return op


NOT_COUNTED = 32
"""Registers of a thread that the model may miss where there are products."""


def _behind(op: Operation) -> Iterator[Operation]:
    while (op_behind := op.next_op) is not None:
        yield op_behind
        op = op_behind


MANY_BLOCKS = 4
"""Blocks on an SM of which one may be missing, should the compiler take all registers that one fewer leaves."""


def _has_room(needed: Footprint) -> bool:
    """Whether a thread of a kernel with products has registers left: of roles, which get those that copying needs not,
    and of kernels that take few."""
    return bool(needed.producers) or int(needed.registers_per_thread) + NOT_COUNTED <= int(needed.most_registers)


def _resident(plan: Plan, needed: Footprint, machine: Machine) -> int:
    """The blocks that an SM is to hold; 0 if that is not to be stated.

    Left to itself, ptxas takes registers away for one more block, and rather spills. Of kernels without products the
    model counts all values that a thread has, so its blocks are stated. Of products ptxas may hold more than the model
    knows: their blocks are stated where they are several and leave room for that, or of many, one fewer if that does.
    Where warps share the partitions of an SM unevenly, one block fewer than the model counts is stated, or as many as
    leave that room."""
    blocks = int(needed.blocks_on(machine))
    if not plan.has_products:
        return blocks
    taken = int(needed.registers_per_thread) + NOT_COUNTED
    with_room = machine.limits.registers_per_sm // (LANES * int(needed.warps) * taken)
    if needed.warps % machine.limits.register_partitions == 0:
        if blocks > with_room and (blocks < MANY_BLOCKS or with_room < blocks - 1):
            return 0
        stated = min(blocks, with_room)
        return stated if stated > 1 else 0
    return max(min(blocks - 1, with_room), 1)


def _check_shared(plan: KernelPlan, needed: int, limit: int) -> None:
    if needed > limit:
        pieces = ", ".join(f"{axis} = {size}" for axis, size in plan.pieces.items() if size > 1)
        raise Refusal(
            plan.kernel,
            f"@{plan.kernel.kernel_name.data} needs {needed:,} bytes of shared memory for pieces {pieces}, but a block "
            f"has {limit:,} on this machine: take smaller pieces of a grouped or streamed axis",
        )
