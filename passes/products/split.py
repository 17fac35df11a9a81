"""Products whose summed axis is read in parts elsewhere: a sum of products, one for each part."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from xdsl.dialects import func
from xdsl.ir import Block, SSAValue

from treadle.dialects.diagram import ContractOp, ReadOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.condition import Linear, spelled
from treadle.dialects.diagram.formats import INTEGERS
from treadle.passes._functions import derived_hint, erase_unused, label, note, replace
from treadle.passes.axes.merge import name_of
from treadle.passes.expressions.scalars import Expression, Leaf, build_map, total

LAW = "a sum is the sum of the sums of its parts"

MOST_PARTS = 4
"""Each is a product of its own, with tiles of its own."""


@dataclass(frozen=True)
class Part:
    """Positions of the summed axis, and the array that holds them, where there is one."""

    begin: int
    size: int
    read: ReadOp | None = None


@dataclass(frozen=True)
class Split:
    """A product, the operand of which parts are read elsewhere, the axis along which they lie, and all parts of it."""

    product: ContractOp
    operand: SSAValue
    axis: str
    parts: tuple[Part, ...]

    @property
    def value(self) -> SSAValue:
        return self.product.result


def splits_in(block: Block) -> list[Split]:
    """Those of a function. A part that is read elsewhere is another array as long as the product takes all of it: both
    would be loaded. As a product of its own, the part is one array for both."""
    return [found for op in block.ops if isinstance(op, ContractOp) and (found := _split(op)) is not None]


def _split(op: ContractOp) -> Split | None:
    if op.init is not None or str(op.accumulate) in INTEGERS or op.lhs is op.rhs or absences_of([op.lhs, op.rhs]):
        return None
    return next((found for axis in op.over_axes for found in _along(op, axis)), None)


def _along(op: ContractOp, axis: str) -> Iterator[Split]:
    for operand, other in ((op.rhs, op.lhs), (op.lhs, op.rhs)):
        size = sizes_of(operand.type).get(axis, DYNAMIC)
        if size == DYNAMIC or axis not in axes_of(other.type):
            continue
        taken = {*axes_of(op.lhs.type), *axes_of(op.rhs.type)}
        reads = [use.operation for use in operand.uses if isinstance(use.operation, ReadOp)]
        found = [part for read in reads if (part := _part(read, operand, axis, taken)) is not None]
        parts = tuple(_all_parts(found, size))
        if 1 < len(parts) <= MOST_PARTS:
            yield Split(op, operand, axis, parts)


def _part(read: ReadOp, operand: SSAValue, axis: str, taken: Collection[str]) -> Part | None:
    """The part of an array along an axis that is read under another name; all other axes are read as they lie."""
    if read.operand is not operand or read.inputs or read.leaving:
        return None
    forms = read.forms
    if any(form != Linear({along: 1}) for along, form in forms.items() if along != axis):
        return None
    form, sizes = forms[axis], sizes_of(read.result.type)
    name = next((name for name in sizes if form == Linear({name: 1}, form.constant)), None)  # no quotient of one
    if name is None or name in taken or sizes[name] <= 0:
        return None
    return Part(form.constant, sizes[name], read)


def _all_parts(found: Iterable[Part], size: int) -> Iterator[Part]:
    """Parts that follow each other, with those that nobody reads between them; of two that overlap, the first."""
    at = 0
    for part in sorted(found, key=lambda each: (each.begin, each.size)):
        if part.begin < at or part.size == size:
            continue
        if part.begin > at:
            yield Part(at, part.begin - at)
        yield part
        at = part.begin + part.size
    if at < size:
        yield Part(at, size - at)


# -- rewriting ------------------------------------------------------------------------------------


def split(function: func.FuncOp, found: Split, rewrite: str, why: str = "") -> None:
    """Multiply part by part, and add up the products."""
    op = found.product
    subject = f"{label(op.result)} over the parts of {label(found.operand)} along '{found.axis}'"
    products = [_product(found, part) for part in found.parts]
    terms: Sequence[Expression] = [Leaf(product) for product in products]
    whole = build_map(reduce(total, terms), op.result.type, location=op.location)
    note(function, rewrite, subject, LAW, why)
    operands = [*op.operands]
    replace(op, [whole], whole.result)
    erase_unused(operands)


def _product(found: Split, part: Part) -> SSAValue:
    """Of one part, in the format in which products are added up."""
    op = found.product
    block = op.parent
    assert block is not None
    axis = _name(found, part, block)
    lhs, rhs = (_read(found, part, each, axis) for each in (op.lhs, op.rhs))
    over = [axis if each == found.axis else each for each in op.over_axes]
    multiply = None if op.multiply is None else op.multiply.data
    type = array_type(op.accumulate, sizes_of(op.result.type))
    product = ContractOp(lhs, rhs, over, type, op.accumulate, multiply=multiply)
    product.attributes |= op.attributes
    product.location = op.location
    block.insert_op_before(product, op)
    product.result.name_hint = derived_hint(op.result, axis)
    return product.result


def _name(found: Split, part: Part, block: Block) -> str:
    """Of the axis along which a part lies."""
    if part.read is None:
        return name_of([found.axis, "part"], block)
    (name,) = part.read.forms[found.axis].terms
    return str(name)


def _read(found: Split, part: Part, operand: SSAValue, axis: str) -> SSAValue:
    """The part of an operand: as it is read already, if it is."""
    op, block = found.product, found.product.parent
    assert block is not None
    if part.read is not None and operand is found.operand:
        if op.is_before_in_block(part.read):  # what it reads is known here, too
            part.read.detach()
            block.insert_op_before(part.read, op)
        return part.read.result
    place = Linear({axis: 1}, part.begin)
    forms = [place if each == found.axis else Linear({each: 1}) for each in axes_of(operand.type)]
    sizes = {axis if name == found.axis else name: size for name, size in sizes_of(operand.type).items()}
    type = array_type(format_of(operand.type), sizes | {axis: part.size})
    read = ReadOp(operand, ", ".join(map(spelled, forms)), type)
    read.location = op.location
    block.insert_op_before(read, op)
    read.result.name_hint = derived_hint(operand, axis)
    return read.result


__all__ = ["LAW", "Split", "split", "splits_in"]
