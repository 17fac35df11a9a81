"""Contractions that are no products of matrices: each element of the result multiplies elements that no other does."""

from __future__ import annotations

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import f32
from xdsl.ir import Block, Operation

from treadle.dialects.diagram import CastOp, ContractOp, ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._functions import derived_hint, label, note, replace
from treadle.passes.expressions.scalars import Leaf, Node, build_map, convert


def expand_dots(function: func.FuncOp, block: Block, rewrite: str) -> None:
    """Make of each contraction whose result has no axis of one factor alone a map that multiplies and a sum. Tensor
    cores would multiply a matrix of one row by one of one column, for each element. `rewrite` is the pass that notes
    it."""
    for op in [op for op in block.ops if isinstance(op, ContractOp) and _is_of_elements(op)]:
        made = _multiply_and_add(op)
        for each in made:
            each.location = op.location
        made[-1].results[0].name_hint = op.result.name_hint
        subject = f"{label(op.result)} element by element"
        replace(op, made, made[-1].results[0])
        note(function, rewrite, subject, "a contraction is a sum of products", "no factor is used for several elements")


def _is_of_elements(op: ContractOp) -> bool:
    """Sums in fewer than 32 bits are left to those who refuse them, factors that are rounded first to tensor cores."""
    if op.init is not None or op.multiply is not None or op.accumulate != f32:
        return False
    is_float = all(number_format(format_of(each.type)).is_float for each in (op.lhs, op.rhs))
    return is_float and all(set(axes_of(op.result.type)) <= set(axes_of(each.type)) for each in (op.lhs, op.rhs))


def _multiply_and_add(op: ContractOp) -> list[Operation]:
    axes = sizes_of(op.lhs.type) | sizes_of(op.rhs.type)
    left, right = (convert(Leaf(each), f32) for each in (op.lhs, op.rhs))
    hint = derived_hint(op.result, "products")
    products = build_map(Node(arith.MulfOp, (left, right), f32), array_type(f32, axes), hint)
    total = array_type(f32, sizes_of(op.result.type))
    made: list[Operation] = [products, ReduceOp("add", products.result, op.over_axes, total)]
    return made if total == op.result.type else [*made, CastOp(made[-1].results[0], op.result.type)]
