"""Streams of which a step takes one index, a product of matrices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence

from xdsl.ir import Operation

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of
from treadle.passes.kernels.rows import fills_tile, is_batch, is_free


def steps_over_batches(products: Sequence[ContractOp], group_axes: Collection[str], stream: str | None) -> bool:
    """Whether both operands have the streamed axis wherever a product has it, and groups have rows and columns of each:
    a step takes one index, a product of matrices, as a group takes one of a batch."""
    made = _made_along(stream, products)
    return bool(made) and all(is_batch(stream, op) for op in made) and all(_sides(products, group_axes, stream))


def may_step_over_matrices(ops: Iterable[Operation], group_axes: Collection[str], stream: str | None) -> bool:
    """Whether a step could take one index of an axis that one operand has, along which products have columns otherwise:
    groups have rows and columns of each, which fill tiles without it, and what is made of the products is reduced over
    it at once."""
    ops = tuple(ops)
    products = [op for op in ops if isinstance(op, ContractOp)]
    if stream is None or not _made_along(stream, products) or not _is_reduced_at_once(ops, stream):
        return False
    return all(fills_tile(axes, products) for axes in _sides(products, group_axes, stream))


def _made_along(stream: str | None, products: Sequence[ContractOp]) -> list[ContractOp]:
    return [op for op in products if stream in axes_of(op.result.type)]


def _sides(products: Sequence[ContractOp], group_axes: Collection[str], stream: str | None) -> Iterator[list[str]]:
    """Of each operand of products with the streamed axis, the axes of the groups that it has alone."""
    free = [axis for axis in group_axes if not any(is_batch(axis, op) for op in products)]
    for op in _made_along(stream, products):
        for side in (op.lhs, op.rhs):
            yield [axis for axis in free if axis in axes_of(side.type) and is_free(axis, op)]


def _is_reduced_at_once(ops: Sequence[Operation], axis: str) -> bool:
    """Whether sums, maxima and the like alone reduce over an axis, of which none needs another: what steps keep is
    never repaired. A product that sums over it would lack a depth."""
    over = [op for op in ops if isinstance(op, ContractOp | ReduceOp) and axis in op.over_axes]
    if not over or any(isinstance(op, ContractOp) for op in over):
        return False
    reduced = {op.result for op in over}
    for op in ops:
        if any(value in reduced for value in op.operands):
            if op in over:
                return False
            reduced.update(op.results)
    return True


__all__ = ["may_step_over_matrices", "steps_over_batches"]
