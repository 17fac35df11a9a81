"""The streams of a kernel written as laws, which a person can read and `treadle check` tries."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from treadle.dialects.diagram import LawOp, YieldOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._parts import is_free, part_of_kernel
from treadle.passes._recurrences import recurrence_of
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.stream import Named, Scope, StreamParts


def laws_of_kernel(kernel: KernelOp) -> list[LawOp]:
    """One law for each stream of a decorated kernel (`keep_states_apart` has run on it): its meaning is what the
    kernel computes up to there from its arguments and from what earlier streams have finished. All axes are
    symbolic: a law knows no sizes. None where nothing is streamed, and for a recurrence, whose steps are written
    as they are."""
    schedule = kernel.schedule
    axis = "" if schedule is None else next(iter(schedule.stream.as_dict()), "")
    if not axis or recurrence_of(kernel) is not None:
        return []
    plan = StreamPlan(part_of_kernel(kernel), axis)
    several = len(plan.streams) > 1
    name = kernel.kernel_name.data
    laws = [_Law(plan, stream) for stream in plan.streams]
    return [law.write(f"{name}_{law.stream + 1}" if several else name) for law in laws]


def function_of(law: LawOp) -> FuncOp:
    """A function that computes the meaning of a law."""
    block = Block(arg_types=list(law.inputs))
    values: Named = dict(zip(law.body.block.args, block.args, strict=True))
    for old, new in values.items():
        new.name_hint = old.name_hint
    for op in law.body.block.ops:
        if not isinstance(op, YieldOp):
            block.add_op(op.clone(values))
    terminator = law.body.block.last_op
    assert terminator is not None
    block.add_op(ReturnOp(*(values[value] for value in terminator.operands)))
    return FuncOp(law.sym_name.data, (list(law.inputs), list(law.outputs)), Region(block))


def _held(type: Attribute) -> Attribute:
    """An array of a law: its axes and format, at no level and of no size."""
    return array_type(format_of(type), dict.fromkeys(axes_of(type), DYNAMIC)) if is_array(type) else type


class _Law(StreamParts):
    """The law of one stream."""

    def __init__(self, plan: StreamPlan, stream: int):
        super().__init__(plan)
        self.stream = stream
        self.states = plan.states_in(stream)
        self.exports = plan.exports_of(stream)
        self.pieces = plan.saved_in_step(stream)
        self.inputs = self._outside()
        self.left: list[SSAValue] = []
        """Pieces of results that the step has made."""

    def write(self, name: str) -> LawOp:
        state = [self.tile(value.type) for value in self.states]
        still = [value for value in self.inputs if self.plan.axis not in axes_of(value.type)]
        step, inside = self._block(state, self.inputs)
        self.step(inside, self.stream, step)
        finish, inside = self._block(state, still)
        self.finish(inside, self.stream, finish, self.exports)
        merge, inside = self._block([*state, *state], still)
        self.merge(inside, self.stream, merge)
        stream = [self.initialise(self.states), step, finish, merge]
        results = [self.tile(value.type) for value in (*self.exports, *self.pieces)]
        return LawOp(name, [self.plan.axis], results, Region(self._meaning()), [Region(block) for block in stream])

    def _block(self, state: Sequence[Attribute], inputs: Sequence[SSAValue]) -> tuple[Block, Scope]:
        """A block that takes a state and inputs, and what the inputs are in it."""
        block = Block(arg_types=[*state, *(self.tile(value.type) for value in inputs)])
        given = dict(zip(inputs, block.args[len(state) :], strict=True))
        for value, argument in given.items():
            argument.name_hint = value.name_hint
        return block, Scope(block, dict[SSAValue, SSAValue](given))

    def _meaning(self) -> Block:
        block, scope = self._block((), self.inputs)
        results = [*self.exports, *self.pieces]
        wanted = {*results}
        for op in reversed(self.plan.part.ops):
            if any(result in wanted for result in op.results):
                wanted |= {operand for operand in op.operands if operand not in self.inputs}
        for op in self.plan.part.ops:
            if op.results[0] in wanted and op.results[0] not in scope.values:
                self.copy(scope, op)
        block.add_op(YieldOp(*(scope.values[value] for value in results)))
        return block

    def _outside(self) -> list[SSAValue]:
        """What the stream needs that neither it nor a constant makes, in program order."""
        inside = [*self.plan.step_of(self.stream), *self.plan.finish_of(self.stream)]
        needed = [operand for op in inside for operand in op.operands]
        for state in self.states:
            if (repair := self.plan.verdicts[state].repair) is not None:
                needed += [leaf.value for leaf in repair.leaves]
        made = {result for op in inside for result in op.results}
        outside = [value for value in dict.fromkeys(needed) if value not in made and not _is_constant(value)]
        order: dict[SSAValue, int] = {
            result: place for place, op in enumerate(self.plan.part.ops) for result in op.results
        }
        return sorted(outside, key=lambda value: order.get(value, -1))

    # -- what a law is made of --------------------------------------------------------------------

    def tile(self, type: Attribute) -> Attribute:
        return _held(type)

    def fetch(self, scope: Scope, value: SSAValue) -> None:
        assert isinstance(value.owner, Operation), "an argument that was not foreseen"
        self.copy(scope, value.owner)

    def static_size(self, axis: str, size: int) -> int:
        """A law holds for any length of its axis, none among them."""
        return DYNAMIC if axis == self.plan.axis else size

    def leave(self, scope: Scope, value: SSAValue) -> None:
        self.left.append(scope.values[value])

    def end(self, block: Block, values: Sequence[SSAValue]) -> None:
        block.add_op(YieldOp(*values, *self.left))
        self.left = []


def _is_constant(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and is_free(value.owner)


__all__ = ["function_of", "laws_of_kernel"]
