"""Print what is made of finished sums piece by piece, where a thread has no registers for all of it at once.

Behind its loops a kernel loads what finishes its sums (a bias, what is added) and makes the result of them. One
after the other, all that is loaded is alive beside all sums, and the compiler sinks the end of an element's arithmetic
below that of all others, so that values from before and after are alive together. Here an outer loop walks along the
columns: each turn loads what its columns need, computes, and keeps the results where they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.lowering.plan import FORMAT_BYTES
from treadle.compiler.printer.exchanges import repeated_modes
from treadle.compiler.printer.indices import Piece, outermost
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import Mode
from treadle.dialects.cuda.roles import MOST_REGISTERS, REGISTER_FILE
from treadle.dialects.cuda.tiles import is_fragment, layout_of
from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import format_of

WORD = 4
"""Bytes of a register."""


@dataclass(frozen=True)
class Finish:
    """A map of finished sums, and what brings its operands: operations that serve it alone, in their order, which are
    walked in pieces with it."""

    map: MapOp
    brought: tuple[Operation, ...]
    piece: Piece | None
    """None where nothing is brought."""


def finishes_of(kernel: cuda.KernelOp, block: Block) -> dict[Operation, Finish]:
    """The maps of a block that are printed so."""
    if _carries_fragments(block):
        return {}
    found: dict[Operation, Finish] = {}
    for op in _behind_products(block):
        if isinstance(op, MapOp) and is_fragment(op.result.type) and str(format_of(op.result.type)) == "f32":
            limit, read = _limit(kernel, op), _registers(op.inputs)
            if read + _registers([op.result]) > limit:
                found[op] = _finish(op) if read > limit else Finish(op, (), None)
    return found


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
    return any(isinstance(each, cuda.ProductOp | cuda.WarpgroupProductOp) for each in op.walk())


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


def _finish(op: MapOp) -> Finish:
    """The operands that can be brought piece by piece, along the axis on which a thread has most."""
    first = max(layout_of(op.result.type).register, key=lambda mode: mode.size)
    chains = [chain for value in dict.fromkeys(op.inputs) if (chain := _chain(value, op))]
    modes = {chain: _outer_modes(chain, first.axis) for chain in chains}
    whole = outermost(layout_of(op.result.type).register, first.axis)
    assert whole is not None
    extent = whole.stride * whole.size
    fitting = {chain: found for chain, found in modes.items() if found and _same_extent(found, extent)}
    granule = max((mode.stride for found in fitting.values() for mode in found), default=extent)
    granule = max(granule, whole.stride)
    strides = {mode.stride for found in fitting.values() for mode in found} | {whole.stride}
    if granule == extent or any(granule % stride for stride in strides):
        return Finish(op, (), None)
    brought = {each for chain in fitting for each in chain}
    assert op.parent is not None
    ordered = tuple(each for each in op.parent.ops if each in brought)
    return Finish(op, ordered, Piece(first.axis, granule, extent // granule))


def _chain(value: SSAValue, op: Operation) -> tuple[Operation, ...]:
    """A load that only this map needs, and what changes its format and layout on the way; empty if there is none."""
    found: list[Operation] = []
    user = op
    while isinstance(value.owner, cuda.LoadOp | cuda.ExchangeOp | CastOp):
        owner = value.owner
        if owner.parent is not op.parent or any(use.operation is not user for use in value.uses):
            return ()
        if not is_fragment(value.type):
            return ()
        found.insert(0, owner)
        if isinstance(owner, cuda.LoadOp):
            return tuple(found) if owner.staged is None else ()
        user, value = owner, owner.operands[0]
    return ()


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
    else:
        yield tuple(layout_of(op.results[0].type).register)


def _same_extent(modes: list[Mode], extent: int) -> bool:
    return all(mode.stride * mode.size == extent for mode in modes)
