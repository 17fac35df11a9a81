"""The pieces of a grid at the sizes that a function is made for: how many, and what of the copies they share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import TypeAlias, TypeGuard

import numpy as np
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.cost.timing.tile_order import Sharing
from treadle.compiler.execution import ARITHMETIC, computation
from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import format_bytes
from treadle.dialects.diagram import SizesAttr
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.passes.grids.coordinates import number_of_unit, split_of

Numbers = dict[SSAValue, int]
Copy: TypeAlias = "cuda.TensorLoadOp | cuda.TensorGatherOp | cuda.CopyOp"
Times: TypeAlias = "Counter[Copy]"

LOOKED_AT = 5
"""Pieces of a row whose copies are counted; those between are taken to bring what lies between."""

MOST_TOLD = 1 << 13
"""Pieces of a row that are told apart: of a longer one, as many, evenly spread."""


class AnySizes(dict[str, int]):
    """A size for every axis that is asked for, another for each, and others in another trial."""

    def __init__(self, trial: int):
        super().__init__()
        self.trial = trial

    def __contains__(self, axis: object) -> bool:
        return True

    def __missing__(self, axis: str) -> int:
        self[axis] = 997 * (self.trial + 1) * (len(self) + self.trial + 1) + 13 * len(self)
        return self[axis]


def numbers_of_host(function: FuncOp) -> Numbers:
    """The numbers that a host function computes; where sizes are symbolic, at those of its attribute `sizes`."""
    attribute = function.attributes.get("sizes")
    return numbers_at(function, attribute.as_dict() if isinstance(attribute, SizesAttr) else {})


def numbers_at(function: FuncOp, given: Mapping[str, int]) -> Numbers:
    """The same where symbolic axes have these sizes."""
    known: Numbers = {}
    for op in function.walk():
        match op:
            case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
                known[op.result] = op.value.value.data
            case memref.DimOp() if op.index in known:
                axis, size = list(sizes_of(op.source.type).items())[known[op.index]]
                if size != DYNAMIC or axis in given:
                    known[op.result] = size if size != DYNAMIC else given[axis]
            case _ if op.name in ARITHMETIC and all(operand in known for operand in op.operands):
                left, right = (known[operand] for operand in op.operands)
                known[op.results[0]] = ARITHMETIC[op.name](left, right)
            case _:
                pass
    return known


def sharing(kernel: cuda.KernelOp, arguments: Numbers, pieces: int, slots: int) -> Sharing | None:
    """What the copies of pieces share; None where that is not known. Pieces whose number is not split lie in one row.
    Where coordinates are those of clusters, of what a cluster does, as if that were one piece."""
    unit = number_of_unit(kernel)
    if unit is None:
        return None
    blocks = kernel.cluster if isinstance(unit, cuda.ClusterIndexOp) else 1
    brought = Brought(kernel, arguments)
    first = brought.by(0)
    if first is None:
        return None
    found = split_of(unit.result)
    inner = pieces // blocks if found is None else brought.known[found[0].rhs]
    last = brought.by(max(inner - 1, 0))
    assert last is not None
    top = kernel.body.block
    column = depending(top, unit.result if found is None else found[0].result)
    row = depending(top, found[1].result) if found is not None and found[1] is not None else set[SSAValue]()

    def of_unit(times: Times) -> int:
        """Each block brings its own, and of what several bring together a share."""
        return sum(_bytes(op) * count * blocks // _shares(op, blocks) for op, count in times.items())

    by_row = of_unit(_only(last, lambda op: not _uses(op, column) and _uses(op, row)))
    by_column = of_unit(_only(first, lambda op: _uses(op, column) and not _uses(op, row)))
    rows = pieces // blocks // max(inner, 1)
    of_pieces = _interpolated(lambda number: of_unit(brought.by(number) or Counter()), inner)
    return Sharing(max(rows, 1), max(slots // blocks, 1), by_row, by_column, of_pieces)


def may_differ(kernel: cuda.KernelOp) -> bool:
    """Whether it depends on the number of a piece how often it copies, at any sizes."""
    unit = number_of_unit(kernel)
    numbers = set[SSAValue]() if unit is None else depending(kernel.body.block, unit.result)
    around = [op for op in kernel.walk() if isinstance(op, scf.ForOp | scf.IfOp)]
    bounds = {op: [op.cond] if isinstance(op, scf.IfOp) else [op.lb, op.ub, op.step] for op in around}
    return any(not numbers.isdisjoint(of) and _copies(op) for op, of in bounds.items())


def _bytes(op: Copy) -> int:
    return (
        op.bytes
        if isinstance(op, cuda.TensorLoadOp | cuda.TensorGatherOp)
        else prod(sizes_of(op.tile.type).values()) * format_bytes(op.tile.type)
    )


def _shares(op: Copy, blocks: int) -> int:
    return op.shares if blocks > 1 and isinstance(op, cuda.TensorLoadOp) else 1


def _only(times: Times, chosen: Callable[[Copy], bool]) -> Times:
    return Counter({op: count for op, count in times.items() if chosen(op)})


def _interpolated(bytes: Callable[[int], int], count: int) -> tuple[int, ...]:
    """Of the pieces of a row, of which a few are looked at."""
    looked_at = np.unique(np.linspace(0, max(count - 1, 0), LOOKED_AT).astype(int))
    told = np.arange(max(count, 1)) if count <= MOST_TOLD else np.linspace(0, count - 1, MOST_TOLD)
    found = np.interp(told, looked_at, [bytes(int(number)) for number in looked_at])
    return tuple(int(each) for each in found)


@dataclass
class Brought:
    """How often a piece makes each copy of a kernel to shared memory, and the numbers that the kernel computes."""

    kernel: cuda.KernelOp
    arguments: Numbers
    known: Numbers = field(default_factory=dict[SSAValue, int])
    """Those of the piece that was looked at last."""

    def by(self, piece: int) -> Times | None:
        """By the piece of that number; None if some of its numbers are not known. Each turn of a loop is taken to copy
        what the first does."""
        unit = number_of_unit(self.kernel)
        assert unit is not None
        self.known = {**self.arguments, unit.result: piece}
        try:
            return self._times(self.kernel.body.block)
        except KeyError:
            return None

    def _times(self, block: Block) -> Times:
        found: Times = Counter()
        for op in block.ops:
            if is_copy(op):
                found[op] += 1
            elif isinstance(op, scf.ForOp):
                found += self._loop(op)
            elif isinstance(op, scf.IfOp) and _copies(op):
                taken = op.true_region if self.known[op.cond] else op.false_region
                found += self._times(taken.block) if taken.blocks else Counter()
            elif isinstance(op, cuda.RolesOp):
                found += self._times(op.producer.block)
            elif (compute := computation(op)) is not None:
                compute(self.known)
        return found

    def _loop(self, op: scf.ForOp) -> Times:
        if not _copies(op):
            return Counter()
        turns = len(range(self.known[op.lb], self.known[op.ub], max(self.known[op.step], 1)))
        if not turns:
            return Counter()
        position, *carried = op.body.block.args
        self.known[position] = self.known[op.lb]
        self.known |= {
            arg: self.known[init] for arg, init in zip(carried, op.iter_args, strict=True) if init in self.known
        }
        return Counter({copy: count * turns for copy, count in self._times(op.body.block).items()})


def _copies(op: Operation) -> bool:
    return any(map(is_copy, op.walk()))


def is_copy(op: Operation) -> TypeGuard[Copy]:
    """Whether an operation brings a tile from device to shared memory."""
    is_inward = isinstance(op, cuda.CopyOp) and not op.is_outward
    return is_inward or isinstance(op, cuda.TensorLoadOp | cuda.TensorGatherOp)


def depending(block: Block, value: SSAValue) -> set[SSAValue]:
    """What depends on a value, itself among it. Where a loop ends does not change what one position of it reads."""
    found = {value}
    for op in block.walk():
        if isinstance(op, scf.ForOp):
            if op.lb in found or op.step in found:
                found.add(op.body.block.args[0])
        elif isinstance(op, cuda.SelectOp):
            if any(given in found for given in op.given):
                found |= {op.count, op.tile}
        elif any(operand in found for operand in op.operands):
            found.update(op.results)
    return found


def _uses(op: Copy, values: Iterable[SSAValue]) -> bool:
    return any(offset in set(values) for offset in op.offsets)
