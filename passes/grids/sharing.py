"""The pieces of a grid at the sizes that a function is made for: how many, and what of the copies they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

from treadle.compiler.cost.tile_order import Sharing
from treadle.compiler.execution import ARITHMETIC, executed
from treadle.dialects import cuda
from treadle.dialects.diagram import SizesAttr
from treadle.dialects.diagram.array import DYNAMIC, sizes_of
from treadle.passes.grids.coordinates import number_of_unit, split_of

Numbers = dict[SSAValue, int]


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
    """What the copies of pieces share; None where pieces have no rows and columns. Where coordinates are those of
    clusters, of what a cluster does, as if that were one piece."""
    unit = number_of_unit(kernel)
    found = None if unit is None else split_of(unit.result)
    if unit is None or found is None or found[1] is None:
        return None
    blocks = kernel.cluster if isinstance(unit, cuda.ClusterIndexOp) else 1
    column, row = (depending(kernel.body.block, op.result) for op in (found[0], found[1]))
    loads = _loads(kernel, roles, arguments, 0)
    if loads is None:
        return None
    known, copies = loads
    inner = known[found[0].rhs]
    last = _loads(kernel, roles, arguments, inner - 1)
    assert last is not None

    def of_unit(ops: Iterable[cuda.TensorLoadOp]) -> int:
        """Each block brings its own, and of what several bring together a share."""
        return sum(op.bytes * blocks // (op.shares if blocks > 1 else 1) for op in ops)

    by_row = of_unit(copy for copy in last[1] if not _uses(copy, column) and _uses(copy, row))
    by_column = of_unit(copy for copy in copies if _uses(copy, column) and not _uses(copy, row))
    rows = pieces // blocks // max(inner, 1)
    return Sharing(rows, max(slots // blocks, 1), by_row, by_column, of_unit(copies), of_unit(last[1]))


def _loads(
    kernel: cuda.KernelOp, roles: cuda.RolesOp, arguments: Numbers, block: int
) -> tuple[Numbers, list[cuda.TensorLoadOp]] | None:
    """The copies of the piece of that number, and the numbers that the kernel computes; None if some are not known."""
    unit = number_of_unit(kernel)
    assert unit is not None
    known = {**arguments, unit.result: block}
    try:
        list(executed(kernel.body.block, known))
        return known, [op for op in executed(roles.producer.block, known) if isinstance(op, cuda.TensorLoadOp)]
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
