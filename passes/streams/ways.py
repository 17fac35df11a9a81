"""How values go with an extremum that lags: by which operations what moves goes on.

What is kept of an extremum is `t` away from it, and nobody knows how far. What is told from it is multiplied by a power
of e of some *moves*, or some are added to it. A move is `t` itself, or by how much a maximum with other numbers goes
along, `max(c r, k)`: by all of `c t`, by nothing if `k` is larger, or by anything between. That is a number of its own
for each such maximum, and the same one wherever that is computed. If the maximum is `u` too low, `exp(c r - max(c r,
k))` is multiplied by `exp(u - c t)`, `exp(k - max(c r, k))` by `exp(u)`, and a sum of `exp(c s - c r)` by `exp(c t)`:
in the shares of a softmax with a sink `k`, all of these cancel out."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from xdsl.dialects import arith, math
from xdsl.ir import Operation

from treadle.dialects.diagram import CastOp, ExtentOp, IndexOp, MapOp
from treadle.passes.expressions.scalars import CASTS, Constant, Expression, Leaf, Node, expression_of, is_plain

EXTREMA = (arith.MaximumfOp, arith.MinimumfOp, arith.MaxnumfOp, arith.MinnumfOp)


@dataclass(frozen=True)
class Move:
    """A number between two multiples of `t`; of which operation, its name says."""

    name: Hashable
    least: float
    most: float


LAG = Move("lag", 1.0, 1.0)
"""`t`: by how much the extremum lags."""


@dataclass(frozen=True, init=False)
class Moves:
    """A sum of multiples of moves."""

    parts: frozenset[tuple[Move, float]]

    NONE: ClassVar[Moves]

    def __init__(self, parts: Mapping[Move, float]):
        # Factors come out of products in any order.
        rounded = ((move, float(f"{times:.9g}")) for move, times in parts.items())
        object.__setattr__(self, "parts", frozenset((move, times) for move, times in rounded if times))

    def __bool__(self) -> bool:
        return bool(self.parts)

    def __add__(self, other: Moves) -> Moves:
        own, others = dict(self.parts), dict(other.parts)
        return Moves({move: own.get(move, 0.0) + others.get(move, 0.0) for move in {**own, **others}})

    def __mul__(self, factor: float) -> Moves:
        return Moves({move: times * factor for move, times in self.parts})

    def __sub__(self, other: Moves) -> Moves:
        return self + other * -1.0

    @property
    def least(self) -> float:
        """In multiples of `t`."""
        return sum(min(times * move.least, times * move.most) for move, times in self.parts)

    @property
    def most(self) -> float:
        return -(self * -1.0).least


Moves.NONE = Moves({})


def lag(times: float) -> Moves:
    """So many times what the extremum lags by."""
    return Moves({LAG: times})


@dataclass(frozen=True)
class Way:
    """How a value goes with what lags: it is multiplied by `exp(scaled)`, or `shifted` is added."""

    scaled: Moves = Moves.NONE
    shifted: Moves = Moves.NONE

    @property
    def stays(self) -> bool:
        return self == STAYS


STAYS = Way()

Rule = Callable[[list[Way], Node], Way | None]


def way_of(kind: type[Operation], ways: list[Way], node: Node) -> Way | None:
    """How the result of an operation goes, if its operands go so; None where they do it in no simple way."""
    rule = _RULES.get(kind)
    return None if rule is None else rule(ways, node)


def _sum(ways: list[Way], node: Node) -> Way | None:
    left, right = ways
    if left.scaled or right.scaled:
        return left if left == right else None
    return Way(shifted=left.shifted - right.shifted if node.kind is arith.SubfOp else left.shifted + right.shifted)


def _product(ways: list[Way], node: Node) -> Way | None:
    left, right = ways
    if not left.shifted and not right.shifted:
        return Way(scaled=left.scaled + right.scaled)
    for way, other in ((left, node.operands[1]), (right, node.operands[0])):
        if way.shifted and isinstance(other, Constant):
            return Way(shifted=way.shifted * other.number)
    return None


def _quotient(ways: list[Way], node: Node) -> Way | None:
    above, below = ways
    if not above.shifted and not below.shifted:
        return Way(scaled=above.scaled - below.scaled)
    divisor = node.operands[1]
    return (
        Way(shifted=above.shifted * (1 / divisor.number)) if isinstance(divisor, Constant) and divisor.number else None
    )


def _extremum(ways: list[Way], node: Node) -> Way | None:
    """Of what goes alike it does so, too; of what is shifted by different moves, by one between them."""
    left, right = ways
    if left == right:
        return left
    if left.scaled or right.scaled:
        return None
    least, most = min(left.shifted.least, right.shifted.least), max(left.shifted.most, right.shifted.most)
    return Way(shifted=Moves({Move(name_of(node), least, most): 1.0}))


def _power(base: float) -> Rule:
    return lambda ways, node: None if ways[0].scaled else Way(scaled=ways[0].shifted * numbers.log(base))


def _logarithm(base: float) -> Rule:
    return lambda ways, node: None if ways[0].shifted else Way(shifted=ways[0].scaled * (1 / numbers.log(base)))


def _root(part: float) -> Rule:
    return lambda ways, node: None if ways[0].shifted else Way(scaled=ways[0].scaled * part)


_RULES: dict[type[Operation], Rule] = {
    **dict.fromkeys((arith.AddfOp, arith.SubfOp), _sum),
    arith.NegfOp: lambda ways, node: Way(ways[0].scaled, ways[0].shifted * -1.0),
    arith.MulfOp: _product,
    arith.DivfOp: _quotient,
    **dict.fromkeys(EXTREMA, _extremum),
    math.ExpOp: _power(numbers.e),
    math.Exp2Op: _power(2),
    math.LogOp: _logarithm(numbers.e),
    math.Log2Op: _logarithm(2),
    math.SqrtOp: _root(0.5),
    math.RsqrtOp: _root(-0.5),
    **dict.fromkeys(CASTS, lambda ways, node: ways[0] if node.kind is arith.ExtFOp else None),
}
"""How operations pass on what moves; None where they do it in no simple way."""


# -- names --------------------------------------------------------------------------------------------


def name_of(expression: Expression) -> Hashable:
    """What an expression computes, whichever maps it is written in, roundings included."""
    match expression:
        case Constant():
            return expression.number, expression.type
        case Leaf(value=value):
            owner = value.owner
            if isinstance(owner, ExtentOp):
                return ExtentOp, owner.axis.data
            if isinstance(owner, IndexOp):
                return IndexOp, owner.axis
            if isinstance(owner, CastOp):
                return CastOp, owner.result.type, name_of(Leaf(owner.operand))
            return name_of(expression_of(owner)) if isinstance(owner, MapOp) and is_plain(owner) else value
        case Node(kind=kind) if kind in EXTREMA:
            return kind, frozenset(_operands(expression))
        case Node():
            how = frozenset(expression.properties.items())
            return expression.kind, expression.type, how, tuple(name_of(each) for each in expression.operands)


def _operands(node: Node) -> Iterator[Hashable]:
    """Of extrema of extrema: their order does not count."""
    for each in node.operands:
        if isinstance(each, Node) and each.kind is node.kind:
            yield from _operands(each)
        else:
            yield name_of(each)
