"""Reciprocals that neighbours share: only in pieces where no neighbour is absent.

What is absent is in no sum, so that its NaN would show in none but those of its neighbours. Where divisors are tested
no NaN reaches another element, absent or not."""

from __future__ import annotations

from xdsl.ir import Block, SSAValue

from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects.diagram import CastOp, MapOp, WhereOp
from treadle.dialects.diagram.absence import absences
from treadle.dialects.diagram.sharing import SHARED, sharing_in, sharing_of


def share_among_present(lowering: KernelLowering, op: MapOp, body: Block) -> None:
    """Let elements of a map have their own reciprocals where some may be absent."""
    shared = sharing_in(body)
    if shared is None or (sharing := sharing_of(shared)) is None:
        return
    axis, _ = sharing
    is_cut = axis in lowering.bounded or axis in lowering.begins or axis in lowering.stops
    if axis not in lowering.offsets or is_cut or absences(op.result) or _is_tested(op.result):
        del shared.attributes[SHARED]


def _is_tested(value: SSAValue) -> bool:
    """Whether a condition leaves elements out of what is made of an array, element by element."""
    users = [use.operation for use in value.uses]
    return any(
        isinstance(each, WhereOp) or (isinstance(each, MapOp | CastOp) and _is_tested(each.results[0]))
        for each in users
    )
