"""Cascaded reductions: how an accumulator follows when a reduction that its summands depend on moves.

While an axis x is streamed, `r1 = max_x f(x)` moves from piece to piece, and with it all summands of
`r2 = sum_x u(x, r1)` that were added already. If `u(x, r) = g(x) * h(r)`, the accumulator is repaired by
`h(r1') / h(r1)` (theory: sections 3, cascaded reductions). The analysis never looks for g or h themselves. It
follows the scalar expressions from `r1` to the summand and works out

- `ratio(u)  = u(x, r') / u(x, r)`, for sums: the repair is a factor;
- `shift(u)  = u(x, r') - u(x, r)`, for maxima and minima: the repair is a summand;

and there is a law exactly if the result no longer depends on x. Online softmax is the case
`ratio(exp(s - m)) = exp(shift(s - m)) = exp(m - m')`.

A sum whose summands are polynomials of what moves is repaired by a summand, too, which is made of the sums of their
derivatives (`expressions.polynomials`): a variance about a running mean, a distance from a running maximum.

**The neutral element.** Before the first element `r1` is neutral, say -inf, where the ratio may be
inf - inf. Such a reduction is *fragile* here. It is admitted only if nothing that counts can have been added
while it is neutral (`vanishes`); then any finite stand-in serves, and no NaN arises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type, i32
from xdsl.ir import SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._functions import label
from treadle.passes.expressions.distances import is_beyond
from treadle.passes.expressions.infinities import LeftOut, infinite_by, is_nothing_at_start, troubled_by
from treadle.passes.expressions.inner import inner_expression, is_saturating
from treadle.passes.expressions.magnitudes import most_in
from treadle.passes.expressions.polynomials import (
    Key,
    NoPolynomial,
    atoms_of,
    is_distance_from,
    key_of,
    taylor,
    unfolded,
    value_at_start,
)
from treadle.passes.expressions.reductions import neutral_of, operands_of
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    axes_in,
    difference,
    is_number,
    leaves,
    number,
    power_of,
    product,
    quotient,
    substitute,
    unary,
)
from treadle.passes.expressions.signs import is_positive
from treadle.passes.streams.changes import (
    BEFORE,
    ORDERED,
    Change,
    NoLaw,
    Repair,
    apart,
    is_ordered,
    same,
    shrinks,
    summed,
)
from treadle.passes.streams.neutral import numerators, once_counting, vanishes


class _Dependent(Exception):
    """A change that varies along the streamed axis, or that no rule gives."""

    def __init__(self, expression: Expression, reason: str = ""):
        super().__init__()
        self.expression = expression
        self.reason = reason


@dataclass(frozen=True)
class Cascade:
    """The reductions over `axis` that move while it is streamed, and what depends on them."""

    axis: str
    running: frozenset[SSAValue]
    depends: Callable[[SSAValue], frozenset[SSAValue]]
    """The reductions over the axis that a value depends on."""

    def repair(self, reduction: ContractOp | ReduceOp) -> Repair | NoLaw:
        """How the accumulator of a reduction over the axis follows the running ones."""
        if format_of(reduction.result.type) == i32:
            return NoLaw("integers have no inverse of multiplication")
        operands = operands_of(reduction)
        moved = [r for operand in operands for r in self.depends(operand) if r in self.running]
        if (endless := troubled_by(operands, moved, LeftOut(True, True))) is not None:
            return NoLaw(f"{label(endless)} may be infinite, where no repair is defined")
        law = self._split(reduction)
        if isinstance(law, Repair) or troubled_by(operands, moved, LeftOut(where_stood_for=True)) is not None:
            return law
        return self._polynomial(reduction) or law

    def _split(self, reduction: ContractOp | ReduceOp) -> Repair | NoLaw:
        """The repair where the part that moves splits off."""
        operands = operands_of(reduction)
        try:
            change, scales = self._change(reduction, operands)
        except _Dependent as problem:
            return NoLaw(problem.reason or self._no_split(problem.expression))
        if scales and any(is_beyond(part) for operand in operands for part in numerators(Leaf(operand))):
            return NoLaw("its powers may overflow before the last piece, and infinity times zero is no number")
        expression = (quotient if scales else apart)(change.above, change.below)
        if crossing := [axis for axis in axes_in(expression) if axis in reduction.over_axes]:
            return NoLaw(f"the repair would vary along '{crossing[0]}', which is reduced too")
        moved = {r for operand in operands for r in self.depends(operand) if r in self.running}
        vanishing = frozenset(r for r in moved if scales and vanishes(operands, r))
        at_start = {r for r in moved if is_nothing_at_start(r, operands)}
        if unsafe := [r for r in change.fragile | at_start if r not in vanishing]:
            return NoLaw(f"something may count while {label(unsafe[0])} is neutral, where no repair is defined")
        return Repair(expression, scales, change.fragile, vanishing)

    def _no_split(self, expression: Expression) -> str:
        return f"{_spell(expression)} does not split into a part along '{self.axis}' and a part that moves"

    def _change(self, reduction: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> tuple[Change, bool]:
        if isinstance(reduction, ContractOp) or reduction.kind.data == "add":
            return self._product([self.ratio(Leaf(operand)) for operand in operands]), True
        if reduction.kind.data in ORDERED:
            return self.shift(Leaf(operands[0])), False
        raise _Dependent(Leaf(operands[0]))

    # -- polynomials ------------------------------------------------------------------------------

    def _polynomial(self, reduction: ContractOp | ReduceOp) -> Repair | None:
        """The repair of a sum of polynomials in what moves, by Taylor's formula, if their derivatives are summed
        beside it (`diagram-hoist-factors` sees to that)."""
        if not isinstance(reduction, ReduceOp) or reduction.kind.data != "add" or reduction.init is not None:
            return None
        summand = unfolded(Leaf(reduction.operand), self.axis)
        try:
            law = taylor(summand, atoms_of(summand, self.axis, lambda part: bool(self._moves(part))))
            beside = self._sums_beside(reduction)
            change = law.change(self._shift_of_part, lambda term: Leaf(beside[key_of(term)], BEFORE))
        except (NoPolynomial, KeyError, _Dependent):
            return None
        fragile = frozenset(r for atom, _ in law.first for r in self._moves(atom) if not self._is_finite_at_start(atom))
        owners = [r.owner for r in fragile]
        if not all(isinstance(owner, ReduceOp) and is_distance_from(summand, owner) for owner in owners):
            return None
        return Repair(change, scales=False, fragile=fragile, vanishing=fragile)

    def _shift_of_part(self, atom: Expression) -> Expression:
        after, before = self._two_moments(atom)
        return difference(after, before)

    def _sums_beside(self, reduction: ReduceOp) -> dict[Key, SSAValue]:
        """What else is summed in this stream along the same axes, by what its summands are."""
        found: dict[Key, SSAValue] = {}
        for value in self.running:
            owner = value.owner
            if not isinstance(owner, ReduceOp) or owner.kind.data != "add" or owner.over != reduction.over:
                continue
            if absences_of([owner.operand]) == absences_of([reduction.operand]):
                found[key_of(unfolded(Leaf(owner.operand), self.axis))] = value
        return found

    def _is_finite_at_start(self, atom: Expression) -> bool:
        def start(value: SSAValue) -> float | None:
            return float(neutral_of(value).value.data) if value in self.running else None

        return value_at_start(atom, start) is not None

    # -- ratios -----------------------------------------------------------------------------------

    def ratio(self, expression: Expression) -> Change:
        """`expression` after over before."""
        if not self._moves(expression):
            return same(1)
        if isinstance(expression, Leaf):
            return self._ratio_of_array(expression)
        assert isinstance(expression, Node)
        operands = expression.operands
        match expression.kind:
            case arith.MulfOp:
                return self._product([self.ratio(operand) for operand in operands])
            case arith.DivfOp:
                upper, lower = (self.ratio(operand) for operand in operands)
                return self._product([upper, Change(lower.below, lower.above, lower.fragile)])
            case arith.NegfOp | arith.ExtFOp:
                return self.ratio(operands[0])
            case arith.TruncFOp:
                return self._rounded(operands[0], expression)
            case math.ExpOp | math.Exp2Op:
                shift = self.shift(operands[0])
                power = power_of(expression.kind, apart(shift.above, shift.below))
                return Change(power, number(1), shift.fragile)
            case arith.SelectOp if not self._moves(operands[0]) and is_number(operands[2], 0):
                return self.ratio(operands[1])
            case arith.SelectOp if not self._moves(operands[0]) and is_number(operands[1], 0):
                return self.ratio(operands[2])
            case arith.SelectOp if (chosen := self._chosen_once_counting(expression)) is not expression:
                change, states = self.ratio(chosen), self._moves(operands[0])
                return Change(change.above, change.below, change.fragile | states)
            case _:
                return self._plain_ratio(expression)

    def _chosen_once_counting(self, choice: Node) -> Expression:
        """What is chosen once no running extremum that decides it is neutral; the choice itself if none does."""
        return once_counting(choice, filter(is_ordered, self._moves(choice.operands[0])))

    def _ratio_of_array(self, leaf: Leaf) -> Change:
        if leaf.value in self.running:
            return self._plain_ratio(leaf)
        inner = inner_expression(leaf.value)
        if inner is not None:
            self._check_movable(leaf)
            return self._rounded(inner, leaf) if isinstance(leaf.value.owner, CastOp) else self.ratio(inner)
        owner = leaf.value.owner
        if isinstance(owner, ContractOp) or (isinstance(owner, ReduceOp) and owner.kind.data == "add"):
            change = self._product([self.ratio(Leaf(operand)) for operand in operands_of(owner)])
            return self._across(owner, change, leaf)
        raise _Dependent(leaf)

    def _rounded(self, inner: Expression, outer: Expression) -> Change:
        """A repair passes a rounding if what is rounded fits at every moment, not only at the last; in a format of
        few exponents it must also only ever shrink what was rounded already."""
        change = self.ratio(inner)
        if isinstance(outer.type, Float32Type):
            return change
        if most_in(outer.type, inner) > number_format(outer.type).largest:
            raise _Dependent(outer, f"{_spell(outer)} may overflow {outer.type} before the last piece")
        if number_format(outer.type).has_few_exponents and not shrinks(change):
            raise _Dependent(outer, f"{_spell(outer)} may be too small for {outer.type} before the last piece")
        return change

    def _plain_ratio(self, expression: Expression) -> Change:
        """Of an expression that does not vary along the axis: its two values, as they are."""
        after, before = self._two_moments(expression)
        moved = self._moves(expression)
        self._check_fixed_parts(expression, after, moved)
        # Powers told from what does not move may be too small for f32, all of them; from an extremum that does, one is
        # near 1.
        solid = is_positive(after, powers=any(map(is_ordered, moved)))
        fragile = frozenset(r for r in moved if not solid or is_ordered(r))
        return Change(after, before, fragile)

    def _product(self, changes: Iterable[Change]) -> Change:
        above, below, fragile = number(1), number(1), frozenset[SSAValue]()
        for change in changes:
            above, below = product(above, change.above), product(below, change.below)
            fragile |= change.fragile
        return Change(above, below, fragile)

    # -- shifts -----------------------------------------------------------------------------------

    def shift(self, expression: Expression) -> Change:
        """`expression` after minus before."""
        if not self._moves(expression):
            return same(0)
        if isinstance(expression, Leaf):
            return self._shift_of_array(expression)
        assert isinstance(expression, Node)
        operands = expression.operands
        match expression.kind:
            case arith.AddfOp:
                left, right = (self.shift(operand) for operand in operands)
                return summed(left, right)
            case arith.SubfOp:
                left, right = (self.shift(operand) for operand in operands)
                return summed(left, Change(right.below, right.above, right.fragile))
            case arith.NegfOp:
                shift = self.shift(operands[0])
                return Change(shift.below, shift.above, shift.fragile)
            case arith.ExtFOp | arith.TruncFOp:
                self._check_unsaturated(expression)
                return self.shift(operands[0])
            case arith.MulfOp if self._is_fixed(operands[1]):
                return self._scaled(operands[0], operands[1], product)
            case arith.MulfOp if self._is_fixed(operands[0]):
                return self._scaled(operands[1], operands[0], product)
            case arith.DivfOp if self._is_fixed(operands[1]):
                return self._scaled(operands[0], operands[1], quotient)
            case arith.SelectOp if (chosen := self._chosen_once_counting(expression)) is not expression:
                change, states = self.shift(chosen), self._moves(operands[0])
                return Change(change.above, change.below, change.fragile | states)
            case math.LogOp:
                ratio = self.ratio(operands[0])
                after, before = (unary(math.LogOp, part) for part in (ratio.above, ratio.below))
                return Change(after, before, self._moves(expression))
            case _:
                return self._plain_shift(expression)

    def _scaled(
        self, moving: Expression, by: Expression, scale: Callable[[Expression, Expression], Expression]
    ) -> Change:
        shift = self.shift(moving)
        return Change(scale(shift.above, by), scale(shift.below, by), shift.fragile)

    def _shift_of_array(self, leaf: Leaf) -> Change:
        if leaf.value in self.running:
            return self._plain_shift(leaf)
        inner = inner_expression(leaf.value)
        if inner is not None:
            self._check_movable(leaf)
            self._check_unsaturated(leaf)
            return self.shift(inner)
        owner = leaf.value.owner
        if isinstance(owner, ReduceOp) and owner.kind.data in ORDERED:
            return self._across(owner, self.shift(Leaf(owner.operand)), leaf)
        raise _Dependent(leaf)

    def _check_movable(self, leaf: Leaf) -> None:
        cast = leaf.value.owner
        if isinstance(cast, CastOp) and cast.fixed is not None:
            raise _Dependent(leaf, f"the program fixes how {_spell(leaf)} is rounded")

    def _check_unsaturated(self, expression: Expression) -> None:
        """A difference does not pass a cast that saturates, for it is no longer that of what was cast."""
        if is_saturating(expression):
            raise _Dependent(expression, f"{_spell(expression)} is a difference that saturates in {expression.type}")

    def _plain_shift(self, expression: Expression) -> Change:
        after, before = self._two_moments(expression)
        self._check_fixed_parts(expression, after, self._moves(expression))
        polynomial = isinstance(expression, Leaf)
        fragile = frozenset(r for r in self._moves(expression) if is_ordered(r) or not polynomial)
        return Change(after, before, fragile)

    # -- what both use ----------------------------------------------------------------------------

    def _across(self, owner: ContractOp | ReduceOp, change: Change, leaf: Leaf) -> Change:
        """A change passes a reduction over other axes if it does not vary along them."""
        if set(axes_in(change.above) + axes_in(change.below)) & set(owner.over_axes) or owner.init is not None:
            raise _Dependent(leaf)
        return change

    def _moves(self, expression: Expression) -> frozenset[SSAValue]:
        """The running reductions that an expression depends on."""
        moved = (self.depends(leaf.value) for leaf in leaves(expression))
        return frozenset(r for some in moved for r in some) & self.running

    def _is_fixed(self, expression: Expression) -> bool:
        return not self._moves(expression) and self.axis not in axes_in(expression)

    def _two_moments(self, expression: Expression) -> tuple[Expression, Expression]:
        """An expression in the running reductions themselves, after and before the step."""
        after = self._unfold(expression)
        return after, substitute(after, self._before)

    def _check_fixed_parts(self, expression: Expression, after: Expression, moved: frozenset[SSAValue]) -> None:
        """What stays as it is may not make both moments infinite, for they have neither ratio nor difference then."""
        if (endless := infinite_by(after, moved)) is not None:
            reason = f"{_spell(expression)} may be infinite with {label(endless)}, where no repair is defined"
            raise _Dependent(expression, reason)

    def _unfold(self, expression: Expression) -> Expression:
        if self.axis in axes_in(expression):
            raise _Dependent(expression)
        return substitute(expression, self._unfold_leaf)

    def _unfold_leaf(self, leaf: Leaf) -> Expression:
        if leaf.value in self.running or not self._moves(leaf):
            return leaf
        inner = inner_expression(leaf.value)
        if inner is None:
            raise _Dependent(leaf)
        return self._unfold(inner)

    def _before(self, leaf: Leaf) -> Expression:
        return Leaf(leaf.value, BEFORE) if leaf.value in self.running else leaf


def _spell(expression: Expression) -> str:
    if isinstance(expression, Leaf):
        return label(expression.value)
    if isinstance(expression, Node):
        return f"%{expression.hint}" if expression.hint else expression.kind.name.split(".")[1]
    return str(expression.number)
