"""The pieces of a grid at the sizes that a function is made for: how many, and what of the copies they share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

from treadle.compiler.cost.tile_order import Sharing
from treadle.compiler.execution import ARITHMETIC, Execution
from treadle.dialects import cuda
from treadle.dialects.diagram import SizesAttr
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.passes.grids.coordinates import number_of_unit, split_of

Numbers = dict[SSAValue, int]

LOOKED_AT = 5
"""Pieces of a row whose copies are counted; those between are taken to bring what lies between."""


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


def sharing(kernel: cuda.KernelOp, roles: cuda.RolesOp, arguments: Numbers, pieces: int, slots: int) -> Sharing | None:
    """What the copies of pieces share; None where that is not known. Pieces whose number is not split lie in one row.
    Where coordinates are those of clusters, of what a cluster does, as if that were one piece."""
    unit = number_of_unit(kernel)
    if unit is None:
        return None
    blocks = kernel.cluster if isinstance(unit, cuda.ClusterIndexOp) else 1
    loads = Loads(kernel, roles, arguments)
    first = loads.of(0)
    if first is None:
        return None
    found = split_of(unit.result)
    inner = pieces // blocks if found is None else loads.known[found[0].rhs]
    last = loads.of(max(inner - 1, 0))
    assert last is not None
    top = kernel.body.block
    column = depending(top, unit.result if found is None else found[0].result)
    row = depending(top, found[1].result) if found is not None and found[1] is not None else set[SSAValue]()

    def of_unit(ops: Iterable[cuda.TensorLoadOp]) -> int:
        """Each block brings its own, and of what several bring together a share."""
        return sum(op.bytes * blocks // (op.shares if blocks > 1 else 1) for op in ops)

    by_row = of_unit(copy for copy in last if not _uses(copy, column) and _uses(copy, row))
    by_column = of_unit(copy for copy in first if _uses(copy, column) and not _uses(copy, row))
    rows = pieces // blocks // max(inner, 1)
    of_pieces = _interpolated(lambda number: of_unit(loads.of(number) or ()), inner)
    return Sharing(max(rows, 1), max(slots // blocks, 1), by_row, by_column, of_pieces)


def _interpolated(bytes: Callable[[int], int], count: int) -> tuple[int, ...]:
    """Of the pieces of a row, of which a few are looked at."""
    looked_at = np.unique(np.linspace(0, max(count - 1, 0), LOOKED_AT).astype(int))
    found = np.interp(range(max(count, 1)), looked_at, [bytes(int(number)) for number in looked_at])
    return tuple(int(each) for each in found)


@dataclass
class Loads:
    """The copies that pieces bring, and the numbers that the kernel computes."""

    kernel: cuda.KernelOp
    roles: cuda.RolesOp
    arguments: Numbers
    known: Numbers = field(default_factory=dict[SSAValue, int])
    """Those of the piece that was looked at last."""
    execution: Execution = field(default_factory=Execution)

    def of(self, piece: int) -> list[cuda.TensorLoadOp] | None:
        """The copies of the piece of that number; None if some of its numbers are not known."""
        unit = number_of_unit(self.kernel)
        assert unit is not None
        self.known = {**self.arguments, unit.result: piece}
        try:
            list(self.execution.of(self.kernel.body.block, self.known))
            ops = self.execution.of(self.roles.producer.block, self.known)
            return [op for op in ops if isinstance(op, cuda.TensorLoadOp)]
        except KeyError:
            return None


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


def _uses(op: cuda.TensorLoadOp, values: Iterable[SSAValue]) -> bool:
    return any(offset in set(values) for offset in op.offsets)
