"""Operands of which a condition keeps rows, other ones for each position of an axis that they lack: `first[i] <= t and
t < end[i]` of `t, n`, summed over `t` for each `i`. What a map repeats is in registers; what is read again comes by
copies, which bring zeros for all other rows (`hierarchy.bounded`)."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.read import in_no_memory
from treadle.dialects.hierarchy.bounded import bounds_along
from treadle.passes._functions import derived_hint, erase_unused, label, note
from treadle.passes.products.converted import source_in

LAW = "a condition keeps what is read again as it keeps what is repeated"


@dataclass(frozen=True)
class Repeated:
    """An operand of a product that is repeated along an axis, for each position of which it keeps other rows."""

    product: SSAValue
    index: int
    """Which of the operands."""
    along: str
    row: str

    @property
    def operand(self) -> SSAValue:
        """What the product is given now."""
        assert isinstance(self.product.owner, Operation)
        return self.product.owner.operands[self.index]


def repeated_in(function: func.FuncOp) -> list[Repeated]:
    """Those of a function of which copies could bring the rows that conditions leave."""
    products = [op for op in function.body.block.ops if isinstance(op, ContractOp)]
    found = (_repeated(op, index) for op in products for index in (0, 1))
    return [each for each in found if each is not None]


def _repeated(op: ContractOp, index: int) -> Repeated | None:
    kept = _kept(op.operands[index])
    if kept is None:
        return None
    where, source, along = kept
    bounds = bounds_along(where, _axes(source, along), [op])
    if (
        bounds is None
        or bounds.along != along
        or bounds.row not in op.over_axes
        or not bounds.begins
        or not bounds.ends
    ):
        return None
    return Repeated(op.result, index, along, bounds.row)


def _kept(factor: SSAValue) -> tuple[WhereOp, SSAValue, str] | None:
    """The condition on an operand, the array in its format of which it keeps rows, and the axis that this lacks."""
    value, format, where = factor, format_of(factor.type), None
    sizes = sizes_of(factor.type)
    while True:
        lacks = [axis for axis in sizes if axis not in axes_of(value.type)]
        if where is not None and len(lacks) == 1 and format_of(value.type) == format:
            is_saved = isinstance(value.owner, Block | ContractOp | ReduceOp | MapOp | CastOp)
            is_read = is_saved and in_no_memory(value, True, True) is None
            return (where, value, lacks[0]) if is_read and sizes[lacks[0]] != DYNAMIC else None
        if isinstance(value.owner, WhereOp) and where is None and value.owner.within is None:
            where = value.owner
            value = where.operand
        elif (source := source_in(value, format)) is not None and is_array(source.type):
            value = source
        else:
            return None


def _axes(source: SSAValue, along: str) -> tuple[str, ...]:
    """Of what is read: rows stay rows."""
    *rows, last = axes_of(source.type)
    return (*rows, along, last)


def read_again(function: func.FuncOp, each: Repeated, rewrite: str, why: str) -> None:
    """What a product is given, read again for each position of the axis that it lacks."""
    op, before = each.product.owner, each.operand
    kept = _kept(before)
    assert isinstance(op, ContractOp)
    assert kept is not None
    where, source, along = kept
    sizes = {**sizes_of(source.type), along: sizes_of(before.type)[along]}
    type = array_type(format_of(source.type), {axis: sizes[axis] for axis in _axes(source, along)})
    read = ReadOp(source, ", ".join(axes_of(source.type)), type, padded=True)
    rows = WhereOp(read.result, where.condition, where.asked)
    for new, hint in ((read, derived_hint(source, "again")), (rows, derived_hint(where.result, "rows"))):
        new.location = op.location
        new.results[0].name_hint = hint
        Rewriter.insert_op(new, InsertPoint.before(op))
    op.operands[each.index] = rows.result
    erase_unused([before])
    note(function, rewrite, f"{label(source)} for each {along} of {label(each.product)}", LAW, why)


__all__ = ["LAW", "Repeated", "read_again", "repeated_in"]
