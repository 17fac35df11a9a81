"""Sums of polynomials in what moves, times powers that follow it: how the accumulator does.

A sum of `g(x) u(x, m)`, with `u` a polynomial of `m`, is increased by what Taylor's formula says of `u`, from the sums
of `g du/dm` and `g d2u/dm2` beside it (`expressions.polynomials`). If `g` follows what moves by a ratio that does not
depend on x, as `exp(x - m)` does, all these sums are repaired by that ratio: an entropy, `sum exp(x - m) (x - m)`,
becomes `(sum exp(x - m) (x - m) + (m - m') sum exp(x - m)) exp(m - m')`."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.passes.expressions.infinities import is_nothing_at_start
from treadle.passes.expressions.polynomials import (
    Key,
    NoPolynomial,
    atoms_of,
    is_distance_from,
    key_of,
    powers_in,
    taylor,
    unfolded,
    value_at_start,
)
from treadle.passes.expressions.reductions import neutral_of
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    compare,
    difference,
    number,
    product,
    quotient,
    select,
    total,
)
from treadle.passes.streams.changes import BEFORE, Repair
from treadle.passes.streams.moving import Dependent, Moving
from treadle.passes.streams.neutral import may_overflow_meanwhile, vanishes


def polynomial_repair(moving: Moving, reduction: ContractOp | ReduceOp) -> Repair | None:
    """The repair of a sum of such products, if the sums of the derivatives are in the stream, too
    (`diagram-hoist-factors` sees to that)."""
    if not isinstance(reduction, ReduceOp) or reduction.kind.data != "add" or reduction.init is not None:
        return None
    summand = unfolded(Leaf(reduction.operand), moving.axis)

    def moves(part: Expression) -> bool:
        return bool(moving.moves(part))

    try:
        powers = powers_in(summand, moving.axis, moves)
        if powers and may_overflow_meanwhile([reduction.operand]):
            return None
        ratio = moving.product_of([moving.ratio(power) for power in powers])
        law = taylor(summand, atoms_of(summand, moving.axis, moves), powers)
        if not law.first:
            return None  # only powers move
        beside = _sums_beside(moving, reduction)
        shift = law.change(
            lambda atom: difference(*moving.two_moments(atom)),
            lambda term: Leaf(beside[key_of(term)], BEFORE),
            _once_moved if powers else product,
        )
    except (NoPolynomial, KeyError, Dependent):
        return None
    factor = quotient(ratio.above, ratio.below) if powers else None
    if any(axis in reduction.over_axes for part in (shift, factor) if part is not None for axis in axes_in(part)):
        return None
    unsure = {r for atom, _ in law.first for r in moving.moves(atom) if not _is_finite_at_start(moving, atom)}
    return _admitted(moving, reduction, summand, Repair(shift, factor, ratio.fragile | unsure, frozenset()))


def _once_moved(shift: Expression, sum: Expression) -> Expression:
    """What a sum adds when its part moves: nothing where that stays, even if a weight is infinite."""
    return select(compare(shift, "==", number(0)), number(0), product(shift, sum))


def when_moved(change: Expression) -> Expression:
    """What a sum is changed by where all its parts move."""
    match change:
        case Node(kind=arith.SelectOp, operands=(_, Constant(number=0), moved)):
            return moved
        case Node(kind=arith.AddfOp, operands=(left, right)):
            return total(when_moved(left), when_moved(right))
        case _:
            return change


def _admitted(moving: Moving, reduction: ReduceOp, summand: Expression, repair: Repair) -> Repair | None:
    """A repair, if nothing that counts is added while something is neutral whose neutral element it cannot bear: all
    summands are zero then, or no numbers whatever stands for it."""
    moved = moving.moves(summand)
    undefined = frozenset(r for r in moved if isinstance(r.owner, ReduceOp) and is_distance_from(summand, r.owner))
    if repair.factor is None:
        return Repair(repair.summand, None, repair.fragile, repair.fragile) if repair.fragile <= undefined else None
    nothing = frozenset(r for r in moved if vanishes([reduction.operand], r))
    at_start = frozenset(r for r in moved if is_nothing_at_start(r, [reduction.operand]))
    if not repair.fragile | at_start <= nothing | undefined:
        return None
    return Repair(repair.summand, repair.factor, repair.fragile, nothing | repair.fragile)


def _sums_beside(moving: Moving, reduction: ReduceOp) -> dict[Key, SSAValue]:
    """What else is summed in this stream along the same axes, by what its summands are."""
    found: dict[Key, SSAValue] = {}
    for value in moving.running:
        owner = value.owner
        if not isinstance(owner, ReduceOp) or owner.kind.data != "add" or owner.over != reduction.over:
            continue
        if absences_of([owner.operand]) == absences_of([reduction.operand]):
            found[key_of(unfolded(Leaf(owner.operand), moving.axis))] = value
    return found


def _is_finite_at_start(moving: Moving, atom: Expression) -> bool:
    def start(value: SSAValue) -> float | None:
        return float(neutral_of(value).value.data) if value in moving.running else None

    return value_at_start(atom, start) is not None
