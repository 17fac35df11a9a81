"""Scalar expressions: what a `diagram.map` computes for one element, as a tree that passes can rewrite.

`expression_of` reads the body of a map, `build_map` writes an expression back as a map. In between, passes
substitute leaves, split off factors and terms, and build new expressions with `product`, `quotient`,
`difference`, `exponential` and `select`, which drop neutral elements and bring number formats together.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    Float32Type,
    FloatAttr,
    IndexType,
    IntegerAttr,
    IntegerType,
    LocationAttr,
    UnknownLoc,
    f32,
    i1,
    i32,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.irdl import IRDLOperation

from treadle.dialects.diagram import CastOp, MapOp, YieldOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import SIXTEEN_BIT, number_format, ui8


@dataclass(frozen=True)
class Leaf:
    """An element of an array (or a scalar) outside. `version` tells apart two states of one value at
    different moments: the cascade analysis speaks of a reduction before and after a step."""

    value: SSAValue
    version: str = ""

    @property
    def type(self) -> Attribute:
        return format_of(self.value.type)


@dataclass(frozen=True)
class Constant:
    attribute: FloatAttr | IntegerAttr
    hint: str | None = field(default=None, compare=False)

    @property
    def type(self) -> Attribute:
        return self.attribute.type

    @property
    def number(self) -> float:
        return float(self.attribute.value.data)


@dataclass(frozen=True, eq=False)
class Node:
    """One scalar operation. Compared by identity, so that shared parts of a body stay shared."""

    kind: type[Operation]
    operands: tuple[Expression, ...]
    type: Attribute
    properties: Mapping[str, Attribute] = field(default_factory=dict[str, Attribute])
    hint: str | None = None
    location: LocationAttr = field(default_factory=UnknownLoc)


Expression: TypeAlias = Leaf | Constant | Node

CHEAP: tuple[type[Operation], ...] = (
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.NegfOp,
    math.AbsFOp,
    arith.ExtFOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.SelectOp,
    arith.CmpfOp,
    arith.CmpiOp,
)
"""Scalar operations that cost about as much as reading an operand."""

CASTS: tuple[type[Operation], ...] = (arith.ExtFOp, arith.TruncFOp)
"""Roundings and widenings of floats: the identity over the real numbers."""


# -- reading --------------------------------------------------------------------------------------


def is_plain(map: MapOp) -> bool:
    """Whether every operation of the body gives one value and holds no region."""
    return all(len(op.results) == 1 and not op.regions for op in list(map.body.block.ops)[:-1])


def expression_of(map: MapOp) -> Expression:
    """What a plain map computes, over leaves that are its operands."""
    return expressions_of(map)[map.yielded]


def expressions_of(map: MapOp) -> dict[SSAValue, Expression]:
    """What every value in the body of a plain map is, over leaves that are its operands."""
    known: dict[SSAValue, Expression] = {
        arg: Leaf(operand) for arg, operand in zip(map.body.block.args, map.inputs, strict=True)
    }
    for op in list(map.body.block.ops)[:-1]:
        known[op.results[0]] = _read(op, known)
    return known


def forgets_absences(map: MapOp, expression: Expression) -> bool:
    """Whether an expression in the place of a plain map would have elements that the map lacks: an operand that the
    map does not read makes them absent. Of the elements that are there the expression says all."""
    read = {leaf.value for leaf in leaves(expression)}
    unread = [value for value in map.inputs if value not in read]
    return bool(unread) and not absences_of(unread) <= absences_of(read)


def _read(op: Operation, known: Mapping[SSAValue, Expression]) -> Expression:
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr | IntegerAttr):
        return Constant(op.value, op.result.name_hint)
    result = op.results[0]
    return Node(
        type(op),
        tuple(known[operand] for operand in op.operands),
        result.type,
        {**op.attributes, **op.properties},
        result.name_hint,
        op.location,
    )


def walk(expression: Expression) -> Iterator[Expression]:
    """Every part of an expression once."""
    seen: set[int] = set()
    stack = [expression]
    while stack:
        part = stack.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, Node):
            stack.extend(reversed(part.operands))


def leaves(expression: Expression) -> tuple[Leaf, ...]:
    """The distinct leaves, in the order in which they are met."""
    return tuple(dict.fromkeys(part for part in walk(expression) if isinstance(part, Leaf)))


def axes_in(expression: Expression) -> tuple[str, ...]:
    """The axes along which an expression varies, as far as its leaves tell."""
    return tuple(dict.fromkeys(axis for leaf in leaves(expression) for axis in axes_of(leaf.value.type)))


def inside_out(expression: Expression) -> Iterator[Expression]:
    """Every part of an expression once, operands before what uses them. No recursion: bodies may be long."""
    seen: set[int] = set()
    stack: list[tuple[Expression, bool]] = [(expression, False)]
    while stack:
        part, ready = stack.pop()
        if ready:
            yield part
            continue
        if id(part) in seen:
            continue
        seen.add(id(part))
        stack.append((part, True))
        if isinstance(part, Node):
            stack.extend((operand, False) for operand in reversed(part.operands))


def substitute(expression: Expression, replace: Callable[[Leaf], Expression]) -> Expression:
    """The expression with every leaf replaced; shared parts stay shared."""
    done: dict[int, Expression] = {}
    for part in inside_out(expression):
        if isinstance(part, Leaf):
            done[id(part)] = replace(part)
        elif isinstance(part, Constant):
            done[id(part)] = part
        else:
            operands = tuple(done[id(operand)] for operand in part.operands)
            done[id(part)] = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
    return done[id(expression)]


# -- taking apart ---------------------------------------------------------------------------------


def strip_casts(expression: Expression) -> Expression:
    while isinstance(expression, Node) and expression.kind in CASTS:
        expression = expression.operands[0]
    return expression


def is_same(one: Expression, other: Expression) -> bool:
    """Whether two expressions compute the same over the real numbers, as far as their forms tell: casts aside.

    Each pair of parts is compared once, however often the expressions share it, and without recursion."""
    pairs = [(one, other)]
    seen: set[tuple[int, int]] = set()
    while pairs:
        left, right = pairs.pop()
        if (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        left, right = _past_casts(left), _past_casts(right)
        if not isinstance(left, Node) or not isinstance(right, Node):
            if left != right:
                return False
            continue
        if (left.kind, left.properties) != (right.kind, right.properties) or len(left.operands) != len(right.operands):
            return False
        pairs += zip(left.operands, right.operands, strict=True)
    return True


def _past_casts(expression: Expression) -> Expression:
    expression = strip_casts(expression)
    while isinstance(expression, Leaf) and isinstance(expression.value.owner, CastOp):
        expression = Leaf(expression.value.owner.operand)
    return expression


def factors(expression: Expression) -> tuple[list[Expression], list[Expression]]:
    """Multiply and divide taken apart: `a * b / c` is ([a, b], [c])."""
    if isinstance(expression, Node) and expression.kind is arith.MulfOp:
        (n1, d1), (n2, d2) = (factors(operand) for operand in expression.operands)
        return [*n1, *n2], [*d1, *d2]
    if isinstance(expression, Node) and expression.kind is arith.DivfOp:
        (n1, d1), (n2, d2) = (factors(operand) for operand in expression.operands)
        return [*n1, *d2], [*d1, *n2]
    return [expression], []


def positive_constant(expression: Expression) -> float | None:
    """The value of an expression that is a constant greater than zero and finite."""
    expression = strip_casts(expression)
    if not isinstance(expression, Constant) or not 0 < expression.number < numbers.inf:
        return None
    return expression.number


# -- putting together -----------------------------------------------------------------------------


def number(value: float, format: Attribute = f32) -> Constant:
    if isinstance(format, IndexType) or format == i32:
        return Constant(IntegerAttr(int(value), cast("IntegerType | IndexType", format)))
    return Constant(FloatAttr(value, cast("Float32Type", format)))


def is_number(expression: Expression, value: float) -> bool:
    return isinstance(expression, Constant) and expression.number == value


def product(left: Expression, right: Expression) -> Expression:
    if is_number(left, 1):
        return right
    if is_number(right, 1):
        return left
    return _binary(arith.MulfOp, left, right)


def quotient(left: Expression, right: Expression) -> Expression:
    return left if is_number(right, 1) else _binary(arith.DivfOp, left, right)


def total(left: Expression, right: Expression) -> Expression:
    if is_number(left, 0):
        return right
    if is_number(right, 0):
        return left
    return _binary(arith.AddfOp, left, right)


def difference(left: Expression, right: Expression) -> Expression:
    if is_number(right, 0):
        return left
    if is_number(left, 0):
        return Node(arith.NegfOp, (right,), right.type)
    return _binary(arith.SubfOp, left, right)


def unary(kind: type[Operation], operand: Expression, hint: str | None = None) -> Expression:
    return Node(kind, (operand,), operand.type, hint=hint)


def power_of(kind: type[Operation], exponent: Expression) -> Expression:
    """`math.exp` or `math.exp2`."""
    return number(1, exponent.type) if is_number(exponent, 0) else unary(kind, exponent)


def select(condition: Expression, yes: Expression, no: Expression) -> Expression:
    return Node(arith.SelectOp, (condition, yes, no), yes.type)


_PREDICATES = {"==": (1, 0), "!=": (13, 1), ">": (2, 4), "<": (4, 2), "<=": (5, 3)}
"""Predicate numbers of `arith.cmpf` (ordered, but "!=", which holds of NaN) and `arith.cmpi` (signed)."""


def compare(left: Expression, predicate: str, right: Expression, hint: str | None = None) -> Expression:
    of_float, of_integer = _PREDICATES[predicate]
    if isinstance(left.type, IntegerType | IndexType):
        properties = {"predicate": IntegerAttr(of_integer, 64)}
        return Node(arith.CmpiOp, (left, right), i1, properties, hint)
    return Node(arith.CmpfOp, (left, right), i1, {"predicate": IntegerAttr(of_float, 64)}, hint)


def same_predicate(one: Expression, other: Expression) -> bool:
    """Whether two comparisons ask the same of their operands."""
    if not isinstance(one, Node) or not isinstance(other, Node) or one.kind is not other.kind:
        return False
    return one.properties.get("predicate") == other.properties.get("predicate")


def convert(expression: Expression, format: Attribute) -> Expression:
    """The expression in another format, a float one or a wider integer."""
    if expression.type == format:
        return expression
    if isinstance(expression, Constant):
        return number(expression.number, format)
    has_sign = expression.type != ui8
    if format == i32:
        return Node(arith.ExtSIOp if has_sign else arith.ExtUIOp, (expression,), format)
    if isinstance(expression.type, IntegerType):
        return Node(arith.SIToFPOp if has_sign else arith.UIToFPOp, (expression,), format)
    kind = arith.ExtFOp if _width(format) > _width(expression.type) else arith.TruncFOp
    return Node(kind, (expression,), format)


def _width(format: Attribute) -> int:
    return 8 * number_format(format).bytes


def _common(left: Attribute, right: Attribute) -> Attribute:
    if left == right:
        return left
    if isinstance(right, IntegerType) and str(left) in SIXTEEN_BIT:
        return left
    return f32


def _binary(kind: type[Operation], left: Expression, right: Expression) -> Expression:
    format = _common(left.type, right.type)
    operands = (convert(left, format), convert(right, format))
    return Node(kind, operands, format)


# -- writing --------------------------------------------------------------------------------------


def build_map(
    expression: Expression,
    result_type: Attribute,
    hint: str | None = None,
    location: LocationAttr | None = None,
    resolve: Callable[[Leaf], SSAValue] | None = None,
) -> MapOp:
    """`diagram.map` that computes an expression; `resolve` gives the operand that a leaf stands for.

    Equal operations of the body are written once."""
    if resolve is None:
        resolve = _itself
    where = location or UnknownLoc()
    operands = list(dict.fromkeys(resolve(leaf) for leaf in leaves(expression)))
    block = Block(arg_types=[format_of(operand.type) for operand in operands])
    arguments = dict(zip(operands, block.args, strict=True))
    for operand, argument in arguments.items():
        argument.name_hint = operand.name_hint.lower() if operand.name_hint else None
    writer = _Writer(block, where)
    for leaf in leaves(expression):
        writer.done[id(leaf)] = writer.leaf[leaf] = arguments[resolve(leaf)]
    result = writer.write(convert(expression, format_of(result_type)))
    block.add_op(YieldOp(result))
    map = MapOp(operands, result_type, Region(block))
    map.location = where
    for op in block.ops:
        if isinstance(op.location, UnknownLoc):
            op.location = where
    map.result.name_hint = hint
    return map


def _constant(part: Constant) -> arith.ConstantOp:
    op = arith.ConstantOp(part.attribute)
    op.result.name_hint = part.hint
    return op


def _itself(leaf: Leaf) -> SSAValue:
    return leaf.value


class _Writer:
    """Writes an expression into a block, each distinct operation once."""

    def __init__(self, block: Block, location: LocationAttr):
        self.block = block
        self.location = location
        self.leaf: dict[Leaf, SSAValue] = {}
        self.done: dict[int, SSAValue] = {}
        self.written: dict[object, SSAValue] = {}

    def write(self, expression: Expression) -> SSAValue:
        for part in inside_out(expression):
            if id(part) not in self.done:
                self.done[id(part)] = self.leaf[part] if isinstance(part, Leaf) else self._write(part)
        return self.done[id(expression)]

    def _write(self, part: Constant | Node) -> SSAValue:
        if isinstance(part, Constant):
            return self._once(("constant", part.attribute), lambda: _constant(part))
        operands = [self.done[id(operand)] for operand in part.operands]
        known = cast("type[IRDLOperation]", part.kind).get_irdl_definition().properties
        defaults = {"fastmath": arith.FastMathFlagsAttr("none")} if "fastmath" in known else {}
        given = {**defaults, **part.properties}
        properties = {key: value for key, value in given.items() if key in known}
        attributes = {key: value for key, value in given.items() if key not in known}

        def make() -> Operation:
            op = part.kind.create(
                operands=operands, result_types=[part.type], properties=properties, attributes=attributes
            )
            op.results[0].name_hint = part.hint
            op.location = part.location
            return op

        key = (part.kind, tuple(operands), part.type, frozenset(given.items()))
        return self._once(key, make)

    def _once(self, key: object, make: Callable[[], Operation]) -> SSAValue:
        if key not in self.written:
            op = make()
            self.block.add_op(op)
            self.written[key] = op.results[0]
        return self.written[key]


def weave(axes: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """The union of axis lists, in the order in which the axes are met."""
    return tuple(dict.fromkeys(axis for some in axes for axis in some))


# -- in words -------------------------------------------------------------------------------------

_INFIX = {"arith.addf": "+", "arith.subf": "-", "arith.mulf": "*", "arith.divf": "/"}


def spell(expression: Expression) -> str:
    """An expression as a formula, for derivations: `exp(0.125 * S_max before - 0.125 * S_max)`."""
    if isinstance(expression, Leaf):
        name = f"%{expression.value.name_hint}" if expression.value.name_hint else "a value"
        return f"{name} {expression.version}".strip()
    if isinstance(expression, Constant):
        return f"{expression.number:g}"
    if expression.kind in CASTS:
        return spell(expression.operands[0])
    if (sign := _INFIX.get(expression.kind.name)) is not None:
        return f" {sign} ".join(_bracketed(operand, sign) for operand in expression.operands)
    if expression.kind is arith.NegfOp:
        return f"-{_bracketed(expression.operands[0], '*')}"
    function = expression.kind.name.split(".")[1]
    return f"{function}({', '.join(spell(operand) for operand in expression.operands)})"


def _bracketed(operand: Expression, sign: str) -> str:
    inner = _INFIX.get(operand.kind.name) if isinstance(operand, Node) else None
    text = spell(operand)
    return f"({text})" if inner is not None and (sign in "*/" or inner in "+-") else text
