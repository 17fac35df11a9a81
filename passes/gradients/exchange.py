"""Exchange of sums: a sum of products with sums, where one of the two sums is known.

`sum_x P[q, x] (sum_e G[q, e] V[x, e])` is `sum_e G[q, e] A[q, e]` if `A = sum_x P V` is there already: the sums are
finite, so their order is free (Fubini), and what does not vary along x moves out of the sum over x. The long axis is
then not walked again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of, with_format
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.passes._functions import label, replace
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    Node,
    axes_in,
    build_map,
    difference,
    expression_of,
    factors,
    is_plain,
    number,
    product,
    quotient,
    strip_casts,
)

LAW = "exchange of sums"


@dataclass(frozen=True)
class _Sum:
    """A sum over products of two arrays, times what does not vary along the sum."""

    op: ReduceOp
    arrays: tuple[SSAValue, SSAValue]
    above: tuple[Expression, ...]
    below: tuple[Expression, ...]
    is_negative: bool

    def times(self, whole: Expression) -> Expression:
        """A sum of the two arrays, with what does not vary along it."""
        for part in self.above:
            whole = product(whole, part)
        for part in self.below:
            whole = quotient(whole, part)
        return difference(number(0), whole) if self.is_negative else whole


@dataclass(frozen=True)
class _Exchanged:
    """`sum_e G A` over the axes of the inner contraction."""

    inner: ContractOp
    factor: SSAValue
    """G, which does not vary along the outer sum."""
    known: SSAValue
    """A, as an argument holds it."""


def exchange_sums(block: Block, given: Mapping[SSAValue, SSAValue]) -> Iterator[tuple[str, str]]:
    """Rewrite each such sum of a block; `given` maps contractions, or casts of them, to arrays that hold them. Yields
    the sum and why."""
    known = [(_past_casts(value).owner, held) for value, held in given.items()]
    sums = [(op, held) for op, held in known if isinstance(op, ContractOp) and op.init is None]
    for op in list(block.ops):
        if not isinstance(op, ReduceOp) or (outer := _sum(op)) is None:
            continue
        if (found := _exchanged(outer, sums)) is not None:
            subject = f"{label(op.result)} over [{', '.join(found.inner.over_axes)}]"
            _rewrite(outer, found)
            yield subject, f"{label(found.known)} is the sum over [{', '.join(op.over_axes)}]"


def _sum(op: ReduceOp) -> _Sum | None:
    """A sum of a map that multiplies two arrays along the axes of the sum."""
    map = op.operand.owner
    if op.kind.data != "add" or op.init is not None or not isinstance(map, MapOp) or not is_plain(map):
        return None
    if len(set(map.inputs)) != len(map.inputs):
        return None
    expression = strip_casts(expression_of(map))
    is_negative = isinstance(expression, Node) and expression.kind is arith.NegfOp
    if isinstance(expression, Node) and is_negative:
        expression = strip_casts(expression.operands[0])
    above, below = factors(expression)
    varying = [part for part in above if set(axes_in(part)) & set(op.over_axes)]
    if len(varying) != 2 or any(set(axes_in(part)) & set(op.over_axes) for part in below):
        return None
    one, other = (strip_casts(part) for part in varying)
    if not isinstance(one, Leaf) or not isinstance(other, Leaf):
        return None
    outside = tuple(part for part in above if not any(part is each for each in varying))
    return _Sum(op, (one.value, other.value), outside, tuple(below), is_negative)


def _exchanged(outer: _Sum, sums: Iterable[tuple[ContractOp, SSAValue]]) -> _Exchanged | None:
    for weights, values in (outer.arrays, outer.arrays[::-1]):
        inner = _past_casts(values).owner
        if not isinstance(inner, ContractOp) or inner.init is not None:
            continue
        for op, held in sums:
            if set(op.over_axes) != set(outer.op.over_axes):
                continue
            for factor, common in ((inner.lhs, inner.rhs), (inner.rhs, inner.lhs)):
                if _fits(outer, inner, op, (weights, factor, common)):
                    return _Exchanged(inner, factor, held)
    return None


def _fits(outer: _Sum, inner: ContractOp, known: ContractOp, parts: tuple[SSAValue, SSAValue, SSAValue]) -> bool:
    """Whether the known sum is that of the weights and of what the inner sum multiplies a factor by, and each array
    varies only along the sums that it stands under."""
    weights, factor, common = parts
    if set(axes_of(factor.type)) & set(outer.op.over_axes) or set(axes_of(weights.type)) & set(inner.over_axes):
        return False
    return _same((known.lhs, known.rhs), (weights, common))


def _same(one: Sequence[SSAValue], other: Sequence[SSAValue]) -> bool:
    left, right = [_past_casts(value) for value in one], [_past_casts(value) for value in other]
    return left in (right, right[::-1])


def _past_casts(value: SSAValue) -> SSAValue:
    """What a value was rounded from, over the real numbers the same: not through 8 bits, which saturate."""
    while isinstance(op := value.owner, CastOp) and op.fixed is None and str(format_of(value.type)) not in EIGHT_BIT:
        value = op.operand
    return value


def _rewrite(outer: _Sum, found: _Exchanged) -> None:
    op, inner = outer.op, found.inner
    left, right = found.known, found.factor
    new: list[CastOp | ContractOp | MapOp] = []
    if format_of(left.type) != format_of(right.type):
        casts = [CastOp(value, with_format(value.type, f32)) for value in (left, right) if format_of(value.type) != f32]
        new += casts
        wide = {cast.operand: cast.result for cast in casts}
        left, right = wide.get(left, left), wide.get(right, right)
    sizes = sizes_of(op.operand.type) | sizes_of(left.type) | sizes_of(right.type)
    axes = {*axes_of(left.type), *axes_of(right.type)} - set(inner.over_axes)
    row = {axis: sizes[axis] for axis in (*axes_of(op.result.type), *sorted(axes)) if axis in axes}
    contract = ContractOp(left, right, inner.over_axes, array_type(f32, row), f32)
    contract.result.name_hint = op.result.name_hint
    new.append(contract)
    whole = outer.times(Leaf(contract.result))
    if contract.result.type != op.result.type or not isinstance(whole, Leaf):
        new.append(build_map(whole, op.result.type, op.result.name_hint, op.location))
    for each in new:
        each.location = op.location
    replace(op, list(new), new[-1].result)
