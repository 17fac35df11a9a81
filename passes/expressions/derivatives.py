"""Derivatives of scalar expressions: from the gradient of what a map gives to those of what it reads.

Reverse mode: a walk from the result back to the leaves. A part has one *adjoint*, what a change of it would change in
the end; each operation hands its own on to its operands by the chain rule. Adjoints are f32, whatever the operands are.
Roundings and widenings are the identity over the real numbers. Integers and truth values have none, nor has what is
rounded to whole numbers, which is constant between its steps."""

from __future__ import annotations

import math as numbers
from collections.abc import Callable, Iterator, Set
from typing import TypeAlias

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IndexType, IntegerType, f32
from xdsl.ir import Operation, SSAValue

from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    compare,
    convert,
    difference,
    inside_out,
    is_number,
    number,
    product,
    quotient,
    select,
    total,
    unary,
)
from treadle.passes.expressions.swallowed import held_finite

Unary: TypeAlias = Callable[[Expression, Expression, Expression], Expression]
"""From the adjoint of the result, the operand and the result to the adjoint of the operand."""

Binary: TypeAlias = Callable[
    [Expression, Expression, Expression, Expression], tuple[Expression | None, Expression | None]
]
"""The same for two operands."""


class NoDerivative(Exception):
    """An operation of which no derivative is known."""


def adjoints(
    expression: Expression, adjoint: Expression, wanted: Set[SSAValue], result: SSAValue | None = None
) -> dict[Leaf, Expression]:
    """The adjoints of the leaves that stand for `wanted` values, given that of an expression (NoDerivative). A leaf
    that makes no difference has none. `result` holds what the expression gives, for what its derivative says by it."""
    parts = list(inside_out(expression))
    active = _active(parts, wanted)
    found: dict[Leaf | int, Expression] = {_key(expression): convert(adjoint, f32)}
    for part in reversed(parts):  # users first
        if not isinstance(part, Node) or id(part) not in active or id(part) not in found:
            continue
        own = Leaf(result) if result is not None and part is expression else part
        for operand, more in zip(part.operands, _handed_on(part, found[id(part)], own), strict=True):
            if more is not None and id(operand) in active:
                key = _key(operand)
                found[key] = total(found[key], more) if key in found else more
    return {key: each for key, each in found.items() if isinstance(key, Leaf) and key.value in wanted}


def _active(parts: list[Expression], wanted: Set[SSAValue]) -> set[int]:
    """The parts that are floats and vary with what is wanted."""
    active: set[int] = set()
    for part in parts:
        if isinstance(part.type, IntegerType | IndexType) or isinstance(part, Constant):
            continue
        if part.value in wanted if isinstance(part, Leaf) else any(id(each) in active for each in part.operands):
            active.add(id(part))
    return active


def _key(part: Expression) -> Leaf | int:
    return part if isinstance(part, Leaf) else id(part)


def _handed_on(part: Node, adjoint: Expression, result: Expression) -> Iterator[Expression | None]:
    """The adjoints of the operands of an operation, None for one that has none."""
    operands = [convert(each, f32) if _is_float(each) else each for each in part.operands]
    result = convert(result, f32)
    if part.kind in CASTS:
        yield adjoint
    elif part.kind in UNARY:
        yield UNARY[part.kind](adjoint, operands[0], result)
    elif part.kind in BINARY:
        one, other = operands
        yield from BINARY[part.kind](adjoint, one, other, result)
    elif part.kind is arith.SelectOp:
        condition = operands[0]
        yield None
        yield select(condition, adjoint, number(0))
        yield select(condition, number(0), adjoint)
    elif part.kind is math.FmaOp:
        yield product(adjoint, operands[1])
        yield product(adjoint, operands[0])
        yield adjoint
    elif part.kind in STEPS:
        yield None
    else:
        raise NoDerivative(f"no derivative of '{part.kind.name}' is known")


def _is_float(expression: Expression) -> bool:
    return not isinstance(expression.type, IntegerType | IndexType)


STEPS: tuple[type[Operation], ...] = (math.CeilOp, math.FloorOp, math.TruncOp, math.RoundOp, math.RoundEvenOp)
"""Constant but for the places where they jump."""


# -- pieces of rules ------------------------------------------------------------------------------


def _square(x: Expression) -> Expression:
    return product(x, x)


def _negative(x: Expression) -> Expression:
    return difference(number(0), x)


def _sign(x: Expression) -> Expression:
    return select(compare(x, ">", number(0)), number(1), select(compare(x, "<", number(0)), number(-1), number(0)))


def _over_root(adjoint: Expression, square: Expression) -> Expression:
    return product(adjoint, unary(math.RsqrtOp, square))


UNARY: dict[type[Operation], Unary] = {
    arith.NegfOp: lambda d, x, y: _negative(d),
    math.AbsFOp: lambda d, x, y: product(d, _sign(x)),
    math.ExpOp: lambda d, x, y: product(d, held_finite(y, d)),
    math.Exp2Op: lambda d, x, y: product(product(d, held_finite(y, d)), number(numbers.log(2))),
    math.ExpM1Op: lambda d, x, y: product(d, total(y, number(1))),
    math.LogOp: lambda d, x, y: quotient(d, x),
    math.Log2Op: lambda d, x, y: quotient(d, product(x, number(numbers.log(2)))),
    math.Log10Op: lambda d, x, y: quotient(d, product(x, number(numbers.log(10)))),
    math.Log1pOp: lambda d, x, y: quotient(d, total(x, number(1))),
    math.SqrtOp: lambda d, x, y: quotient(product(d, number(0.5)), y),
    math.RsqrtOp: lambda d, x, y: product(product(d, number(-0.5)), product(y, _square(y))),
    math.CbrtOp: lambda d, x, y: quotient(d, product(number(3), _square(y))),
    math.SinOp: lambda d, x, y: product(d, unary(math.CosOp, x)),
    math.CosOp: lambda d, x, y: _negative(product(d, unary(math.SinOp, x))),
    math.TanOp: lambda d, x, y: product(d, total(_square(y), number(1))),
    math.AsinOp: lambda d, x, y: _over_root(d, difference(number(1), _square(x))),
    math.AcosOp: lambda d, x, y: _negative(_over_root(d, difference(number(1), _square(x)))),
    math.AtanOp: lambda d, x, y: quotient(d, total(_square(x), number(1))),
    math.SinhOp: lambda d, x, y: product(d, unary(math.CoshOp, x)),
    math.CoshOp: lambda d, x, y: product(d, unary(math.SinhOp, x)),
    math.TanhOp: lambda d, x, y: product(d, difference(number(1), _square(y))),
    math.AsinhOp: lambda d, x, y: _over_root(d, total(_square(x), number(1))),
    math.AcoshOp: lambda d, x, y: _over_root(d, difference(_square(x), number(1))),
    math.AtanhOp: lambda d, x, y: quotient(d, difference(number(1), _square(x))),
    math.ErfOp: lambda d, x, y: product(
        product(d, number(2 / numbers.sqrt(numbers.pi))), unary(math.ExpOp, _negative(_square(x)))
    ),
}


def _divide(d: Expression, a: Expression, b: Expression, y: Expression) -> tuple[Expression, Expression]:
    return quotient(d, b), _negative(quotient(product(d, y), b))


def _extremum(is_further: str) -> Binary:
    """The larger or the smaller of two gets all, equals a half each, as in `torch.maximum`."""

    def rule(d: Expression, a: Expression, b: Expression, y: Expression) -> tuple[Expression, Expression]:
        half = product(d, number(0.5))
        equal = compare(a, "==", b)
        return (
            select(equal, half, select(compare(a, is_further, b), d, number(0))),
            select(equal, half, select(compare(b, is_further, a), d, number(0))),
        )

    return rule


def _copy_sign(d: Expression, a: Expression, b: Expression, y: Expression) -> tuple[Expression, None]:
    return product(d, product(_sign(a), Node(math.CopySignOp, (number(1), b), f32))), None


def _power(d: Expression, a: Expression, b: Expression, y: Expression) -> tuple[Expression, Expression]:
    """Of the power 0 nothing is left, whatever the power -1 of the base is. Of zero to a power that is not negative the
    exponent makes no difference, whatever the logarithm says."""
    fewer = Node(math.PowFOp, (a, difference(b, number(1))), f32)
    slope = product(b, fewer)
    if not isinstance(b, Constant) or is_number(b, 0):
        slope = select(compare(b, "==", number(0)), number(0), slope)
    logarithm = select(compare(a, "==", number(0)), number(0), unary(math.LogOp, a))
    logarithm = select(compare(b, "<", number(0)), unary(math.LogOp, a), logarithm)
    return product(d, slope), product(product(d, y), logarithm)


def _whole_power(d: Expression, a: Expression, n: Expression, y: Expression) -> tuple[Expression, None]:
    """Of the power 0 nothing is left, whatever the power -1 of the base is."""
    fewer = Node(math.FPowIOp, (a, Node(arith.SubiOp, (n, number(1, n.type)), n.type)), f32)
    slope = product(convert(n, f32), fewer)
    return product(d, select(compare(n, "==", number(0, n.type)), number(0), slope)), None


def _angle(d: Expression, a: Expression, b: Expression, y: Expression) -> tuple[Expression, Expression]:
    """The point (0, 0) has no angle, and no slope, as PyTorch has it."""
    square = total(_square(a), _square(b))
    is_point = compare(square, "==", number(0))
    along, across = (select(is_point, number(0), quotient(product(d, each), square)) for each in (b, a))
    return along, _negative(across)


BINARY: dict[type[Operation], Binary] = {
    arith.AddfOp: lambda d, a, b, y: (d, d),
    arith.SubfOp: lambda d, a, b, y: (d, _negative(d)),
    arith.MulfOp: lambda d, a, b, y: (product(d, b), product(d, a)),
    arith.DivfOp: _divide,
    arith.MaximumfOp: _extremum(">"),
    arith.MaxnumfOp: _extremum(">"),
    arith.MinimumfOp: _extremum("<"),
    arith.MinnumfOp: _extremum("<"),
    math.CopySignOp: _copy_sign,
    math.PowFOp: _power,
    math.FPowIOp: _whole_power,
    math.Atan2Op: _angle,
}
