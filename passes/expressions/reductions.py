"""Reductions and contractions: their neutral elements, and the same reduction of something else."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, ScanOp
from treadle.dialects.diagram.accumulators import begins_before, goes_on
from treadle.dialects.diagram.array import format_of, with_format
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import fresh_hint, replace
from treadle.passes.expressions.scalars import Expression, Leaf, Node, build_map, compare, convert, number

_OF_FLOATS = {"add": 0.0, "mul": 1.0, "max": -float("inf"), "min": float("inf")}
OF_INTEGERS = {"add": 0, "mul": 1, "max": -(2**31), "min": 2**31 - 1}

_COMBINES: dict[str, tuple[type[Operation], type[Operation]]] = {
    "add": (arith.AddfOp, arith.AddiOp),
    "mul": (arith.MulfOp, arith.MuliOp),
    "max": (arith.MaximumfOp, arith.MaxSIOp),
    "min": (arith.MinimumfOp, arith.MinSIOp),
}

_STANDS_IN = {"add": 1.0, "mul": 1.0, "max": 0.0, "min": 0.0}
"""What stands for a state while it is neutral: any finite number that has an inverse would do."""


def kind_of(reduction: SSAValue) -> str:
    """The operation of a reduction, or a scan, given its result; a contraction adds."""
    owner = reduction.owner
    return owner.kind.data if isinstance(owner, ReduceOp | ScanOp) else "add"


def neutral_of(reduction: SSAValue) -> FloatAttr | IntegerAttr:
    if format_of(reduction.type) == i32:
        return IntegerAttr(OF_INTEGERS[kind_of(reduction)], i32)
    attribute = number(_OF_FLOATS[kind_of(reduction)], format_of(reduction.type)).attribute
    assert isinstance(attribute, FloatAttr)
    return attribute


def stand_in_of(reduction: SSAValue) -> float:
    return _STANDS_IN[kind_of(reduction)]


def is_neutral(reduction: SSAValue, value: Expression) -> Expression:
    """Whether `value` is the neutral element of a reduction."""
    return compare(value, "==", number(neutral_of(reduction).value.data, value.type))


def combine(kind: str, left: Expression, right: Expression) -> Expression:
    of_floats, of_integers = _COMBINES[kind]
    return Node(of_integers if left.type == i32 else of_floats, (left, right), left.type)


def operands_of(op: ContractOp | ReduceOp | ScanOp) -> list[SSAValue]:
    """What is reduced, or scanned, without the array that it is reduced into."""
    return [op.lhs, op.rhs] if isinstance(op, ContractOp) else [op.operand]


def rebuilt(
    op: ContractOp | ReduceOp, operands: Sequence[SSAValue], type: Attribute, init: SSAValue | None = None
) -> ContractOp | ReduceOp:
    """The same reduction of other operands, into another array."""
    if isinstance(op, ContractOp):
        left, right = operands
        multiply = None if op.multiply is None else op.multiply.data
        new = ContractOp(left, right, op.over_axes, type, op.accumulate, init, multiply)
    else:
        new = ReduceOp(op.kind.data, operands[0], op.over_axes, type, init)
    new.attributes |= op.attributes
    new.location = op.location
    return new


def keep_states_apart(kernel: KernelOp, axis: str) -> None:
    """Let each reduction over the streamed axis be a state alone: what it is rounded to, and what is added
    to it, follow as operations of their own. Products that add to another one are one state with it, or begin with
    it."""
    for op in list(kernel.body.block.ops):
        is_alone = not goes_on(op, axis) and not begins_before(op, axis)
        if is_alone and isinstance(op, ContractOp | ReduceOp) and axis in op.over_axes:
            reduce_alone(op)


def reduce_alone(op: ContractOp | ReduceOp) -> None:
    """Split a reduction into one that starts from its neutral element and is kept in the format in which it
    accumulates, and a map or cast that adds what it was reduced into and rounds."""
    format = op.accumulate if isinstance(op, ContractOp) else format_of(op.result.type)
    if op.init is None and format == format_of(op.result.type):
        return
    alone = rebuilt(op, operands_of(op), with_format(op.result.type, format))
    base = op.result.name_hint
    alone.result.name_hint = fresh_hint(op.result, f"{base}_sum" if base else None)
    last = _completed(op, alone.result, format)
    last.location = op.location
    replace(op, [alone, last], last.result)


def _completed(op: ContractOp | ReduceOp, alone: SSAValue, format: Attribute) -> MapOp | CastOp:
    if op.init is None:
        return CastOp(alone, op.result.type)
    combined = combine(kind_of(op.result), convert(Leaf(op.init), format), Leaf(alone))
    return build_map(combined, op.result.type)
