"""M, exactly: the largest total size alive at a level in any one column of an explicit kernel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.cost.kernel.work import width_of
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import is_array, level_of, sizes_of
from treadle.dialects.hierarchy import KernelOp, LoadOp

NEAR = ("shared", "register")
"""Levels of which a group has a part to itself."""


@dataclass(frozen=True)
class Memory:
    """What one group holds at one moment."""

    values: int = 0
    bytes: int = 0

    def __add__(self, other: Memory) -> Memory:
        return Memory(self.values + other.values, self.bytes + other.bytes)


def peak_memory(kernel: KernelOp) -> dict[str, Memory]:
    """M of `shared` and `register` for one group, or for each block of a cluster that shares it, edges aside. A map or
    a cast may write over an operand that nothing needs any more, and a sum over what it is added to."""
    alive = list(columns(kernel))
    parts = {} if kernel.schedule is None else kernel.schedule.cluster.as_dict()
    return {level: max((_sum(each, level, parts) for each in alive), key=lambda memory: memory.bytes) for level in NEAR}


def columns(kernel: KernelOp) -> Iterator[frozenset[SSAValue]]:
    """The arrays at near levels that are alive together, for each moment of a group."""
    yield from _columns(kernel.body.block, frozenset())


def _columns(block: Block, outside: frozenset[SSAValue]) -> Iterator[frozenset[SSAValue]]:
    yield outside
    lives = lives_in(block)
    for i, op in enumerate(block.ops):
        yield from _column(op, i, outside, lives)


def _column(
    op: Operation, index: int, outside: frozenset[SSAValue], lives: Mapping[SSAValue, tuple[int, int]]
) -> Iterator[frozenset[SSAValue]]:
    """What is alive while `op`, the operation at `index`, runs."""
    if op.regions and not isinstance(op, MapOp):
        around = near_arrays(value for value, (born, last) in lives.items() if born < index <= last)
        for region in op.regions:
            yield from _columns(region.block, outside | around)
        return
    alive = {value for value, (born, last) in lives.items() if born <= index < last}
    alive |= set(op.results)
    if not isinstance(op, MapOp | CastOp | WhereOp):
        alive |= {value for value in op.operands if value in lives and value is not _overwritten(op)}
    yield outside | near_arrays(alive)


def near_arrays(values: Iterable[SSAValue]) -> frozenset[SSAValue]:
    """Those that are arrays at near levels."""
    return frozenset(value for value in values if is_array(value.type) and level_of(value.type) in NEAR)


def _overwritten(op: Operation) -> SSAValue | None:
    return op.init if isinstance(op, ContractOp | ReduceOp) else None


def lives_in(block: Block) -> dict[SSAValue, tuple[int, int]]:
    """From which operation of `block` to which each of its values is alive. What a step loads arrives in
    one column, however the loads are placed: each has a tile of its own."""
    position = {op: i for i, op in enumerate(block.ops)}
    born: dict[SSAValue, int] = dict.fromkeys(block.args, -1)
    for op, i in position.items():
        born.update(dict.fromkeys(op.results, -1 if isinstance(op, LoadOp) else i))
    return {value: (start, max(_uses(value, block, position), default=-1)) for value, start in born.items()}


def _uses(value: SSAValue, block: Block, position: Mapping[Operation, int]) -> list[int]:
    ancestors = (block.find_ancestor_op_in_block(use.operation) for use in value.uses)
    return [position[op] for op in ancestors if op is not None]


def _sum(values: Iterable[SSAValue], level: str, parts: Mapping[str, int]) -> Memory:
    total = Memory()
    for value in values:
        if level_of(value.type) == level:
            elements = prod(parts.get(axis, size) for axis, size in sizes_of(value.type).items())
            total += Memory(elements, elements * width_of(value.type))
    return total
