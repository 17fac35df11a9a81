"""How a value changes while an axis is streamed, and the repair of an accumulator that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp, ScanOp
from treadle.passes.expressions.forms import Atom, linear_form, unscaled
from treadle.passes.expressions.negative_exponents import is_never_above_zero
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    difference,
    factors,
    leaves,
    number,
    product,
    quotient,
    strip_casts,
    total,
)
from treadle.passes.expressions.signs import is_nonnegative

BEFORE = "before"
"""Version of a leaf: the value of a reduction before the step. Without it: after."""

ADDED = "added"
"""Version of a leaf: what a step adds to the sum that a value is, by which what is scanned in reverse grows."""

ORDERED = ("max", "min")

SCALING: dict[type[Operation], Callable[[Expression, Expression], Expression]] = {
    arith.MulfOp: product,
    arith.DivfOp: quotient,
}


@dataclass(frozen=True)
class Change:
    """How a value changes with the reductions it depends on: `above` over `below` for a ratio, `above`
    minus `below` for a shift. Neither varies along the streamed axis."""

    above: Expression
    below: Expression
    fragile: frozenset[SSAValue] = frozenset()


@dataclass(frozen=True)
class Repair:
    """What an accumulator is increased by, and then multiplied by, before the next piece is added; or where it stays as
    it is."""

    summand: Expression | None
    factor: Expression | None
    fragile: frozenset[SSAValue]
    vanishing: frozenset[SSAValue]
    """Reductions while which are neutral nothing that counts has been added."""
    stays: Expression | None = None
    """A truth value: where it does not hold, nothing that was added counts any more."""

    @property
    def leaves(self) -> list[Leaf]:
        """The arrays that it is made of, before and after something moved."""
        parts = (part for part in (self.summand, self.factor, self.stays) if part is not None)
        return list(dict.fromkeys(leaf for part in parts for leaf in leaves(part)))


@dataclass(frozen=True)
class NoLaw:
    """Why a reduction cannot be repaired."""

    reason: str


def shrinks(change: Change) -> bool:
    """Whether a ratio is proved to be at most 1: exponentials of how far a maximum, or a sum of what is never negative,
    has risen (or a minimum fallen), or of what a step adds to such a sum, and such sums before over after."""
    above, below = factors(quotient(change.above, change.below))
    for divisor in below:
        before = Leaf(divisor.value, BEFORE) if isinstance(divisor, Leaf) else None
        if before not in above or not is_nonnegative(divisor):
            return False
        above.remove(before)
    return all(_is_at_most_one(factor) for factor in above)


def _is_at_most_one(factor: Expression) -> bool:
    factor = strip_casts(factor)
    if isinstance(factor, Constant):
        return abs(factor.number) <= 1
    if not isinstance(factor, Node) or factor.kind not in (math.ExpOp, math.Exp2Op):
        return False
    if is_never_above_zero(factor.operands[0]):
        return True
    form = unscaled(linear_form(factor.operands[0]))
    return all(_falls(atom, slope, form) for atom, slope in form.items())


def _falls(atom: Atom, slope: float, form: dict[Atom, float]) -> bool:
    """Whether `slope * atom` and its partner at the other moment sum up to something not above zero."""
    value = atom.value if isinstance(atom, Leaf) else atom
    if not isinstance(value, SSAValue) or not isinstance(value.owner, ReduceOp):
        return False
    if _grows(value):
        return False  # it moves back with what it is of
    before, after = form.get(Leaf(value, BEFORE), 0.0), form.get(value, 0.0)
    is_sum = value.owner.kind.data == "add" and not _is_told_from_others(value.owner)
    rises = value.owner.kind.data == "max" or (is_sum and is_nonnegative(Leaf(value)))
    right_way = after < 0 if rises else value.owner.kind.data == "min" and after > 0
    return right_way and before == -after


def _grows(value: SSAValue) -> bool:
    """Whether something is made of what is scanned in reverse."""
    return any(map(is_growing, _made_of(value)))


def _is_told_from_others(sum: ReduceOp) -> bool:
    """Whether what a sum adds up may be told from others along its axes: then it is repaired, and may fall."""
    owners = (each.owner for each in _made_of(sum.operand))
    reduced = (each.over_axes for each in owners if isinstance(each, ContractOp | ReduceOp))
    return any({*axes} & {*sum.over_axes} for axes in reduced)


def _made_of(value: SSAValue) -> Iterator[SSAValue]:
    """A value, and all that it is made of."""
    seen, stack = {value}, [value]
    while stack:
        each = stack.pop()
        yield each
        new = {*each.owner.operands} - seen if isinstance(each.owner, Operation) else set[SSAValue]()
        seen |= new
        stack += new


def same(value: float) -> Change:
    return Change(number(value), number(value))


def summed(left: Change, right: Change) -> Change:
    return Change(total(left.above, right.above), total(left.below, right.below), left.fragile | right.fragile)


def apart(above: Expression, below: Expression) -> Expression:
    """`above - below`; of one multiple of two values that of their difference, for either multiple may overflow."""
    if not isinstance(above, Node) or not isinstance(below, Node) or above.kind not in SCALING:
        return difference(above, below)
    if above.kind is not below.kind or above.operands[1] != below.operands[1]:
        return difference(above, below)
    return SCALING[above.kind](apart(above.operands[0], below.operands[0]), above.operands[1])


def is_growing(value: SSAValue) -> bool:
    """Whether a value is scanned in reverse, so that of pieces that a stream was fed it grows with each later one."""
    return isinstance(value.owner, ScanOp) and value.owner.is_reverse


def is_ordered(value: SSAValue) -> bool:
    return isinstance(value.owner, ReduceOp) and value.owner.kind.data in ORDERED
