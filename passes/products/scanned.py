"""Products with a triangle of ones, which are scans: `sum_u 1[u <= x] L[u]` has the sum of all elements up to each."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, FillOp, ReadOp, ScanOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, sizes_of, with_format
from treadle.dialects.diagram.condition import AtLeastZero, Linear
from treadle.passes._functions import erase_unused, label, note, replace

LAW = "a sum with a triangle of ones is a scan"


@dataclass(frozen=True)
class Scanned:
    """A product that is a scan: of what, which lies along `axis` under another name in it."""

    product: ContractOp
    read: ReadOp
    casts: tuple[CastOp, ...]
    """What is done to the elements once they are read, the last first."""
    axis: str
    is_reverse: bool
    is_exclusive: bool

    @property
    def value(self) -> SSAValue:
        return self.product.result

    @property
    def source(self) -> SSAValue:
        """What is scanned now: it may be such a product, too, of which a scan is made first."""
        return self.read.operand


def scanned_in(block: Block) -> list[Scanned]:
    """The products of a block that are scans."""
    every = (scanned_by(op) for op in block.ops if isinstance(op, ContractOp))
    return [each for each in every if each is not None]


def scanned_by(op: ContractOp) -> Scanned | None:
    """The scan that a product is, if it is one."""
    if len(op.over_axes) != 1 or op.init is not None or str(op.accumulate) not in ("f32", "i32") or op.is_tf32:
        return None
    (summed,) = op.over_axes
    for triangle, elements in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        where = _triangle(triangle)
        if where is None or set(axes_of(triangle.type)) & set(axes_of(elements.type)) != {summed}:
            continue
        (row,) = set(axes_of(triangle.type)) - {summed} or {""}
        found = _order(where, row, summed)
        read, casts = past_casts(elements)
        if found is not None and isinstance(read, ReadOp) and _goes_over(read, row, summed):
            return Scanned(op, read, casts, row, *found)
    return None


def _triangle(value: SSAValue) -> WhereOp | None:
    """The condition that leaves ones of an array along two axes."""
    where, _ = past_casts(value)
    if not isinstance(where, WhereOp) or where.inputs or len(axes_of(value.type)) != 2:
        return None
    fill, _ = past_casts(where.operand)
    return where if isinstance(fill, FillOp) and fill.number == 1 else None


def past_casts(value: SSAValue) -> tuple[Operation | None, tuple[CastOp, ...]]:
    """What makes the elements that are cast, and the casts, the last first."""
    casts: list[CastOp] = []
    while isinstance(value.owner, CastOp):
        casts.append(value.owner)
        value = value.owner.operand
    return (value.owner if isinstance(value.owner, Operation) else None), tuple(casts)


def _order(where: WhereOp, row: str, summed: str) -> tuple[bool, bool] | None:
    """Whether elements from the row on count, instead of up to it, and whether its own does not; None for what is no
    such order."""
    condition = where.holds
    if not isinstance(condition, AtLeastZero) or condition.form.constant not in (0, -1):
        return None
    for sign in (1, -1):
        if condition.form == Linear({row: sign, summed: -sign}, condition.form.constant):
            return sign < 0, condition.form.constant < 0
    return None


def _goes_over(read: ReadOp, row: str, summed: str) -> bool:
    """Whether an array is read as it lies, all of the axis of the rows under the name of the one that is summed."""
    if read.is_padded or read.inputs or row not in axes_of(read.operand.type) or summed in axes_of(read.operand.type):
        return False
    names = {axis: summed if axis == row else axis for axis in axes_of(read.operand.type)}
    same = all(read.forms[axis] == Linear({name: 1}, 0) for axis, name in names.items())
    sizes, length = sizes_of(read.result.type), sizes_of(read.operand.type)[row]
    return same and sizes.keys() == set(names.values()) and _is_as_long(read, summed, sizes[summed], length)


def _is_as_long(read: ReadOp, summed: str, size: int, length: int) -> bool:
    """Whether the axis under its other name is as long as itself: what is known only at launch is as long as the
    shortest of all that is read along it."""
    if size != DYNAMIC or length != DYNAMIC:
        return size == length
    block = read.parent
    if block is None or any(summed in axes_of(argument.type) for argument in block.args):
        return False
    reads = [op for op in block.ops if isinstance(op, ReadOp) and summed in axes_of(op.result.type)]
    return all(_lengthens_alike(read, each, summed) for each in reads)


def _lengthens_alike(read: ReadOp, other: ReadOp, summed: str) -> bool:
    """Whether another array is read along an axis at the same axis of its own."""
    along = {axis for axis, form in other.forms.items() if summed in form.terms}
    own = {axis for axis, form in read.forms.items() if summed in form.terms}
    return along == own and all(other.forms[axis] == Linear({summed: 1}, 0) for axis in along)


def scan(function: func.FuncOp, each: Scanned, rewrite: str, why: str) -> None:
    """Put a scan in the place of a product."""
    op, made, value = each.product, list[Operation](), each.source
    for cast in reversed(each.casts):
        made.append(CastOp(value, with_format(value.type, format_of(cast.result.type)), cast.fixed is not None))
        value = made[-1].results[0]
    if format_of(value.type) != op.accumulate:
        made.append(CastOp(value, with_format(value.type, op.accumulate)))
        value = made[-1].results[0]
    type = with_format(op.result.type, op.accumulate)
    scanned = ScanOp("add", value, each.axis, type, exclusive=each.is_exclusive, reverse=each.is_reverse)
    made.append(scanned)
    if format_of(op.result.type) != op.accumulate:
        made.append(CastOp(scanned.result, op.result.type))
    for new in made:
        new.location = op.location
    before = list(op.operands)
    name = label(op.result)
    replace(op, made, made[-1].results[0])
    erase_unused(before)
    note(function, rewrite, f"{name} along {each.axis}", LAW, why)


__all__ = ["LAW", "Scanned", "past_casts", "scan", "scanned_in"]
