"""Arrays between kernels with their axes in another order: saved so where kernels alone make and read them, else copied
by a kernel that does nothing else."""

from __future__ import annotations

from xdsl.ir import Attribute, Block, BlockArgument, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram import YieldOp as ElementOp
from treadle.dialects.diagram.array import ArrayType, array_type, axes_of, format_of, level_of, sizes_of, with_level
from treadle.dialects.hierarchy import KernelOp, YieldOp
from treadle.passes._functions import derived_hint
from treadle.passes.kernels.far_neighbours import (
    Transposition,
    arguments_of,
    in_same_order,
    is_made_by_name,
    is_open,
    yielded_as,
)

LONGEST = 40
"""Letters of the names of a kernel and of an array that the name of a copy keeps: a name has at most 63."""


def kernels_around(turn: Transposition) -> list[KernelOp]:
    """The kernels that make and read an array which kernels alone make and read, so that it may be saved in another
    order; none where somebody else has it as it is."""
    maker = turn.value.owner
    users = list(dict.fromkeys(use.operation for use in turn.value.uses))
    if not isinstance(maker, KernelOp) or not all(isinstance(user, KernelOp) for user in users):
        return []
    readers = [user for user in users if isinstance(user, KernelOp)]
    if any(kernel.schedule is not None or kernel.is_expanded for kernel in (maker, *readers)):
        return []
    if not is_made_by_name(yielded_as(maker, turn.value)):
        return []
    is_free = all(is_open(argument) for reader in readers for argument in arguments_of(reader, turn.value))
    return [maker, *readers] if is_free else []


def transpose(kernel: KernelOp, turn: Transposition) -> KernelOp | None:
    """Let a kernel read or save an array in another order of its axes; the kernel that copies it, if one must."""
    if kernels_around(turn):
        _save_in_order(turn.value, turn.axes)
        return None
    return _copied_behind(kernel, turn) if turn.saves else _copied_before(kernel, turn)


def _save_in_order(value: SSAValue, axes: tuple[str, ...]) -> SSAValue:
    """The result of a kernel, which makes it and whose readers take it in another order."""
    maker = value.owner
    assert isinstance(maker, KernelOp)
    for each in in_same_order(yielded_as(maker, value)):
        reorder(each, axes)
    for reader in dict.fromkeys(use.operation for use in value.uses):
        if isinstance(reader, KernelOp):
            _take_in_order(reader, value, axes)
    return reorder(value, axes)


def _take_in_order(kernel: KernelOp, value: SSAValue, axes: tuple[str, ...]) -> None:
    for argument in arguments_of(kernel, value):
        for each in in_same_order(argument):
            reorder(each, axes)


def _copied_before(kernel: KernelOp, turn: Transposition) -> KernelOp:
    wanted = reordered(turn.value.type, turn.axes)
    copy = next((each for each in _copies_of(turn.value) if each.outputs[0].type == wanted), None)
    if copy is None:
        copy = _copy(kernel, turn.value, wanted)
        Rewriter.insert_op(copy, InsertPoint.before(kernel))
        copy.outputs[0].name_hint = derived_hint(turn.value, "transposed")
    _take_in_order(kernel, turn.value, turn.axes)
    kernel.operands = [copy.outputs[0] if each is turn.value else each for each in kernel.operands]
    return copy


def _copied_behind(kernel: KernelOp, turn: Transposition) -> KernelOp:
    before, hint = reordered(turn.value.type, axes_of(turn.value.type)), turn.value.name_hint
    users = {use.operation for use in turn.value.uses}
    for each in in_same_order(yielded_as(kernel, turn.value)):
        reorder(each, turn.axes)
    saved = reorder(turn.value, turn.axes)
    copy = _copy(kernel, saved, before)
    Rewriter.insert_op(copy, InsertPoint.after(kernel))
    saved.replace_uses_with_if(copy.outputs[0], lambda use: use.operation in users)
    copy.outputs[0].name_hint = hint
    saved.name_hint = derived_hint(saved, "transposed")
    return copy


def _copies_of(value: SSAValue) -> list[KernelOp]:
    """The kernels that do nothing but copy an array."""
    users = [use.operation for use in value.uses]
    return [user for user in users if isinstance(user, KernelOp) and is_copy(user)]


def is_copy(kernel: KernelOp) -> bool:
    """Whether a kernel gives what it is given, in whatever order of axes."""
    first = kernel.body.block.first_op
    if not isinstance(first, MapOp) or len(first.inputs) != 1 or not isinstance(first.next_op, YieldOp):
        return False
    return first.yielded is first.body.block.args[0] and list(first.next_op.operands) == [first.result]


def _copy(near: KernelOp, value: SSAValue, type: ArrayType) -> KernelOp:
    block = Block(arg_types=[with_level(value.type, "device")])
    body = Block(arg_types=[format_of(type)])
    body.add_op(ElementOp(body.args[0]))
    moved = MapOp([block.args[0]], with_level(type, "register"), Region(body))
    block.add_ops([moved, YieldOp(moved.result)])
    block.args[0].name_hint = moved.result.name_hint = value.name_hint
    copy = KernelOp(_fresh_name(near, value), [value], [type], Region(block))
    copy.location = moved.location = near.location
    return copy


def _fresh_name(near: KernelOp, value: SSAValue) -> str:
    base = f"{near.kernel_name.data[:LONGEST]}_{value.name_hint or 'array'}"[: LONGEST + 16]
    module = near.get_toplevel_object()
    taken = {op.kernel_name.data for op in module.walk() if isinstance(op, KernelOp)}
    names = (base, *(f"{base}_{number}" for number in range(2, len(taken) + 3)))
    return next(name for name in names if name not in taken)


def reordered(type: Attribute, axes: tuple[str, ...]) -> ArrayType:
    """The same array with its axes in another order."""
    sizes = sizes_of(type)
    return array_type(format_of(type), {axis: sizes[axis] for axis in axes}, level_of(type))


def reorder(value: SSAValue, axes: tuple[str, ...]) -> SSAValue:
    """Give a value another order of its axes; what is no array of these axes stays as it is."""
    if axes_of(value.type) == axes or set(axes_of(value.type)) != set(axes):
        return value
    assert isinstance(value, OpResult | BlockArgument)
    return Rewriter.replace_value_with_new_type(value, reordered(value.type, axes))
