"""Whether operations pass on a rounding as a rounding.

Two kernels need not add up a product in one order, so what one finds of its elements (their maximum, say) may miss
those of the other by a rounding. Sums, products and powers pass that on as it is. A comparison, a root or a logarithm
of a difference, or a division by one makes another number of it, or none."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xdsl.dialects import arith, math
from xdsl.ir import Block, Operation, SSAValue

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


def is_steady(values: Iterable[SSAValue], ops: Collection[Operation]) -> bool:
    """Whether some operations pass roundings of these values on as roundings. A sum of many is taken to hold none of
    its elements alone; a maximum is one of them."""
    moved = set(values)
    for op in part_of(ops).ops:
        if moved.isdisjoint(op.operands):
            continue
        if isinstance(op, MapOp):
            if not _is_steady_body(op.body.block, {i for i, each in enumerate(op.inputs) if each in moved}):
                return False
        elif isinstance(op, CastOp):
            if op.fixed is not None or not number_format(format_of(op.result.type)).is_float:
                return False
        elif not isinstance(op, WhereOp) and not (isinstance(op, ReduceOp) and op.kind.data in ("max", "min")):
            continue
        moved.add(op.results[0])
    return True


def _is_steady_body(block: Block, places: Collection[int]) -> bool:
    moved: set[SSAValue] = {each for each in block.args if each.index in places}
    for op in block.ops:
        if moved.isdisjoint(op.operands):
            continue
        if isinstance(op, arith.DivfOp):
            if op.rhs in moved:
                return False
        elif not isinstance(op, STEADY):
            return op is block.last_op
        moved |= {*op.results}
    return True
