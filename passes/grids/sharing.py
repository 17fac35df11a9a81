"""The pieces of a grid at the sizes that a function is made for: how many, and what of the copies they share."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, SSAValue

from treadle.compiler.cost.tile_order import Sharing
from treadle.compiler.execution import ARITHMETIC, executed
from treadle.dialects import cuda
from treadle.dialects.diagram import SizesAttr
from treadle.dialects.diagram.array import DYNAMIC, sizes_of

Numbers = dict[SSAValue, int]


def numbers_of_host(function: FuncOp, hints: bool = True) -> Numbers:
    """The numbers that a host function computes; where sizes are symbolic, at those of its attribute `sizes`, or,
    without `hints`, none."""
    attribute = function.attributes.get("sizes") if hints else None
    given = attribute.as_dict() if isinstance(attribute, SizesAttr) else {}
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


def columns_of(kernel: cuda.KernelOp) -> tuple[arith.RemUIOp, arith.DivUIOp] | None:
    """The column and the row of a block's piece: remainder and quotient of its number by the pieces of a row."""
    block = next((op for op in kernel.body.block.ops if isinstance(op, cuda.BlockIndexOp)), None)
    if block is None:
        return None
    users = [use.operation for use in block.result.uses]
    column = next((op for op in users if isinstance(op, arith.RemUIOp) and op.lhs is block.result), None)
    row = next((op for op in users if isinstance(op, arith.DivUIOp) and op.lhs is block.result), None)
    return None if column is None or row is None or _number(column.rhs) != _number(row.rhs) else (column, row)


def _number(value: SSAValue) -> int | SSAValue:
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return value


def sharing(kernel: cuda.KernelOp, roles: cuda.RolesOp, arguments: Numbers, pieces: int, slots: int) -> Sharing | None:
    """What the copies of pieces share; None where pieces have no rows and columns."""
    found = columns_of(kernel)
    if found is None:
        return None
    column, row = (depending(kernel.body.block, op.result) for op in found)
    loads = _loads(kernel, roles, arguments, 0)
    if loads is None:
        return None
    known, copies = loads
    inner = known[found[0].rhs]
    last = _loads(kernel, roles, arguments, inner - 1)
    assert last is not None
    by_row = sum(copy.bytes for copy in last[1] if not _uses(copy, column) and _uses(copy, row))
    by_column = sum(copy.bytes for copy in copies if _uses(copy, column) and not _uses(copy, row))
    first_bytes, last_bytes = (sum(copy.bytes for copy in each) for each in (copies, last[1]))
    return Sharing(pieces // max(inner, 1), slots, by_row, by_column, first_bytes, last_bytes)


def _loads(
    kernel: cuda.KernelOp, roles: cuda.RolesOp, arguments: Numbers, block: int
) -> tuple[Numbers, list[cuda.TensorLoadOp]] | None:
    """The copies of the piece of that number, and the numbers that the kernel computes; None if some are not known."""
    index = next(op.result for op in kernel.body.block.ops if isinstance(op, cuda.BlockIndexOp))
    known = {**arguments, index: block}
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
        elif any(operand in found for operand in op.operands):
            found.update(op.results)
    return found


def _uses(op: cuda.TensorLoadOp, values: Iterable[SSAValue]) -> bool:
    return any(offset in set(values) for offset in op.offsets)
