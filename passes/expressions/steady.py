"""Whether operations pass on a rounding as a rounding.

Two kernels need not add up a product in one order, so what one finds of its elements (their maximum, say) may miss
those of the other by a rounding. Sums, products and powers pass that on as it is. A comparison, a root or a logarithm
of a difference, or a division by one makes another number of it, or none. Of powers, and of sums and products of them,
a rounding is small beside themselves: these may be divided by, and have roots and logarithms. Whether a number is
infinite, or is one at all, no rounding of it changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from math import isinf

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._parts import part_of

STEADY = (
    arith.ConstantOp,
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.NegfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.ExtFOp,
    arith.TruncFOp,
    math.ExpOp,
    math.Exp2Op,
    math.TanhOp,
    math.ErfOp,
    math.AbsFOp,
    math.SinOp,
    math.CosOp,
)
"""What passes a rounding of any operand on as one of the same size, as far as numbers stay of their size."""

STEADY_OF_POWERS = (arith.DivfOp, math.LogOp, math.Log2Op, math.Log10Op, math.SqrtOp, math.RsqrtOp)
"""What does so if what it divides by, or takes a root or logarithm of, is made of powers."""

KEEPS_POWERS = (
    arith.AddfOp,
    arith.MulfOp,
    arith.DivfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.ExtFOp,
    arith.TruncFOp,
    math.SqrtOp,
    math.RsqrtOp,
)
"""What makes of powers alone what is as good as one: positive, and nothing in it cancels."""


def is_steady(values: Iterable[SSAValue], ops: Collection[Operation]) -> bool:
    """Whether some operations pass roundings of these values on as roundings. A sum of many is taken to hold none of
    its elements alone; a maximum is one of them."""
    moved, powers = set(values), set[SSAValue]()
    for op in part_of(ops).ops:
        if _is_of_powers(op, powers):
            powers.add(op.results[0])
        if moved.isdisjoint(op.operands):
            continue
        if isinstance(op, MapOp):
            if not _is_steady_body(op, moved, powers):
                return False
        elif isinstance(op, CastOp):
            if op.fixed is not None or not number_format(format_of(op.result.type)).is_float:
                return False
        elif not isinstance(op, WhereOp) and not (isinstance(op, ReduceOp) and op.kind.data in ("max", "min")):
            continue
        moved.add(op.results[0])
    return True


def _is_of_powers(op: Operation, powers: Set[SSAValue]) -> bool:
    if isinstance(op, MapOp):
        return op.yielded in _powers_of(op, powers)
    return isinstance(op, CastOp | WhereOp | ReduceOp) and op.operands[0] in powers


def _powers_of(op: MapOp, powers: Set[SSAValue]) -> set[SSAValue]:
    """The values in the body of a map that are powers, or made of powers alone."""
    block = op.body.block
    found: set[SSAValue] = {block.args[i] for i, each in enumerate(op.inputs) if each in powers}
    for each in block.ops:
        is_power = isinstance(each, math.ExpOp | math.Exp2Op)
        is_power |= _is_positive_constant(each)
        if is_power or (isinstance(each, KEEPS_POWERS) and found.issuperset(each.operands)):
            found |= {*each.results}
    return found


def _is_positive_constant(op: Operation) -> bool:
    return isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr) and op.value.value.data > 0


def _is_steady_body(op: MapOp, values: Set[SSAValue], powers: Set[SSAValue]) -> bool:
    block, known = op.body.block, _powers_of(op, powers)
    moved: set[SSAValue] = {block.args[i] for i, each in enumerate(op.inputs) if each in values}
    for each in block.ops:
        if moved.isdisjoint(each.operands) or _asks_for_kind(each):
            continue
        if isinstance(each, STEADY_OF_POWERS):
            if each.operands[-1] in moved and each.operands[-1] not in known:
                return False
        elif isinstance(each, arith.SelectOp):
            if each.cond in moved:
                return False
        elif not isinstance(each, STEADY):
            return each is block.last_op
        moved |= {*each.results}
    return True


def _asks_for_kind(op: Operation) -> bool:
    """Whether a comparison tells infinities, or NaNs, from other numbers: its answer is the same after a rounding."""
    if not isinstance(op, arith.CmpfOp):
        return False
    return op.lhs is op.rhs or any(_is_infinite_constant(each.owner) for each in op.operands)


def _is_infinite_constant(owner: object) -> bool:
    return isinstance(owner, arith.ConstantOp) and isinstance(owner.value, FloatAttr) and isinf(owner.value.value.data)
