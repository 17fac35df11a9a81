"""Which reciprocals of a kernel may be shared, by neighbours or by any elements of a thread, and by how many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import frexp

from xdsl.dialects import arith, math
from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.kernel.work import labours_of
from treadle.compiler.machines.machine import SUB_PARTITIONS, WARP, Machine
from treadle.dialects.diagram import CastOp, ContractOp, MapOp
from treadle.dialects.diagram.approximations import constant_of, is_approximate, is_by_reciprocal, is_one_plus
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import EIGHT_BIT, SIXTEEN_BIT
from treadle.dialects.diagram.map import axes_in_body
from treadle.dialects.diagram.sharing import LEAST_TESTED, SCALES, SHARED, share, share_tested, sharing_in
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.diagram_allow_approximations import MOST_GAIN
from treadle.passes.expressions.exponents import gain_in_exponents
from treadle.passes.expressions.scalars import expressions_of, is_plain
from treadle.passes.expressions.signs import is_nonnegative, least
from treadle.passes.expressions.spoilt import passes_nan, spoils_its_row

ERRORS = {2: 1.25, 4: 2.0}
"""By how many elements share a reciprocal, how far `tanh` is off, in 2^-21: each multiplication rounds once more."""

OF_QUOTIENTS = 2
"""How many may share that of a quotient, which is then off by 2 ulp: 1 of the reciprocal and 2 roundings."""

OF_TESTED = max(SCALES)
"""How many may share a reciprocal that is tested: of 4 the quotient is off by 3.5 ulp, which are a thousandth of what
rounding it to f16 may change."""

LARGEST_NUMBER = 2.0**18
"""A constant that is divided where a reciprocal is tested is at most that, and at least its inverse."""


@dataclass(frozen=True)
class Candidate:
    """An operation in the body of a map whose elements may share a reciprocal: neighbours along an axis, or, where that
    is None, any of a thread whose divisors pass a test."""

    map: MapOp
    op: Operation
    axis: str | None
    most: int

    def share(self, count: int) -> None:
        """Let so many share one, or as many as may."""
        if count == 1:
            return
        if self.axis is None:
            return share_tested(self.op, min(count, self.most))
        share(self.op, self.axis, min(count, self.most))

    def unshare(self) -> None:
        """Let each have its own again."""
        self.op.attributes.pop(SHARED, None)


def candidates(kernel: KernelOp) -> Iterator[Candidate]:
    """One of each map at most."""
    maps = [each for each in kernel.body.block.ops if isinstance(each, MapOp)]
    for map in [each for each in maps if sharing_in(each.body.block) is None]:
        yield from (_summed(kernel, map) or _tested(kernel, map))[:1]


def _summed(kernel: KernelOp, map: MapOp) -> list[Candidate]:
    """Along a streamed axis along which all that is made of the map is summed, so that a NaN that a neighbour makes
    tells nothing that its own NaN would not."""
    assert kernel.schedule is not None
    op, most = next(((op, n) for op in map.body.block.ops if (n := _most(map, op)) > 1), (None, 1))
    if op is None or not passes_nan(map.body.block, op.results[0]):
        return []
    along = [axis for axis in kernel.schedule.stream.as_dict() if axis in axes_of(map.result.type)]
    return [Candidate(map, op, axis, most) for axis in along if spoils_its_row(map.result, axis)]


def _tested(kernel: KernelOp, map: MapOp) -> list[Candidate]:
    """Behind the stream of a product, where a test and its branch stand beside no products; of what is rounded to 16
    bits or fewer."""
    assert kernel.schedule is not None
    is_behind = not set(axes_of(map.result.type)) & set(kernel.schedule.stream.as_dict())
    has_products = any(isinstance(op, ContractOp) for op in kernel.body.block.ops)
    if not (is_behind and has_products and _all_cast(map.result, (*SIXTEEN_BIT, *EIGHT_BIT))):
        return []
    return [Candidate(map, op, None, OF_TESTED) for op in map.body.block.ops if _may_be_tested(map, op)]


def _may_be_tested(map: MapOp, op: Operation) -> bool:
    """Whether elements have a divisor each, which is at least so much that no product of them is too small."""
    if isinstance(op, math.TanhOp):
        is_one = is_approximate(op) and all(is_one_plus(use.operation) for use in op.result.uses)
        return is_one and _has_all_axes(map, op.operand)
    if not isinstance(op, arith.DivfOp) or not is_by_reciprocal(op) or not is_plain(map):
        return False
    number, known = constant_of(op.lhs), expressions_of(map)
    if number is not None and not 1 / LARGEST_NUMBER <= abs(number) <= LARGEST_NUMBER:
        return False
    is_large = op.rhs in known and least(known[op.rhs]) >= 4 * LEAST_TESTED
    return is_large and _has_all_axes(map, op.rhs)


def _has_all_axes(map: MapOp, value: SSAValue) -> bool:
    """Whether a value of a body is another for each element."""
    return set(axes_in_body(map)[value]) == set(axes_of(map.result.type))


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
    return map.yielded is op.result and op.result.has_one_use() and _all_cast(map.result, ("f16",))


def _all_cast(value: SSAValue, formats: Sequence[str]) -> bool:
    """Whether a value is read in one of some formats wherever it is."""
    users = [use.operation for use in value.uses]
    return bool(users) and all(
        isinstance(user, CastOp) and str(format_of(user.result.type)) in formats for user in users
    )


def clocks_of(map: MapOp, machine: Machine) -> float:
    """For which a warp keeps the busiest unit of its quarter of an SM busy, for each element of a map: one that makes
    powers or multiplies, or the one that issues."""
    counts = {"special": 0.0, "float": 0.0, "issue": 0.0}
    for labour in labours_of(map):
        if set(labour.axes) == set(axes_of(map.result.type)):
            counts["issue"] += labour.factor
            counts[labour.kind] = counts.get(labour.kind, 0.0) + labour.factor
    threads = SUB_PARTITIONS * WARP
    return max(
        counts["issue"],
        counts["special"] * threads / machine.rates.special,
        counts["float"] * threads / machine.rates.float,
    )
