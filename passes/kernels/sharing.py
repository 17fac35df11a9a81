"""Which reciprocals of a kernel may be shared by neighbours, and how many may share one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import frexp

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f16
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.approximations import constant_of, is_approximate, is_by_reciprocal, is_one_plus
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.sharing import SCALES, sharing_in
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.diagram_allow_approximations import MOST_GAIN
from treadle.passes.expressions.exponents import gain_in_exponents
from treadle.passes.expressions.scalars import expressions_of, is_plain
from treadle.passes.expressions.signs import is_nonnegative
from treadle.passes.expressions.spoilt import passes_nan, spoils_its_row

ERRORS = {2: 1.25, 4: 2.0}
"""By how many elements share a reciprocal, how far `tanh` is off, in 2^-21: each multiplication rounds once more."""

OF_QUOTIENTS = 2
"""How many may share that of a quotient, which is then off by 2 ulp: 1 of the reciprocal and 2 roundings."""


@dataclass(frozen=True)
class Candidate:
    """An operation in the body of a map whose elements may share a reciprocal along an axis."""

    map: MapOp
    op: Operation
    axis: str
    most: int


def candidates(kernel: KernelOp) -> Iterator[Candidate]:
    """One of each map at most: along a streamed axis along which all that is made of the map is summed, so that a NaN
    that a neighbour makes tells nothing that its own NaN would not."""
    assert kernel.schedule is not None
    for map in [each for each in kernel.body.block.ops if isinstance(each, MapOp)]:
        if sharing_in(map.body.block) is not None:
            continue
        for axis in kernel.schedule.stream.as_dict():
            op, most = next(((op, n) for op in map.body.block.ops if (n := _most(map, op)) > 1), (None, 1))
            if op is None or axis not in axes_of(map.result.type) or not passes_nan(map.body.block, op.results[0]):
                continue
            if spoils_its_row(map.result, axis):
                yield Candidate(map, op, axis, most)


def _most(map: MapOp, op: Operation) -> int:
    """How many elements may share a reciprocal of an operation, for their error to be small enough; 1 if none may."""
    if isinstance(op, math.TanhOp) and is_approximate(op):
        if all(is_one_plus(use.operation) for use in op.result.uses):
            return 1
        gain = gain_in_exponents(op.result)
        return max((n for n in SCALES if gain * ERRORS[n] <= MOST_GAIN), default=1)
    if isinstance(op, arith.DivfOp) and is_by_reciprocal(op) and _is_share(map, op) and _is_rounded_to_f16(map, op):
        return OF_QUOTIENTS
    return 1


def _is_share(map: MapOp, op: arith.DivfOp) -> bool:
    """Whether a quotient is `c / (b + y)` with powers of two `c`, at most `b`, and `b`, and a `y` that is not negative:
    multiplying by these rounds nothing."""
    number = constant_of(op.lhs)
    if number is None or not isinstance(op.rhs.owner, arith.AddfOp) or not is_plain(map):
        return False
    known = expressions_of(map)
    for summand, other in ((op.rhs.owner.lhs, op.rhs.owner.rhs), (op.rhs.owner.rhs, op.rhs.owner.lhs)):
        beside = constant_of(summand)
        if beside is not None and _is_power(beside) and _is_power(number) and number <= beside:
            return other in known and is_nonnegative(known[other])
    return False


def _is_power(number: float) -> bool:
    """Whether it is a power of two that is no more than a scale away from 1."""
    return 2.0**-20 <= number <= 2.0**20 and frexp(number)[0] == 0.5


def _is_rounded_to_f16(map: MapOp, op: arith.DivfOp) -> bool:
    """Whether quotients below 2^-62 are 0 wherever they are read."""
    return map.yielded is op.result and op.result.has_one_use() and _all_cast(map.result)


def _all_cast(value: SSAValue) -> bool:
    users = [use.operation for use in value.uses]
    return bool(users) and all(isinstance(user, CastOp) and format_of(user.result.type) == f16 for user in users)
