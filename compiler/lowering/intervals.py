"""What conditions leave of an axis as an interval: masks with ends of their own for each row.

A comparison whose only term along an axis is the position itself, `x <= q` or `q - x < window`, holds from some
position on, or up to one. Of all such comparisons that must hold, the latest beginning and the earliest end remain: two
numbers a row, where each element would have to be compared with each of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import IndexType, UnitAttr, i32
from xdsl.ir import Block, Region, SSAValue

from treadle.compiler.layouts.places import count, has_bits, places_along
from treadle.compiler.lowering.comparisons import Emit, into, number, total_of
from treadle.compiler.lowering.names import hinted
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.fragments import COMPARED
from treadle.dialects.cuda.layout import LayoutAttr
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import MapOp, YieldOp
from treadle.dialects.diagram.array import Number, array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.condition import (
    AtLeastZero,
    Atom,
    Both,
    Condition,
    Linear,
    Quotient,
    Remainder,
    Term,
    leaves_32_bits,
)
from treadle.dialects.diagram.solved import solved

LARGEST = 2**31 - 1

Sooner = arith.MinSIOp | arith.MaxSIOp
"""Which of two bounds is taken: of ends the first, of beginnings the last."""


@dataclass
class Interval:
    """Positions along an axis, from the last of some beginnings to before the first of some ends."""

    begins: list[Linear] = field(default_factory=list[Linear])
    ends: list[Linear] = field(default_factory=list[Linear])


def intervals_of(condition: Condition, layout: LayoutAttr) -> tuple[dict[str, Interval], Condition]:
    """Intervals of axes along which a lane has many elements, and what else must hold."""
    found: dict[str, Interval] = {}
    rest: list[Condition] = []
    for part in condition.parts if isinstance(condition, Both) else (condition,):
        told = _along_axis(part, layout)
        if told is None:
            rest.append(part)
            continue
        axis, form = told
        interval = found.setdefault(axis, Interval())
        other = form.plus(Linear({axis: 1}), -form.terms[axis])
        if form.terms[axis] < 0:
            interval.ends.append(other.plus(Linear({}, 1)))
        else:
            interval.begins.append(other.times(-1))
    return found, rest[0] if len(rest) == 1 else Both(tuple(rest))


def _along_axis(condition: Condition, layout: LayoutAttr) -> tuple[str, Linear] | None:
    """The axis along which a comparison leaves an interval that bits can tell, and what is at least zero there; of two,
    that of more elements."""
    if not isinstance(condition, AtLeastZero):
        return None
    form = condition.form
    axes = [axis for axis in dict.fromkeys(form.atoms) if isinstance(axis, str) and has_bits(layout, axis)]
    forms = {axis: told for axis in axes if not _reads_along(form, axis) and (told := solved(form, axis)) is not None}
    able = [axis for axis, told in forms.items() if abs(told.terms.get(axis, 0)) == 1]
    axis = max(able, key=lambda axis: count(places_along(layout, axis) or ()), default=None)
    return None if axis is None else (axis, forms[axis])


def _reads_along(form: Linear, axis: str) -> bool:
    """Whether an input that is read along the axis is compared, too."""
    return any(isinstance(term, SSAValue) and is_array(term.type) and axis in axes_of(term.type) for term in form.atoms)


# -- ends as operations ----------------------------------------------------------------------------


def bound_of(
    lowering: KernelLowering,
    forms: Sequence[Linear],
    terms: Mapping[Atom, SSAValue],
    last: Mapping[str, int],
    layout: LayoutAttr,
    sooner: type[Sooner],
) -> SSAValue | None:
    """The least (or, of beginnings, the largest) of some positions: of each row that has its own (i32), or of all
    (index)."""
    if not forms:
        return None
    used = {term: terms[term] for form in forms for term in form.atoms}

    def position(values: Mapping[Atom, SSAValue], emit: Emit) -> SSAValue:
        return reduce(
            lambda one, other: emit(sooner(one, other)), [_position(form, values, last, emit) for form in forms]
        )

    return over_rows(lowering, used, position, layout)


def _position(form: Linear, values: Mapping[Atom, SSAValue], last: Mapping[str, int], emit: Emit) -> SSAValue:
    """What a form is, as a position: between 0 and the largest number of 32 bits, so that the distance from another
    position is such a number, too."""
    type = IndexType() if leaves_32_bits(form, last.__getitem__) else i32
    found = total_of(form, values, type, emit)
    if not _is_positive(form):
        found = emit(arith.MaxSIOp(found, number(0, type, emit)))
    if type == i32:
        return found
    return emit(arith.IndexCastOp(emit(arith.MinSIOp(found, number(LARGEST, type, emit))), i32))


def _is_positive(form: Linear) -> bool:
    """Whether a sum of positions is not below zero, wherever they are."""
    return form.constant >= 0 and all(factor > 0 and _is_one_positive(term) for term, factor in form.terms.items())


def _is_one_positive(term: Term) -> bool:
    return isinstance(term, str | Remainder) or (isinstance(term, Quotient) and _is_positive(term.form))


def over_rows(
    lowering: KernelLowering,
    inputs: Mapping[Atom, SSAValue],
    position: Callable[[Mapping[Atom, SSAValue], Emit], SSAValue],
    layout: LayoutAttr,
) -> SSAValue:
    """A position that is made of numbers of rows, as a map of them; as an index if it is made of numbers of all."""
    sizes = {
        axis: size for each in inputs.values() if is_array(each.type) for axis, size in sizes_of(each.type).items()
    }
    if not sizes:
        emit = into(lowering.block)
        numbers = {term: _number(each, emit) for term, each in inputs.items()}
        return emit(arith.IndexCastOp(position(numbers, emit), IndexType()))
    block = Block(arg_types=[format_of(each.type) for each in inputs.values()])
    for argument, each in zip(block.args, inputs.values(), strict=True):
        argument.name_hint = each.name_hint
    block.add_op(YieldOp(position(dict(zip(inputs, block.args, strict=True)), into(block))))
    made = array_type(i32, sizes, "register", layout.slice(sizes))
    return lowering.emit(MapOp(list(inputs.values()), made, Region(block))).result


def _number(value: SSAValue, emit: Emit) -> SSAValue:
    """The number that an array without axes holds; any other value is one already."""
    return emit(tensor.ExtractOp(value, [], format_of(value.type))) if is_array(value.type) else value


# -- masks -----------------------------------------------------------------------------------------


def mask(
    lowering: KernelLowering,
    value: SSAValue,
    axis: str,
    offset: SSAValue,
    begin: SSAValue | None,
    end: SSAValue,
    other: Number,
) -> cuda.MaskOp:
    """A mask; of what is masked already along the axis, with the same number, one with the bounds of both."""
    inner = value.owner
    if (
        isinstance(inner, cuda.MaskOp)
        and inner.axis.data == axis
        and _is_same(inner.offset, offset)
        and inner.other == other
    ):
        layout = layout_of(value.type)
        begin = _joined(lowering, inner.begin, begin, arith.MaxSIOp, layout)
        end = _joined(lowering, inner.limit, end, arith.MinSIOp, layout) or end
        value = inner.value
    made = lowering.emit(cuda.MaskOp(value, axis, offset, end, other, begin))
    if not lowering.has_room:
        made.attributes[COMPARED] = UnitAttr()
    return made


def _is_same(one: SSAValue, other: SSAValue) -> bool:
    """Whether two indices are one value, or equal constants."""
    if isinstance(one.owner, arith.ConstantOp) and isinstance(other.owner, arith.ConstantOp):
        return one.owner.value == other.owner.value
    return one is other


def _joined(
    lowering: KernelLowering, one: SSAValue | None, other: SSAValue | None, sooner: type[Sooner], layout: LayoutAttr
) -> SSAValue | None:
    if one is None or other is None or one is other:
        return one or other
    if not is_array(one.type) and not is_array(other.type):
        return lowering.emit(sooner(one, other)).result

    bounds = [
        each if is_array(each.type) else lowering.emit(arith.IndexCastOp(each, i32)).result for each in (one, other)
    ]

    def position(values: Mapping[Atom, SSAValue], emit: Emit) -> SSAValue:
        first, second = values.values()
        return emit(sooner(first, second))

    return hinted(
        over_rows(lowering, {each: each for each in bounds}, position, layout), one if is_array(one.type) else other
    )


def erase_unused(block: Block) -> None:
    """Erase masks that others took the place of, and numbers that nothing asks for, as where a piece ends if only where
    it begins bounds a stream."""
    for op in list(block.walk(reverse=True)):
        inside = op.parent is block or isinstance(op.parent_op(), scf.ForOp | scf.IfOp)
        is_number = inside and op.dialect_name() == "arith"
        if (is_number or isinstance(op, cuda.MaskOp)) and not any(result.uses for result in op.results):
            op.detach()
            op.erase()
