"""Powers told from their peak: `exp(u(s)) = exp(u(s) - u(m)) exp(u(m))`, where `m` is the largest `s` of a row.

What is added to `s` in an exponent, but for the maximum of it, is the same for all of a row. So a power is one that is
at most 1, and 1 at the maximum, times its *peak* `exp(u(m))`, which moves past every sum along the row:

- relative to a maximum that has other numbers in it, `exp(s - max(m, k))`, the peak is `exp(m - max(m, k))`, at most 1;
- of what is raised by a constant, `exp(s - m + c)`, it is `exp(c)`.

A peak moves only if it is proved to be finite (`bounds.peak_of`). Of a row with +inf both sides have no number, if all
that the maximum is made of is summed: its own distance has none. While the maximum is -inf zero stands for it, so that
such a row has what the peak says of it, `exp(-inf - max(-inf, k))`; not where the maximum cancels in the peak, for then
the distance itself has no number, as in the plain form."""

from __future__ import annotations

import math as numbers
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, func, math
from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, format_of, sizes_of
from treadle.passes._functions import label, note
from treadle.passes.expressions.distances import FAR_FROM_OVERFLOW, peak_of
from treadle.passes.expressions.forms import linear_form, same_form, unscaled
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.polynomials import Key, key_of
from treadle.passes.expressions.powers import MOST, PASS
from treadle.passes.expressions.reductions import is_neutral, operands_of
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    axes_in,
    build_map,
    difference,
    leaves,
    number,
    power_of,
    select,
    spell,
    substitute,
    total,
    walk,
)

_LINEAR: tuple[type[Operation], ...] = (arith.AddfOp, arith.SubfOp, arith.NegfOp, arith.MulfOp, arith.DivfOp, *CASTS)


@dataclass(frozen=True)
class Peaked:
    """A power as one that is at most 1, times its peak, which does not vary along a row."""

    below: Leaf
    peak: Expression


@dataclass
class Peaks:
    """What was told from its peak: all sums of one power share it."""

    function: func.FuncOp
    known: dict[tuple[Key, SSAValue], Peaked] = field(default_factory=dict[tuple[Key, SSAValue], Peaked])

    def of(self, power: Expression, sum: ContractOp | ReduceOp) -> Peaked | None:
        """A power that a sum adds up, told from its peak; None where it is already, or no law says so."""
        if not isinstance(power, Node) or power.kind not in (math.ExpOp, math.Exp2Op) or power.type != f32:
            return None
        over = sum.over_axes
        varying, fixed = _parted(power.operands[0], over)
        for extremum in _extrema(fixed, over, absences_of(operands_of(sum))):
            at_peak = _at_peak(varying, extremum)
            if at_peak is not None and _is_largest(varying, extremum) and _is_summed_alone(power, sum):
                return self._told(power, extremum, varying, _plus(at_peak, fixed), sum)
        return None

    def _told(
        self, power: Node, extremum: ReduceOp, varying: Expression, height: Expression, sum: ContractOp | ReduceOp
    ) -> Peaked | None:
        key = key_of(power), extremum.result
        if key in self.known:
            return self.known[key]
        raised = constant_of(power.kind, height)
        if raised is not None:
            if 1 / MOST <= raised <= MOST or not 0 < raised < numbers.inf:
                return None  # as near to 1 it costs nothing in the exponent (`expressions.powers`)
            found = Peaked(self._below(power, varying, extremum, Leaf(extremum.result), sum), number(raised))
        else:
            peak = power_of(power.kind, height)
            if (most := peak_of(peak)) is None or most > FAR_FROM_OVERFLOW:
                return None
            low = self._insert(_safe(extremum), _hint(extremum.result, "safe"), sum)
            below = self._below(power, varying, extremum, low, sum)
            found = Peaked(below, self._insert(peak, _hint(extremum.result, "peak"), sum))
        subject = f"{label(found.below.value)} from the peak {spell(found.peak)} of its powers"
        note(self.function, PASS, subject, "exp(a + b) = exp(a) exp(b)", f"relative to {label(extremum.result)} alone")
        self.known[key] = found
        return found

    def _below(
        self, power: Node, varying: Expression, extremum: ReduceOp, largest: Leaf, sum: ContractOp | ReduceOp
    ) -> Leaf:
        highest = _at_peak(varying, extremum)
        assert highest is not None
        here = substitute(highest, lambda leaf: largest if leaf.value is extremum.result else leaf)
        return self._insert(power_of(power.kind, difference(varying, here)), power.hint, sum)

    @staticmethod
    def _insert(expression: Expression, hint: str | None, sum: ContractOp | ReduceOp) -> Leaf:
        sizes = {axis: size for leaf in leaves(expression) for axis, size in sizes_of(leaf.value.type).items()}
        map = build_map(expression, array_type(f32, sizes), hint, sum.location)
        Rewriter.insert_op(map, InsertPoint.before(sum))
        return Leaf(map.result)


def _is_summed_alone(power: Node, sum: ContractOp | ReduceOp) -> bool:
    """Whether all that is made of a power is summed along the same axes: what else is made of it would need it as it
    is, beside what is told from its peak."""
    key = key_of(power)
    todo, seen = list(operands_of(sum)), set[SSAValue]()
    while todo:
        value = todo.pop()
        owner = value.owner
        if value in seen or not isinstance(owner, MapOp | CastOp):
            continue
        seen.add(value)
        inner = inner_expression(value)
        is_here = inner is not None and any(isinstance(part, Node) and key_of(part) == key for part in walk(inner))
        if is_here and not _ends_in_sums(value, sum.over_axes):
            return False
        todo += [] if is_here else owner.operands
    return True


def _ends_in_sums(value: SSAValue, over: Sequence[str]) -> bool:
    for op in (use.operation for use in value.uses):
        if isinstance(op, MapOp | CastOp | WhereOp):
            if not _ends_in_sums(op.results[0], over):
                return False
        elif not isinstance(op, ContractOp | ReduceOp) or tuple(op.over_axes) != tuple(over):
            return False
    return True


def constant_of(kind: type[Operation], exponent: Expression) -> float | None:
    """The power of an exponent that is a constant, as over the reals; infinite beyond f32, and zero below."""
    form = linear_form(exponent)
    if form.keys() - {None}:
        return None
    binary = form.get(None, 0.0) * (numbers.log2(numbers.e) if kind is math.ExpOp else 1.0)
    return numbers.inf if binary >= 128 else 0.0 if binary < -126 else 2.0**binary


def _parted(exponent: Expression, over: Sequence[str]) -> tuple[Expression, Expression]:
    """What varies along some axes of a sum of terms, and what does not."""
    varying: Expression = number(0)
    fixed: Expression = number(0)
    for sign, term in _terms(exponent, over):
        join = total if sign > 0 else difference
        if set(axes_in(term)) & set(over):
            varying = join(varying, term)
        else:
            fixed = join(fixed, term)
    return varying, fixed


def _plus(left: Expression, right: Expression) -> Expression:
    if isinstance(right, Node) and right.kind is arith.NegfOp:
        return difference(left, right.operands[0])
    return total(left, right)


def _terms(expression: Expression, over: Sequence[str], sign: int = 1) -> Iterator[tuple[int, Expression]]:
    if isinstance(expression, Node) and expression.kind in (arith.AddfOp, arith.SubfOp) and expression.type == f32:
        left, right = expression.operands
        yield from _terms(left, over, sign)
        yield from _terms(right, over, sign if expression.kind is arith.AddfOp else -sign)
        return
    if isinstance(expression, Leaf) and isinstance(expression.value.owner, MapOp) and _mixes(expression, over):
        inner = inner_expression(expression.value)
        assert inner is not None
        yield from _terms(inner, over, sign)
        return
    yield sign, expression


def _mixes(leaf: Leaf, over: Sequence[str]) -> bool:
    """Whether a map adds what varies along some axes and what does not."""
    inner = inner_expression(leaf.value)
    if not isinstance(inner, Node) or inner.kind not in (arith.AddfOp, arith.SubfOp) or inner.type != f32:
        return False
    return len({bool(set(axes_in(part)) & set(over)) for part in inner.operands}) == 2


def _extrema(fixed: Expression, over: Sequence[str], absent: Collection[Operation]) -> list[ReduceOp]:
    """The extrema along some axes that an expression is made of, of the same elements as a sum that lacks `absent`."""
    found: dict[ReduceOp, None] = {}
    todo = [fixed]
    seen: set[SSAValue] = set()
    while todo:
        for leaf in leaves(todo.pop()):
            if leaf.value in seen:
                continue
            seen.add(leaf.value)
            owner = leaf.value.owner
            if isinstance(owner, ReduceOp) and owner.kind.data in ("max", "min") and owner.init is None:
                is_same_row = set(owner.over_axes) == set(over) and set(absent) == set(absences_of([owner.operand]))
                found |= dict.fromkeys([owner] if is_same_row and format_of(owner.result.type) == f32 else [])
            elif (inner := inner_expression(leaf.value)) is not None:
                todo.append(inner)
    return list(found)


def _at_peak(expression: Expression, extremum: ReduceOp) -> Expression | None:
    """An expression where an extremum takes the place of the array that it is of; None if something else varies."""
    if isinstance(expression, Leaf) and expression.value is extremum.operand:
        return Leaf(extremum.result)
    if not set(axes_in(expression)) & set(extremum.over_axes):
        return expression
    if isinstance(expression, Leaf):
        inner = inner_expression(expression.value)
        return None if inner is None else _at_peak(inner, extremum)
    if not isinstance(expression, Node) or expression.kind not in _LINEAR:
        return None
    operands = [_at_peak(operand, extremum) for operand in expression.operands]
    known = tuple(operand for operand in operands if operand is not None)
    if len(known) < len(operands):
        return None
    return Node(expression.kind, known, expression.type, expression.properties, expression.hint, expression.location)


def _is_largest(varying: Expression, extremum: ReduceOp) -> bool:
    """Whether what varies is largest where the extremum is: a multiple of its array, above zero of a maximum."""
    form, source = unscaled(linear_form(varying)), linear_form(Leaf(extremum.operand))
    form.pop(None, None)
    atom = next(iter(source), None)
    if atom is None or atom not in form or any(isinstance(each, int) for each in form):
        return False
    slope = form[atom] / source[atom]
    right_way = slope > 0 if extremum.kind.data == "max" else slope < 0
    return right_way and same_form(form, {each: slope * size for each, size in source.items()})


def _safe(extremum: ReduceOp) -> Expression:
    leaf = Leaf(extremum.result)
    return select(is_neutral(extremum.result, leaf), number(0, leaf.type), leaf)


def _hint(value: SSAValue, suffix: str) -> str | None:
    return f"{value.name_hint}_{suffix}" if value.name_hint else None
