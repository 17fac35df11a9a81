"""Where a law of the real numbers holds of infinities, too.

`sum(c x) = c sum(x)` is true of every number c, and not of infinity: zero times infinity is no number, and summands of
both signs have no sum then, where the right-hand side is infinite. So a factor moves only if it is never infinite
(`may_be_infinite`). A divisor may be: what it divides vanishes on both sides.

In the same way an accumulator follows what has moved by a ratio or a difference, which of two infinite values is none.
`troubled_by` asks whether that can matter: a row with an infinite score has no softmax in the formula either, for its
own distance from the maximum is `inf - inf`. Where it can, the pieces are made again in a stream of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import OpResult, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.passes._structure import Structure, remember, structure_of_values
from treadle.passes.expressions.inner import inner_expression, stood_for
from treadle.passes.expressions.kinds import FINITE, INFINITE, NAN, OF_NOTHING, ZERO, Kinds, kinds_of
from treadle.passes.expressions.polynomials import Key, Keys, key_of
from treadle.passes.expressions.reductions import kind_of, operands_of
from treadle.passes.expressions.scalars import Expression, Leaf, Node, leaves, product


def may_be_infinite(expression: Expression) -> bool:
    """Whether an expression may be infinite, as far as can be seen, for any inputs."""
    return bool(kinds_of(expression) & INFINITE)


def is_number_of_nothing(expression: Expression) -> bool:
    """Whether an expression is a finite number in rows whose elements are all absent, as far as can be seen, for finite
    inputs: a mean of nothing is none."""
    given = {key_of(leaf): _of_nothing(leaf) for leaf in sources(expression)}
    kinds = kinds_of(expression, given)
    return bool(kinds) and not kinds & (INFINITE | NAN)


def _of_nothing(leaf: Leaf) -> Kinds:
    owner = leaf.value.owner
    if isinstance(owner, ContractOp | ReduceOp) and absences_of(operands_of(owner)):
        kind = owner.kind.data if isinstance(owner, ReduceOp) else "add"
        return OF_NOTHING.get(kind, FINITE)
    return kinds_of(leaf) & FINITE


@dataclass(frozen=True)
class LeftOut:
    """When it is no trouble that a maximum may be -inf, or a minimum +inf, because all that it is made of is."""

    where_zero: bool = False
    """Where what depends on it is zero then (`is_nothing_at_start`)."""
    where_stood_for: bool = False
    """Where a number stands for it then (`has_stand_in`)."""


def troubled_by(
    operands: Sequence[SSAValue],
    moved: Sequence[SSAValue],
    left_out: LeftOut | None = None,
    keys: Keys | None = None,
) -> SSAValue | None:
    """A reduction that may be infinite where a sum, or an extremum, of what depends on it is still a number, or
    infinite itself; None if there is none. Products of `operands` are reduced. Who asks more than once of the same IR
    may keep the keys."""
    if not moved:
        return None
    left_out = left_out or LeftOut()
    structure = structure_of_values([*operands, *moved])
    key = structure, len(moved), left_out
    if structure is None:
        place = _place_of_trouble(operands, moved, left_out, keys or Keys())
    elif (place := _KNOWN.get(key)) is None:
        place = remember(_KNOWN, key, _place_of_trouble(operands, moved, left_out, keys or Keys()))
    return None if place == NONE else moved[place]


NONE = -1
"""The place where there is nothing."""

_KNOWN: dict[tuple[Structure, int, LeftOut], int] = {}
"""The places of what was found: all passes that plan the streams of a kernel ask the same, and of its copies."""


def _place_of_trouble(operands: Sequence[SSAValue], moved: Sequence[SSAValue], left_out: LeftOut, keys: Keys) -> int:
    return next((i for i, each in enumerate(moved) if not _spoils(each, operands, keys, left_out)), NONE)


def is_nothing_at_start(r: SSAValue, operands: Sequence[SSAValue]) -> bool:
    """Whether what depends on a maximum (or minimum) `r`, of what is multiplied and reduced, is zero where all that `r`
    is made of, and so `r` itself, is its neutral element: a choice by that says so."""
    structure = structure_of_values([*operands, r])
    if structure is None:
        return _is_nothing_at_start(r, operands, Keys())
    if (known := _AT_START.get(structure)) is None:
        known = remember(_AT_START, structure, _is_nothing_at_start(r, operands, Keys()))
    return known


_AT_START: dict[Structure, bool] = {}
"""What was found, as above."""


def _is_nothing_at_start(r: SSAValue, operands: Sequence[SSAValue], keys: Keys) -> bool:
    owner = r.owner
    if not isinstance(owner, ReduceOp) or owner.init is not None or owner.kind.data not in ("max", "min"):
        return False
    start = OF_NOTHING[owner.kind.data]
    given = {keys.of(Leaf(owner.operand)): start, keys.of(Leaf(r)): start}
    return all(kinds_of(Leaf(each), given, keys) == ZERO for each in operands if _depends(each, r))


def has_stand_in(r: SSAValue, operands: Iterable[SSAValue]) -> bool:
    """Whether what is reduced knows an extremum `r` only as a number that stands for it while it is neutral."""
    return not any(_is_bare(Leaf(each), r) for each in operands)


def _is_bare(expression: Expression, r: SSAValue) -> bool:
    if stood_for(expression) is r:
        return False
    match expression:
        case Leaf():
            return _is_bare_array(expression.value, r)
        case Node():
            return any(_is_bare(part, r) for part in expression.operands)
        case _:
            return False


def _is_bare_array(value: SSAValue, r: SSAValue) -> bool:
    owner = value.owner
    inner = Leaf(owner.operand) if isinstance(owner, WhereOp) else inner_expression(value)
    if inner is not None:
        return _is_bare(inner, r)
    # What is reduced along the same axis follows by itself.
    follows = isinstance(owner, ContractOp | ReduceOp) and bool({*owner.over_axes} & {*_over(r)})
    return value is r or (not follows and _depends(value, r))


def _over(r: SSAValue) -> Sequence[str]:
    return r.owner.over_axes if isinstance(r.owner, ContractOp | ReduceOp) else ()


def _depends(value: SSAValue, r: SSAValue) -> bool:
    seen, todo = {value}, [value]
    while todo:
        each = todo.pop()
        if each is r:
            return True
        new = [operand for operand in each.owner.operands if operand not in seen] if isinstance(each, OpResult) else []
        seen.update(new)
        todo += new
    return False


def infinite_by(expression: Expression, moved: Collection[SSAValue], keys: Keys | None = None) -> SSAValue | None:
    """What does not move and may make an expression infinite, whatever finite values those have which do; None if
    there is nothing. Who asks more than once of the same IR may keep the keys."""
    keys = keys or Keys()
    finite = {keys.of(Leaf(each)): kinds_of(Leaf(each), keys=keys) - INFINITE for each in moved}
    for leaf in sources(expression):
        for sign in sorted(kinds_of(leaf, keys=keys) & INFINITE) if leaf.value not in moved else ():
            if kinds_of(expression, finite | {keys.of(leaf): frozenset({sign})}, keys) & INFINITE:
                return leaf.value
    return None


def _spoils(reduction: SSAValue, operands: Sequence[SSAValue], keys: Keys, left_out: LeftOut) -> bool:
    """Whether a reduction is finite, or makes what is reduced with it no number: each of its own elements that may
    make it infinite does so."""
    infinite = kinds_of(Leaf(reduction), keys=keys) & INFINITE
    owner = reduction.owner
    is_harmless = left_out.where_stood_for and has_stand_in(reduction, operands)
    if is_harmless or (left_out.where_zero and _is_nothing_at_start(reduction, operands, keys)):
        infinite -= OF_NOTHING.get(kind_of(reduction), frozenset())
    if not infinite:
        return True
    if not isinstance(owner, ContractOp | ReduceOp) or owner.init is not None:
        return False
    element, summand = _product(operands_of(owner)), _product(operands)
    itself = ({keys.of(element): frozenset({sign}), keys.of(Leaf(reduction)): frozenset({sign})} for sign in infinite)
    if all(_is_no_number(summand, given, keys, owner) for given in itself):
        return True
    return _each_source_spoils(owner, element, summand, keys, infinite)


def _each_source_spoils(
    owner: ContractOp | ReduceOp, element: Expression, summand: Expression, keys: Keys, infinite: Kinds
) -> bool:
    """Whether each array that may make a reduction infinite, of these kinds, spoils what it is reduced with."""
    arrays = sources(element)
    finite = {keys.of(leaf): kinds_of(leaf, keys=keys) - INFINITE for leaf in arrays}
    if kinds_of(element, finite, keys) & infinite:
        return False
    for leaf in arrays:
        for sign in sorted(kinds_of(leaf, keys=keys) & INFINITE):
            given = {keys.of(leaf): frozenset({sign})}
            for result in sorted(kinds_of(element, given, keys) & infinite):
                known = given | {keys.of(Leaf(owner.result)): frozenset({result})}
                if not _is_no_number(summand, known, keys, owner):
                    return False
    return True


def _is_no_number(
    summand: Expression, given: Mapping[Key, Kinds], keys: Keys, reduction: ContractOp | ReduceOp
) -> bool:
    """Whether an expression is no number where arrays are of some kinds at one element of a reduction: neither is a sum
    that has an element that is none."""
    known = dict(given)
    for leaf in sources(summand):
        added = _added(leaf.value, reduction)
        if added is not None and keys.of(leaf) not in known and kinds_of(_product(added), given, keys) == NAN:
            known[keys.of(leaf)] = NAN
    return kinds_of(summand, known, keys) == NAN


def _added(value: SSAValue, reduction: ContractOp | ReduceOp) -> Sequence[SSAValue] | None:
    """The factors of what an array is the sums of, over all elements that a reduction has; None if it is none such."""
    owner = value.owner
    if not isinstance(owner, ContractOp | ReduceOp) or (isinstance(owner, ReduceOp) and owner.kind.data != "add"):
        return None
    operands = operands_of(owner)
    return operands if absences_of(operands) <= absences_of(operands_of(reduction)) else None


def _product(operands: Sequence[SSAValue]) -> Expression:
    first, *rest = (Leaf(operand) for operand in operands)
    whole: Expression = first
    for factor in rest:
        whole = product(whole, factor)
    return whole


def sources(expression: Expression) -> list[Leaf]:
    """The arrays that an expression is made of, element by element."""
    found: dict[Leaf, None] = {}
    for leaf in leaves(expression):
        owner = leaf.value.owner
        inner = Leaf(owner.operand) if isinstance(owner, WhereOp) else inner_expression(leaf.value)
        found |= dict.fromkeys([leaf] if inner is None else sources(inner))
    return list(found)
