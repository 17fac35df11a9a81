"""A recurrence in its explicit form: a stream that is fed one position after another, whose states are the
recurrence's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import FillOp, RecurrenceOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, SaveOp, StreamOp, YieldOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.dialects.hierarchy.stream import RECURS, REVERSE
from treadle.passes._recurrences import Position
from treadle.passes.streams.repairs import hint_of

Tile = Callable[[Attribute], Attribute]


class Positions:
    """Writes the group of a kernel that is a recurrence. `arguments` and `destinations` say what it is given and saves
    to in the place of values of the decorated kernel."""

    def __init__(
        self,
        kernel: KernelOp,
        op: RecurrenceOp,
        schedule: ScheduleAttr,
        tile: Tile,
        arguments: dict[SSAValue, SSAValue],
        destinations: dict[SSAValue, list[SSAValue]],
    ):
        if schedule.stream.as_dict() != {op.axis.data: 1}:
            raise Refusal(
                kernel,
                f"@{kernel.kernel_name.data} is a recurrence along '{op.axis.data}': it is fed one position at a time, "
                f"by stream = [{op.axis.data} = 1]",
            )
        self.op = op
        self.schedule = schedule
        self.tile = tile
        self.arguments = arguments
        self.destinations = destinations
        self.known: dict[SSAValue, SSAValue] = {}
        """What is the same at all positions, once it is there."""

    def group(self) -> GroupOp:
        block, axis = Block(), self.op.axis.data
        for value in self.op.operands:
            if not (is_array(value.type) and axis in axes_of(value.type)) and not _is_fill(value):
                self.known[value] = self._given(block, value)
        block.add_op(stream := self._stream())
        for value, result in zip(self.op.last, stream.outputs, strict=True):
            self._save(block, value, result)
        op = GroupOp(self.schedule.group, Region(block))
        for each in (op, stream):
            each.location = self.op.location
        return op

    def _stream(self) -> StreamOp:
        states = [self.tile(value.type) for value in self.op.last]
        finish = Block(arg_types=states)
        for argument, value in zip(finish.args, self.op.last, strict=True):
            argument.name_hint = hint_of(value, "end")
        finish.add_op(YieldOp(*finish.args))
        regions = (Region(self._initialise()), Region(self._step(states)), Region(finish))
        stream = StreamOp(self.schedule.stream, states, *regions)
        stream.attributes[RECURS] = UnitAttr()
        if self.op.is_reverse:
            stream.attributes[REVERSE] = UnitAttr()
        for value, result in zip(self.op.last, stream.outputs, strict=True):
            result.name_hint = value.name_hint
        return stream

    def _initialise(self) -> Block:
        block = Block()
        begun = [self.known.get(value) or self._given(block, value) for value in self.op.states]
        block.add_op(YieldOp(*begun))
        return block

    def _step(self, states: Sequence[Attribute]) -> Block:
        block = Block(arg_types=states)
        for argument, value in zip(block.args, self.op.last, strict=True):
            argument.name_hint = hint_of(value, "so_far")
        given = [self.known.get(value) or self._given(block, value) for value in self.op.inputs]
        after, outputs = Position(self.op, block, self.tile).write([*block.args, *given])
        for value, output in zip(self.op.outputs, outputs, strict=True):
            self._save(block, value, output)
        block.add_op(YieldOp(*after))
        return block

    def _given(self, block: Block, value: SSAValue) -> SSAValue:
        """A piece of an array that the kernel is given, or of what costs nothing to make."""
        if not isinstance(value.owner, Operation):
            argument = self.arguments[value]
            if not is_array(value.type):
                return argument
            op: Operation = LoadOp(argument, self.tile(value.type))
            op.results[0].name_hint = hint_of(value, "piece")
        else:
            op = value.owner.clone()
            if is_array(value.type):
                Rewriter.replace_value_with_new_type(op.results[0], self.tile(value.type))
        op.location = self.op.location
        block.add_op(op)
        return op.results[0]

    def _save(self, block: Block, value: SSAValue, piece: SSAValue) -> None:
        for destination in self.destinations.get(value, ()):
            save = SaveOp(piece, destination)
            save.location = self.op.location
            block.add_op(save)


def _is_fill(value: SSAValue) -> bool:
    return isinstance(value.owner, FillOp)
