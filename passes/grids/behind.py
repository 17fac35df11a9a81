"""Bring what a piece reads behind its loops behind what it reads in them.

The place of such a tile is given back at the very end of a piece. A producer that asks for it at the begin of the next
one waits until then with all that stands behind, and the rings run empty."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.passes.grids.held import ON_RING, loop_of_pieces

LAW_BEHIND = "what is awaited behind all loops may be brought behind all that they await"


def bring_behind(roles: cuda.RolesOp) -> list[str]:
    """Move the copies of all such tiles; their names."""
    producer, consumers = loop_of_pieces(roles.producer.block), loop_of_pieces(roles.consumers.block)
    if producer is None or consumers is None:
        return []
    moved: list[str] = []
    for ring in _awaited_behind(consumers.body.block):
        fill = list(_fill_of(producer.body.block, ring))
        if not fill or not _walks_rings(fill[-1].next_op):
            continue
        end = producer.body.block.last_op
        assert end is not None
        for op in fill:
            op.detach()
            producer.body.block.insert_op_before(op, end)
        moved.append(f"%{ring.name_hint}")
    return moved


def _awaited_behind(piece: Block) -> Iterator[SSAValue]:
    """The rings that a piece awaits behind its loops alone."""
    for op in piece.ops:
        if isinstance(op, cuda.AwaitOp) and not _walks_rings(op.next_op) and _walks_rings(piece.first_op):
            yield op.ring


def _walks_rings(op: Operation | None) -> bool:
    """Whether a loop or a branch that uses rings stands from an operation on."""
    while op is not None:
        if isinstance(op, scf.ForOp | scf.IfOp) and any(isinstance(each, ON_RING | cuda.AwaitOp) for each in op.walk()):
            return True
        op = op.next_op
    return False


def _fill_of(piece: Block, ring: SSAValue) -> Iterator[Operation]:
    """What the producer does for a ring at the begin of a piece: the copies of its lanes stand before their arrival."""
    begun = False
    for op in piece.ops:
        on_ring = isinstance(op, ON_RING) and op.ring is ring
        begun = begun or on_ring
        if on_ring or (begun and isinstance(op, cuda.CopyOp)):
            yield op
        if begun and isinstance(op, cuda.ArriveOp | cuda.TensorLoadOp | cuda.TensorGatherOp) and on_ring:
            return
