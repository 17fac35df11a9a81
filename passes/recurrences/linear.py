"""What of a step multiplies a state: the step without what it adds, which no state has a part in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import ContractOp, MapOp, RecurrenceOp, ReduceOp, RenameOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array
from treadle.dialects.diagram.recurrence import at_position
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    build_map,
    difference,
    expression_of,
    inside_out,
    is_plain,
    number,
    product,
    quotient,
    select,
    substitute,
    total,
    unary,
)

Values = dict[SSAValue, SSAValue]


class NotAffineError(Exception):
    """Why a step is not affine in a state."""


@dataclass
class Linear:
    """The linear part of a step in one state: a block that is given the state before a position, and each array that is
    read as it is there. `result` is what the step makes of the state, less what it adds to that."""

    block: Block
    result: SSAValue
    dependent: set[SSAValue]
    """What of the block has a part in the state, which is one of these."""
    mixed: tuple[str, ...] = field(init=False)
    """The axes of the state along which its elements meet others of it."""
    varying: tuple[str, ...] = field(init=False)
    """All axes of the state along which what it is multiplied by varies: these, and others."""

    def __post_init__(self) -> None:
        axes = axes_of(self.result.type)
        met = {axis for op in self._along() for axis in _met(op)}
        by = {axis for op in self._along() for axis in self._multiplied_along(op)}
        self.mixed = tuple(axis for axis in axes if axis in met)
        self.varying = tuple(axis for axis in axes if axis in met | by)

    def _along(self) -> list[Operation]:
        return [op for op in self.block.ops if op.results[0] in self.dependent]

    def _multiplied_along(self, op: Operation) -> Iterable[str]:
        others = [value for value in op.operands if value not in self.dependent and is_array(value.type)]
        return [axis for value in others for axis in axes_of(value.type)]


def _met(op: Operation) -> Iterable[str]:
    if isinstance(op, RenameOp):
        return op.meeting_axes
    return op.over_axes if isinstance(op, ContractOp | ReduceOp) else ()


def linear_part(op: RecurrenceOp, place: int) -> Linear:
    """That of a step in a state, in which it is affine (NotAffineError with the reason, if it is not)."""
    return _Part(op, place).found()


class _Part:
    """Writes the linear part of a step in one state."""

    def __init__(self, op: RecurrenceOp, place: int):
        self.op, self.place = op, place
        fed = [at_position(each.type, op.axis.data) if is_array(each.type) else each.type for each in op.inputs]
        arguments, count = op.body.block.args, len(op.states)
        self.block = Block(arg_types=[arguments[place].type, *fed])
        for old, new in zip([arguments[place], *arguments[count:]], self.block.args, strict=True):
            new.name_hint = old.name_hint
        self.state = arguments[place]
        self.others = {*arguments[:count]} - {self.state}
        self.same: Values = dict(zip(arguments[count:], self.block.args[1:], strict=True))
        """What has no part in the state, in the block."""
        self.parts: dict[SSAValue, SSAValue | None] = {self.state: self.block.args[0]}
        """Of what has a part in the state the linear part, in the block; None where that is nothing."""

    def found(self) -> Linear:
        if format_of(self.state.type) != f32:
            raise NotAffineError(f"its state is of {format_of(self.state.type)}, not of f32")
        yielded = self.op.yielded[self.place]
        needed = _behind(yielded)
        if needed & self.others:
            raise NotAffineError("a state is made of another one")
        for op in self.op.step:
            if op.results[0] in needed:
                self._take(op)
        result = self.parts.get(yielded)
        if result is None:
            raise NotAffineError("its state is not made of the one before")
        dependent = {value for value in self.parts.values() if value is not None}
        return Linear(self.block, result, dependent)

    def _take(self, op: Operation) -> None:
        (result,) = op.results
        if not any(operand in self.parts for operand in op.operands):
            new = op.clone(self.same)
            self.block.add_op(new)
            self.same[result] = new.results[0]
            return
        self.parts[result] = self._map(op) if isinstance(op, MapOp) else self._copy(op)

    def _copy(self, op: Operation) -> SSAValue | None:
        """A sum, or product with something else, of a linear part is that of what it is made of."""
        is_sum = isinstance(op, ReduceOp) and op.kind.data == "add"
        if not is_sum and not isinstance(op, ContractOp | RenameOp):
            raise NotAffineError(f"'{op.name}' of its state")
        given = [operand for operand in op.operands if operand in self.parts]
        if len(given) > 1:
            raise NotAffineError("its state is multiplied by itself")
        if isinstance(op, ContractOp) and (op.accumulate != f32 or op.multiply is not None):
            raise NotAffineError("a product with its state is rounded to less than f32")
        if format_of(op.results[0].type) != f32:
            raise NotAffineError(f"what is made of its state is rounded to {format_of(op.results[0].type)}")
        if (part := self.parts[given[0]]) is None:
            return None
        return self._add(op.clone({**self.same, given[0]: part}), op)

    def _map(self, op: MapOp) -> SSAValue | None:
        if not is_plain(op) or format_of(op.result.type) != f32:
            raise NotAffineError("a map of its state is not one of f32 alone")
        expression = self._linear(expression_of(op))
        return None if expression is None else self._add(build_map(expression, op.result.type), op)

    def _add(self, new: Operation, old: Operation) -> SSAValue:
        new.location = old.location
        new.results[0].name_hint = old.results[0].name_hint
        self.block.add_op(new)
        return new.results[0]

    def _linear(self, expression: Expression) -> Expression | None:
        """The linear part of a scalar expression, None where that is zero."""
        known: dict[int, Expression | None] = {}
        depends: dict[int, bool] = {}
        for part in inside_out(expression):
            if isinstance(part, Leaf):
                depends[id(part)] = part.value in self.parts
                value = self.parts.get(part.value)
                known[id(part)] = None if value is None else Leaf(value)
            elif isinstance(part, Node) and any(depends[id(each)] for each in part.operands):
                depends[id(part)] = True
                known[id(part)] = self._of_node(part, known, depends)
            else:
                depends[id(part)], known[id(part)] = False, None
        return known[id(expression)]

    def _of_node(
        self, node: Node, known: Mapping[int, Expression | None], depends: Mapping[int, bool]
    ) -> Expression | None:
        parts = [known[id(each)] for each in node.operands]
        varies = [depends[id(each)] for each in node.operands]
        if node.kind in (arith.AddfOp, arith.SubfOp):
            return _added(node.kind is arith.AddfOp, parts[0], parts[1])
        if node.kind is arith.NegfOp:
            return None if parts[0] is None else unary(arith.NegfOp, parts[0])
        if node.kind is arith.MulfOp and not all(varies):
            which = varies.index(True)
            part, other = parts[which], self._outside(node.operands[1 - which])
            return None if part is None else product(part, other)
        if node.kind is arith.DivfOp and not varies[1]:
            return None if parts[0] is None else quotient(parts[0], self._outside(node.operands[1]))
        if node.kind is arith.SelectOp and not varies[0]:
            yes, no = (number(0.0) if part is None else part for part in parts[1:])
            both = parts[1] is None and parts[2] is None
            return None if both else select(self._outside(node.operands[0]), yes, no)
        raise NotAffineError(f"'{node.kind.name}' of its state")

    def _outside(self, expression: Expression) -> Expression:
        """What has no part in the state, of the arrays of the block."""
        return substitute(expression, lambda leaf: Leaf(self.same[leaf.value]))


def _added(is_sum: bool, left: Expression | None, right: Expression | None) -> Expression | None:
    if right is None:
        return left
    if left is None:
        return right if is_sum else unary(arith.NegfOp, right)
    return total(left, right) if is_sum else difference(left, right)


def _behind(value: SSAValue) -> set[SSAValue]:
    """What a value of a step is made of, itself included."""
    found, left = set[SSAValue](), [value]
    while left:
        each = left.pop()
        if each not in found:
            found.add(each)
            left += each.owner.operands if isinstance(each.owner, Operation) else ()
    return found


__all__ = ["Linear", "NotAffineError", "linear_part"]
