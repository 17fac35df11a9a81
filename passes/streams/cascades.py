"""Cascaded reductions: how an accumulator follows when a reduction that its summands depend on moves.

While an axis x is streamed, `r1 = max_x f(x)` moves from piece to piece, and with it all summands of
`r2 = sum_x u(x, r1)` that were added already. If `u(x, r) = g(x) * h(r)`, the accumulator is repaired by
`h(r1') / h(r1)` (theory: sections 3, cascaded reductions). There is a law exactly if the ratio of the summand after
and before, or under a maximum or minimum its difference, does not depend on x (`streams.moving`). Online softmax is the
case `ratio(exp(s - m)) = exp(shift(s - m)) = exp(m - m')`.

A sum whose summands are polynomials of what moves is repaired by a summand, too, which is made of the sums of their
derivatives (`streams.polynomial_sums`): a variance about a running mean, a distance from a running maximum. What is
reduced of the elements that equal an extremum begins anew where that has moved (`streams.extremal`): a position of it.

**The neutral element.** Before the first element `r1` is neutral, say -inf, where the ratio may be
inf - inf. Such a reduction is *fragile* here. It is admitted only if nothing that counts can have been added
while it is neutral (`vanishes`); then any finite stand-in serves, and no NaN arises.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from xdsl.dialects import math
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import format_of
from treadle.passes._functions import label
from treadle.passes.expressions.infinities import LeftOut, is_nothing_at_start, troubled_by
from treadle.passes.expressions.magnitudes import magnitude
from treadle.passes.expressions.polynomials import Keys
from treadle.passes.expressions.reductions import operands_of
from treadle.passes.expressions.scalars import Expression, Leaf, Node, axes_in, leaves, quotient, walk
from treadle.passes.streams.changes import (
    ADDED,
    BEFORE,
    ORDERED,
    Change,
    NoLaw,
    Repair,
    apart,
    is_growing,
    is_ordered,
    shrinks,
)
from treadle.passes.streams.extremal import extremal_repair
from treadle.passes.streams.moving import Dependent, Moving, spelled
from treadle.passes.streams.neutral import may_overflow_meanwhile, vanishes
from treadle.passes.streams.polynomial_sums import polynomial_repair


@dataclass(frozen=True)
class Cascade:
    """The reductions over `axis` that move while it is streamed, and what depends on them."""

    axis: str
    running: frozenset[SSAValue]
    depends: Callable[[SSAValue], frozenset[SSAValue]]
    """The reductions over the axis that a value depends on."""
    keys: Keys = field(default_factory=Keys)
    """Of what is asked of expressions meanwhile."""

    @cached_property
    def moving(self) -> Moving:
        return Moving(self.axis, self.running, self.depends, self.keys)

    def repair(self, reduction: ContractOp | ReduceOp) -> Repair | NoLaw:
        """How the accumulator of a reduction over the axis follows the running ones."""
        if (anew := extremal_repair(self.moving, reduction)) is not None:
            return anew
        if format_of(reduction.result.type) == i32:
            return NoLaw("integers have no inverse of multiplication")
        operands = operands_of(reduction)
        found = [r for operand in operands for r in self.depends(operand) if r in self.running]
        moved = [r for r in found if not is_growing(r)]
        if (endless := troubled_by(operands, moved, LeftOut(True, True), self.keys)) is not None:
            return NoLaw(f"{label(endless)} may be infinite, where no repair is defined")
        law = self._split(reduction)
        if (
            isinstance(law, Repair)
            or len(moved) < len(found)
            or (found := polynomial_repair(self.moving, reduction)) is None
        ):
            return law
        # Of powers it is known that they are zero where an extremum is that has nothing.
        left_out = LeftOut(where_zero=found.factor is not None, where_stood_for=True)
        return law if troubled_by(operands, moved, left_out, self.keys) is not None else found

    def _split(self, reduction: ContractOp | ReduceOp) -> Repair | NoLaw:
        """The repair where the part that moves splits off."""
        operands = operands_of(reduction)
        try:
            change, scales = self._change(reduction, operands)
        except Dependent as problem:
            return NoLaw(problem.reason or self._no_split(problem.expression))
        if scales and may_overflow_meanwhile(operands):
            return NoLaw("its powers may overflow before the last piece, and infinity times zero is no number")
        expression = (quotient if scales else apart)(change.above, change.below)
        moved = {r for operand in operands for r in self.depends(operand) if r in self.running}
        vanishing = frozenset(r for r in moved if scales and vanishes(operands, r))
        grows = scales and any(leaf.version == ADDED for leaf in leaves(expression))
        # Powers told from their own maximum are at most 1, and it has grown as they have.
        if grows and not any(map(is_ordered, vanishing)) and magnitude(expression) > 1:
            return NoLaw("what grows with later pieces may make it larger, and nothing is known to be the most")
        if scales and not shrinks(change) and _may_explode(expression):
            return NoLaw("a sum that may rise and fall is in an exponent, so that a repair may be infinite")
        if crossing := [axis for axis in axes_in(expression) if axis in reduction.over_axes]:
            return NoLaw(f"the repair would vary along '{crossing[0]}', which is reduced too")
        at_start = {r for r in moved if is_nothing_at_start(r, operands)}
        if unsafe := [r for r in change.fragile | at_start if r not in vanishing]:
            return NoLaw(f"something may count while {label(unsafe[0])} is neutral, where no repair is defined")
        summand, factor = (None, expression) if scales else (expression, None)
        return Repair(summand, factor, change.fragile, vanishing)

    def _no_split(self, expression: Expression) -> str:
        return f"{spelled(expression)} does not split into a part along '{self.axis}' and a part that moves"

    def _change(self, reduction: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> tuple[Change, bool]:
        if isinstance(reduction, ContractOp) or reduction.kind.data == "add":
            return self.moving.product_of([self.moving.ratio(Leaf(operand)) for operand in operands]), True
        if reduction.kind.data in ORDERED:
            return self.moving.shift(Leaf(operands[0])), False
        raise Dependent(Leaf(operands[0]))


def _may_explode(factor: Expression) -> bool:
    """Whether a factor is a power of how far a sum has moved: what was added is nothing where that is infinite."""
    powers = (each for each in walk(factor) if isinstance(each, Node) and each.kind in (math.ExpOp, math.Exp2Op))
    moved = {leaf.value for power in powers for leaf in leaves(power) if leaf.version == BEFORE}
    return any(not is_ordered(value) for value in moved)
