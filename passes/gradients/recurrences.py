"""The gradient of a recurrence: one that takes cotangents of its states the other way.

What happens at a position is made again of the states before it, which a recurrence like the first one keeps. From the
last position that was taken to the first the cotangent of a state after a position becomes that of the state before it,
by the rules of the operations of the body. What is fed, and what is the same at all positions, counts at each position
by itself, once it is known how much the state after it counts: so these gradients are those of the body on whole
arrays, of all positions together, and products among them are products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects.diagram import FillOp, ReadOp, RecurrenceOp, ReduceOp, RenameOp, YieldOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.recurrence import at_position
from treadle.passes._functions import erase_dead, unite_equal
from treadle.passes.gradients.backward import Backward
from treadle.passes.gradients.laws import is_float

Rules = Callable[[Operation, Backward], None]
Values = dict[SSAValue, SSAValue]


def recurrence(op: RecurrenceOp, backward: Backward, differentiate: Rules) -> None:
    """Hand the cotangents of the results on to what it begins with and what it is fed (Refusal)."""
    if not {*op.operands} & backward.active:
        return
    given: Values = {result: each for result in op.results if (each := backward.cotangent(result)) is not None}
    if not given:
        return
    before = _states_before(op, backward)
    back = _back(op, before, given, backward, differentiate)
    floats = [i for i, state in enumerate(op.states) if is_float(state.type)]
    for i, cotangent in zip(floats, back.last, strict=True):
        backward.add(op.states[i], cotangent)
    after = dict(zip(floats, back.outputs, strict=True))
    _of_positions(op, before, after, given, backward, differentiate)
    backward.note(op.results[0], "chain rule, from position to position", f"{op.axis.data} the other way")


def _outputs(op: RecurrenceOp) -> list[tuple[SSAValue, SSAValue]]:
    """What the body yields of a position, and the result that it is of all of them."""
    return list(zip(op.yielded[len(op.states) :], op.outputs, strict=True))


def _along(op: RecurrenceOp, type: Attribute, format: Attribute | None = None) -> Attribute:
    """The type of what there is at a position, of all of them: with the axis first."""
    size = next(sizes_of(value.type)[op.axis.data] for value in op.inputs if op.axis.data in axes_of(value.type))
    return array_type(format or format_of(type), {op.axis.data: size, **sizes_of(type)})


def _states_before(op: RecurrenceOp, backward: Backward) -> tuple[SSAValue, ...]:
    """The states before every position: the same recurrence, which gives them."""
    region = op.body.clone()
    block = region.block
    terminator = block.last_op
    assert terminator is not None
    count = len(op.states)
    Rewriter.replace_op(terminator, YieldOp(*terminator.operands[:count], *block.args[:count]))
    erase_dead(block)
    types = [*(value.type for value in op.last), *(_along(op, value.type) for value in op.last)]
    kept = RecurrenceOp(op.axis.data, list(op.states), list(op.inputs), types, region, op.is_reverse)
    backward.write(kept, None)
    for value, state in zip(kept.results, (*op.last, *op.last), strict=True):
        value.name_hint = f"{state.name_hint}_before" if state.name_hint else None
    return tuple(kept.outputs)


def _back(
    op: RecurrenceOp,
    before: Sequence[SSAValue],
    given: Mapping[SSAValue, SSAValue],
    backward: Backward,
    differentiate: Rules,
) -> RecurrenceOp:
    """The recurrence of the cotangents of the states. It ends with those of what the first began with, and gives those
    of the states after every position."""
    axis, floats = op.axis.data, [i for i, state in enumerate(op.states) if is_float(state.type)]
    begin = [_begun(given.get(op.last[i]), op.last[i], backward) for i in floats]
    made_of = [(value, output) for value, output in _outputs(op) if output in given]
    cotangents = [backward.spread(given[output], output) for _, output in made_of]
    fed = [*before, *op.inputs, *cotangents]
    types = [value.type if not is_array(value.type) else at_position(value.type, axis) for value in (*begin, *fed)]
    block = Block(arg_types=types)
    own = block.args[: len(floats)]
    for argument, value in zip(block.args, (*begin, *fed), strict=True):
        argument.name_hint = value.name_hint
    values: Values = dict(zip(op.body.block.args, block.args[len(floats) :], strict=False))
    for each in op.step:
        block.add_op(each.clone(values))
    states = {values[op.body.block.args[i]] for i in floats}
    inner = Backward(block, backward.laws, _depending(block, states), backward.unit, backward.likely)
    inner.location = backward.location
    steps = list(block.ops)
    for i, cotangent in zip(floats, own, strict=True):
        inner.add(values[op.yielded[i]], cotangent)
    for (value, _), cotangent in zip(made_of, block.args[len(block.args) - len(made_of) :], strict=True):
        inner.add(values[value], cotangent)
    for each in reversed(steps):
        differentiate(each, inner)
    made = [_ended(inner, values[op.body.block.args[i]]) for i in floats]
    block.add_op(YieldOp(*made, *own))
    unite_equal(block)
    erase_dead(block)
    results = [*(value.type for value in begin), *(_along(op, value.type) for value in begin)]
    back = RecurrenceOp(axis, begin, fed, results, Region(block), not op.is_reverse)
    backward.write(back, None)
    for i, first, each in zip(floats, back.last, back.outputs, strict=True):
        first.name_hint = backward.hint(op.states[i])
        each.name_hint = backward.hint(op.last[i])
    return back


def _begun(cotangent: SSAValue | None, state: SSAValue, backward: Backward) -> SSAValue:
    """The cotangent of a state in the end."""
    type = array_type(f32, sizes_of(state.type))
    if cotangent is None:
        return backward.write(FillOp(FloatAttr(0.0, f32), type), backward.hint(state))
    return backward.as_type(backward.spread(cotangent, state), type)


def _ended(inner: Backward, state: SSAValue) -> SSAValue:
    """That of a state before a position."""
    type = array_type(f32, sizes_of(state.type))
    cotangent = inner.cotangent(state)
    if cotangent is None:
        return inner.write(FillOp(FloatAttr(0.0, f32), type), inner.hint(state))
    return inner.as_type(inner.spread(cotangent, state), type)


def _of_positions(
    op: RecurrenceOp,
    before: Sequence[SSAValue],
    after: Mapping[int, SSAValue],
    given: Mapping[SSAValue, SSAValue],
    backward: Backward,
    differentiate: Rules,
) -> None:
    """The gradients of what is fed: those of the body on whole arrays, in which states before a position are given."""
    if not {*op.inputs} & backward.active:
        return
    values: Values = dict(zip(op.body.block.args, (*before, *op.inputs), strict=True))
    first = backward.block.last_op
    for each in op.step:
        values[each.results[0]] = backward.write(_of_all(op, each, values), each.results[0].name_hint)
    assert first is not None
    steps = _behind(first)
    backward.active = {*backward.active, *_depending_among(steps, {*op.inputs} & backward.active)}
    for i, cotangent in after.items():
        _add(op, values[op.yielded[i]], cotangent, backward)
    for value, output in _outputs(op):
        if output in given:
            _add(op, values[value], backward.spread(given[output], output), backward)
    for each in reversed(steps):
        differentiate(each, backward)


def _add(op: RecurrenceOp, value: SSAValue, cotangent: SSAValue, backward: Backward) -> None:
    """A cotangent of every position, of what may be the same at all of them."""
    if value not in backward.active:
        return
    if op.axis.data not in axes_of(value.type):
        sizes = {axis: size for axis, size in sizes_of(cotangent.type).items() if axis != op.axis.data}
        cotangent = backward.as_type(cotangent, array_type(f32, sizes_of(cotangent.type)))
        cotangent = backward.write(ReduceOp("add", cotangent, [op.axis.data], array_type(f32, sizes)), None)
    backward.add(value, cotangent)


def _of_all(op: RecurrenceOp, step: Operation, values: Values) -> Operation:
    """An operation of the body, of all positions: what has other names there is read."""
    (old,) = step.results
    operands = [values[operand] for operand in step.operands]
    has = any(is_array(value.type) and op.axis.data in axes_of(value.type) for value in operands)
    type = _along(op, old.type) if has else old.type
    if isinstance(step, RenameOp):
        (operand,) = operands
        place = ", ".join(step.names.get(axis, axis) for axis in axes_of(operand.type))
        return ReadOp(operand, place, type)
    new = step.clone(values)
    Rewriter.replace_value_with_new_type(new.results[0], type)
    return new


def _behind(op: Operation) -> list[Operation]:
    found: list[Operation] = []
    each = op.next_op
    while each is not None:
        found.append(each)
        each = each.next_op
    return found


def _depending(block: Block, on: set[SSAValue]) -> set[SSAValue]:
    return _depending_among(list(block.ops), on)


def _depending_among(ops: Sequence[Operation], on: set[SSAValue]) -> set[SSAValue]:
    """The floats that depend on some values, these included."""
    found = set(on)
    for op in ops:
        if any(operand in found for operand in op.operands):
            found |= {result for result in op.results if is_float(result.type)}
    return found


__all__ = ["recurrence"]
