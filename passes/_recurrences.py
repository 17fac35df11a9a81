"""What happens at a position of a recurrence, as operations on arrays that may have its axis: on pieces of one
position, as a step of a stream does it, or on whole arrays, which stand for all steps where a kernel is planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, RecurrenceOp, ReduceOp, YieldOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of, with_level
from treadle.dialects.diagram.formats import INTEGERS, SIXTEEN_BIT
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy import YieldOp as EndOp
from treadle.passes._functions import erase_dead, erase_unused

Values = dict[SSAValue, SSAValue]
Tile = Callable[[Attribute], Attribute]


def recurrence_of(kernel: KernelOp) -> RecurrenceOp | None:
    """The recurrence that a kernel is, until its streams are expanded."""
    return next((op for op in kernel.body.block.ops if isinstance(op, RecurrenceOp)), None)


def drop_unused(op: RecurrenceOp) -> None:
    """Let a recurrence be given what its step uses, and no other arrays, whose axes its kernel would have no tiles for.
    One array with the axis stays, for it says how many positions there are; Refusal if the step would have to use
    it."""
    block, count = op.body.block, len(op.states)
    erase_dead(block)
    unused = [i for i, argument in enumerate(block.args) if i >= count and not argument.uses]
    along = [i for i, value in enumerate(op.operands) if op.axis.data in axes_of(value.type)]
    if {*along} <= {*unused}:
        others = {axis for value in op.results for axis in axes_of(value.type)} | {*op.over_axes}
        kept = next((i for i in along if {*axes_of(op.operands[i].type)} <= others), None)
        if kept is None:
            raise Refusal(
                op,
                f"its step uses no array that has axis '{op.axis.data}', and those that it is given have other axes "
                "that no state has: let it use one of them, or give it one with no other axis",
            )
        unused.remove(kept)
    for i in reversed(unused):
        block.erase_arg(block.args[i])
    before, inputs = op.inputs, [value for i, value in enumerate(op.inputs, start=count) if i not in unused]
    if len(inputs) == len(before):
        return
    op.operands = [*op.states, *inputs]
    op.properties["operandSegmentSizes"] = DenseArrayBase.from_list(i32, [count, len(inputs)])
    erase_unused(before)


class Position:
    """Writes what happens at a position. `tile` gives the type of what a kernel holds of a whole array."""

    def __init__(self, op: RecurrenceOp, block: Block, tile: Tile):
        self.op = op
        self.axis = op.axis.data
        self.size = next(sizes_of(value.type)[self.axis] for value in op.inputs if self.axis in axes_of(value.type))
        self.block = block
        self.tile = tile
        self.ordered = {
            value: axes_of(output.type)
            for value, output in zip(op.yielded[len(op.states) :], op.outputs, strict=True)
            if value not in op.yielded[: len(op.states)]
        }
        """In which order a result has the axes of what the body yields for it."""

    def write(self, given: Sequence[SSAValue]) -> tuple[list[SSAValue], list[SSAValue]]:
        """The states after the position, and what is made of it, with the axis, of what stands for the arguments of
        the body."""
        values: Values = dict(zip(self.op.body.block.args, given, strict=True))
        for op in self.op.step:
            if isinstance(op, ContractOp):
                values[op.result] = self._product(op, values)
            elif not self._is_widened_later(op):
                values[op.results[0]] = self._copy(op, values)
        count = len(self.op.states)
        states = [
            self._state(values[value], last) for value, last in zip(self.op.yielded[:count], self.op.last, strict=True)
        ]
        outputs = [
            self._output(values[value], output)
            for value, output in zip(self.op.yielded[count:], self.op.outputs, strict=True)
        ]
        return states, outputs

    def _copy(self, op: Operation, values: Values) -> SSAValue:
        copy = op.clone(values)
        (old,), (new,) = op.results, copy.results
        new = Rewriter.replace_value_with_new_type(new, self._type(old, copy.operands))
        return self._add(copy, old)

    def _product(self, op: ContractOp, values: Values) -> SSAValue:
        """A row of products is no work for tensor cores: the elements are multiplied, and added up."""
        factors = [self._factor(value, values) for value in (op.lhs, op.rhs)]
        sizes = {axis: size for value in (op.rhs, op.lhs) for axis, size in sizes_of(value.type).items()}
        whole = array_type(op.accumulate, self._with_axis(sizes, factors))
        product = self._add(_multiplied(factors, op.accumulate, self.tile(whole)), op.result)
        summed = self._type_of(op.accumulate, op.result, [product])
        total = self._add(ReduceOp("add", product, op.over_axes, summed), op.result)
        if format_of(op.result.type) == op.accumulate:
            return total
        return self._add(CastOp(total, self._type(op.result, [total])), op.result)

    def _factor(self, value: SSAValue, values: Values) -> SSAValue:
        owner = value.owner
        return values[owner.operand] if isinstance(owner, CastOp) and self._is_widened_later(owner) else values[value]

    def _is_widened_later(self, op: Operation) -> bool:
        """Whether a cast is of what is the same at all positions, which stays as narrow as it is: it is widened where
        it is multiplied."""
        if not isinstance(op, CastOp) or not isinstance(op.operand, BlockArgument):
            return False
        given = self.op.operands[op.operand.index]
        widens = str(format_of(given.type)) in SIXTEEN_BIT and str(format_of(op.result.type)) == "f32"
        is_same = op.operand.index >= len(self.op.states) and self.axis not in axes_of(given.type)
        return widens and is_same and all(isinstance(use.operation, ContractOp) for use in op.result.uses)

    def _state(self, value: SSAValue, last: SSAValue) -> SSAValue:
        """Without the axis, along which a piece has one element: a product of one number is that number."""
        if self.axis not in axes_of(value.type):
            return value
        return self._add(ReduceOp("mul", value, [self.axis], self.tile(last.type)), last)

    def _output(self, value: SSAValue, output: SSAValue) -> SSAValue:
        if axes_of(value.type) == axes_of(output.type):
            return value
        return self._add(spread(value, self.tile(output.type)), output)

    def _add(self, op: Operation, near: SSAValue) -> SSAValue:
        for each in op.walk():
            each.location = near.owner.location if isinstance(near.owner, Operation) else self.op.location
        (result,) = op.results
        result.name_hint = near.name_hint
        self.block.add_op(op)
        return result

    def _type(self, value: SSAValue, operands: Sequence[SSAValue]) -> Attribute:
        return self._type_of(format_of(value.type), value, operands)

    def _type_of(self, format: Attribute, value: SSAValue, operands: Sequence[SSAValue]) -> Attribute:
        """The type of what stands for a value of the body, made of these operands: with the axis if one has it."""
        sizes = self._with_axis(sizes_of(value.type), operands)
        order = self.ordered.get(value, ())
        if {*order} == {*sizes}:
            sizes = {axis: sizes[axis] for axis in order}
        return self.tile(array_type(format, sizes))

    def _with_axis(self, sizes: Mapping[str, int], operands: Sequence[SSAValue]) -> dict[str, int]:
        has = any(is_array(value.type) and self.axis in axes_of(value.type) for value in operands)
        return {**({self.axis: self.size} if has else {}), **sizes}


def spread(value: SSAValue, type: Attribute) -> MapOp:
    """An array along all axes of a type."""
    body = Block(arg_types=[format_of(value.type)])
    body.add_op(YieldOp(body.args[0]))
    return MapOp([value], type, Region(body))


def _multiplied(factors: Sequence[SSAValue], format: Attribute, type: Attribute) -> MapOp:
    body = Block(arg_types=[format_of(value.type) for value in factors])
    wide: list[SSAValue] = []
    for argument in body.args:
        if argument.type == format:
            wide.append(argument)
            continue
        body.add_op(widened := arith.ExtFOp(argument, format))
        wide.append(widened.result)
    left, right = wide
    product = arith.MuliOp(left, right) if str(format) in INTEGERS else arith.MulfOp(left, right)
    body.add_ops([product, YieldOp(product.result)])
    return MapOp(factors, type, Region(body))


def flat_operations(op: RecurrenceOp, block: Block, given: Sequence[SSAValue]) -> list[SSAValue]:
    """Add to a block what stands for a recurrence of whole arrays where a kernel is planned; its results. Every step
    has the states before it, and what is left in the end is reduced along the axis: what is computed, moved and held is
    that of the recurrence, though not what comes out."""
    position = Position(op, block, _near)
    count = len(op.states)
    before: list[SSAValue] = []
    for value, last in zip(given[:count], op.last, strict=True):
        sizes = {op.axis.data: position.size, **sizes_of(last.type)}
        made = spread(value, _near(array_type(format_of(last.type), sizes)))
        made.location, made.result.name_hint = op.location, value.name_hint
        block.add_op(made)
        before.append(made.result)
    states, outputs = position.write([*before, *given[count:]])
    for i, (state, last) in enumerate(zip(states, op.last, strict=True)):
        if op.axis.data not in axes_of(state.type) and not isinstance(state.owner, ReduceOp):
            reduced = ReduceOp("mul", before[i], [op.axis.data], _near(last.type))
            reduced.location, reduced.result.name_hint = op.location, last.name_hint
            block.add_op(reduced)
            states[i] = reduced.result
    return [*states, *outputs]


def _near(type: Attribute) -> Attribute:
    return with_level(type, "register") if is_array(type) else type


def stand_in(kernel: KernelOp, op: RecurrenceOp) -> KernelOp:
    """A kernel without the recurrence, that moves, computes and holds the same: for plans, and never to be run. It
    stands nowhere, and is given values of its own."""
    outside = Block(arg_types=[value.type for value in kernel.inputs])
    body = Block(arg_types=[argument.type for argument in kernel.body.block.args])
    for old, new in zip(kernel.body.block.args, body.args, strict=True):
        new.name_hint = old.name_hint
    values: Values = dict(zip(kernel.body.block.args, body.args, strict=True))
    *ops, terminator = kernel.body.block.ops
    for each in ops:
        if each is not op:
            body.add_op(each.clone(values))
    made = flat_operations(op, body, [values[value] for value in op.operands])
    values |= dict(zip(op.results, made, strict=True))
    body.add_op(EndOp(*(values[value] for value in terminator.operands)))
    outputs = [output.type for output in kernel.outputs]
    new = KernelOp(kernel.kernel_name.data, outside.args, outputs, Region(body), kernel.schedule)
    new.location = kernel.location
    return new
