"""The `cuda` level as a diagram: the host function's launches, with the kernels' bodies in their places.

Buffers are written, not made: each write of a buffer gives a new wire that later reads take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.draw.diagram import KernelLevel, Wire
from treadle.compiler.draw.glyphs import Glyph, glyph_of
from treadle.compiler.draw.read import Reader
from treadle.dialects.cuda import KernelOp, LaunchOp, SharedOp, StageOp
from treadle.dialects.cuda.kernel import ALONG
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.array import is_array
from treadle.dialects.diagram.padding import scattered_read

LEVEL_CHANGES = ("cuda.copy", "cuda.load", "cuda.store")


class CudaReader(Reader):
    """Scalars and index arithmetic are left out; loops keep their arrays."""

    def __init__(self, module: ModuleOp, function: FuncOp):
        super().__init__(function)
        self.kernels_by_name = {op.sym_name.data: op for op in module.walk() if isinstance(op, KernelOp)}
        self.alias: dict[SSAValue, SSAValue] = {}
        self.barriers = 0

    def root(self, value: SSAValue) -> SSAValue:
        """The buffer that a stage or an argument of a kernel stands for."""
        while value in self.alias:
            value = self.alias[value]
        return value

    def drawn(self, values: Iterable[SSAValue]) -> tuple[Wire, ...]:
        return tuple(self.wires[self.root(value)] for value in values if self.root(value) in self.wires)

    def read_op(self, op: Operation) -> None:
        match op:
            case LaunchOp():
                self.read_launch(op)
            case ReturnOp():
                self.outputs = list(self.drawn(op.operands))
            case scf.ForOp():
                self.read_for(op)
            case scf.IfOp():
                self.read_if(op)
            case StageOp():
                self.alias[op.result] = op.tile
            case SharedOp():
                pass
            case ReadOp() if scattered_read(op.result) is not None:  # kernels are given what it reads
                pass
            case _ if op.name.startswith("memref."):
                pass
            case _:
                self.read_access(op)

    def read_launch(self, op: LaunchOp) -> None:
        kernel = self.kernels_by_name[op.kernel.root_reference.data]
        self.kernel = kernel.sym_name.data
        shared = kernel.shared_bytes.data
        clusters = f", clusters of {kernel.cluster} blocks" if kernel.cluster > 1 else ""
        if clusters and isinstance(along := kernel.attributes.get(ALONG), StringAttr):
            clusters += f" along {along.data}"
        caption = f"\\rm{{{kernel.threads.data} threads, {shared:,} bytes of shared memory a block{clusters}}}"
        self.kernels[self.kernel] = KernelLevel(self.kernel, caption)
        self.alias.update(zip(kernel.body.block.args, op.arguments, strict=True))
        self.phase("")
        self.read_block(kernel.body.block)
        self.kernel = None
        self.phase("")

    def read_access(self, op: Operation) -> None:
        """An operation that reads arrays, and makes or writes one. A ring of stages is written in part, so what it
        held goes on."""
        destination = _destination(op)
        target = None if destination is None else self.root(destination)
        inputs = list(self.drawn([operand for operand in op.operands if operand is not destination]))
        if target is None:
            if not any(is_array(value.type) for value in op.results):
                return
            outputs = [self.new_wire(result) for result in op.results if is_array(result.type)]
            self.connect(op, inputs, outputs)
            return
        if target in self.wires and _stages(target) > 1:
            inputs.append(self.wires[target])
        before = self.wires.get(target)
        wire = self.new_wire(target, name=before.name if before else None)
        self.connect(op, inputs, [wire])

    def connect(self, op: Operation, inputs: Sequence[Wire], outputs: Sequence[Wire]) -> None:
        crosses = len(inputs) == len(outputs) == 1 and inputs[0].axes == outputs[0].axes
        if op.name in LEVEL_CHANGES and crosses and "device" in (inputs[0].level, outputs[0].level):
            node = self.add(Glyph("", about=op.name), inputs, outputs, op, _direction(outputs[0]))
            near = outputs[0] if outputs[0].level != "device" else inputs[0]
            node.tags = {axis: str(size) for axis, size in near.sizes.items()}
            near.pieces = {axis: str(size) for axis, size in near.sizes.items()}
            return
        for wire in outputs:
            if wire.level != "device":
                wire.pieces = {axis: str(size) for axis, size in wire.sizes.items()}
        self.add(glyph_of(op), inputs, outputs, op)

    # -- control flow -----------------------------------------------------------------------------

    def read_for(self, op: scf.ForOp) -> None:
        for arg, start in zip(op.body.block.args[1:], op.iter_args, strict=True):
            self.same(arg, self.root(start))
        self.phase(f"loop {op.body.block.args[0].name_hint or ''}".strip())
        self.read_block(op.body.block)
        self.give(op.results, op.body.block)
        self.phase("")

    def read_if(self, op: scf.IfOp) -> None:
        """A guard without results is read as if it held; one with results, a last and smaller piece, is one box."""
        if not op.results:
            self.read_block(op.true_region.block)
            return
        inside = [operand for inner in op.walk() if inner is not op for operand in inner.operands]
        inputs = list(dict.fromkeys(self.drawn([v for v in inside if not _made_in(v, op)])))
        outputs = [self.new_wire(result) for result in op.results if is_array(result.type)]
        self.add(Glyph("edge", about="the last, smaller piece of the stream, if there is one"), inputs, outputs, op)

    def give(self, values: Sequence[SSAValue], block: Block) -> None:
        terminator = block.last_op
        assert terminator is not None
        for value, given in zip(values, terminator.operands, strict=True):
            self.same(value, self.root(given))


def _destination(op: Operation) -> SSAValue | None:
    """The buffer that an operation writes."""
    return cast(SSAValue | None, getattr(op, "destination", None))


def _direction(output: Wire) -> str:
    return "save" if output.level == "device" else "load"


def _stages(buffer: SSAValue) -> int:
    owner = buffer.owner
    return owner.stages.data if isinstance(owner, SharedOp) else 1


def _made_in(value: SSAValue, op: Operation) -> bool:
    owner = value.owner
    parent = owner if isinstance(owner, Operation) else owner.parent_op()
    while parent is not None and parent is not op:
        parent = parent.parent_op()
    return parent is op
