"""Where the piece of an array that a group loads is to lie: in shared memory, or in registers at once."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.contract import is_multiplied
from treadle.dialects.diagram.formats import EIGHT_BIT, SIXTEEN_BIT


def comes_to_shared(value: SSAValue, products: Sequence[ContractOp], row: str | None, stream: str | None) -> bool:
    """Whether products read it there, or each step of a stream meets the result of a product with it, element by
    element: fragments have four bytes of a row each, and would be loaded by as many accesses, each awaited where the
    step stands still. Copies bring whole lines while earlier steps compute, and `ldmatrix` hands out what it reads as
    accumulators lie: 16-bit numbers, whose rows run along the stream, unless 8-bit products ask for another order."""
    if is_multiplied(value):
        return True
    axes = axes_of(value.type)
    return (
        row is not None
        and stream is not None
        and row in axes
        and axes[-1:] == (stream,)
        and str(format_of(value.type)) in SIXTEEN_BIT
        and all(isinstance(use.operation, MapOp | CastOp | WhereOp) for use in value.uses)
        and any({row, stream} <= set(axes_of(op.result.type)) for op in products)
        and not any(str(format_of(op.lhs.type)) in EIGHT_BIT for op in products)
    )
