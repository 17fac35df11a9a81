"""Of what kind the values of an expression may be: infinite of either sign, below zero, zero, above zero, no number.

All of it is conservative: a kind too many is always a right answer. What leaves the range of its format counts as the
number that it is; what is divided by zero is of no kind: nothing is said about it, because a zero has no sign that
a sum in another order would have, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product as pairs

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation

from treadle.dialects.diagram import ContractOp, IndexOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.formats import known_format
from treadle.passes.expressions.distances import distance_of, peak_of
from treadle.passes.expressions.polynomials import Key, Keys
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.expressions.scalars import CASTS, Constant, Expression, Leaf, Node, product
from treadle.passes.expressions.signs import is_nonnegative
from treadle.passes.expressions.sources import is_size

Kinds = frozenset[str]
"""Of `-inf`, `-`, `0`, `+`, `+inf`, `nan`, those that a value may be."""

INFINITE: Kinds = frozenset({"-inf", "+inf"})
FINITE: Kinds = frozenset({"-", "0", "+"})
ANY: Kinds = INFINITE | FINITE | {"nan"}
NAN: Kinds = frozenset({"nan"})
ZERO: Kinds = frozenset({"0"})

_UNSAID: Kinds = frozenset({"?"})
"""Of what is divided by zero, while expressions are followed: no condition is decided by it."""

_SIGN = {"-inf": -1, "-": -1, "0": 0, "+": 1, "+inf": 1}
_OPPOSITE = {"-inf": "+inf", "-": "+", "0": "0", "+": "-", "+inf": "-inf", "nan": "nan"}


# -- one operation --------------------------------------------------------------------------------


def _signed(sign: int, infinite: bool) -> str:
    return {-1: "-", 0: "0", 1: "+"}[sign] + ("inf" if infinite else "")


def _add(a: str, b: str) -> Kinds:
    if INFINITE & {a, b}:
        return NAN if {a, b} >= INFINITE else INFINITE & {a, b}
    return FINITE if {a, b} == {"-", "+"} else frozenset({a if b == "0" else b})


def _multiply(a: str, b: str) -> Kinds:
    sign, infinite = _SIGN[a] * _SIGN[b], bool(INFINITE & {a, b})
    return NAN if infinite and not sign else frozenset({_signed(sign, infinite)})


def _divide(a: str, b: str) -> Kinds:
    if b == "0":
        return NAN if a == "0" else _UNSAID
    if b in INFINITE:
        return NAN if a in INFINITE else ZERO
    return _multiply(a, b)


def _larger(a: str, b: str) -> Kinds:
    return frozenset({max(a, b, key=_SIGN_ORDER.index)})


def _order(a: str, b: str) -> str:
    """How values of two kinds may compare: `<`, `=`, `>`, and `u` where one is no number."""
    if "?" in (a, b):
        return "<=>u"
    if "nan" in (a, b):
        return "u"
    if a == b:
        return "<=>" if a in ("-", "+") else "="
    return "<" if _SIGN_ORDER.index(a) < _SIGN_ORDER.index(b) else ">"


_SIGN_ORDER = tuple(_SIGN)

_HOLDS: dict[type[Operation], tuple[str, ...]] = {
    arith.CmpfOp: ("", "=", ">", ">=", "<", "<=", "<>", "<=>", "=u", ">u", ">=u", "<u", "<=u", "<>u", "u", "<=>u"),
    arith.CmpiOp: ("=", "<>", "<", "<=", ">", ">="),
}
"""Of which orders each predicate holds, by its number."""


_BINARY: dict[type[Operation], Callable[[str, str], Kinds]] = {
    arith.AddfOp: _add,
    arith.SubfOp: lambda a, b: _add(a, _OPPOSITE[b]),
    arith.MulfOp: _multiply,
    arith.DivfOp: _divide,
    arith.MaximumfOp: _larger,
    arith.MinimumfOp: lambda a, b: frozenset(_OPPOSITE[k] for k in _larger(_OPPOSITE[a], _OPPOSITE[b])),
}

_POWER = {
    "-inf": ZERO,
    "-": frozenset({"+"}),
    "0": frozenset({"+"}),
    "+": frozenset({"+"}),
    "+inf": frozenset({"+inf"}),
}
_LOGARITHM = {"-inf": NAN, "-": NAN, "0": frozenset({"-inf"}), "+": FINITE, "+inf": frozenset({"+inf"})}
_LEVELS_OFF = {"-inf": "-", "-": "-", "0": "0", "+": "+", "+inf": "+"}
_WAVE = {kind: NAN if kind in INFINITE else FINITE for kind in _SIGN}

_UNARY: dict[type[Operation], Mapping[str, Iterable[str]]] = {
    arith.NegfOp: {a: {b} for a, b in _OPPOSITE.items()},
    math.AbsFOp: {kind: {_signed(abs(sign), kind in INFINITE)} for kind, sign in _SIGN.items()},
    math.ExpOp: _POWER,
    math.Exp2Op: _POWER,
    math.ExpM1Op: {**{kind: {kind} for kind in _SIGN}, "-inf": {"-"}},
    math.LogOp: _LOGARITHM,
    math.Log2Op: _LOGARITHM,
    math.Log1pOp: {**{kind: {kind} for kind in _SIGN}, "-inf": NAN, "-": {"-", "-inf", "nan"}},
    math.SqrtOp: {"-inf": NAN, "-": NAN, "0": ZERO, "+": {"+"}, "+inf": {"+inf"}},
    math.RsqrtOp: {"-inf": NAN, "-": NAN, "0": _UNSAID, "+": {"+"}, "+inf": ZERO},
    math.TanhOp: {a: {b} for a, b in _LEVELS_OFF.items()},
    math.ErfOp: {a: {b} for a, b in _LEVELS_OFF.items()},
    math.SinOp: _WAVE,
    math.CosOp: _WAVE,
}


def _of_two(kind: type[Operation], left: Kinds, right: Kinds) -> Kinds:
    found = (NAN | _UNSAID) & (left | right)
    for a, b in pairs(left - NAN - _UNSAID, right - NAN - _UNSAID):
        found |= _BINARY[kind](a, b)
    return found


_JOINS: dict[type[Operation], Callable[[bool, bool], bool]] = {
    arith.AndIOp: lambda a, b: a and b,
    arith.OrIOp: lambda a, b: a or b,
    arith.XOrIOp: lambda a, b: a != b,
}

EITHER = frozenset({False, True})

OF_NOTHING: dict[str, Kinds] = {"max": frozenset({"-inf"}), "min": frozenset({"+inf"}), "add": ZERO}
"""What reductions are of rows whose elements are all absent. (What they are of an axis without elements is guarded
where it matters.)"""


# -- expressions ----------------------------------------------------------------------------------


class _Walk:
    """Follows kinds through an expression; `given` says what some parts of it are."""

    def __init__(self, given: Mapping[Key, Kinds], keys: Keys):
        self.given = given
        self.keys = keys
        self.done: dict[Expression, Kinds] = {} if given else keys.kinds
        """Each part stays alive as a key, so that no other takes its place."""

    def of(self, expression: Expression) -> Kinds:
        if expression not in self.done:
            self.done[expression] = self._of(expression)
        return self.done[expression]

    def _of(self, expression: Expression) -> Kinds:
        if self.given and (known := self.given.get(self.keys.of(expression))) is not None:
            return known
        match expression:
            case Constant():
                return _kind_of_number(expression.number)
            case Leaf():
                inner = self.keys.inner(expression.value)
                kinds = self._of_array(expression) if inner is None else self.of(inner)
            case Node():
                kinds = self._of_node(expression)
        if kinds >= {"+inf"} and self.keys.once(peak_of, expression) is not None:
            kinds -= {"+inf"}
        if self.keys.once(distance_of, expression) is not None:
            kinds &= ZERO | NAN | _UNSAID | {"+"}
        return kinds - {"-", "-inf"} if kinds & {"-", "-inf"} and self.keys.once(is_nonnegative, expression) else kinds

    def truths(self, condition: Expression) -> frozenset[bool]:
        """What a condition may be."""
        if isinstance(condition, Constant):
            return frozenset({bool(condition.number)})
        if isinstance(condition, Node) and condition.kind in _JOINS:
            left, right = map(self.truths, condition.operands)
            return frozenset(_JOINS[condition.kind](a, b) for a in left for b in right)
        if not isinstance(condition, Node) or condition.kind not in _HOLDS:
            return EITHER
        predicate = condition.properties["predicate"]
        assert isinstance(predicate, IntegerAttr)
        if (number := predicate.value.data) >= len(_HOLDS[condition.kind]):
            return EITHER  # of integers without sign
        holds = _HOLDS[condition.kind][number]
        left, right = map(self.of, condition.operands)
        orders = {order for a in left for b in right for order in _order(a, b)}
        return frozenset(order in holds for order in orders) or EITHER

    def _of_array(self, leaf: Leaf) -> Kinds:
        owner = leaf.value.owner
        if isinstance(owner, WhereOp):
            return self.of(Leaf(owner.operand))
        if isinstance(owner, IndexOp):
            return ZERO | {"+"}
        if is_size(leaf.value):
            return frozenset({"+"})
        if isinstance(owner, ContractOp | ReduceOp) and owner.init is None:
            return self._of_reduction(owner)
        known = known_format(leaf.type)
        return ANY if known is None or known.is_float else FINITE

    def _of_reduction(self, op: ContractOp | ReduceOp) -> Kinds:
        of_nothing = OF_NOTHING if absences_of(operands_of(op)) else {}
        if isinstance(op, ReduceOp) and op.kind.data in ("max", "min"):
            return self.of(Leaf(op.operand)) | of_nothing.get(op.kind.data, frozenset())
        if isinstance(op, ReduceOp) and op.kind.data == "mul":
            return ANY
        summand = Leaf(op.operand) if isinstance(op, ReduceOp) else product(Leaf(op.lhs), Leaf(op.rhs))
        near = self.keys.once(distance_of, summand)
        is_surely_there = near is not None and near.is_reached and not near.may_vanish
        if near is not None and is_surely_there and set(near.extremum.over_axes) == set(op.over_axes):
            return NAN | {"+"} | of_nothing.get("add", frozenset())  # one of them is at its peak
        kinds = self.of(summand)
        return ZERO | kinds | _of_two(arith.AddfOp, kinds, kinds)

    def _of_node(self, node: Node) -> Kinds:
        if node.kind in CASTS:
            return self.of(node.operands[0])
        if node.kind in (arith.SIToFPOp, arith.UIToFPOp):
            return self.of(node.operands[0]) & FINITE
        if node.kind is arith.SelectOp:
            condition, yes, no = node.operands
            return frozenset(kind for truth in self.truths(condition) for kind in self.of(yes if truth else no))
        operands = [self.of(operand) for operand in node.operands]
        if node.kind in _BINARY:
            return _of_two(node.kind, *operands)
        if node.kind in _UNARY:
            table = _UNARY[node.kind]
            kept = (NAN | _UNSAID) & operands[0]
            return kept | {b for a in operands[0] - kept for b in table[a]}
        return ANY


def _kind_of_number(value: float) -> Kinds:
    if value != value:
        return NAN
    sign = (value > 0) - (value < 0)
    return frozenset({_signed(sign, abs(value) == float("inf"))})


def kinds_of(expression: Expression, given: Mapping[Key, Kinds] | None = None, keys: Keys | None = None) -> Kinds:
    """Of what kinds the values of an expression may be, where some parts of it are known to be of some. Who asks more
    than once of the same IR may keep the keys."""
    return _Walk(given or {}, keys or Keys()).of(expression) - _UNSAID


def sure_kinds_of(expression: Expression, given: Mapping[Key, Kinds], keys: Keys) -> Kinds:
    """The same where something must be known: of what is divided by zero all is possible."""
    kinds = _Walk(given, keys).of(expression)
    return ANY if kinds & _UNSAID else kinds


def truths_of(condition: Expression, given: Mapping[Key, Kinds], keys: Keys | None = None) -> frozenset[bool]:
    """What a condition may be, where some parts of it are known to be of some kinds."""
    return _Walk(given, keys or Keys()).truths(condition)
