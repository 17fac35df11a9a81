"""What the body of a map makes of fewer axes than its result has: a map of its own, before it.

A quotient by `sum + exp(sink - max)` has a power for each element of the result in its body, though one for each row
is enough. The compiler sees that where nothing is chosen; behind a branch it computes all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import Block, BlockArgument, Operation, Region, SSAValue

from treadle.dialects.diagram import MapOp, YieldOp
from treadle.dialects.diagram.array import axes_of
from treadle.passes.expressions.scalars import CHEAP, is_plain


@dataclass(frozen=True)
class Invariant:
    """A value in the body of a map, and the axes that it depends on, in the order of the result."""

    value: SSAValue
    axes: tuple[str, ...]


def invariants_of(map: MapOp) -> list[Invariant]:
    """The largest parts of a body that do more than cheap arithmetic, and need not do it for every element."""
    if not is_plain(map):
        return []
    whole = axes_of(map.result.type)
    depends = _dependences(map)
    is_costly: dict[SSAValue, bool] = {}
    for op in _computed(map):
        is_costly[op.results[0]] = not isinstance(op, (*CHEAP, arith.ConstantOp)) or any(
            is_costly.get(operand, False) for operand in op.operands
        )
    apart = {
        value
        for value, costly in is_costly.items()
        if costly and value.type == f32 and 0 < len(depends[value]) < len(whole)
    }
    ends = [value for value in is_costly if value in apart and any(_leaves(use.operation, apart) for use in value.uses)]
    return [Invariant(value, tuple(axis for axis in whole if axis in depends[value])) for value in ends]


def _dependences(map: MapOp) -> dict[SSAValue, frozenset[str]]:
    """The axes of the arrays that each value is made of."""
    found: dict[SSAValue, frozenset[str]] = {
        arg: frozenset(axes_of(operand.type)) for arg, operand in zip(map.body.block.args, map.inputs, strict=True)
    }
    for op in _computed(map):
        found[op.results[0]] = frozenset[str]().union(*(found[operand] for operand in op.operands))
    return found


def _computed(map: MapOp) -> list[Operation]:
    return [op for op in map.body.block.ops if not isinstance(op, YieldOp)]


def _leaves(user: Operation, apart: set[SSAValue]) -> bool:
    return isinstance(user, YieldOp) or user.results[0] not in apart


def body_of(map: MapOp, value: SSAValue) -> tuple[list[int], Region]:
    """The body of a map that makes one of its values, and the inputs that this needs, by number."""
    needed: set[SSAValue] = {value}
    for op in reversed(_computed(map)):
        if op.results[0] in needed:
            needed.update(op.operands)
    inputs = [arg for arg in map.body.block.args if arg in needed]
    block = Block(arg_types=[arg.type for arg in inputs])
    known: dict[SSAValue, SSAValue] = dict(zip(inputs, block.args, strict=True))
    _name(block.args, inputs)
    for op in _computed(map):
        if op.results[0] in needed:
            block.add_op(op.clone(known))
    block.add_op(YieldOp(known[value]))
    return [arg.index for arg in inputs], Region(block)


def body_without(map: MapOp, values: Sequence[SSAValue]) -> tuple[list[int], Region]:
    """The body of a map to which some of its values are given, as further inputs; and those that it still needs."""
    block = Block(arg_types=[*(arg.type for arg in map.body.block.args), *(value.type for value in values)])
    own = len(map.body.block.args)
    known: dict[SSAValue, SSAValue] = dict(zip(map.body.block.args, block.args[:own], strict=True))
    known |= dict(zip(values, block.args[own:], strict=True))
    _name(block.args, [*map.body.block.args, *values])
    for op in map.body.block.ops:
        if not op.results or op.results[0] not in known:
            block.add_op(op.clone(known))
    for op in reversed(list(block.ops)[:-1]):
        if not any(result.uses for result in op.results):
            op.detach()
            op.erase()
    unused = [arg for arg in block.args[:own] if not arg.uses]
    needed = [arg.index for arg in block.args[:own] if arg.uses]
    for arg in reversed(unused):
        block.erase_arg(arg)
    return needed, Region(block)


def _name(args: Sequence[BlockArgument], values: Sequence[SSAValue]) -> None:
    for arg, value in zip(args, values, strict=True):
        arg.name_hint = value.name_hint
