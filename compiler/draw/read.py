"""From the IR of any level to a `Diagram`. Only what holds arrays is drawn; scalars and index arithmetic are not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.draw.costs import Crossing, crossings_of
from treadle.compiler.draw.diagram import Diagram, KernelLevel, Node, Phase, Wire
from treadle.compiler.draw.glyphs import Glyph, glyph_of
from treadle.compiler.draw.pieces import Pieces
from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array, level_of, sizes_of
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, SaveOp, StreamOp, YieldOp

ONCE = Crossing(1)


def read_program(module: ModuleOp) -> Diagram:
    """The program of a module at whatever level it is; it has one function with a body."""
    function = next(op for op in module.walk() if isinstance(op, FuncOp) and op.body.blocks and op.body.block.ops)
    if any(op.name == "cuda.launch" for op in function.walk()):
        from treadle.compiler.draw.read_cuda import CudaReader

        return CudaReader(module, function).read()
    return Reader(function).read()


class Reader:
    """Walks a function in order and keeps, for each value, the wire that it is."""

    def __init__(self, function: FuncOp):
        self.function = function
        self.wires: dict[SSAValue, Wire] = {}
        self.phases: list[Phase] = []
        self.kernels: dict[str, KernelLevel] = {}
        self.pieces = Pieces()
        self.crossings: Mapping[tuple[str, bool], Crossing] = {}
        self.kernel: str | None = None
        self.outputs: list[Wire] = []
        self.inputs: list[Wire] = []
        self.tests_some = False
        """Whether a stream is read some pieces of which need no test."""

    def read(self) -> Diagram:
        self.phase("")
        for arg in self.function.body.block.args:
            wire = self.new_wire(arg, level="device")
            self.inputs.append(wire)
        self.read_block(self.function.body.block)
        phases = [phase for phase in self.phases if phase.nodes]
        return Diagram(self.function.sym_name.data, self.inputs, phases, self.outputs, self.kernels)

    # -- wires and nodes ------------------------------------------------------------------------

    def new_wire(self, value: SSAValue, level: str | None = None, name: str | None = None) -> Wire:
        level = level or level_of(value.type) or "device"
        wire = Wire(
            name or value.name_hint or "",
            axes_of(value.type),
            sizes_of(value.type),
            level,
            str(format_of(value.type)),
            self.pieces.labels(value.type, level),
            self.pieces.symbols(value.type, level),
            self.pieces.amount(value.type, level),
        )
        self.wires[value] = wire
        return wire

    def same(self, value: SSAValue, other: SSAValue) -> None:
        """Let `value` be the wire that `other` is."""
        if other in self.wires:
            self.wires[value] = self.wires[other]

    def drawn(self, values: Iterable[SSAValue]) -> tuple[Wire, ...]:
        return tuple(self.wires[value] for value in values if value in self.wires)

    def phase(self, name: str, turns: str = "") -> Phase:
        self.phases.append(Phase(name, self.kernel, turns=turns))
        return self.phases[-1]

    def add(
        self,
        glyph: Glyph,
        inputs: Sequence[Wire],
        outputs: Sequence[Wire],
        op: Operation | None,
        kind: str = "function",
    ) -> Node:
        node = Node(kind, glyph, tuple(inputs), tuple(outputs), op)
        self.phases[-1].nodes.append(node)
        return node

    # -- operations -------------------------------------------------------------------------------

    def read_block(self, block: Block) -> None:
        for op in block.ops:
            self.read_op(op)

    def read_op(self, op: Operation) -> None:
        match op:
            case KernelOp():
                self.read_kernel(op)
            case GroupOp():
                self.read_group(op)
            case StreamOp():
                self.read_stream(op)
            case LoadOp():
                self.load(op.source, op.result, op)
            case SaveOp():
                self.save(op.value, op.destination, op)
            case ReturnOp():
                self.outputs = list(self.drawn(op.operands))
            case YieldOp():
                pass
            case _:
                self.read_function(op)

    def read_function(self, op: Operation) -> None:
        """An operation on arrays; what neither takes nor gives an array is not drawn."""
        if not any(is_array(value.type) for value in (*op.operands, *op.results)):
            return
        inputs = self.drawn(op.operands)
        outputs = [self.new_wire(result) for result in op.results if is_array(result.type)]
        glyph = glyph_of(op)
        if self.tests_some and isinstance(op, WhereOp):
            glyph = replace(glyph, note=f"{op.condition.text.data}: tested only in pieces in which it may fail")
        self.add(glyph, inputs, outputs, op)

    def load(self, source: SSAValue, result: SSAValue, op: Operation, level: str | None = None) -> None:
        """An array comes nearer: its wires change colour, and what is cut there says so."""
        before = self.wires[source]
        after = self.new_wire(result, level, name=before.name)
        node = self.add(Glyph("", about=f"load {before.name}"), (before,), (after,), op, "load")
        self.mark_transfer(node, before, after, source)

    def save(self, value: SSAValue, destination: SSAValue, op: Operation) -> None:
        near = self.wires[value]
        far = self.new_wire(
            destination, "device", name=self.wires[destination].name if destination in self.wires else None
        )
        self.leave(near, far, destination, op)

    def leave(self, near: Wire, far: Wire, array: SSAValue, op: Operation) -> None:
        node = self.add(Glyph("", about=f"save {far.name}"), (near,), (far,), op, "save")
        self.mark_transfer(node, far, near, array)

    def mark_transfer(self, node: Node, far: Wire, near: Wire, array: SSAValue) -> None:
        node.tags = {axis: tag for axis in near.axes if (tag := self.pieces.tag(axis, near.sizes.get(axis)))}
        crossing = self.crossings.get((array.name_hint or "", node.kind == "save"), ONCE)
        # In an explicit kernel every stream has its own load.
        node.times = 1 if self.pieces.expanded else crossing.times
        node.transfer = self.pieces.crossing(far.axes, crossing.visited)

    # -- kernels ----------------------------------------------------------------------------------

    def read_kernel(self, op: KernelOp) -> None:
        self.kernel = op.kernel_name.data
        self.pieces, self.crossings = Pieces.of_kernel(op), crossings_of(op)
        self.kernels[self.kernel] = KernelLevel(self.kernel, self.pieces.caption())
        read = self.read_expanded if op.is_expanded else self.read_decorated
        read(op)
        self.kernel, self.pieces = None, Pieces()
        self.phase("")

    def read_decorated(self, op: KernelOp) -> None:
        """Arguments come near where the kernel begins, results leave where it ends."""
        self.phase("")
        for arg, operand in zip(op.body.block.args, op.inputs, strict=True):
            self.same(arg, operand)
        for arg in op.body.block.args:
            if arg.uses and is_array(arg.type):
                self.load(arg, arg, op, level=self.pieces.near_level(op, arg))
        self.read_block(op.body.block)
        terminator = op.body.block.last_op
        assert terminator is not None
        for value, output in zip(terminator.operands, op.outputs, strict=True):
            self.leave(self.wires[value], self.far_wire(output), output, op)

    def far_wire(self, output: SSAValue) -> Wire:
        return self.new_wire(output, "device")

    def read_expanded(self, op: KernelOp) -> None:
        for arg, operand in zip(op.body.block.args, op.inputs, strict=False):
            self.same(arg, operand)
        self.phase("group")
        self.pieces = self.pieces.of_destinations(op.destinations)
        self.read_block(op.body.block)
        for output, destination in zip(op.outputs, op.destinations, strict=True):
            self.same(output, destination)
            if output in self.wires:
                self.wires[output].name = output.name_hint or self.wires[output].name

    def read_group(self, op: GroupOp) -> None:
        self.read_block(op.body.block)

    def read_stream(self, op: StreamOp) -> None:
        """Initialise, loop and finish, one after another; the state goes from each to the next. Where some pieces are
        tested and others need not be, a turn with the test is drawn."""
        before = self.phases[-1]
        # What a group does before its stream stands in one column group with the state's beginning.
        if before.name == "group" and before.kernel == self.kernel:
            before.name = "initialise"
        elif op.initialise.block.first_op is not op.initialise.block.last_op:
            self.phase("initialise")
        self.read_block(op.initialise.block)
        step = op.step.block if op.border is None else op.border.block
        self.bind(step.args, op.initialise.block)
        turns = self.pieces.turns(op.axis)
        self.phase(f"loop {op.axis}", turns=turns if op.fed is None else f"\\rm{{at most}} {turns}")
        self.pieces = self.pieces.inside_stream(op.axis)
        self.tests_some = op.border is not None
        self.read_block(step)
        self.tests_some = False
        self.bind(op.finish.block.args, step)
        self.phase("finish")
        self.read_block(op.finish.block)
        self.bind(op.results, op.finish.block)
        self.pieces = self.pieces.outside_stream()

    def bind(self, values: Sequence[SSAValue | BlockArgument], block: Block) -> None:
        terminator = block.last_op
        assert terminator is not None
        for value, given in zip(values, terminator.operands, strict=True):
            self.same(value, given)
