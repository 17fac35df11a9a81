"""What moves while an axis is streamed: by which ratio, or by which difference, an expression follows.

The analysis never looks for the part of an expression along the axis, or for the part that moves. It follows the scalar
expressions from what moves, and works out

- `ratio(u)  = u(x, r') / u(x, r)`;
- `shift(u)  = u(x, r') - u(x, r)`;

where the result does not depend on x (`Dependent` otherwise)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.formats import number_format
from treadle.passes._functions import label
from treadle.passes.expressions.infinities import infinite_by
from treadle.passes.expressions.inner import inner_expression, is_saturating
from treadle.passes.expressions.magnitudes import most_in
from treadle.passes.expressions.polynomials import Keys
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    axes_in,
    is_number,
    leaves,
    number,
    power_of,
    product,
    quotient,
    substitute,
    unary,
)
from treadle.passes.expressions.signs import is_nonnegative, is_nonpositive, is_positive
from treadle.passes.streams.changes import (
    ADDED,
    BEFORE,
    ORDERED,
    Change,
    apart,
    is_growing,
    is_ordered,
    same,
    shrinks,
    summed,
)
from treadle.passes.streams.neutral import once_counting


class Dependent(Exception):
    """A change that varies along the streamed axis, or that no rule gives."""

    def __init__(self, expression: Expression, reason: str = ""):
        super().__init__()
        self.expression = expression
        self.reason = reason


@dataclass(frozen=True)
class Moving:
    """The reductions over `axis` that move while it is streamed, and what depends on them."""

    axis: str
    running: frozenset[SSAValue]
    depends: Callable[[SSAValue], frozenset[SSAValue]]
    """The reductions over the axis that a value depends on."""
    keys: Keys = field(default_factory=Keys)
    """Of what is asked of expressions meanwhile."""

    # -- ratios -----------------------------------------------------------------------------------

    def ratio(self, expression: Expression) -> Change:
        """`expression` after over before."""
        if not self.moves(expression):
            return same(1)
        if isinstance(expression, Leaf):
            return self._ratio_of_array(expression)
        assert isinstance(expression, Node)
        operands = expression.operands
        match expression.kind:
            case arith.MulfOp:
                return self.product_of([self.ratio(operand) for operand in operands])
            case arith.DivfOp:
                upper, lower = (self.ratio(operand) for operand in operands)
                return self.product_of([upper, Change(lower.below, lower.above, lower.fragile)])
            case arith.NegfOp | arith.ExtFOp:
                return self.ratio(operands[0])
            case arith.TruncFOp:
                return self._rounded(operands[0], expression)
            case math.ExpOp | math.Exp2Op:
                shift = self.shift(operands[0])
                power = power_of(expression.kind, apart(shift.above, shift.below))
                return Change(power, number(1), shift.fragile)
            case arith.SelectOp if not self.moves(operands[0]) and is_number(operands[2], 0):
                return self.ratio(operands[1])
            case arith.SelectOp if not self.moves(operands[0]) and is_number(operands[1], 0):
                return self.ratio(operands[2])
            case arith.SelectOp if (chosen := self._chosen_once_counting(expression)) is not expression:
                change, states = self.ratio(chosen), self.moves(operands[0])
                return Change(change.above, change.below, change.fragile | states)
            case _:
                return self._plain_ratio(expression)

    def _chosen_once_counting(self, choice: Node) -> Expression:
        """What is chosen once no running extremum that decides it is neutral; the choice itself if none does."""
        return once_counting(choice, filter(is_ordered, self.moves(choice.operands[0])))

    def _inner(self, leaf: Leaf) -> Expression | None:
        """What an array is made of, element by element: of those that a condition leaves, which itself does not move,
        what it leaves them of."""
        owner = leaf.value.owner
        if isinstance(owner, WhereOp) and not any(self.depends(each) & self.running for each in owner.inputs):
            return Leaf(owner.operand)
        return inner_expression(leaf.value)

    def _ratio_of_array(self, leaf: Leaf) -> Change:
        if is_growing(leaf.value):
            raise Dependent(leaf)
        if leaf.value in self.running:
            return self._plain_ratio(leaf)
        inner = self._inner(leaf)
        if inner is not None:
            self._check_movable(leaf)
            return self._rounded(inner, leaf) if isinstance(leaf.value.owner, CastOp) else self.ratio(inner)
        owner = leaf.value.owner
        if isinstance(owner, ContractOp) or (isinstance(owner, ReduceOp) and owner.kind.data == "add"):
            change = self.product_of([self.ratio(Leaf(operand)) for operand in operands_of(owner)])
            return self._across(owner, change, leaf)
        raise Dependent(leaf)

    def _rounded(self, inner: Expression, outer: Expression) -> Change:
        """A repair passes a rounding if what is rounded fits at every moment, not only at the last; in a format of
        few exponents it must also only ever shrink what was rounded already."""
        change = self.ratio(inner)
        if isinstance(outer.type, Float32Type):
            return change
        if most_in(outer.type, inner) > number_format(outer.type).largest:
            raise Dependent(outer, f"{spelled(outer)} may overflow {outer.type} before the last piece")
        if number_format(outer.type).has_few_exponents and not shrinks(change):
            raise Dependent(outer, f"{spelled(outer)} may be too small for {outer.type} before the last piece")
        return change

    def _plain_ratio(self, expression: Expression) -> Change:
        """Of an expression that does not vary along the axis: its two values, as they are."""
        after, before = self.two_moments(expression)
        moved = self.moves(expression)
        self._check_fixed_parts(expression, after, moved)
        # Powers told from what does not move may be too small for f32, all of them; from an extremum that does, one is
        # near 1.
        solid = is_positive(after, powers=any(map(is_ordered, moved)))
        fragile = frozenset(r for r in moved if not solid or is_ordered(r))
        return Change(after, before, fragile)

    def product_of(self, changes: Iterable[Change]) -> Change:
        above, below, fragile = number(1), number(1), frozenset[SSAValue]()
        for change in changes:
            above, below = product(above, change.above), product(below, change.below)
            fragile |= change.fragile
        return Change(above, below, fragile)

    # -- shifts -----------------------------------------------------------------------------------

    def shift(self, expression: Expression) -> Change:
        """`expression` after minus before."""
        if not self.moves(expression):
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
                change, states = self.shift(chosen), self.moves(operands[0])
                return Change(change.above, change.below, change.fragile | states)
            case math.LogOp:
                ratio = self.ratio(operands[0])
                after, before = (unary(math.LogOp, part) for part in (ratio.above, ratio.below))
                return Change(after, before, self.moves(expression))
            case _:
                return self._plain_shift(expression)

    def _scaled(
        self, moving: Expression, by: Expression, scale: Callable[[Expression, Expression], Expression]
    ) -> Change:
        shift = self.shift(moving)
        return Change(scale(shift.above, by), scale(shift.below, by), shift.fragile)

    def _shift_of_array(self, leaf: Leaf) -> Change:
        if is_growing(leaf.value):
            return self._grown(leaf)
        if leaf.value in self.running:
            return self._plain_shift(leaf)
        inner = self._inner(leaf)
        if inner is not None:
            self._check_movable(leaf)
            self._check_unsaturated(leaf)
            return self.shift(inner)
        owner = leaf.value.owner
        if isinstance(owner, ReduceOp) and owner.kind.data in ORDERED:
            return self._across(owner, self.shift(Leaf(owner.operand)), leaf)
        raise Dependent(leaf)

    def _grown(self, leaf: Leaf) -> Change:
        """What is summed in reverse grows by what the step adds, all of which has one sign: there is no way back."""
        scan = leaf.value.owner
        if not isinstance(scan, ScanOp) or scan.total is None or scan.kind.data != "add":
            raise Dependent(leaf)
        if not is_nonnegative(Leaf(scan.operand)) and not is_nonpositive(Leaf(scan.operand)):
            raise Dependent(leaf, f"{label(scan.operand)} may have either sign, and {spelled(leaf)} would turn back")
        return Change(Leaf(scan.total, ADDED), number(0))

    def _check_movable(self, leaf: Leaf) -> None:
        cast = leaf.value.owner
        if isinstance(cast, CastOp) and cast.fixed is not None:
            raise Dependent(leaf, f"the program fixes how {spelled(leaf)} is rounded")

    def _check_unsaturated(self, expression: Expression) -> None:
        """A difference does not pass a cast that saturates, for it is no longer that of what was cast."""
        if is_saturating(expression):
            raise Dependent(expression, f"{spelled(expression)} is a difference that saturates in {expression.type}")

    def _plain_shift(self, expression: Expression) -> Change:
        after, before = self.two_moments(expression)
        self._check_fixed_parts(expression, after, self.moves(expression))
        polynomial = isinstance(expression, Leaf)
        fragile = frozenset(r for r in self.moves(expression) if is_ordered(r) or not polynomial)
        return Change(after, before, fragile)

    # -- what both use ----------------------------------------------------------------------------

    def _across(self, owner: ContractOp | ReduceOp, change: Change, leaf: Leaf) -> Change:
        """A change passes a reduction over other axes if it does not vary along them."""
        if set(axes_in(change.above) + axes_in(change.below)) & set(owner.over_axes) or owner.init is not None:
            raise Dependent(leaf)
        return change

    def moves(self, expression: Expression) -> frozenset[SSAValue]:
        """The running reductions that an expression depends on."""
        moved = (self.depends(leaf.value) for leaf in leaves(expression))
        return frozenset(r for some in moved for r in some) & self.running

    def _is_fixed(self, expression: Expression) -> bool:
        return not self.moves(expression) and self.axis not in axes_in(expression)

    def two_moments(self, expression: Expression) -> tuple[Expression, Expression]:
        """An expression in the running reductions themselves, after and before the step."""
        after = self._unfold(expression)
        return after, substitute(after, self._before)

    def _check_fixed_parts(self, expression: Expression, after: Expression, moved: frozenset[SSAValue]) -> None:
        """What stays as it is may not make both moments infinite, for they have neither ratio nor difference then."""
        if (endless := infinite_by(after, moved, self.keys)) is not None:
            reason = f"{spelled(expression)} may be infinite with {label(endless)}, where no repair is defined"
            raise Dependent(expression, reason)

    def _unfold(self, expression: Expression) -> Expression:
        if self.axis in axes_in(expression):
            raise Dependent(expression)
        return substitute(expression, self._unfold_leaf)

    def _unfold_leaf(self, leaf: Leaf) -> Expression:
        if leaf.value in self.running or not self.moves(leaf):
            return leaf
        inner = inner_expression(leaf.value)
        if inner is None:
            raise Dependent(leaf)
        return self._unfold(inner)

    def _before(self, leaf: Leaf) -> Expression:
        return Leaf(leaf.value, BEFORE) if leaf.value in self.running else leaf


def spelled(expression: Expression) -> str:
    if isinstance(expression, Leaf):
        return label(expression.value)
    if isinstance(expression, Node):
        return f"%{expression.hint}" if expression.hint else expression.kind.name.split(".")[1]
    return str(expression.number)
