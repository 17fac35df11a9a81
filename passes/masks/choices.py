"""Choices by positions in maps, of which one side is a constant: masks that are written out."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, IndexOp, MapOp
from treadle.dialects.diagram.condition import Condition, read_condition, resolved
from treadle.dialects.diagram.formats import holds, known_format
from treadle.dialects.diagram.linear import Atom, Read
from treadle.passes.expressions.inner import is_saturating
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    convert,
    expression_of,
    forgets_absences,
    inside_out,
    is_plain,
    product,
    substitute,
    total,
)
from treadle.passes.masks.asked import Asked, asked, is_of_positions, opened, positions_of


@dataclass(frozen=True, eq=False)
class Choice:
    """`arith.select` in a map: what is kept where a condition holds, and a constant elsewhere."""

    map: MapOp
    node: Node
    condition: Asked
    kept: Expression
    fill: Constant

    @property
    def holds(self) -> Condition:
        """The condition over positions and the values of its inputs."""

        def value(term: Atom) -> SSAValue | None:
            return None if isinstance(term, SSAValue) else self.condition.inputs.get(_name(term))

        return resolved(read_condition(self.condition.text), value)


def _name(term: Atom) -> str:
    return term.name if isinstance(term, Read) else str(term)


@dataclass(frozen=True)
class Chooser:
    """A map with choices, and what it computes: what positions alone say, in maps before it, is part of that."""

    map: MapOp
    choices: tuple[Choice, ...]
    unfolded: Expression | None = None

    @property
    def expression(self) -> Expression:
        return expression_of(self.map) if self.unfolded is None else self.unfolded

    def of(self, choices: Container[Choice]) -> Chooser:
        """The same, with those alone of its choices."""
        return Chooser(self.map, tuple(each for each in self.choices if each in choices), self.unfolded)

    def where(self, fills: Iterable[Choice], keeps: Iterable[Choice]) -> Expression:
        """What the map computes where some choices take the constant, and some what they keep."""
        known: dict[Node, Expression] = {choice.node: choice.fill for choice in fills}
        known |= {choice.node: choice.kept for choice in keeps}
        return _replaced(self.expression, known)


def choosers(block: Block) -> dict[MapOp, Chooser]:
    """The maps of a block that choose by positions. What is of positions alone is no map to look at, unless
    something else than a map reads it: those that do have it as a part."""
    if not any(isinstance(op, IndexOp) for op in block.ops):
        return {}
    with positions_of(block):
        return dict(_choosers(block))


def _choosers(block: Block) -> Iterator[tuple[MapOp, Chooser]]:
    for op in block.ops:
        if not isinstance(op, MapOp) or not is_plain(op) or _is_part(op):
            continue
        expression = expression_of(op)
        if forgets_absences(op, expression):
            continue
        expression = substitute(expression, _unfolded)
        if choices := tuple(_choices(op, expression)):
            yield op, Chooser(op, choices, expression)


def _is_part(op: MapOp | CastOp) -> bool:
    """Whether it is of positions alone, and only maps read it that then have it as a part."""
    readers = [use.operation for use in op.result.uses]
    is_read = all(isinstance(each, MapOp) or (isinstance(each, CastOp) and _is_part(each)) for each in readers)
    return is_read and is_of_positions(Leaf(op.result))


def _unfolded(leaf: Leaf) -> Expression:
    """What a leaf is, if it is of positions alone."""
    owner = leaf.value.owner
    if isinstance(owner, CastOp) and is_of_positions(leaf):
        return _cast(_unfolded(Leaf(owner.operand)), leaf)
    part = opened(leaf)
    return part if isinstance(part, Leaf | Constant) else substitute(part, _unfolded)


def _cast(inner: Expression, leaf: Leaf) -> Expression:
    """What is cast, in the format of a leaf; the leaf, where that is no operation of a map."""
    source, target = known_format(inner.type), known_format(leaf.type)
    if inner.type == leaf.type:
        return inner
    if source is None or target is None or not source.is_float or not target.is_float or is_saturating(leaf):
        return leaf
    return Node(arith.ExtFOp if holds(leaf.type, inner.type) else arith.TruncFOp, (inner,), leaf.type)


def _choices(op: MapOp, expression: Expression) -> Iterator[Choice]:
    for node in _selects(expression):
        condition, yes, no = node.operands
        sides = _sides(yes, no)
        if sides is None:
            continue
        kept, fill = sides
        told = asked(condition, negated=kept is no)
        if told is not None and told.axes:
            yield Choice(op, node, told, kept, fill)


def _selects(expression: Expression) -> Iterator[Node]:
    """The choices of an expression, but for those that only say what another one asks of positions."""
    seen: set[Expression] = set()
    waiting = [expression]
    while waiting:
        part = waiting.pop()
        if part in seen or not isinstance(part, Node):
            continue
        seen.add(part)
        waiting += part.operands
        if part.kind is arith.SelectOp:
            yield part
            if is_of_positions(part.operands[0]):
                waiting.remove(part.operands[0])


def _sides(yes: Expression, no: Expression) -> tuple[Expression, Constant] | None:
    """What is kept, and what is put in the place of the rest: of two constants an infinite one, or else a zero."""
    constants = [each for each in (yes, no) if isinstance(each, Constant)]
    if len(constants) == 2:
        constants.sort(key=lambda each: (not numbers.isinf(each.number), each.number != 0))
    if not constants:
        return None
    fill = constants[0]
    return (no, fill) if fill is yes else (yes, fill)


def _replaced(expression: Expression, known: Mapping[Node, Expression]) -> Expression:
    """An expression with others in the place of some parts, without the zeros and ones that these add and multiply."""
    done: dict[Expression, Expression] = {}
    for part in inside_out(expression):
        if not isinstance(part, Node):
            done[part] = part
        elif part in known:
            done[part] = _replaced(known[part], known)
        else:
            done[part] = _made(part, tuple(done[operand] for operand in part.operands))
    return done[expression]


def _made(part: Node, operands: tuple[Expression, ...]) -> Expression:
    changed = [new for new, old in zip(operands, part.operands, strict=True) if new is not old]
    if not changed:
        return part
    constant = next((each for each in changed if isinstance(each, Constant)), None)
    if constant is not None and part.kind in CASTS and constant.number in (0, 1):
        return convert(constant, part.type)
    if constant is not None and part.kind in _WITHOUT_NEUTRAL and part.type == operands[0].type == operands[1].type:
        return _WITHOUT_NEUTRAL[part.kind](*operands)
    return Node(part.kind, operands, part.type, part.properties, part.hint, part.location)


_WITHOUT_NEUTRAL: Mapping[type[Operation], Callable[[Expression, Expression], Expression]] = {
    arith.AddfOp: total,
    arith.MulfOp: product,
}


__all__ = ["Choice", "Chooser", "choosers"]
