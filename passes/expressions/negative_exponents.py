"""Exponents that are never above zero, so that their powers are at most 1."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from xdsl.dialects import arith, math

from treadle.dialects.diagram import ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.passes.expressions.inner import look_through
from treadle.passes.expressions.polynomials import Key, key_of
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, Node, leaves
from treadle.passes.expressions.signs import is_nonnegative, is_nonpositive
from treadle.passes.expressions.spans import past_conditions

Summand = tuple[float, Expression]
"""A multiple of an expression."""


DEEPEST = 3
"""How many summands in a row are told from others."""


def is_never_above_zero(exponent: Expression, kept: Iterable[WhereOp] = ()) -> bool:
    """Whether a sum of multiples is at most zero, of the elements that some conditions keep and of those of what it is
    made of: all are, or those are that are left beside `a - log(1 + exp(a))`, the logarithm of a share, or once a sum
    of what is not negative is told from one of its elements."""
    absent = _texts({*kept, *absences_of(leaf.value for leaf in leaves(exponent))})
    return _is_bounded(list(_summands(exponent)), absent, DEEPEST)


def _is_bounded(summands: Sequence[Summand], absent: frozenset[Hashable], depth: int) -> bool:
    if _are_never_above_zero(summands):
        return True
    return depth > 0 and any(_is_bounded(each, absent, depth - 1) for each in _larger(summands, absent))


def _larger(summands: Sequence[Summand], absent: frozenset[Hashable]) -> Iterator[list[Summand]]:
    """What is more than the sum, as `-log(x + exp(a))` is less than `-a` for no x below zero, and a sum of what is not
    above zero less than its own element, where there is one."""
    for i, (scale, each) in enumerate(summands):
        rest = [*summands[:i], *summands[i + 1 :]]
        if scale < 0 and (exponent := _power_below(each)) is not None:
            yield [*rest, *_summands(exponent, scale)]
        scan = _scan_of(each)
        if scan is None or scan.is_exclusive or not _texts(absences_of([scan.operand])) <= absent:
            continue
        if _is_never_above_zero(scale, Leaf(scan.operand)):
            yield [*rest, *_summands(Leaf(past_conditions(scan.operand)), scale)]


def _texts(conditions: Iterable[WhereOp]) -> frozenset[Hashable]:
    """Conditions by what they say, and of what."""
    return frozenset((op.condition.text.data, tuple(op.inputs)) for op in conditions)


def _power_below(logarithm: Expression) -> Expression | None:
    """The `a` of `log1p(exp(a))`, or of `log(x + exp(a))` where x is not negative."""
    match logarithm:
        case Node(kind=math.Log1pOp, operands=(inner,)):
            return _exponent_of(inner)
        case Node(kind=math.LogOp, operands=(inner,)):
            match look_through(inner):
                case Node(kind=arith.AddfOp, operands=(one, other)):
                    for power, beside in ((one, other), (other, one)):
                        if (exponent := _exponent_of(power)) is not None and is_nonnegative(beside):
                            return exponent
                case _:
                    pass
        case _:
            pass
    return None


def _exponent_of(power: Expression) -> Expression | None:
    match look_through(power):
        case Node(kind=math.ExpOp, operands=(exponent,)):
            return exponent
        case _:
            return None


def _are_never_above_zero(summands: Iterable[Summand]) -> bool:
    """Whether each is at most zero, once equal ones are counted together."""
    by_key: dict[Key | None, Summand] = {}
    constant = 0.0
    for scale, expression in summands:
        if isinstance(expression, Constant):
            constant += scale * expression.number
            continue
        key = key_of(expression)
        by_key[key] = (scale + by_key.get(key, (0.0, expression))[0], expression)
    return constant <= 0 and all(_is_never_above_zero(*each) for each in _without_scans(list(by_key.values())))


def _without_scans(summands: Sequence[Summand]) -> list[Summand]:
    """More than the sum is: what is summed up to a place is at most what is summed in all, of what is not negative."""
    scans = {i: op for i, (scale, each) in enumerate(summands) if scale and (op := _scan_of(each)) is not None}
    left = dict(enumerate(summands))
    for i, scan in scans.items():
        for j, (scale, whole) in list(left.items()):
            falls = _is_never_above_zero(scale, Leaf(scan.operand))
            if scale == -summands[i][0] and i in left and falls and _is_total_of(whole, scan):
                del left[i], left[j]
    return list(left.values())


def _scan_of(expression: Expression) -> ScanOp | None:
    scan = expression.value.owner if isinstance(expression, Leaf) else None
    return scan if isinstance(scan, ScanOp) and scan.kind.data == "add" and scan.init is None else None


def _is_total_of(whole: Expression, scan: ScanOp) -> bool:
    owner = whole.value.owner if isinstance(whole, Leaf) and not whole.version else None
    if not isinstance(owner, ReduceOp) or owner.kind.data != "add" or owner.init is not None:
        return False
    return owner.operand is scan.operand and owner.over_axes == (scan.axis.data,)


def _is_never_above_zero(scale: float, expression: Expression) -> bool:
    return scale == 0 or (is_nonnegative(expression) if scale < 0 else is_nonpositive(expression))


def _summands(expression: Expression, scale: float = 1.0) -> Iterator[Summand]:
    """An expression as a sum of multiples, through maps."""
    expression = look_through(expression)
    match expression:
        case Node(kind=arith.AddfOp, operands=(left, right)):
            yield from _summands(left, scale)
            yield from _summands(right, scale)
        case Node(kind=arith.SubfOp, operands=(left, right)):
            yield from _summands(left, scale)
            yield from _summands(right, -scale)
        case Node(kind=arith.NegfOp, operands=(operand,)):
            yield from _summands(operand, -scale)
        case Node(kind=arith.MulfOp, operands=(Constant() as factor, other)):
            yield from _summands(other, scale * factor.number)
        case Node(kind=arith.MulfOp, operands=(other, Constant() as factor)):
            yield from _summands(other, scale * factor.number)
        case Node(kind=arith.DivfOp, operands=(other, Constant() as divisor)) if divisor.number:
            yield from _summands(other, scale / divisor.number)
        case _:
            yield scale, expression


__all__ = ["is_never_above_zero"]
