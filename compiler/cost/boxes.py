"""How tensor copies bring what a kernel reads to shared memory: by whole boxes, or in another way."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.operands import left_operand, stays_in_registers
from treadle.compiler.cost.plan import row_of
from treadle.compiler.cost.work import multiply_format
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of


def comes_in_boxes(
    piece: SSAValue, products: Sequence[ContractOp], row: str | None, stream: str | None, limited: bool
) -> bool:
    """Whether the rows of a piece's tile come together and lie in their order. Row by row comes what a product sums
    over in a stream that is `limited`, up to a position between its pieces (`warps.laws.is_by_rows`); in another
    order lie the columns of a product whose result becomes the left operand of one of 8-bit numbers
    (`lowering.layouts`)."""
    if row is None:
        return False
    users = [use.operation for use in piece.uses if isinstance(use.operation, ContractOp)]
    if limited and any(stream in user.over_axes for user in users):
        return False
    return not any(_has_order(user, piece, products, row) for user in users)


def _has_order(op: ContractOp, piece: SSAValue, products: Sequence[ContractOp], row: str) -> bool:
    axes = axes_of(piece.type)
    if left_operand(op, row) is piece or axes[-1:] != tuple(op.over_axes)[-1:]:
        return False
    columns = set(axes) - set(op.over_axes)
    return any(
        multiply_format(other) == "f8"
        and columns & set(other.over_axes)
        and stays_in_registers(other, left_operand(other, row), row)
        for other in products
        if other is not op
    )


def rows_of(tile: Sequence[Amount]) -> Amount:
    """Rows of a box of a tile (`dialects.cuda.boxes`)."""
    return prod(tile) // row_of(tile)
