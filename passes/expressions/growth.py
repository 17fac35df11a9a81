"""How fast an expression may grow as a power `exp(u)` does.

Of `a / (1 + exp(-x))` the power of `-x` is divided out once: it falls as the first power of `exp(-x)` rises. An *order*
says that of any expression, for every power in it that matters: `|e|` is at most a constant times the product of
`(1 + p)^greatest`, and at least one times that of `(1 + p)^least`. The constant holds what other numbers there are, and
their polynomials: beside `exp(x)`, `x` is one. "Unknown" is always a right answer."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.passes.expressions.forms import Atom, linear_form
from treadle.passes.expressions.inner import inner_expression, look_through
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    compare,
    is_number,
    is_same,
    positive_constant,
    same_predicate,
    strip_casts,
)
from treadle.passes.expressions.signs import is_nonnegative

POWERS: dict[type[Operation], float] = {math.ExpOp: 1.0, math.Exp2Op: numbers.log(2)}
"""With the logarithm of the base."""

HIGHEST = 3 * 2.0**95
"""What powers are held at, where what they multiply falls faster. That it is no power of two tells it from numbers of
programs."""

_SAME: tuple[type[Operation], ...] = (*CASTS, arith.NegfOp, math.AbsFOp)
_BOUNDED: tuple[type[Operation], ...] = (math.TanhOp, math.ErfOp, math.SinOp, math.CosOp, math.AtanOp)
_LOGARITHMS: tuple[type[Operation], ...] = (math.LogOp, math.Log2Op, math.Log10Op, math.Log1pOp)
_AS_POWERS: tuple[type[Operation], ...] = (math.ExpM1Op, math.SinhOp, math.CoshOp, math.PowFOp)
"""What may grow as powers of its operand do."""
_CHOICES: tuple[type[Operation], ...] = (
    arith.SelectOp,
    arith.MinimumfOp,
    arith.MaximumfOp,
    arith.MinnumfOp,
    arith.MaxnumfOp,
)

_REST = -1
"""The key of what is told of no power."""


@dataclass(frozen=True)
class Order:
    """Exponents by power, 0 where there is none. Power 0 is large; of the others, all that is known is their sign."""

    least: Mapping[int, float] = field(default_factory=dict[int, float])
    greatest: Mapping[int, float] = field(default_factory=dict[int, float])

    def __mul__(self, other: Order) -> Order:
        return Order(_sum(self.least, other.least), _sum(self.greatest, other.greatest))

    def scaled(self, by: float) -> Order:
        """Of the expression to a power."""
        low, high = ({key: size * by for key, size in side.items()} for side in (self.least, self.greatest))
        return Order(low, high) if by >= 0 else Order(high, low)

    @property
    def is_one(self) -> bool:
        return not self.least and not self.greatest


_ONE = Order()
_VANISHING = Order({_REST: -numbers.inf})
_UNKNOWN = Order({_REST: -numbers.inf}, {_REST: numbers.inf})


class Growth:
    """Orders of expressions as one power rises."""

    def __init__(self, power: Node):
        self._exponents: list[Expression] = [power.operands[0]]
        self._forms = [_form(power)]
        self._inner: dict[SSAValue, Expression | None] = {}
        self._known: dict[Leaf | int, Order | None] = {}
        self._roots = self._roots_of(power)

    def is_at_most(self, expression: Expression, greatest: float) -> bool:
        """Whether an expression is in the order of the power to some exponent, whatever other powers are."""
        order = self._order(expression)
        if order is None:
            return True
        others = (size for key, size in order.greatest.items() if key)
        return order.greatest.get(0, 0) <= greatest and all(size <= 0 for size in others)

    def _order(self, expression: Expression) -> Order | None:
        """That of zero is None."""
        for part in self._inside_out(expression):
            self._known[_key(part)] = self._order_of(part)
        return self._known[_key(expression)]

    def _inside_out(self, expression: Expression) -> Iterator[Expression]:
        """Every part once, those behind maps before what stands for them. No recursion: programs may be long."""
        stack = [(expression, False)]
        while stack:
            part, is_ready = stack.pop()
            if _key(part) in self._known:
                continue
            if is_ready:
                yield part
                continue
            stack.append((part, True))
            stack += [(behind, False) for behind in self._behind(part)]

    def _behind(self, part: Expression) -> tuple[Expression, ...]:
        if isinstance(part, Node):
            return part.operands
        inner = self._inner_of(part) if isinstance(part, Leaf) else None
        return () if inner is None else (inner,)

    def _inner_of(self, leaf: Leaf) -> Expression | None:
        if leaf.value not in self._inner:
            self._inner[leaf.value] = inner_expression(leaf.value)
        return self._inner[leaf.value]

    def _roots_of(self, expression: Expression) -> set[SSAValue]:
        """The arrays that an expression is computed from, element by element."""
        waiting, seen, roots = [expression], set[Leaf | int](), set[SSAValue]()
        while waiting:
            part = waiting.pop()
            if _key(part) in seen:
                continue
            seen.add(_key(part))
            behind = self._behind(part)
            if isinstance(part, Leaf) and not behind:
                roots.add(part.value)
            waiting += behind
        return roots

    def _order_of(self, part: Expression) -> Order | None:
        if isinstance(part, Constant):
            return None if part.number == 0 else _ONE
        if isinstance(part, Leaf):
            inner = self._inner_of(part)
            return _ONE if inner is None else self._known[_key(inner)]
        if part.kind in POWERS:
            return self._order_of_power(part)
        return self._order_of_node(part, [self._known[_key(operand)] for operand in part.operands])

    def _order_of_node(self, part: Node, orders: list[Order | None]) -> Order | None:
        first = orders[0]
        if part.kind in _SAME:
            return first
        if part.kind is arith.MinimumfOp and any(is_number(each, HIGHEST) for each in part.operands):
            return _ONE  # what it multiplies was found to fall faster
        if part.kind is arith.SelectOp and self._is_of_less(part.operands[0]):
            return orders[2]
        if part.kind in _CHOICES:
            return _one_of(orders[-2], orders[-1])
        if part.kind is arith.MulfOp:
            return _product(first, orders[1])
        if part.kind is arith.DivfOp:
            return _product(first, _UNKNOWN if orders[1] is None else orders[1].scaled(-1))
        if part.kind in (arith.AddfOp, arith.SubfOp):
            return self._order_of_sum(part, first, orders[1])
        if (exponent := _exponent(part)) is not None and first is not None:
            return first.scaled(exponent)
        if all(order is None or order.is_one for order in orders):
            return _UNKNOWN if part.kind in _AS_POWERS and self._is_related(part) else _ONE
        return _of_slow(part, first)

    def _is_of_less(self, condition: Expression) -> bool:
        """Whether a condition holds only of a power that is not too large yet."""
        if not isinstance(condition, Node) or condition.kind is not arith.CmpfOp:
            return False
        power, number = condition.operands
        if not isinstance(number, Constant) or number.number > HIGHEST or not self._is_power(power):
            return False
        is_below = any(same_predicate(condition, compare(power, sign, number)) for sign in ("<", "<=", "=="))
        return is_below and self._known[_key(power)] == Order({0: 1.0}, {0: 1.0})

    def _order_of_sum(self, part: Node, one: Order | None, other: Order | None) -> Order | None:
        if one is None or other is None:
            return one or other
        if one.is_one and other.is_one:
            return _ONE
        greatest = _each(max, one.greatest, other.greatest)
        if part.kind is arith.SubfOp or not all(is_nonnegative(operand) for operand in part.operands):
            return Order(_VANISHING.least, greatest)
        for constant, power in (part.operands, part.operands[::-1]):
            if positive_constant(constant) is not None and self._is_power(power):
                return Order(greatest, greatest)
        larger = max(one.least, other.least, key=lambda least: (least.get(0, 0), min(least.values(), default=0)))
        return Order(larger, greatest)

    @staticmethod
    def _is_power(expression: Expression) -> bool:
        expression = look_through(expression)
        return isinstance(expression, Node) and expression.kind in POWERS

    def _order_of_power(self, power: Node) -> Order:
        exponent = self._known[_key(power.operands[0])]
        if exponent is None or not self._is_related(power):
            return _ONE
        key, size = self._named(power)
        if key == 0:
            return Order({0: size}, {0: size})
        if exponent.greatest.get(0, 0) < 0 and all(more <= 0 for more in exponent.greatest.values()):
            return _ONE  # the exponent tends to zero
        if is_nonnegative(_negated(power.operands[0])):
            return _VANISHING
        return Order({key: -numbers.inf}, {key: size})

    def _is_related(self, expression: Expression) -> bool:
        return bool(self._roots_of(expression) & self._roots)

    def _named(self, power: Node) -> tuple[int, float]:
        """A power as one that is known, to an exponent; any for the first, one above zero for others, as they may be
        next to zero."""
        form = _form(power)
        for key, known in enumerate(self._forms):
            if is_same(power.operands[0], self._exponents[key]):
                return key, 1.0
            ratio = _ratio(form, known)
            if ratio is not None and (key == 0 or ratio > 0):
                return key, ratio
        self._forms.append(form)
        self._exponents.append(power.operands[0])
        return len(self._forms) - 1, 1.0


def _form(power: Node) -> dict[Atom, float]:
    """The exponent for base e; its constant is a factor."""
    form = linear_form(power.operands[0])
    return {atom: size * POWERS[power.kind] for atom, size in form.items() if atom is not None}


def _ratio(form: dict[Atom, float], other: dict[Atom, float]) -> float | None:
    if not form or form.keys() != other.keys():
        return None
    ratios = [form[atom] / other[atom] for atom in form]
    return ratios[0] if all(numbers.isclose(ratio, ratios[0]) for ratio in ratios) else None


def _negated(expression: Expression) -> Expression:
    expression = look_through(expression)
    if isinstance(expression, Node) and expression.kind is arith.NegfOp:
        return expression.operands[0]
    return Node(arith.NegfOp, (expression,), expression.type)


def _key(part: Expression) -> Leaf | int:
    return part if isinstance(part, Leaf) else id(part)


def _sum(one: Mapping[int, float], other: Mapping[int, float]) -> dict[int, float]:
    return {key: one.get(key, 0) + other.get(key, 0) for key in one.keys() | other.keys()}


def _each(
    choose: Callable[[float, float], float], one: Mapping[int, float], other: Mapping[int, float]
) -> dict[int, float]:
    return {key: choose(one.get(key, 0), other.get(key, 0)) for key in one.keys() | other.keys()}


def _product(one: Order | None, other: Order | None) -> Order | None:
    return None if one is None or other is None else one * other


def _one_of(one: Order | None, other: Order | None) -> Order | None:
    if one is None or other is None:
        known = one or other
        return known and Order(_VANISHING.least, known.greatest)
    return Order(_each(min, one.least, other.least), _each(max, one.greatest, other.greatest))


def _exponent(part: Node) -> float | None:
    """The constant that the operand of a node is raised to."""
    if part.kind in (math.SqrtOp, math.RsqrtOp):
        return 0.5 if part.kind is math.SqrtOp else -0.5
    if part.kind not in (math.PowFOp, math.FPowIOp):
        return None
    exponent = strip_casts(part.operands[1])
    return exponent.number if isinstance(exponent, Constant) and exponent.number else None


def _of_slow(part: Node, operand: Order | None) -> Order:
    """Of what is bounded, or grows as exponents do; where that is zero is not known."""
    if part.kind in _BOUNDED:
        return _VANISHING
    is_finite = operand is not None and all(size < numbers.inf for size in operand.greatest.values())
    return _VANISHING if part.kind in _LOGARITHMS and is_finite else _UNKNOWN


__all__ = ["HIGHEST", "POWERS", "Growth"]
