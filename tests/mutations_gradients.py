"""Deliberate mistakes in gradients (`mutant_gradients.py`)."""

from __future__ import annotations

from mutated import Mutation

GRADIENTS = "passes/gradients"

MUTATIONS: dict[str, Mutation] = {
    "gradients: one factor for the other": (
        f"{GRADIENTS}/rules",
        "for factor, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):",
        "for factor, other in ((op.lhs, op.lhs), (op.rhs, op.rhs)):",
    ),
    "gradients: the last use alone": (
        f"{GRADIENTS}/backward",
        "for part in parts[1:]:",
        "for part in parts[2:]:",
    ),
    "gradients: all to each of equals": (
        f"{GRADIENTS}/rules",
        "share = quotient(convert(Leaf(cotangent), f32), Leaf(count))",
        "share = product(convert(Leaf(cotangent), f32), Leaf(count))",
    ),
    "gradients: states before a position are those after it": (
        f"{GRADIENTS}/recurrences",
        "YieldOp(*terminator.operands[:count], *block.args[:count])",
        "YieldOp(*terminator.operands[:count], *terminator.operands[:count])",
    ),
    "gradients: what is fed counts by the state before": (
        f"{GRADIENTS}/recurrences",
        "block.add_op(YieldOp(*made, *own))",
        "block.add_op(YieldOp(*made, *made))",
    ),
    "gradients: a recurrence goes the same way": (
        f"{GRADIENTS}/recurrences",
        "Region(block), not op.is_reverse)",
        "Region(block), op.is_reverse)",
    ),
    "gradients: exchanges any sum": (
        f"{GRADIENTS}/exchange",
        "return _same((known.lhs, known.rhs), (weights, common))",
        "return known is not None",
    ),
    "gradients: any maximum makes no difference": (
        f"{GRADIENTS}/shifts",
        "return all(known.get(result, FREE) == FREE for result in results)",
        "return bool(axes)",
    ),
}
