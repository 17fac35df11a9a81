"""Raising one function whose operations were read (`passes/linalg/reading.py`): diagrams take their place."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import cast

from xdsl.dialects import arith, func, linalg, tensor
from xdsl.dialects.builtin import FunctionType, IntegerAttr, UnrealizedConversionCastOp, bf16, f16, f32, i32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter
from xdsl.traits import Pure

from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, FillOp, IndexOp, MapOp, ReadOp, ReduceOp, YieldOp
from treadle.dialects.diagram.array import (
    DYNAMIC,
    Number,
    array_type,
    axes_of,
    format_of,
    is_array,
    sizes_of,
)
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.passes.linalg.anonymous_axes import Axis, give_names
from treadle.passes.linalg.bodies import Combined, body_of_map, combined, factors, neutral, widened
from treadle.passes.linalg.merged_arguments import collapse_merged_arguments
from treadle.passes.linalg.merged_results import name_merged_results
from treadle.passes.linalg.reading import Plan, Reading
from treadle.passes.linalg.structured import (
    Position,
    Structured,
    argument_of,
    constant_of,
    is_tensor,
    needed,
    outside,
)


class Raising:
    """One function on its way to the `diagram` dialect."""

    def __init__(self, function: func.FuncOp, may_retype: bool, reading: Reading):
        self.function = function
        self.block = function.body.block
        self.may_retype = may_retype
        self.plans, self.dimensions = reading.plans, reading.dimensions
        self.dimensions_of = reading.dimensions_of
        self.arrays: dict[SSAValue, SSAValue] = {}
        """For a tensor of the function the array that it is now, without dropped axes."""

    def build(self, names: Sequence[str]) -> None:
        """Replace what was planned."""
        give_names(self._met(), names)
        for op, plan in self.plans.items():
            new = _Builder(self, op)
            values = [new.result(plan, number) for number in range(len(op.results))]
            for result, value in zip(op.results, values, strict=True):
                self.arrays[result] = value
        self._leave()
        self._extents()
        for op in reversed(list(self.plans)):
            if op.parent is not None:  # a fill goes with the last operation that starts from it
                _erase_with_operands(op)
        for op in list(self.block.ops):
            if isinstance(op, UnrealizedConversionCastOp) and not any(result.uses for result in op.results):
                op.detach()
                op.erase()
        if self.may_retype:
            name_merged_results(self.function)
            self._retype()
            collapse_merged_arguments(self.function)

    def _extents(self) -> None:
        """Sizes that are asked of a tensor as i32 are those of axes."""
        for op in [op for op in self.block.ops if isinstance(op, arith.IndexCastOp) and op.result.type == i32]:
            dim = op.operands[0].owner
            if not isinstance(dim, tensor.DimOp) or not isinstance(number := constant_of(dim.index), IntegerAttr):
                continue
            source = dim.source
            if isinstance(source.owner, UnrealizedConversionCastOp):
                source = source.owner.inputs[0]
            axes = self.dimensions.get(source, ())
            at = cast("Number", number).value.data
            name = axes[int(at)].root.name if 0 <= at < len(axes) else None
            if name is None:
                continue
            extent = _Builder(self, op).add(ExtentOp(name), op.result.name_hint)
            op.result.replace_all_uses_with(extent)
            _erase_with_operands(op)

    def _met(self) -> list[Axis]:
        arguments = [axis for value in self.block.args for axis in self.dimensions.get(value, ())]
        loops = [axis for plan in self.plans.values() for axis in plan.loops]
        return [*arguments, *loops, *(axis for axes in self.dimensions.values() for axis in axes)]

    def _leave(self) -> None:
        """Give what stays the tensors that it had."""
        terminator = self.block.last_op
        for old in [result for op in self.plans for result in op.results]:
            for use in list(old.uses):
                if use.operation in self.plans:
                    continue
                builder = _Builder(self, use.operation)
                array = builder.whole(self.arrays[old], self.dimensions[old])
                is_returned = use.operation is terminator and self.may_retype
                use.operation.operands[use.index] = array if is_returned else builder.plain(array, old.type)

    def _retype(self) -> None:
        """Make arrays of the arguments that no diagram reads, too: a body ignores them, they are the room that a caller
        gave for a result, or they are only returned. What only something else uses stays a tensor."""
        terminator, first = self.block.last_op, self.block.first_op
        assert terminator is not None
        assert first is not None
        for argument in [each for each in self.block.args if each in self.dimensions and not is_array(each.type)]:
            if not argument.uses or any(_is_raised(use.operation, terminator) for use in argument.uses):
                _Builder(self, first).retyped(argument)
        inputs = [argument.type for argument in self.block.args]
        outputs = [operand.type for operand in terminator.operands]
        self.function.properties["function_type"] = FunctionType.from_lists(inputs, outputs)

    def array_of(self, value: SSAValue) -> SSAValue:
        """The array that a tensor of the function is, without dropped axes."""
        if value not in self.arrays:
            after = value.owner if isinstance(value.owner, Operation) else None
            before = self.block.first_op if after is None else after.next_op
            assert before is not None
            self.arrays[value] = _Builder(self, before).entered(value)
        return self.arrays[value]


class _Builder:
    """Makes diagram operations in front of one operation."""

    def __init__(self, raising: Raising, before: Operation):
        self.raising = raising
        self.before = before

    def add(self, op: Operation, hint: str | None = None) -> SSAValue:
        self.raising.block.insert_op_before(op, self.before)
        op.location = self.before.location
        op.results[0].name_hint = hint
        return op.results[0]

    # -- results of structured operations --------------------------------------------------------

    def result(self, plan: Plan, number: int) -> SSAValue:
        """The array that a result is."""
        op = plan.of
        result = op.results[number]
        type = _type(format_of(result.type), self.raising.dimensions[result])
        over = [loop for loop in sorted(op.reduced) if not plan.loops[loop].root.is_dropped]
        if not over:
            return self._map(plan, op.yielded[number], type, result.name_hint)
        return self._reduced(plan, number, combined(op, number), type, over)

    def _reduced(self, plan: Plan, number: int, what: Combined, type: Attribute, over: Sequence[int]) -> SSAValue:
        op = plan.of
        hint = op.results[number].name_hint
        wide = _summed(what, type)
        init = self._init(plan, op.inputs + number, what.kind, wide)
        names = [_name(plan.loops[loop]) for loop in over]
        pair = factors(op, what.value, what.format) if what.kind == "add" else None
        if pair is not None and all(is_tensor(op.operands[each]) for each in pair):
            left, right = (self._operand(plan, each) for each in pair)
            if {*axes_of(left.type), *axes_of(right.type)} >= {*names, *axes_of(type)}:
                format = format_of(wide)
                return self._cast(self.add(ContractOp(left, right, names, wide, format, init), hint), type)
        element = self._element(plan, what)
        return self._cast(self.add(ReduceOp(what.kind, element, names, wide, init), hint), type)

    def _cast(self, array: SSAValue, type: Attribute) -> SSAValue:
        return array if array.type == type else self.add(CastOp(array, type), array.name_hint)

    def _element(self, plan: Plan, what: Combined) -> SSAValue:
        """The array of which a reduction combines the elements: an operand as it is, or a map. It has every loop as an
        axis, those too that no operand has: elements are the same along them, and are combined for each."""
        type = _type(what.value.type, plan.loops)
        number = argument_of(widened(what.value), plan.of.body)
        if number is not None and is_tensor(plan.of.operands[number]):
            operand = self._operand(plan, number)
            if set(axes_of(operand.type)) >= set(axes_of(type)):
                return operand
        return self._map(plan, what.value, type, what.value.name_hint)

    def _init(self, plan: Plan, number: int, kind: str, type: Attribute) -> SSAValue | None:
        start = plan.of.operands[number]
        constant = constant_of(start)
        if constant is not None and neutral(kind, constant):
            return None
        return self._cast(self._operand(plan, number), type)

    def _map(self, plan: Plan, value: SSAValue, type: Attribute, hint: str | None) -> SSAValue:
        op = plan.of
        if (constant := constant_of(value)) is not None or (constant := self._filled(op, value)) is not None:
            return self.add(FillOp(constant, type), hint)
        number = argument_of(value, op.body)
        if number is not None and is_tensor(op.operands[number]):
            array = self._operand(plan, number)
            if array.type == type:
                return array
            if set(axes_of(array.type)) == set(axes_of(type)):
                return self.add(CastOp(array, type), hint)
        sources = [each for each in outside(value, op.body) if constant_of(each) is None]
        indices = [each for each in needed(value, op.body) if isinstance(each, linalg.ops.IndexOp)]
        arrays = [self._source(plan, each) for each in sources]
        arrays += [self._index(plan, each) for each in indices]
        body = body_of_map(op, value, [*sources, *(each.result for each in indices)])
        return self.add(MapOp(arrays, type, body), hint)

    def _filled(self, op: Structured, value: SSAValue) -> Number | None:
        """The number of a fill, whose operand is a scalar of the function around."""
        number = argument_of(value, op.body)
        return None if number is None or is_tensor(op.operands[number]) else constant_of(op.operands[number])

    def _source(self, plan: Plan, value: SSAValue) -> SSAValue:
        number = argument_of(value, plan.of.body)
        return value if number is None else self._operand(plan, number)

    def _index(self, plan: Plan, op: linalg.ops.IndexOp) -> SSAValue:
        axis = plan.loops[op.dim.value.data].root
        if axis.is_dropped:
            return self.add(arith.ConstantOp.from_int_and_width(0, 32))
        return self.add(IndexOp(_type(i32, [axis])), f"at_{axis.name}")

    def _operand(self, plan: Plan, number: int) -> SSAValue:
        """An operand with the axes that the loops have."""
        value = plan.of.operands[number]
        if not is_tensor(value):
            return value
        array = self.raising.array_of(value)
        if number not in plan.reads:
            return array
        dimensions = self.raising.dimensions[value]
        places = [
            place for place, axis in zip(plan.of.places[number], dimensions, strict=True) if not axis.root.is_dropped
        ]
        loops = dict.fromkeys(loop for place in places for loop, _ in place.terms)
        axes = [plan.loops[loop] for loop in loops if not plan.loops[loop].root.is_dropped]
        text = ", ".join(_text(place, plan.loops) for place in places)
        return self.add(ReadOp(array, text, _type(format_of(value.type), axes)), value.name_hint)

    # -- the borders -----------------------------------------------------------------------------

    def entered(self, value: SSAValue) -> SSAValue:
        """A tensor that something else made, as an array without dropped axes."""
        constant = constant_of(value)
        dimensions = self.raising.dimensions_of(value)
        kept = _type(format_of(value.type), dimensions)
        if constant is not None:
            return self.add(FillOp(constant, kept), value.name_hint)
        if is_array(value.type):
            array = value
        elif isinstance(value, BlockArgument) and self.raising.may_retype:
            array = self.retyped(value)
        else:
            array = self.add(UnrealizedConversionCastOp.get([value], [self._full(value, dimensions)]), value.name_hint)
        if array.type == kept:
            return array
        dropped = [axis for axis in axes_of(array.type) if axis not in axes_of(kept)]
        return self.add(ReduceOp("add", array, dropped, kept), value.name_hint)

    def retyped(self, argument: BlockArgument) -> SSAValue:
        """The argument, which is an array from now on; what stays is given it as the tensor that it was."""
        old = argument.type
        type = self._full(argument, self.raising.dimensions[argument])
        foreign = [use for use in argument.uses if self._is_foreign(use.operation)]
        array = Rewriter.replace_value_with_new_type(argument, type)
        self.raising.dimensions[array] = self.raising.dimensions[argument]
        if foreign:
            plain = self.plain(array, old)
            for use in foreign:
                use.operation.operands[use.index] = plain
        return array

    def _is_foreign(self, op: Operation) -> bool:
        return op not in self.raising.plans and not isinstance(op, DiagramOperation | func.ReturnOp)

    def whole(self, array: SSAValue, dimensions: Sequence[Axis]) -> SSAValue:
        """An array with the axes of size 1 that were dropped."""
        full = self._full(array, dimensions)
        if array.type == full:
            return array
        block = Block(arg_types=[format_of(array.type)])
        block.add_op(YieldOp(block.args[0]))
        return self.add(MapOp([array], full, Region(block)), array.name_hint)

    def plain(self, array: SSAValue, type: Attribute) -> SSAValue:
        return self.add(UnrealizedConversionCastOp.get([array], [type]), array.name_hint)

    def _full(self, value: SSAValue, dimensions: Sequence[Axis]) -> Attribute:
        return array_type(format_of(value.type), _sizes(dimensions, self._all_names(dimensions)))

    def _all_names(self, dimensions: Sequence[Axis]) -> list[str]:
        """Names of all dimensions, of the dropped ones too."""
        given = {axis.root.name for axes in self.raising.dimensions.values() for axis in axes}
        free = (f"one{i}" for i in count(1) if f"one{i}" not in given)
        return [axis.root.name or next(free) for axis in dimensions]


def _is_raised(op: Operation, terminator: Operation) -> bool:
    """Whether arrays take its place: what the function returns, and merged dimensions that diagrams read."""
    if not isinstance(op, tensor.CollapseShapeOp):
        return op is terminator
    return any(isinstance(use.operation, UnrealizedConversionCastOp) for use in op.result.uses)


def _name(axis: Axis) -> str:
    return axis.root.name or ""


def _sizes(axes: Sequence[Axis], names: Sequence[str]) -> dict[str, int]:
    return {name: DYNAMIC if axis.root.size is None else axis.root.size for axis, name in zip(axes, names, strict=True)}


def _type(format: Attribute, axes: Sequence[Axis]) -> Attribute:
    kept = [axis.root for axis in axes if not axis.root.is_dropped]
    return array_type(format, _sizes(kept, [_name(axis) for axis in kept]))


def _summed(what: Combined, type: Attribute) -> Attribute:
    """What a sum or product of 16 bits is taken in: every kernel takes it in 32, and rounds it once."""
    narrow = what.kind in ("add", "mul") and format_of(type) in (f16, bf16)
    return array_type(f32, sizes_of(type)) if narrow else type


def _text(place: Position, loops: Sequence[Axis]) -> str:
    terms = [
        _name(loops[loop]) if factor == 1 else f"{factor} * {_name(loops[loop])}"
        for loop, factor in place.terms
        if not loops[loop].root.is_dropped
    ]
    if place.constant or not terms:
        terms.append(str(place.constant))
    return " + ".join(terms)


def _erase_with_operands(op: Operation) -> None:
    """Erase an operation, and what only it used."""
    operands = [operand for each in op.walk() for operand in each.operands]
    owners = [
        owner for operand in operands if isinstance(owner := operand.owner, Operation) and owner.parent_op() is not op
    ]
    op.detach()
    op.erase()
    for owner in dict.fromkeys(owners):
        made_for_it = isinstance(owner, tensor.EmptyOp | tensor.DimOp | linalg.ops.FillOp) or _is_scalar(owner)
        if made_for_it and owner.parent is not None and not any(result.uses for result in owner.results):
            _erase_with_operands(owner)


def _is_scalar(op: Operation) -> bool:
    """Whether an operation computes numbers, as the sizes of what others make."""
    return op.dialect_name() == "arith" and op.has_trait(Pure)
