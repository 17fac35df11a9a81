"""What the cotangent of a result means for the operands: one rule an operation, each a law."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from xdsl.dialects.builtin import f32
from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    CollapseOp,
    ContractOp,
    ExpandOp,
    MapOp,
    ReadOp,
    RecurrenceOp,
    ReduceOp,
    RenameOp,
    ScanOp,
    ScatterOp,
    SwapOp,
    WhereOp,
)
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.dialects.diagram.operation import union
from treadle.passes.expressions.derivatives import NoDerivative, adjoints
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    compare,
    convert,
    expression_of,
    is_plain,
    number,
    product,
    quotient,
    select,
)
from treadle.passes.gradients.backward import Backward, is_argument
from treadle.passes.gradients.laws import is_float, law_of
from treadle.passes.gradients.presence import Asked, conditions, vanishing
from treadle.passes.gradients.reads import read
from treadle.passes.gradients.recurrences import recurrence
from treadle.passes.gradients.scattered import scatter

Rule: TypeAlias = Callable[[Any, SSAValue, Backward], None]
"""From an operation and the cotangent of its result; it adds to those of the operands."""


def differentiate(op: Operation, backward: Backward) -> None:
    """Hand the cotangents of the results of an operation on to its operands (Refusal)."""
    backward.location = op.location
    if isinstance(op, ApplyOp):
        return _apply(op, backward)
    if isinstance(op, RecurrenceOp):
        return recurrence(op, backward, differentiate)
    if type(op) not in RULES or (cotangent := backward.cotangent(op.results[0])) is None:
        return None
    return RULES[type(op)](op, cotangent, backward)


def contract(op: ContractOp, cotangent: SSAValue, backward: Backward) -> None:
    """A contraction is linear in each factor."""
    for factor, other in ((op.lhs, op.rhs), (op.rhs, op.lhs)):
        if factor in backward.active:
            backward.add(factor, _of_factor(op, factor, other, cotangent, backward))
    if op.init is not None:
        backward.add(op.init, cotangent)
    backward.note(op.result, "a contraction is linear in each factor")


def _of_factor(op: ContractOp, factor: SSAValue, other: SSAValue, cotangent: SSAValue, backward: Backward) -> SSAValue:
    """The cotangent of a factor: that of the result times the other factor, summed over what the factor lacks."""
    sizes, hint = sizes_of(factor.type), backward.hint(factor)
    cotangent, other = (
        _summed_alone(cotangent, other, sizes, backward),
        _summed_alone(other, cotangent, sizes, backward),
    )
    known = union(axes_of(cotangent.type), axes_of(other.type))
    over = [axis for axis in known if axis not in sizes]
    if not over:
        each = product(convert(Leaf(cotangent), f32), convert(Leaf(other), f32))
        return backward.map(each, sizes, hint)
    left, right = backward.factors(cotangent, other)
    if is_argument(left) and not is_argument(right):  # what is computed stays in registers as the left factor
        left, right = right, left
    kept = {axis: size for axis, size in sizes.items() if axis in known}
    as_tf32 = op.multiply.data if op.multiply is not None and format_of(left.type) == f32 else None
    whole = backward.write(ContractOp(left, right, over, array_type(f32, kept), f32, multiply=as_tf32), hint)
    return backward.spread(whole, factor)


def _summed_alone(value: SSAValue, other: SSAValue, kept: Collection[str], backward: Backward) -> SSAValue:
    """A factor, summed over the axes that nothing else has: a product has its depth in both."""
    sizes = sizes_of(value.type)
    alone = [axis for axis in sizes if axis not in kept and axis not in axes_of(other.type)]
    if not alone:
        return value
    rest = {axis: size for axis, size in sizes.items() if axis not in alone}
    if str(format_of(value.type)) in EIGHT_BIT:
        value = backward.as_type(value, array_type(f32, sizes))
    hint = f"{value.name_hint}_sum" if value.name_hint else None
    return backward.write(ReduceOp("add", value, alone, array_type(f32, rest)), hint)


def reduce(op: ReduceOp, cotangent: SSAValue, backward: Backward) -> None:
    if op.kind.data == "add":
        backward.note(op.result, "every summand counts once")
        backward.add(op.operand, backward.spread(cotangent, op.operand))
        if op.init is not None:
            backward.add(op.init, cotangent)
    elif op.kind.data == "mul":
        _of_product(op, cotangent, backward)
    else:
        _of_extremum(op, cotangent, backward)


def scan(op: ScanOp, cotangent: SSAValue, backward: Backward) -> None:
    """An element counts in all sums from it on, or up to it in reverse."""
    if op.kind.data != "add":
        raise Refusal(op, f"a scan of '{op.kind.data}' has no gradient here: only sums have")
    axis, sizes = op.axis.data, sizes_of(op.operand.type)
    given = backward.as_type(cotangent, array_type(f32, sizes_of(cotangent.type)))
    type = array_type(f32, sizes)
    back = ScanOp("add", given, axis, type, exclusive=op.is_exclusive, reverse=not op.is_reverse)
    backward.note(op.result, "an element counts in every sum that is from it on")
    backward.add(op.operand, backward.write(back, backward.hint(op.operand)))
    if op.init is not None:
        rest = {each: size for each, size in sizes_of(cotangent.type).items() if each != axis}
        backward.add(op.init, backward.write(ReduceOp("add", given, [axis], array_type(f32, rest)), "begin"))


def _of_extremum(op: ReduceOp, cotangent: SSAValue, backward: Backward) -> None:
    """All goes to the extremal elements, in equal parts. The extremum is taken again in f32: rounded, or saved by a
    kernel that computes its operands in another order, it may equal none of them."""
    sizes, row = sizes_of(op.operand.type), sizes_of(op.result.type)
    again = ReduceOp(op.kind.data, op.operand, op.over_axes, array_type(f32, row))
    extremum = backward.write(again, op.result.name_hint)
    equal = compare(convert(Leaf(op.operand), f32), "==", Leaf(extremum))
    ones = backward.map(select(equal, number(1), number(0)), sizes, "is_extremal")
    count = backward.write(ReduceOp("add", ones, op.over_axes, array_type(f32, row)), "count")
    share = quotient(convert(Leaf(cotangent), f32), Leaf(count))
    backward.note(op.result, "an extremum moves with its extremal elements", "shared evenly among equals")
    backward.add(op.operand, backward.map(select(equal, share, number(0)), sizes, backward.hint(op.operand)))


def _of_product(op: ReduceOp, cotangent: SSAValue, backward: Backward) -> None:
    """Each element gets the product of the others: of all but zeros over itself, if there is no zero but it."""
    sizes, row = sizes_of(op.operand.type), sizes_of(op.result.type)
    element = convert(Leaf(op.operand), f32)
    is_zero = compare(element, "==", number(0))
    ones = backward.map(select(is_zero, number(1), number(0)), sizes, "is_zero")
    zeros = backward.write(ReduceOp("add", ones, op.over_axes, array_type(f32, row)), "zeros")
    factors = backward.map(select(is_zero, number(1), element), sizes, "factors")
    whole = backward.write(ReduceOp("mul", factors, op.over_axes, array_type(f32, row)), "product")
    others = select(compare(Leaf(zeros), "==", number(0)), quotient(Leaf(whole), element), number(0))
    alone = select(compare(Leaf(zeros), "==", number(1)), Leaf(whole), number(0))
    each = product(convert(Leaf(cotangent), f32), select(is_zero, alone, others))
    backward.note(op.result, "product rule")
    backward.add(op.operand, backward.map(each, sizes, backward.hint(op.operand)))


def map(op: MapOp, cotangent: SSAValue, backward: Backward) -> None:
    """The chain rule on what the map computes; an operand that is repeated along an axis gets the sum."""
    if not is_plain(op):
        raise Refusal(op, "no derivative is known of a map whose operations give several values")
    # Slopes may be NaN where nothing depends on them.
    asked = conditions(op.result, backward.laws) | vanishing(cotangent, backward.laws)
    cotangent = backward.restricted(cotangent, asked)
    wanted = backward.active & set(op.inputs)
    try:
        found = adjoints(expression_of(op), Leaf(cotangent), wanted, op.result)
    except NoDerivative as error:
        raise Refusal(op, str(error)) from error
    backward.note(op.result, "chain rule")
    for leaf, adjoint in found.items():
        backward.add(leaf.value, _summed(op, leaf.value, adjoint, backward))


def _summed(op: MapOp, operand: SSAValue, adjoint: Expression, backward: Backward) -> SSAValue:
    """An adjoint, summed over the axes of the map that an operand lacks."""
    sizes, own = sizes_of(op.result.type), sizes_of(operand.type)
    hint = backward.hint(operand)
    over = [axis for axis in sizes if axis not in own]
    if not over:
        return backward.map(adjoint, sizes, hint)
    terms = backward.map(adjoint, sizes, f"{hint}_terms" if hint else None)
    return backward.write(ReduceOp("add", terms, over, array_type(f32, own)), hint)


def cast_rule(op: CastOp, cotangent: SSAValue, backward: Backward) -> None:
    backward.note(op.result, "a cast is the identity over the real numbers")
    backward.add(op.operand, cotangent)


def where(op: WhereOp, cotangent: SSAValue, backward: Backward) -> None:
    backward.note(op.result, "what is absent has no gradient", f"if {op.condition.text.data}")
    backward.add(op.operand, backward.restricted(cotangent, [Asked.by(op)]))


def swap(op: SwapOp, cotangent: SSAValue, backward: Backward) -> None:
    """A swap is its own adjoint."""
    if conditions(cotangent, backward.laws):
        cotangent = backward.filled(cotangent)
    backward.note(op.result, "a swap is its own adjoint")
    new = SwapOp(cotangent, op.axis.data, op.length, cotangent.type)
    backward.add(op.operand, backward.write(new, backward.hint(op.operand)))


def rename(op: RenameOp, cotangent: SSAValue, backward: Backward) -> None:
    """The cotangent has the old names again."""
    backward.note(op.result, "other names change no element")
    whole = backward.spread(cotangent, op.result)
    back = {new: old for old, new in op.names.items()}
    sizes = {back.get(axis, axis): size for axis, size in sizes_of(whole.type).items()}
    new = RenameOp(whole, back, array_type(format_of(whole.type), sizes))
    backward.add(op.operand, backward.write(new, backward.hint(op.operand)))


def regroup(op: CollapseOp | ExpandOp, cotangent: SSAValue, backward: Backward) -> None:
    """Each is the adjoint of the other: elements change places with nobody."""
    if conditions(op.operand, backward.laws):
        raise Refusal(op, "it regroups the axes of an array of which elements are absent: no gradient of that is known")
    if conditions(cotangent, backward.laws):
        cotangent = backward.filled(cotangent)
    hint = backward.hint(op.operand)
    ordered = backward.as_type(cotangent, array_type(format_of(cotangent.type), sizes_of(op.result.type)), hint)
    type = array_type(format_of(cotangent.type), sizes_of(op.operand.type))
    if isinstance(op, CollapseOp):
        new: Operation = ExpandOp(ordered, op.whole, op.parts, type)
    else:
        new = CollapseOp(ordered, op.parts, op.whole, type)
    backward.note(op.result, "collapse and expand are adjoint")
    backward.add(op.operand, backward.write(new, hint))


def _apply(op: ApplyOp, backward: Backward) -> None:
    """The gradient that a law states, of the arguments, the results and their cotangents."""
    given = [backward.cotangent(output) if is_float(output.type) else None for output in op.outputs]
    if all(each is None for each in given):
        return
    law = law_of(op, backward.laws)
    assert law is not None
    assert law.gradient is not None
    cotangents = [
        backward.present(backward.zeros(output) if each is None else each, output)
        for output, each in zip(op.outputs, given, strict=True)
        if is_float(output.type)
    ]
    inputs = [value for value in op.inputs if is_float(value.type)]
    types = [array_type(f32, sizes_of(value.type)) for value in inputs]
    new = ApplyOp(law.gradient, [*op.inputs, *op.outputs, *cotangents], op.over_axes, types)
    backward.write(new, None)
    backward.note(op.result, f"gradient of @{law.sym_name.data}", f"@{law.gradient.string_value()}")
    for value, output in zip(inputs, new.outputs, strict=True):
        output.name_hint = backward.hint(value)
        backward.add(value, output)


RULES: dict[type[Operation], Rule] = {
    ContractOp: contract,
    ReduceOp: reduce,
    ScanOp: scan,
    MapOp: map,
    CastOp: cast_rule,
    WhereOp: where,
    SwapOp: swap,
    ReadOp: read,
    RenameOp: rename,
    ScatterOp: scatter,
    CollapseOp: regroup,
    ExpandOp: regroup,
}
"""Constants, positions and sizes have no operands."""
