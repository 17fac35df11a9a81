"""Reading the structured operations of one function: what is raised of each, and which dimensions are one axis."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith, cf, func, linalg, tensor
from xdsl.dialects.builtin import IntegerAttr, ShapedType
from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.dialects.diagram.array import (
    DYNAMIC,
    FORMAT_NAMES,
    FORMATS,
    Number,
    axes_of,
    format_of,
)
from treadle.passes.linalg.anonymous_axes import Axes, Axis, Differ
from treadle.passes.linalg.as_generic import Parts
from treadle.passes.linalg.bodies import check_scalars, combined
from treadle.passes.linalg.loops import groups_of
from treadle.passes.linalg.structured import (
    STRUCTURED,
    Position,
    Stays,
    Structured,
    argument_of,
    check_constant,
    check_results,
    constant_of,
    is_tensor,
    outside,
    structured,
)

EQUAL = 0
"""What `arith.cmpi` calls `eq`."""


@dataclass(frozen=True)
class Plan:
    """A structured operation that can be raised."""

    of: Structured
    loops: tuple[Axis, ...]
    reads: frozenset[int]
    """Operands whose dimensions are not loops of this operation: they are read at affine positions."""


class Reading:
    """The plans of one function."""

    def __init__(self, function: func.FuncOp, parts: Parts):
        self.block = function.body.block
        self.parts = parts
        self.axes = Axes()
        self.dimensions: dict[SSAValue, tuple[Axis, ...]] = {}
        self.plans: dict[Operation, Plan] = {}
        self.stays: dict[Operation, str] = {}

    def read(self) -> None:
        """Plan what can be raised; `stays` says why the rest cannot."""
        for argument in self.block.args:
            if is_tensor(argument) and format_of(argument.type) in FORMATS:
                self.dimensions_of(argument)
        for op in self.block.ops:
            if isinstance(op, STRUCTURED):
                try:
                    self.plans[op] = self._plan(structured(op))
                except (Stays, Differ) as why:
                    self.stays[op] = str(why)
        self._unify_regrouped()
        self._take_sizes_of_rooms()
        self._leave_computed_sizes()
        for op in self.block.walk():
            if isinstance(op, STRUCTURED) and op.parent is not self.block:
                parent = op.parent_op()
                self.stays[op] = f"it stands inside {parent.name if parent else 'nothing'}"

    def _unify_regrouped(self) -> None:
        """Dimensions that a merge leaves as they are are those of what it merges."""
        for op in self.block.ops:
            if not isinstance(op, tensor.CollapseShapeOp) or not isinstance(op.src, BlockArgument):
                continue
            apart, merged = self.dimensions_of(op.src), self.dimensions_of(op.result)
            for group, axis in zip(groups_of(op), merged, strict=True):
                if len(group) == 1:
                    self.axes.unify(apart[group[0]], axis)

    def assured(self) -> list[cf.AssertOp]:
        """Assertions that two sizes are equal, of dimensions that are one axis: whoever calls the program asks that."""
        if self.stays:
            return []
        return [op for op in self.block.ops if isinstance(op, cf.AssertOp) and self._is_assured(op.arg.owner)]

    def _is_assured(self, op: object) -> bool:
        if not isinstance(op, arith.CmpiOp) or op.predicate.value.data != EQUAL:
            return False
        left, right = (self._axis_of(operand) for operand in op.operands)
        return left is not None and left is right

    def _axis_of(self, size: SSAValue) -> Axis | None:
        """The axis that a number is the size of."""
        op = size.owner
        if isinstance(op, arith.IndexCastOp):
            return self._axis_of(op.input)
        index = constant_of(op.index) if isinstance(op, tensor.DimOp) else None
        if not isinstance(op, tensor.DimOp) or not isinstance(index, IntegerAttr):
            return None
        axes = self.dimensions_of(op.source)
        number = int(cast("Number", index).value.data)
        return axes[number].root if 0 <= number < len(axes) else None

    def _take_sizes_of_rooms(self) -> None:
        """Make an axis that no argument has the one of an argument that told the size of the room for it: positions
        along it, say. Only then: equal sizes alone do not make two axes one."""
        given = {axis.root for argument in self.block.args for axis in self.dimensions.get(argument, ())}
        for plan in self.plans.values():
            rooms = plan.of.operands[plan.of.inputs :]
            for result, room in zip(plan.of.results, rooms, strict=True):
                for axis, size in zip(self.dimensions_of(result), _sizes_of_room(room), strict=True):
                    if size is None or axis.root in given:
                        continue
                    value, number = size
                    told = self.dimensions_of(value)
                    if number < len(told) and told[number].root in given:
                        self.axes.unify(told[number], axis)

    def _leave_computed_sizes(self) -> None:
        """Let stay what has a dimension whose size is nobody's but the room's: a number that the program computes."""
        known = self._with_sizes()
        for op, plan in list(self.plans.items()):
            axes = [axis.root for result in plan.of.results for axis in self.dimensions_of(result)]
            if any(axis.size == DYNAMIC and axis not in known for axis in axes):
                del self.plans[op]
                self.stays[op] = "the size of a dimension is computed, and neither an argument nor an operand has it"
                known = self._with_sizes()  # what stays has sizes of its own

    def _with_sizes(self) -> set[Axis]:
        """The axes of arguments, of what stays, and those that reads go along."""
        made = {result for plan in self.plans.values() for result in plan.of.results}
        known = {axis.root for value, axes in self.dimensions.items() if value not in made for axis in axes}
        read = [(plan, plan.of.places[number]) for plan in self.plans.values() for number in plan.reads]
        return known | {plan.loops[loop].root for plan, places in read for place in places for loop, _ in place.terms}

    def _plan(self, op: Structured) -> Plan:
        for value in (*op.operands, *op.results):
            _check_format(value)
            check_constant(value)
        check_results(op)
        for number, (result, value) in enumerate(zip(op.results, op.yielded, strict=True)):
            if value.type != format_of(result.type):
                raise Stays(f"its body yields {value.type}, elements are {format_of(result.type)}")
            self._check_result(op, number, value)
        loops = self.axes.group([None] * op.loops)
        reads = frozenset(
            number
            for number, (operand, places) in enumerate(zip(op.operands, op.places, strict=True))
            if (number < op.inputs or not _is_unread(operand))
            and not self._unify(operand, places, loops, apart=self.parts.get(op.op, ()) if number == 0 else ())
        )
        for result, places in zip(op.results, op.places[op.inputs :], strict=True):
            if not self._unify(result, places, loops):
                raise Stays("a result is not written at its loops")
        if any(loops[loop].root.size is None for loop in range(op.loops)):
            raise Stays("a loop has no size")
        return Plan(op, loops, reads)

    def _check_result(self, op: Structured, number: int, value: SSAValue) -> None:
        if op.reduced:
            value = combined(op, number).value
        check_scalars(op, value)
        for each in outside(value, op.body):
            if argument_of(each, op.body) is None and constant_of(each) is None and each.type not in FORMATS:
                raise Stays(f"its body uses a value of type {each.type} from outside")

    def _unify(
        self, value: SSAValue, places: Sequence[Position], loops: Sequence[Axis], apart: Collection[int] = ()
    ) -> bool:
        """Make the dimensions of a tensor, but those `apart`, the loops that they are indexed by; False if it must be
        read instead."""
        simple = True
        for number, (dimension, place) in enumerate(zip(self.dimensions_of(value), places, strict=True)):
            if number in apart:
                simple = False
                _check_affine(place)
            elif place.loop is not None:
                simple &= self.axes.unify(loops[place.loop], dimension)
            elif not place.terms and not place.constant and dimension.root.size == 1:
                dimension.root.is_dropped = True
            else:
                simple = False
                _check_affine(place)
        return simple

    def dimensions_of(self, value: SSAValue) -> tuple[Axis, ...]:
        if value not in self.dimensions:
            sizes = value.type.get_shape() if isinstance(value.type, ShapedType) else ()
            self.dimensions[value] = self.axes.group(sizes, axes_of(value.type))
        return self.dimensions[value]


def _check_format(value: SSAValue) -> None:
    if isinstance(value.type, ShapedType) and not is_tensor(value):
        raise Stays("it mixes buffers and tensors")
    if format_of(value.type) not in FORMATS:
        raise Stays(f"elements are {format_of(value.type)} (a diagram has {FORMAT_NAMES})")


def _check_affine(place: Position) -> None:
    if place.constant < 0 or any(factor < 0 for _, factor in place.terms):
        raise Stays("an operand is read backwards")


def _is_unread(value: SSAValue) -> bool:
    """Whether a start of a result has no elements worth reading."""
    return isinstance(value.owner, tensor.EmptyOp)


def _sizes_of_room(value: SSAValue) -> list[tuple[SSAValue, int] | None]:
    """For each dimension of a tensor the one of another tensor that it was given the size of, if it was."""
    while isinstance(value.owner, linalg.ops.FillOp):
        value = value.owner.outputs[0]
    shape = value.type.get_shape() if isinstance(value.type, ShapedType) else ()
    found: list[tuple[SSAValue, int] | None] = [None] * len(shape)
    if not isinstance(value.owner, tensor.EmptyOp):
        return found
    dynamic = [i for i, size in enumerate(shape) if size == DYNAMIC]
    for i, size in zip(dynamic, value.owner.dynamic_sizes, strict=True):
        if isinstance(size.owner, tensor.DimOp) and isinstance(at := constant_of(size.owner.index), IntegerAttr):
            number = int(cast("Number", at).value.data)
            found[i] = (size.owner.source, number) if number >= 0 else None
    return found
