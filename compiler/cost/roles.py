"""What the axes of a kernel are for: the rows, columns and batches of its products, and its streams."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.hierarchy import KernelOp


@dataclass(frozen=True)
class ProductAxes:
    """How the products of one kernel lie on the warps.

    `row`: the axis M, a group axis in every product's result and in exactly one operand of each: warps lie
    along it. `column`: one more group axis of products, of the operand that lacks the rows; warps may lie
    along it too where `splits_columns`. Other group axes are pieces of 1."""

    row: str | None
    column: str | None
    splits_columns: bool


def contractions_of(kernel: KernelOp) -> tuple[ContractOp, ...]:
    return tuple(op for op in kernel.body.walk() if isinstance(op, ContractOp))


def product_axes(kernel: KernelOp, group_axes: Iterable[str]) -> ProductAxes:
    group_axes = tuple(group_axes)
    products = contractions_of(kernel)
    rows = [axis for axis in group_axes if products and all(_is_free(axis, op) for op in products)]
    # Rows are by preference an axis of a left operand, and of those the one nearest to the contiguous end.
    left = [axis for axis in rows if axis in axes_of(products[0].lhs.type)]
    row = (left or rows or [None])[-1]
    columns = [
        axis
        for axis in group_axes
        if axis != row
        and row is not None
        and any(_is_column(axis, row, op) for op in products)
        and not any(_is_batch(axis, op) for op in products)
    ]
    column = columns[-1] if columns else None
    return ProductAxes(row, column, column is not None and all(_only(row, column, op) for op in products))


@dataclass(frozen=True)
class StreamUse:
    """How often each operation and each input of a decorated kernel takes part in streaming the axis."""

    operations: dict[Operation, int]
    inputs: dict[SSAValue, int]
    passes: int


def stream_use(kernel: KernelOp, stream: str | None) -> StreamUse:
    """A result that has the streamed axis and depends on a reduction over it needs the axis streamed a second
    time, with the finished state; what both streams need is loaded and done twice. Whatever does not touch
    the axis counts once, and an input that nothing uses not at all."""
    *operations, terminator = kernel.body.block.ops
    reductions = [op for op in operations if isinstance(op, ContractOp | ReduceOp) and stream in op.over_axes]
    dependent = _led_to(reductions, operations)
    streamed = [value for value in terminator.operands if _has(value, stream)]
    late = [value for value in streamed if value in dependent]
    early = [value for value in streamed if value not in dependent]
    first = _needed([*early, *(operand for op in reductions for operand in op.operands)], stream)
    second = _needed(late, stream)

    def uses(value: SSAValue) -> int:
        return max(1, (value in first) + (value in second)) if _has(value, stream) else 1

    return StreamUse(
        {op: 1 if op in reductions else uses(op.results[0]) for op in operations},
        {value: uses(value) for value in kernel.body.block.args if value.uses and is_array(value.type)},
        2 if late else 1,
    )


def _has(value: SSAValue, axis: str | None) -> bool:
    return axis in axes_of(value.type)


def _led_to(sources: Iterable[Operation], operations: Iterable[Operation]) -> set[SSAValue]:
    """The results of `sources`, and what is made from them."""
    values: set[SSAValue] = {result for op in sources for result in op.results}
    for op in operations:
        if any(operand in values for operand in op.operands):
            values.update(op.results)
    return values


def _needed(values: Iterable[SSAValue], stream: str | None) -> set[SSAValue]:
    """The values with the streamed axis from which `values` are made, piece by piece."""
    found: set[SSAValue] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in found or not _has(value, stream):
            continue
        found.add(value)
        if isinstance(value.owner, Operation):
            waiting += value.owner.operands
    return found


def _is_free(axis: str, op: ContractOp) -> bool:
    left, right = axis in axes_of(op.lhs.type), axis in axes_of(op.rhs.type)
    return axis in axes_of(op.result.type) and left != right


def _is_batch(axis: str, op: ContractOp) -> bool:
    return axis in axes_of(op.lhs.type) and axis in axes_of(op.rhs.type)


def _is_column(axis: str, row: str, op: ContractOp) -> bool:
    rows = axes_of(op.lhs.type) if row in axes_of(op.lhs.type) else axes_of(op.rhs.type)
    return _is_free(axis, op) and axis not in rows


def _only(row: str | None, column: str, op: ContractOp) -> bool:
    """Whether rows and columns of a product are these axes alone, batches aside."""
    free = {axis for axis in axes_of(op.result.type) if not _is_batch(axis, op)}
    return free == {row, column}
