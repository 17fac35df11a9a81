"""A part of a program that is, or may become, one kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ExtentOp, FillOp, IndexOp, ReadOp, RecurrenceOp, ReduceOp
from treadle.dialects.diagram.array import sizes_of
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._recurrences import flat_operations, recurrence_of, stand_in

Reducing = ContractOp | ReduceOp


@dataclass(frozen=True)
class Part:
    """Operations that may become one kernel, in program order, and the values that leave it."""

    ops: tuple[Operation, ...]
    leaving: tuple[SSAValue, ...]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Of every axis; no rewrite of a part gives one another size."""
        values = [value for op in self.ops for value in (*op.operands, *op.results)]
        return {axis: size for value in values for axis, size in sizes_of(value.type).items()}

    @property
    def read(self) -> tuple[SSAValue, ...]:
        """The values that it takes from others, in the order in which it uses them."""
        inside = set(self.ops)
        outside = [operand for op in self.ops for operand in op.operands if operand.owner not in inside]
        return tuple(dict.fromkeys(outside))

    @cached_property
    def reducing(self) -> Sequence[Reducing]:
        return tuple(op for op in self.ops if isinstance(op, Reducing))


def part_of(ops: Iterable[Operation]) -> Part:
    """A set of operations of one block, with what others use of it."""
    members = set(ops)
    ordered = _in_order(members)
    results = [result for op in ordered for result in op.results]
    leaving = [value for value in results if any(use.operation not in members for use in value.uses)]
    return Part(ordered, tuple(leaving))


def part_of_kernel(kernel: KernelOp) -> Part:
    """The operations of a kernel whose streams are not expanded yet; of a recurrence those that stand for it."""
    if (recurrence := recurrence_of(kernel)) is not None:
        kernel = stand_in(kernel, recurrence)
    *ops, terminator = kernel.body.block.ops
    inside = tuple(op for op in ops if isinstance(op, DiagramOperation))
    return Part(inside, tuple(dict.fromkeys(terminator.operands)))


def flat_part(op: RecurrenceOp) -> Part:
    """What stands for a recurrence where a kernel is planned (`_recurrences`)."""
    block = Block(arg_types=[value.type for value in op.operands])
    made = flat_operations(op, block, block.args)
    leaving = [value for value, result in zip(made, op.results, strict=True) if result.uses]
    return Part(tuple(block.ops), tuple(leaving))


def is_free(op: Operation) -> bool:
    """Whether an operation costs nothing and is repeated in every kernel that uses it."""
    return isinstance(op, ExtentOp | FillOp | IndexOp)


def views_of(values: Iterable[SSAValue]) -> list[ReadOp]:
    """The reads that some values are, and those that these are of, in their order."""
    found: dict[ReadOp, None] = {}
    for value in values:
        if isinstance(read := value.owner, ReadOp):
            found |= dict.fromkeys((*views_of(read.operands), read))
    return list(found)


def _in_order(members: set[Operation]) -> tuple[Operation, ...]:
    """As they stand in their block, which is walked once."""
    first = next(iter(members), None)
    if first is None or len(members) == 1:
        return tuple(members)
    block = first.parent_block()
    assert block is not None
    return tuple(op for op in block.ops if op in members)
