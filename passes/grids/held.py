"""The tiles that pieces of a persistent grid hold, and what their places wait for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.lowering.barriers import base_of
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import NARROW
from treadle.dialects.cuda.tiles import is_shared
from treadle.passes.loops.delay import rings_of_tiles
from treadle.passes.warps.laws import Reason

LAW = "a tensor copy brings what pieces hold, once for each"
ON_RING = cuda.AcquireOp | cuda.ExpectOp | cuda.TensorLoadOp | cuda.TensorGatherOp | cuda.ArriveOp


@dataclass(frozen=True)
class Held:
    """A tile that a piece holds, and what brings it, awaits it and gives it back."""

    tile: SSAValue
    ring: SSAValue
    beside: SSAValue | None
    """The ring of which all its readers, which are products, read a turn beside it, if they do."""
    acquire: cuda.AcquireOp
    """Of the producer, at the begin of a piece."""
    fill: tuple[cuda.ExpectOp | cuda.TensorLoadOp, ...]
    """What it does then."""
    awaited: cuda.AwaitOp
    release: cuda.ReleaseOp
    """Of the consumers, at the end of a piece."""

    @property
    def bytes(self) -> int:
        owner = self.tile.owner
        assert isinstance(owner, cuda.SharedOp)
        return owner.stage_bytes


def loop_of_pieces(role: Block) -> scf.ForOp | None:
    """The loop over the pieces of a block; None in a kernel with a block for each."""
    return next((op for op in role.ops if isinstance(op, scf.ForOp) and NARROW in op.attributes), None)


def held_of(roles: cuda.RolesOp) -> Iterator[Held | Reason]:
    """The tiles that pieces hold while they walk a stream, or why one cannot come earlier than it does."""
    producer, consumers = loop_of_pieces(roles.producer.block), loop_of_pieces(roles.consumers.block)
    if producer is None or consumers is None:
        return
    rings = rings_of_tiles(roles)
    for acquire in [op for op in producer.body.block.ops if isinstance(op, cuda.AcquireOp)]:
        tiles = [tile for tile, ring in rings.items() if ring is acquire.ring]
        readers = [op for op in consumers.body.walk() if any(_reads(op, tile) for tile in tiles)]
        if any(op.parent is not consumers.body.block for op in readers):  # others are given back right behind
            yield _held(acquire, tiles, readers, consumers.body.block, rings)


def _held(
    acquire: cuda.AcquireOp,
    tiles: Sequence[SSAValue],
    readers: Sequence[Operation],
    piece: Block,
    rings: Mapping[SSAValue, SSAValue],
) -> Held | Reason:
    assert acquire.parent is not None
    ring, name = acquire.ring, f"%{tiles[0].name_hint}"
    filled = [op for op in acquire.parent.ops if isinstance(op, ON_RING) and op.ring is ring]
    fill = tuple(op for op in filled if isinstance(op, cuda.ExpectOp | cuda.TensorLoadOp))
    if len(tiles) > 1 or len(fill) + 1 != len(filled):
        return Reason(LAW, f"lanes bring {name}")
    awaits = [op for op in piece.walk() if isinstance(op, cuda.AwaitOp) and op.ring is ring]
    releases = [op for op in piece.walk() if isinstance(op, cuda.ReleaseOp) and op.ring is ring]
    if any(op.parent is not piece for op in (*awaits, *releases)) or len(awaits) != 1 or len(releases) != 1:
        return Reason(LAW, f"{name} is awaited or given back in a loop or a branch")
    return Held(tiles[0], ring, _beside(readers, tiles[0], rings), acquire, fill, awaits[0], releases[0])


def _reads(op: Operation, tile: SSAValue) -> bool:
    if isinstance(op, cuda.ProductOfWarpgroupsOp):
        return any(base_of(each) is tile for each in (op.lhs, op.rhs))
    return isinstance(op, cuda.ReadOp) and base_of(op.source) is tile


def _beside(readers: Sequence[Operation], tile: SSAValue, rings: Mapping[SSAValue, SSAValue]) -> SSAValue | None:
    """The ring of what all readers of a tile multiply it by; None if that is not one, or one is no product."""
    found = set[SSAValue | None]()
    for op in readers:
        if not isinstance(op, cuda.ProductOfWarpgroupsOp):
            return None
        other = op.rhs if base_of(op.lhs) is tile else op.lhs
        found.add(rings.get(base_of(other)) if is_shared(other.type) else None)
    return next(iter(found)) if len(found) == 1 else None
