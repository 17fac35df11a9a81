"""8-bit operands that do not lie along the sum of their products, in the order in which tensor cores take them.

An order of axes says nothing but where elements lie, so an array that the program makes is made in it where nothing
asks for the other. Every other one is moved by a map, which fusion makes part of a kernel, or one of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.ir import Block, OpResult, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.machines import Machine
from treadle.dialects.diagram import ContractOp, MapOp, WhereOp, YieldOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.passes._functions import derived_hint
from treadle.passes.kernels.far_neighbours import in_same_order, is_made_by_name
from treadle.passes.kernels.transposed import reorder, reordered
from treadle.passes.products.eight_bit import across_the_sum, depth_of, is_of_8_bits, why_never_multiplied


@dataclass(frozen=True)
class TransposedOperand:
    """An array that 8-bit products read, through conditions or not, and the order of axes that they need."""

    value: SSAValue
    axes: tuple[str, ...]


def transposed_operands(block: Block, machine: Machine) -> list[tuple[TransposedOperand, ...]]:
    """The arrays that keep products of a block from being multiplied in 8 bits, as far as the machine could; together
    those that the same products need."""
    found: list[tuple[TransposedOperand, ...]] = []
    for op in block.ops:
        if not isinstance(op, ContractOp) or not _is_asked(op) or why_never_multiplied(op, machine) is not None:
            continue
        needed = tuple(_needed(op, operand) for operand in across_the_sum(op))
        shared = [each for each in found if not set(each).isdisjoint(needed)]
        if needed:
            found = [each for each in found if each not in shared]
            found.append(tuple(dict.fromkeys((*(one for each in shared for one in each), *needed))))
    return found


def transpose_operand(block: Block, operand: TransposedOperand) -> bool:
    """Let the products that need it read an array in another order; whether a map moves it, which otherwise is made so
    (`is_made_so`)."""
    if is_made_so(operand):
        for each in in_same_order(operand.value):
            reorder(each, operand.axes)
        return False
    readers = [(op, each) for op in _products(block) for each in across_the_sum(op) if _needed(op, each) == operand]
    moved = _moved(block, operand)
    moved.owner.location = readers[0][0].location
    known: dict[SSAValue, SSAValue] = {operand.value: moved}
    for op, each in readers:
        wanted = _through_conditions(each, known)
        op.operands = [wanted if given is each else given for given in op.operands]
    return True


def is_made_so(operand: TransposedOperand) -> bool:
    """Whether the program makes an array for readers that find axes by name, none of which multiplies it in 8 bits
    along the rows that it has."""
    if not isinstance(operand.value, OpResult) or not is_made_by_name(operand.value):
        return False
    uses = [use for each in in_same_order(operand.value) for use in each.uses]
    products = [use.operation for use in uses if isinstance(use.operation, ContractOp)]
    return all(depth_of(op) == operand.axes[-1] for op in products if is_of_8_bits(op))


def _products(block: Block) -> Iterator[ContractOp]:
    return (op for op in block.ops if isinstance(op, ContractOp) and _is_asked(op))


def _is_asked(op: ContractOp) -> bool:
    """Whether a product has 8-bit operands, both of which have its depth: no order of axes gives it to one."""
    return is_of_8_bits(op) and all(depth_of(op) in axes_of(operand.type) for operand in (op.lhs, op.rhs))


def _needed(op: ContractOp, operand: SSAValue) -> TransposedOperand:
    value, last = operand, depth_of(op)
    while isinstance(value.owner, WhereOp):
        value = value.owner.operand
    return TransposedOperand(value, (*(axis for axis in axes_of(value.type) if axis != last), last))


def _moved(block: Block, operand: TransposedOperand) -> OpResult:
    """A map behind an array that makes it in the other order."""
    value = operand.value
    body = Block(arg_types=[format_of(value.type)])
    body.add_op(YieldOp(body.args[0]))
    moved = MapOp([value], reordered(value.type, operand.axes), Region(body))
    made = value.owner
    Rewriter.insert_op(moved, InsertPoint.at_start(block) if isinstance(made, Block) else InsertPoint.after(made))
    moved.result.name_hint = derived_hint(value, "transposed")
    return moved.result


def _through_conditions(value: SSAValue, known: dict[SSAValue, SSAValue]) -> SSAValue:
    """What conditions leave of an array, of what it was moved to."""
    if value in known:
        return known[value]
    where = value.owner
    assert isinstance(where, WhereOp)
    source = _through_conditions(where.operand, known)
    copy = where.clone({where.operand: source})
    Rewriter.insert_op(copy, InsertPoint.after(where))
    copy.result.name_hint = derived_hint(value, "transposed")
    known[value] = reorder(copy.result, axes_of(source.type))
    return known[value]


__all__ = ["TransposedOperand", "is_made_so", "transpose_operand", "transposed_operands"]
