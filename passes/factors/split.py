"""Summands taken apart into what stays in a sum and what is constant along it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._functions import (
    label,
    note,
)
from treadle.passes.expressions.drawn import is_drawn
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.magnitudes import magnitude, shrink
from treadle.passes.expressions.misfit import is_exact_in, misfit
from treadle.passes.expressions.peaks import Peaks
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.powers import PASS
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    convert,
    difference,
    forgets_absences,
    is_number,
    leaves,
    number,
    product,
    quotient,
    select,
    spell,
    strip_casts,
    total,
)
from treadle.passes.expressions.scalars import factors as factors_of
from treadle.passes.factors.divisors import is_above_zero, summed_powers
from treadle.passes.factors.logarithms import share_of
from treadle.passes.factors.tested_shares import NOTHING_ASKED, Asked


@dataclass
class Split:
    """A summand taken apart: `rest * product(above) / product(below)`, the factors constant along the sum."""

    rest: Expression
    above: list[Expression] = field(default_factory=list[Expression])
    below: list[Expression] = field(default_factory=list[Expression])
    rounded: list[str] = field(default_factory=list[str])
    """What is now rounded before it is scaled, in words."""

    @property
    def moves(self) -> bool:
        return bool(self.above or self.below)


class Splitter:
    """Looks for factors that are constant along `over`, through maps, products, quotients and casts."""

    def __init__(self, function: func.FuncOp, sum: ContractOp | ReduceOp, peaks: Peaks, asked: Asked = NOTHING_ASKED):
        self.function = function
        self.sum = sum
        self.peaks = peaks
        self.asked = asked
        self.over = sum.over_axes
        self.of_product = sums_scaled_product(sum)
        self.moves_small = False
        """Whether factors move that are known before the sum, too, if they are at most 1."""

    def split(self, expression: Expression) -> Split:
        if not set(axes_in(expression)) & set(self.over):
            return self._split_factor(expression)
        if isinstance(expression, Leaf):
            return self._split_array(expression)
        if not isinstance(expression, Node):
            return Split(expression)
        if expression.kind in CASTS:
            return self._past_cast(expression.operands[0], expression, str(expression.hint or "it"))
        if expression.kind in (arith.MulfOp, arith.DivfOp):
            return self._split_product(expression)
        if expression.kind in (arith.AddfOp, arith.SubfOp):
            return self._split_terms(expression)
        if expression.kind is arith.SelectOp:
            return self._split_choice(expression)
        if (share := share_of(expression, self._is_late)) is not None:
            return Split(share.power, below=share.divisors)
        if (told := self.peaks.of(expression, self.sum)) is not None:
            return Split(told.below, above=[told.peak])
        return Split(expression)

    def _is_late(self, part: Expression) -> bool:
        """Whether a part is the same for all that is summed, and known only when a reduction along that is finished."""
        fixed = not set(axes_in(part)) & set(self.over)
        return fixed and any(depends_on_reduction(leaf.value, self.over) for leaf in leaves(part))

    def _split_choice(self, node: Node) -> Split:
        """What is zero where a condition says so. Of one that does not vary along the sum the factors are 1 there. Of
        one that is drawn some elements are left out, and the factors are those of the others, if they divide by
        numbers above zero. Data may leave out all of a row, which is zero then whatever its factors are: they stay."""
        condition, yes, no = node.operands
        asked = is_number(yes, 0) and self.asked.leaves_out(condition)
        varies = bool(set(axes_in(condition)) & set(self.over))
        if not (is_number(yes, 0) or is_number(no, 0)) or (varies and not asked and not is_drawn(condition)):
            return Split(node)
        split = self.split(no if is_number(yes, 0) else yes)
        if not split.moves:
            return Split(node)

        def chosen(part: Expression, other: float) -> Expression:
            instead = number(other, part.type)
            return select(condition, *((instead, part) if is_number(yes, 0) else (part, instead)))

        rest = chosen(split.rest, 0)
        if asked:
            return replace(split, rest=rest)
        if varies:
            if not all(map(is_above_zero, split.below)):
                return Split(node)
            return replace(split, rest=_with_powers_outside(split, lambda part: chosen(part, 0)))
        above, below = ([chosen(factor, 1) for factor in factors] for factors in (split.above, split.below))
        return Split(rest, above, below, split.rounded)

    def _split_factor(self, factor: Expression) -> Split:
        """What does not vary along the sum moves if it is known late, or is small where such factors move; a constant
        does from between the sum and a product, too. It must be there in every row: a sum of nothing is zero, and its
        product with what is absent is absent."""
        arrays = [leaf.value for leaf in leaves(factor)]
        if isinstance(factor, Constant) and factor.number and self.of_product:
            return Split(number(1), above=[factor])
        is_late = any(depends_on_reduction(array, self.over) for array in arrays)
        if not is_late and not (self.moves_small and magnitude(factor) <= 1):
            return Split(factor)
        moved = Split(number(1), above=[factor])
        if not absences_of(arrays):
            return moved
        self._refuse(_names(moved), "rows of it may be absent, where the sum is zero")
        return Split(factor)

    def _split_terms(self, node: Node) -> Split:
        """The factors that both terms have."""
        left, right = (self.split(operand) for operand in node.operands)
        above, below = _parted(left.above, right.above)[0], _parted(left.below, right.below)[0]
        if not above and not below:
            return Split(node)
        rests = [_left_of(split, above, below) for split in (left, right)]
        rest = (total if node.kind is arith.AddfOp else difference)(*rests)
        return Split(rest, above, below, [*left.rounded, *right.rounded])

    def _split_array(self, leaf: Leaf) -> Split:
        inner = inner_expression(leaf.value)
        if inner is None:
            return Split(leaf)
        if isinstance(map := leaf.value.owner, MapOp) and forgets_absences(map, inner):
            return Split(leaf)
        if isinstance(cast := leaf.value.owner, CastOp):
            return self._past_cast(inner, leaf, label(leaf.value), cast.fixed is not None)
        split = self.split(inner)
        return split if split.moves else Split(leaf)

    def _split_product(self, node: Node) -> Split:
        left, right = (self.split(operand) for operand in node.operands)
        if not left.moves and not right.moves:
            return Split(node)
        rounded = [*left.rounded, *right.rounded]
        if node.kind is arith.MulfOp:
            rest = product(left.rest, right.rest)
            return Split(rest, [*left.above, *right.above], [*left.below, *right.below], rounded)
        rest = quotient(left.rest, right.rest)
        return Split(rest, [*left.above, *right.below], [*left.below, *right.above], rounded)

    def _past_cast(self, operand: Expression, whole: Expression, name: str, fixed: bool = False) -> Split:
        """A cast is the identity over the reals; rounding what stays behind must do no harm."""
        split = self.split(operand)
        if not split.moves:
            return Split(whole)
        if fixed:
            self._refuse(_names(split), f"the program fixes how {name} is rounded")
            return Split(whole)
        if isinstance(whole.type, Float32Type):
            return replace(split, rest=convert(split.rest, whole.type))
        if (reason := self._misfit(split, whole)) is not None:
            small = None if number_format(whole.type).saturates else self._with_small_factors(operand)
            if small is None or self._misfit(small, whole) is not None:
                self._refuse(_names(split), f"{name} would be rounded to {whole.type} without it, and {reason}")
                return Split(whole)
            split = small
        split.rest = convert(split.rest, whole.type)
        exact = is_exact_in(strip_casts(split.rest), whole.type)
        split.rounded.append(f"{name} {'needs no rounding' if exact else 'is rounded'} before it is scaled")
        return split

    def _misfit(self, split: Split, whole: Expression) -> str | None:
        """Why what is left of a cast's operand may not be rounded to its format."""
        rest = strip_casts(convert(split.rest, whole.type))
        return misfit(rest, whole.type, self.over, shrink(split.above, split.below))

    def _with_small_factors(self, operand: Expression) -> Split:
        """With factors moved that are at most 1: what is left is nearer to 1, and no smaller."""
        before, self.moves_small = self.moves_small, True
        try:
            return self.split(operand)
        finally:
            self.moves_small = before

    def _refuse(self, factor: str, reason: str) -> None:
        subject = f"{factor} stays in the sum {label(self.sum.result)}"
        note(self.function, PASS, subject, "refused", reason)


def _with_powers_outside(split: Split, chosen: Callable[[Expression], Expression]) -> Expression:
    """What is left of the side of a choice, of which the other one is zero. Powers whose sum divides it are multiplied
    by what is chosen: where one is no number the quotient is none anyway, and a stream that is told from a product need
    not ask what an infinite maximum leaves."""
    above, below = factors_of(split.rest)
    divided = {key_of(powers) for each in split.below if (powers := summed_powers(each)) is not None}
    powers = [part for part in above if key_of(part) in divided]
    if not powers:
        return chosen(split.rest)
    others = reduce(product, (part for part in above if part not in powers), number(1, split.rest.type))
    return reduce(product, powers, chosen(reduce(quotient, below, others)))


def _parted(factors: Sequence[Expression], others: Sequence[Expression]) -> tuple[list[Expression], list[Expression]]:
    """The factors that are among others, each as often as it is there, and the rest."""
    keys = [key_of(factor) for factor in others]
    among, rest = list[Expression](), list[Expression]()
    for factor in factors:
        if (key := key_of(factor)) in keys:
            keys.remove(key)
            among.append(factor)
        else:
            rest.append(factor)
    return among, rest


def _left_of(split: Split, above: Sequence[Expression], below: Sequence[Expression]) -> Expression:
    """What is left of a term without some of its factors."""
    rest = split.rest
    for factor in _parted(split.above, above)[1]:
        rest = product(rest, factor)
    for factor in _parted(split.below, below)[1]:
        rest = quotient(rest, factor)
    return rest


def sums_scaled_product(sum: ContractOp | ReduceOp) -> bool:
    """Whether nothing but factors that are constant along a sum stand between it and a product that only it takes:
    without them the sum is one of the product's."""
    expression: Expression | None = Leaf(sum.operands[0])
    while isinstance(sum, ReduceOp) and expression is not None:
        if not isinstance(expression, Leaf):
            expression = _scaled(expression, set(sum.over_axes))
        elif isinstance(expression.value.owner, MapOp) and expression.value.has_one_use():
            expression = inner_expression(expression.value)
        else:
            return isinstance(expression.value.owner, ContractOp) and expression.value.has_one_use()
    return False


def _scaled(expression: Expression, over: set[str]) -> Expression | None:
    """What a factor or a divisor scales that is constant along these axes."""
    if not isinstance(expression, Node) or expression.kind not in (arith.MulfOp, arith.DivfOp):
        return None
    left, right = expression.operands
    if not set(axes_in(right)) & over:
        return left
    return right if expression.kind is arith.MulfOp and not set(axes_in(left)) & over else None


def _names(split: Split) -> str:
    return ", ".join(label(leaf.value) for e in (*split.above, *split.below) for leaf in leaves(e))


def names_in(factor: Expression) -> list[str]:
    return [spell(factor)] if isinstance(factor, Constant) else [label(leaf.value) for leaf in leaves(factor)]


def depends_on_reduction(value: SSAValue, over: Sequence[str]) -> bool:
    """Whether a value is known only when a reduction over one of the axes is finished."""
    seen: set[SSAValue] = set()
    stack = [value]
    while stack:
        op = stack.pop().owner
        if not isinstance(op, Operation):
            continue
        if isinstance(op, ContractOp | ReduceOp) and set(op.over_axes) & set(over):
            return True
        new = [operand for operand in op.operands if operand not in seen]
        seen.update(new)
        stack.extend(new)
    return False
