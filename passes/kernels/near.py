"""Where the piece of an array that a group loads is to lie: in shared memory, or in registers at once."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from treadle.dialects.cuda.tiles import WORD
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import EIGHT_BIT, SIXTEEN_BIT
from treadle.dialects.hierarchy.bounded import is_factor, only_bounds
from treadle.passes.kernels.outer import is_met_by_others


def comes_to_shared(value: SSAValue, products: Sequence[ContractOp], row: str | None, stream: str | None) -> bool:
    """Whether products read it there, or each thread some of what others read, too; or each step of a stream meets the
    result of a product, or what the next product takes, with it, element by element: as a matrix, or as a line, one
    number for each column; or whether it is a number of the group, or one for each row."""
    if is_factor(value) or (not products and is_met_by_others(value, stream)):
        return True
    if row is None or stream is None or not axes_of(value.type) or only_bounds(value):
        return False
    if not all(isinstance(use.operation, MapOp | CastOp | WhereOp) for use in value.uses):
        return False
    if stream not in axes_of(value.type):
        return _finishes(value, row, stream, products) or _is_of_group(value, row, products)
    weights = [each for op in products for each in (op.result, op.lhs, op.rhs)]
    met = [axes for each in weights if {row, stream} <= (axes := frozenset(axes_of(each.type)))]
    last = axes_of(value.type)[-1] == stream
    return last and bool(met) and (_is_line(value, row, met) or _is_matrix(value, row, products))


def _finishes(value: SSAValue, row: str, stream: str, products: Sequence[ContractOp]) -> bool:
    """Whether it is a number for each column of sums, and nothing needs it before a stream ends. Its copy is under way
    meanwhile. Where conditions ask for numbers of a group, its streams may begin and end by them: they are loaded."""
    users = [use.operation for use in value.uses]
    if any(isinstance(op, WhereOp) or stream in axes_of(op.results[0].type) for op in users):
        return False
    column = axes_of(value.type)[-1]
    of_one = [op for op in products if (column in axes_of(op.lhs.type)) is not (column in axes_of(op.rhs.type))]
    met = [axes for op in of_one if {row, column} <= (axes := frozenset(axes_of(op.result.type)))]
    return column != row and bool(met) and _is_line(value, row, met)


def _is_of_group(value: SSAValue, row: str, products: Sequence[ContractOp]) -> bool:
    """Whether it is a word that all warps of a block need, or one for each row: each warp would ask for its sector, and
    for those in which its rows begin and end. A copy goes with what all meet for anyhow, before the first product. What
    conditions ask for may say where streams begin and end, before which nothing is copied."""
    batches = {
        axis
        for op in products
        for axis in axes_of(op.result.type)
        if axis in axes_of(op.lhs.type) and axis in axes_of(op.rhs.type)
    }
    is_word = format_of(value.type).size == WORD
    return is_word and set(axes_of(value.type)) <= {row, *batches} and not _is_asked_for(value)


def _is_asked_for(value: SSAValue) -> bool:
    """Whether a condition asks for it, or for what is computed of it alone."""
    for use in value.uses:
        op = use.operation
        if not isinstance(op, MapOp | CastOp):
            return True
        if set(axes_of(op.results[0].type)) <= set(axes_of(value.type)) and _is_asked_for(op.results[0]):
            return True
    return False


def _is_matrix(value: SSAValue, row: str, products: Sequence[ContractOp]) -> bool:
    """Fragments have four bytes of a row each, and would be loaded by as many accesses, each awaited where the step
    stands still. Copies bring whole lines while earlier steps compute, and `ldmatrix` hands out what it reads as
    accumulators lie: 16-bit numbers, whose rows run along the stream, unless 8-bit products ask for another order."""
    return (
        row in axes_of(value.type)
        and str(format_of(value.type)) in SIXTEEN_BIT
        and not any(str(format_of(op.lhs.type)) in EIGHT_BIT for op in products)
    )


def _is_line(value: SSAValue, row: str, met: Sequence[frozenset[str]]) -> bool:
    """Each warp has all columns, so that each would load all numbers, and wait for them, to compute or to test a
    condition. A copy asks once for the whole block. Along axes other than its rows and columns a product takes an
    index at a time."""
    axes = set(axes_of(value.type))
    return row not in axes and any(axes <= each for each in met)
