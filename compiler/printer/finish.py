"""Print what is made of finished sums piece by piece, where a thread has no registers for all of it at once.

Behind its loops a kernel gets what finishes its sums (a bias, what is added) and makes the result of them. One
after the other, all that is loaded is alive beside all sums, and the compiler sinks the end of an element's arithmetic
below that of all others, so that values from before and after are alive together. Here an outer loop walks along the
columns: each turn loads what its columns need, computes, and keeps the results where they are. Several results of the
same sums are made in one such loop, narrow ones at once: one after the other, each would be made beside all sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeGuard

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.printer.exchanges import repeated_modes
from treadle.compiler.printer.finish_stores import leaving
from treadle.compiler.printer.indices import Piece, outermost
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LayoutAttr, Mode
from treadle.dialects.cuda.roles import MOST_REGISTERS, REGISTER_FILE
from treadle.dialects.cuda.tiles import is_fragment, is_line, layout_of
from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import FORMAT_BYTES

WORD = 4
"""Bytes of a register."""


@dataclass(frozen=True)
class Finish:
    """Maps of finished sums, and what is walked in pieces with them, all in order: what brings operands that serve them
    alone, and casts of their results."""

    maps: Sequence[MapOp]
    walked: tuple[Operation, ...]
    piece: Piece | None
    """None where nothing is walked."""
    behind: tuple[cuda.ReleaseOp, ...] = ()
    """What gives back the tiles that are read in pieces."""


def finishes_of(kernel: cuda.KernelOp, block: Block) -> dict[Operation, Finish]:
    """The maps of a block that are printed so."""
    if _carries_fragments(block):
        return {}
    found: dict[Operation, Finish] = {}
    for maps in _together([op for op in _behind_products(block) if _finishes(op) or not _is_plain(op)]):
        limit, read = _limit(kernel, maps[0]), _registers([value for op in maps for value in op.inputs])
        if read + _registers([op.result for op in maps]) <= limit:
            continue
        stores = tuple(leaving(maps))
        finish = _finish(maps, stores) if read > limit or len(maps) > 1 or stores else Finish(maps, (), None)
        if finish.piece is None:  # each by itself
            found |= {op: Finish([op], (), None) for op in maps}
        else:
            found[maps[0]] = finish
    return found


def _finishes(op: Operation) -> TypeGuard[MapOp]:
    return isinstance(op, MapOp) and is_fragment(op.result.type) and str(format_of(op.result.type)) == "f32"


def _is_plain(op: Operation) -> bool:
    """Whether what stands behind an operation may be done before it, unless it needs its result."""
    plain = MapOp | CastOp | cuda.LoadOp | cuda.ReadOp | cuda.ExchangeOp | cuda.ReleaseOp
    return isinstance(op, plain) or op.dialect_name() == "arith"


def _together(ops: Sequence[Operation]) -> Iterator[Sequence[MapOp]]:
    """Maps that are made of the same sums one after the other, as they lie, and of nothing of each other."""
    group: list[MapOp] = []
    for op in ops:
        if group and not (_finishes(op) and _joins(op, group[0])):
            yield group
            group = []
        if _finishes(op):
            group.append(op)
    if group:
        yield group


def _joins(op: MapOp, first: MapOp) -> bool:
    """Whether a map may be done where the first is: of one more of its operands, and of what is known there."""
    layout = layout_of(first.result.type)
    sums = [value for value in first.inputs if _lies_as(value, layout)]
    known = all(_is_before(value, first) or _can_be_brought(value, op, first) for value in op.inputs)
    return known and _lies_as(op.result, layout) and any(value in op.inputs for value in sums)


def _can_be_brought(value: SSAValue, op: MapOp, first: MapOp) -> bool:
    """Whether what brings an operand of one map may stand where another does."""
    chain = _chain(value, [op])
    needed = [each for step in chain for each in step.operands if each.owner not in chain]
    return (
        bool(chain) and all(_stays(each, first) for each in chain) and all(_is_before(each, first) for each in needed)
    )


def _lies_as(value: SSAValue, layout: LayoutAttr) -> bool:
    return is_fragment(value.type) and str(format_of(value.type)) in ("f32", "i32") and layout_of(value.type) == layout


def _is_before(value: SSAValue, op: Operation) -> bool:
    """Whether a value is there where an operation stands."""
    owner = value.owner
    while isinstance(owner, Operation) and owner.parent is not op.parent and owner.parent_op() is not None:
        owner = owner.parent_op()
    return not isinstance(owner, Operation) or owner.parent is not op.parent or owner.is_before_in_block(op)


def _carries_fragments(block: Block) -> bool:
    """Whether a loop around a block streams: there what is computed is not finished yet, and should overlap."""
    op = block.parent_op()
    while op is not None and not isinstance(op, cuda.KernelOp):
        if isinstance(op, scf.ForOp) and any(is_fragment(each.type) for each in op.iter_args):
            return True
        op = op.parent_op()
    return False


def _behind_products(block: Block) -> list[Operation]:
    """The operations of a block behind the last that multiplies; none if there is none."""
    ops = list(block.ops)
    last = max((i for i, op in enumerate(ops) if _multiplies(op)), default=len(ops))
    return ops[last + 1 :]


def _multiplies(op: Operation) -> bool:
    return any(isinstance(each, cuda.ProductOp | cuda.ProductOfWarpgroupsOp) for each in op.walk())


def _registers(values: Sequence[SSAValue]) -> int:
    """That a thread has of some values."""
    fragments = [value.type for value in dict.fromkeys(values) if is_fragment(value.type)]
    sizes = (prod(layout_of(type).register_shape) * FORMAT_BYTES[str(format_of(type))] for type in fragments)
    return sum(-(-size // WORD) for size in sizes)


def _limit(kernel: cuda.KernelOp, op: Operation) -> int:
    """The registers of a thread: those that its role takes, or its share of a multiprocessor's."""
    roles = cuda.roles_of(kernel)
    if roles is not None and roles.consumers.is_ancestor(op) and any(roles.registers):
        return roles.registers[1]
    resident = 1 if kernel.resident is None else kernel.resident.data
    return min(REGISTER_FILE // (kernel.threads.data * resident), MOST_REGISTERS)


def _finish(maps: Sequence[MapOp], stores: Sequence[tuple[Operation, ...]]) -> Finish:
    """What can be brought or left piece by piece, along the axis on which a thread has most."""
    layout = layout_of(maps[0].result.type)
    first = max(layout.register, key=lambda mode: mode.size)
    values = dict.fromkeys(value for op in maps for value in op.inputs)
    chains = [chain for value in values if (chain := _chain(value, maps))]
    if len(maps) > 1:
        chains += [(op,) for op in _casts(maps) if not any(op in chain for chain in stores)]
    chains += stores
    modes = {chain: _outer_modes(chain, first.axis) for chain in chains}
    whole = outermost(layout.register, first.axis)
    assert whole is not None
    extent = whole.stride * whole.size
    fitting = {chain: found for chain, found in modes.items() if found and _same_extent(found, extent)}
    granule = max((mode.stride for found in fitting.values() for mode in found), default=extent)
    granule = max(granule, whole.stride)
    strides = {mode.stride for found in fitting.values() for mode in found} | {whole.stride}
    if granule == extent or any(granule % stride for stride in strides):
        return Finish(maps, (), None)
    walked = {*maps, *(each for chain in fitting for each in chain)}
    assert maps[0].parent is not None
    ordered = tuple(each for each in maps[0].parent.ops if each in walked)
    return Finish(maps, ordered, Piece(first.axis, granule, extent // granule), tuple(_released(ordered, maps[0])))


def _released(walked: Sequence[Operation], until: Operation) -> Iterator[cuda.ReleaseOp]:
    """What gives tiles back between the first read of those that are walked and the maps."""
    later: Operation | None = next((op for op in walked if isinstance(op, cuda.ReadOp)), until)
    while later is not None and later is not until:
        if isinstance(later, cuda.ReleaseOp):
            yield later
        later = later.next_op


def _casts(maps: Sequence[MapOp]) -> Iterator[CastOp]:
    """Casts for which alone a map is done."""
    for op in maps:
        users = [use.operation for use in op.result.uses]
        if len(users) == 1 and isinstance(users[0], CastOp) and users[0].parent is op.parent:
            yield users[0]


def _chain(value: SSAValue, maps: Sequence[MapOp]) -> tuple[Operation, ...]:
    """A load, or what is read of a line, that only these maps need, and what changes its format and layout on the way;
    empty if there is none."""
    found: list[Operation] = []
    users: Sequence[Operation] = maps
    while isinstance(value.owner, cuda.LoadOp | cuda.ReadOp | cuda.ExchangeOp | CastOp):
        owner = value.owner
        if owner.parent is not maps[0].parent or any(use.operation not in users for use in value.uses):
            return ()
        if not is_fragment(value.type):
            return ()
        found.insert(0, owner)
        if isinstance(owner, cuda.LoadOp | cuda.ReadOp):
            return tuple(found) if _stays(owner, maps[0]) else ()
        users, value = (owner,), owner.operands[0]
    return ()


def _stays(op: Operation, until: Operation) -> bool:
    """Whether what an operation takes from a tile lies there where another stands: that stands behind it, and nothing
    in between writes to shared memory but what is brought together with it. (What gives a tile back can wait.)"""
    if isinstance(op, cuda.ReadOp) and not is_line(op.source.type):
        return False
    if not isinstance(op, cuda.ReadOp) and not (isinstance(op, cuda.LoadOp) and op.staged is not None):
        return True
    beside, later = op.meets_with if isinstance(op, cuda.LoadOp) else (), op.next_op
    while later is not None and later is not until:
        is_staged = isinstance(later, cuda.LoadOp) and later.staged is not None
        if not _is_plain(later) or (is_staged and later not in beside):
            return False
        later = later.next_op
    return later is until


def _outer_modes(chain: tuple[Operation, ...], axis: str) -> list[Mode]:
    """The outermost register digit along an axis of each operation; empty if one has none that a loop can walk."""
    found: list[Mode] = []
    for op in chain:
        for modes in _looped(op):
            mode = outermost(modes, axis)
            if mode is None or mode is modes[-1]:  # the innermost moves in vectors
                return []
            found.append(mode)
    return found


def _looped(op: Operation) -> Iterator[tuple[Mode, ...]]:
    """The register digits that the loops of a printed operation count."""
    if isinstance(op, cuda.ExchangeOp):
        yield (*repeated_modes(op), Mode("", 1, 0))
    elif isinstance(op, cuda.StoreOp):
        yield tuple(layout_of(op.value.type).register)
    else:
        yield tuple(layout_of(op.results[0].type).register)


def _same_extent(modes: list[Mode], extent: int) -> bool:
    return all(mode.stride * mode.size == extent for mode in modes)
