"""Give what a piece holds two places, so that the producer brings that of the next piece while this one is computed.

With one place it comes when the last product of a piece has read it (`early.py`): a block whose pieces are short then
waits for device memory between any two of them, and what stands behind in the producer's order waits, too."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IntAttr, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.lowering.barriers import base_of
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import blocks_that_share
from treadle.dialects.cuda.rings import place_shared
from treadle.dialects.cuda.roles import register_cap
from treadle.passes.grids.arithmetic import Arithmetic
from treadle.passes.grids.held import Held
from treadle.passes.warps.laws import Reason

LAW = "a turn of a ring is its own place until its consumers give it back"
PLACES = 2


def why_not_two(kernel: cuda.KernelOp, roles: cuda.RolesOp, held: Held, machine: Machine) -> Reason | None:
    """Why the tile has one place; None if shared memory holds another beside as many blocks."""
    bytes = kernel.shared_bytes.data + held.bytes + _barrier_bytes(held)
    limit = int(machine.shared_of_block(blocks_that_share(kernel)))
    if bytes > limit:
        return Reason(LAW, f"two places of %{held.tile.name_hint} take {bytes:,} of {limit:,} bytes of shared memory")
    before, after = (_blocks(kernel, roles, machine, each) for each in (kernel.shared_bytes.data, bytes))
    if after < before:
        fact = f"with two places of %{held.tile.name_hint} a multiprocessor holds {after} blocks, with one {before}"
        return Reason(LAW, fact)
    return None


def _barrier_bytes(held: Held) -> int:
    """That a ring takes for a stage."""
    ring = held.ring.owner
    assert isinstance(ring, cuda.RingOp)
    return ring.bytes // ring.result.type.stages.data


def _blocks(kernel: cuda.KernelOp, roles: cuda.RolesOp, machine: Machine, bytes: int) -> int:
    if any(roles.registers):
        return 1
    threads = kernel.threads.data
    registers = register_cap(threads, 1 if kernel.resident is None else kernel.resident.data)
    return int(machine.blocks_on_sm(threads // WARP, registers, bytes))


def _of_two(ring: cuda.RingOp) -> cuda.RingOp:
    """Each warp gives a place back for itself: in a piece without a turn no product makes them wait for each other, and
    one that still awaits the piece would miss it when the place is filled again."""
    new = cuda.RingOp(0, ring.consumers.data, PLACES)
    new.properties |= {**ring.properties, "by_warps": UnitAttr()}
    new.result.name_hint = ring.result.name_hint
    return new


def hold_in_two(kernel: cuda.KernelOp, roles: cuda.RolesOp, held: Held) -> None:
    """`why_not_two` must have found nothing. Turn by turn, which are pieces, the ring takes one place and the other."""
    shared, ring = held.tile.owner, held.ring.owner
    assert isinstance(shared, cuda.SharedOp)
    assert isinstance(ring, cuda.RingOp)
    shared.stages = IntAttr(PLACES)
    Rewriter.replace_op(ring, _of_two(ring))
    readers = [use.operation for use in held.tile.uses if roles.consumers.is_ancestor(use.operation)]
    _take_place(held.tile, held.acquire, [op for op in held.fill if isinstance(op, cuda.TensorLoadOp)], "to")
    _take_place(held.tile, held.awaited, readers, "now")
    kernel.shared_bytes = IntAttr(place_shared(kernel.body.block))


def _take_place(tile: SSAValue, first: cuda.AcquireOp | cuda.AwaitOp, users: Sequence[Operation], when: str) -> None:
    """The place of a piece, before the first operation on its turn."""
    numbers = Arithmetic.before(first)
    place = cuda.StageOp(tile, numbers.rest(first.turn, numbers.constant(PLACES), "stage"))
    place.result.name_hint = f"{(tile.name_hint or '').removesuffix('_shared')}_{when}"
    Rewriter.insert_op(place, InsertPoint.before(first))
    for op in users:
        op.operands = [place.result if base_of(each) is tile else each for each in op.operands]
