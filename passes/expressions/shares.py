"""Quotients of powers and one number a row, as powers: `exp(a) / b = exp(a - log b)`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias, TypeGuard

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import LocationAttr, f32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes._functions import fresh_hint, label, note, replace
from treadle.passes.expressions.decisions import decides
from treadle.passes.expressions.inner import logarithm_of
from treadle.passes.expressions.magnitudes import is_far_from_overflow
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    build_map,
    difference,
    expression_of,
    forgets_absences,
    inside_out,
    is_plain,
    unary,
    walk,
)
from treadle.passes.expressions.signs import is_nonnegative

LAW = "exp(a) / b = exp(a - log b)"

IsApart: TypeAlias = Callable[[Operation, SSAValue], bool]
"""Whether what uses a power makes one of its own, apart from what divides powers by a number."""


def absorb_divisors(
    function: func.FuncOp, ops: Collection[Operation], rewrite: str, is_apart: IsApart | None = None
) -> None:
    """Make shares of powers, among these operations, that are made for their shares alone: a logarithm for each number
    that divides, one subtraction for each element in place of a division. Legal for sums of powers that are bounded: no
    such divisor is below zero or overflows, of which the quotient is NaN and this 0. `rewrite` is the pass that notes
    it."""
    for op in ops:
        if isinstance(op, MapOp) and (divisor := _divisor(op, is_apart or _never)) is not None:
            _absorb(function, op, divisor, rewrite)


def _never(user: Operation, divisor: SSAValue) -> bool:
    return False


def _divisor(power: MapOp, is_apart: IsApart) -> SSAValue | None:
    """The number that divides powers wherever they are made for, which several of them have together."""
    if not is_plain(power) or format_of(power.result.type) != f32:
        return None
    expression = expression_of(power)
    if not isinstance(expression, Node) or expression.kind is not math.ExpOp or forgets_absences(power, expression):
        return None
    users = _users(power)
    found = {user: _divisor_in(user, power.result) for user in users}
    first = next((each for each in found.values() if each is not None), None)
    if first is None or format_of(first.type) != f32:
        return None
    if any(each is not first and not (each is None and is_apart(user, first)) for user, each in found.items()):
        return None
    if decides(power.result):  # of a power that is divided elsewhere, too, shares here would have other last digits
        return None
    shared = set(axes_of(first.type)) < set(axes_of(power.result.type))
    return first if shared and is_nonnegative(Leaf(first)) and is_far_from_overflow(Leaf(first)) else None


def _users(power: MapOp) -> list[Operation]:
    return list(dict.fromkeys(use.operation for use in power.result.uses))


def _divisor_in(op: Operation, power: SSAValue) -> SSAValue | None:
    """What a map divides powers by, if it does nothing else with them."""
    if not isinstance(op, MapOp) or not is_plain(op):
        return None
    parts = [part for part in walk(expression_of(op)) if isinstance(part, Node)]
    users = [part for part in parts if any(_is_leaf(operand, power) for operand in part.operands)]
    divisors = {part.operands[1] for part in users if _is_quotient(part, power)}
    if len(divisors) != 1 or not all(_is_quotient(part, power) for part in users):
        return None
    (divisor,) = divisors
    return divisor.value if isinstance(divisor, Leaf) else None


def _is_quotient(part: Node, power: SSAValue) -> bool:
    """Whether a part divides a power by another array."""
    dividend, divisor = part.operands if part.kind is arith.DivfOp else (None, None)
    return _is_leaf(dividend, power) and isinstance(divisor, Leaf) and divisor.value is not power


def _is_leaf(part: Expression | None, value: SSAValue) -> bool:
    return isinstance(part, Leaf) and part.value is value


def _absorb(function: func.FuncOp, power: MapOp, divisor: SSAValue, rewrite: str) -> None:
    exponential = expression_of(power)
    assert isinstance(exponential, Node)
    users = [user for user in _users(power) if _divisor_in(user, power.result) is divisor]
    exponent = difference(exponential.operands[0], Leaf(_logarithm(divisor, power.location)))
    share = build_map(unary(math.ExpOp, exponent), power.result.type, None, power.location)
    block = power.parent_block()
    assert block is not None
    Rewriter.insert_op(share, InsertPoint.before(next(op for op in block.ops if op in users)))
    names: list[str] = []
    for user in users:
        assert isinstance(user, MapOp)
        names.append(label(user.result))
        _read_share(user, power.result, share.result)
    share.result.name_hint = share.result.name_hint or fresh_hint(share.result, power.result.name_hint)
    subject = f"the divisor {label(divisor)} of {', '.join(names)} into the power {label(power.result)}"
    note(function, rewrite, subject, LAW, "one logarithm for all that it divides")
    if not power.result.uses:
        Rewriter.erase_op(power)


def _logarithm(divisor: SSAValue, location: LocationAttr) -> SSAValue:
    """Next to the number itself, so that the kernel that makes one makes the other, and before all that divides."""
    made = next((op for use in divisor.uses if _is_logarithm(op := use.operation, divisor)), None)
    if made is None:
        hint = f"log_{divisor.name_hint}" if divisor.name_hint else None
        made = build_map(unary(math.LogOp, Leaf(divisor)), divisor.type, hint, location)
    else:
        made.detach()
    owner = divisor.owner
    Rewriter.insert_op(made, InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(owner))
    return made.result


def _is_logarithm(op: Operation, divisor: SSAValue) -> TypeGuard[MapOp]:
    """Whether an operation is a map that makes the logarithm of these numbers, of no other elements, beside them."""
    if not isinstance(op, MapOp) or {*op.inputs} != {divisor} or op.result.type != divisor.type:
        return False
    owner = divisor.owner
    beside = owner.parent_block() if isinstance(owner, Operation) else owner
    return op.parent_block() is beside and logarithm_of(op.result) is divisor


def _read_share(user: MapOp, power: SSAValue, share: SSAValue) -> None:
    """Let a map read shares where it divides powers."""
    done: dict[int, Expression] = {}
    expression = expression_of(user)
    for part in inside_out(expression):
        if isinstance(part, Node) and _is_quotient(part, power):
            done[id(part)] = Leaf(share)
        elif isinstance(part, Node):
            operands: Sequence[Expression] = tuple(done[id(operand)] for operand in part.operands)
            done[id(part)] = Node(part.kind, operands, part.type, part.properties, part.hint, part.location)
        else:
            done[id(part)] = part
    made = done[id(expression)]
    if isinstance(made, Leaf) and share.type == user.result.type:
        share.name_hint = user.result.name_hint
        replace(user, [], share)
        return
    new = build_map(made, user.result.type, user.result.name_hint, user.location)
    new.attributes |= user.attributes
    replace(user, [new], new.result)
