"""How tensor copies bring what a kernel reads to shared memory: by whole boxes, or in another way."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.kernel.operands import left_operand, stays_in_registers
from treadle.compiler.cost.kernel.plan import row_of
from treadle.compiler.cost.kernel.work import multiply_format
from treadle.dialects.cuda.boxes import MOST_ROWS
from treadle.dialects.cuda.runs import SWIZZLED_ROWS, rows_of_run
from treadle.dialects.cuda.tensor_maps import MOST_AXES
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.padding import padded_read, padding_of, scattered_read
from treadle.dialects.diagram.place import axes_of_forms
from treadle.dialects.hierarchy import given_for
from treadle.dialects.hierarchy.bounded import loaded_factor, users_of_factor


def comes_in_boxes(
    array: SSAValue,
    piece: SSAValue,
    products: Sequence[ContractOp],
    row: str | None,
    stream: str | None,
    limited: bool,
) -> bool:
    """Whether the rows of a piece's tile come together and lie in their order. Row by row comes what a product sums
    over in a stream that is `limited`, up to a position between its pieces (`warps.laws.is_by_rows`); in another
    order lie the columns of a product whose result becomes the left operand of one of 8-bit numbers
    (`lowering.layouts`). Of rows that lie where data say, and of views with zeros around them, each lane asks for a run
    of its own (`cuda.tensor_gather`)."""
    given = given_for(array)
    if row is None or (given is not None and (padding_of(given) or scattered_read(given))):
        return False
    users = [op for op in users_of_factor(piece) if isinstance(op, ContractOp)]
    if limited and any(stream in user.over_axes for user in users):
        return False
    return not any(_has_order(user, piece, products, row) for user in users)


def comes_by_lanes(array: SSAValue, piece: SSAValue) -> bool:
    """Whether lanes of a producer copy a piece of an array that warpgroups multiply, as no tensor copy brings it: rows
    that data choose one by one, and views with zeros around them (`warps.laws.why_no_map`)."""
    users = [op for op in users_of_factor(piece) if isinstance(op, ContractOp)]
    given = given_for(array)
    if not users or given is None or not padding_of(given):
        return False
    placed = scattered_read(given) or padded_read(given)
    return placed is None or not all(_has_runs(placed.forms, user, piece) for user in users)


def _has_runs(forms: Sequence[Linear], op: ContractOp, operand: SSAValue) -> bool:
    """Whether tensor copies bring the rows of an operand that lie at such positions of an array: the array has them,
    too, and as many axes as a tensor map may have, and enough of them follow each other (`passes.warps.laws`)."""
    *rows, columns = axes_of(operand.type)
    *outer, last = forms
    if last != Linear({columns: 1}) or columns in axes_of_forms(outer) or not 2 <= len(forms) <= MOST_AXES:
        return False
    other = axes_of((op.rhs if operand is loaded_factor(op.lhs) else op.lhs).type)
    own = [axis for axis in rows if axis in op.over_axes or axis not in other]
    return all(rows_of_run(forms, axis, MOST_ROWS, lambda _: True) >= SWIZZLED_ROWS for axis in own)


def _has_order(op: ContractOp, piece: SSAValue, products: Sequence[ContractOp], row: str) -> bool:
    axes = axes_of(piece.type)
    if loaded_factor(left_operand(op, row)) is piece or axes[-1:] != tuple(op.over_axes)[-1:]:
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
