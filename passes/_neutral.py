"""Neutral elements of reductions, and what combines two values of one."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, i32
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.ops import ReduceOp
from treadle.passes._scalars import Expression, Node, compare, number

_OF_FLOATS = {"add": 0.0, "mul": 1.0, "max": -float("inf"), "min": float("inf")}
_OF_INTEGERS = {"add": 0, "mul": 1, "max": -(2**31), "min": 2**31 - 1}

_COMBINES: dict[str, tuple[type[Operation], type[Operation]]] = {
    "add": (arith.AddfOp, arith.AddiOp),
    "mul": (arith.MulfOp, arith.MuliOp),
    "max": (arith.MaximumfOp, arith.MaxSIOp),
    "min": (arith.MinimumfOp, arith.MinSIOp),
}

_STANDS_IN = {"add": 1.0, "mul": 1.0, "max": 0.0, "min": 0.0}
"""What stands for a state while it is neutral: any finite number that has an inverse would do."""


def kind_of(reduction: SSAValue) -> str:
    """The operation of a reduction, given its result; a contraction adds."""
    owner = reduction.owner
    return owner.kind.data if isinstance(owner, ReduceOp) else "add"


def neutral_of(reduction: SSAValue) -> FloatAttr | IntegerAttr:
    if format_of(reduction.type) == i32:
        return IntegerAttr(_OF_INTEGERS[kind_of(reduction)], i32)
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
