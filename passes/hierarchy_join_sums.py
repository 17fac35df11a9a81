"""`hierarchy-join-sums`: products that are added up share an accumulator."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument
from xdsl.passes import ModulePass

from treadle.dialects.diagram import ContractOp, MapOp, WhereOp
from treadle.dialects.diagram.array import format_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import function_of, functions, kernels, label, note, replace
from treadle.passes._parts import part_of_kernel
from treadle.passes.streams.stages import StreamPlan

PASS = "hierarchy-join-sums"

LAW = "a sum of two sums is one sum"

Addition: TypeAlias = arith.AddfOp | arith.AddiOp


@dataclass(frozen=True)
class HierarchyJoinSumsPass(ModulePass):
    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for kernel in kernels(function):
                if kernel.schedule is not None and not kernel.is_expanded:
                    _join_all(kernel)


def _join_all(kernel: KernelOp) -> None:
    for map in [op for op in kernel.body.block.ops if isinstance(op, MapOp)]:
        while (pair := _pair(map, kernel)) is not None:
            first, second = (_product(map, each) for each in pair)
            assert first is not None
            assert second is not None
            joined = _into(second, first, map)
            _leave_out(map, pair[0])
            subject = f"{label(first.result)} and {label(joined.result)} of @{kernel.kernel_name.data}"
            note(function_of(kernel), PASS, subject, LAW, f"{label(joined.result)} begins with {label(first.result)}")
        if map.yielded in map.body.block.args and map.inputs[map.yielded.index].type == map.result.type:
            replace(map, [], map.inputs[map.yielded.index])


@dataclass(frozen=True)
class _Term:
    """An argument of a map, in a sum."""

    arg: BlockArgument
    addition: Addition


def _product(map: MapOp, term: _Term) -> ContractOp | None:
    """What a term is, if it is a product that nothing else asks for, and that is not rounded yet."""
    value = map.inputs[term.arg.index]
    op = value.owner
    if not isinstance(op, ContractOp) or len(list(value.uses)) > 1 or format_of(value.type) != op.accumulate:
        return None
    return op


def _pair(map: MapOp, kernel: KernelOp) -> tuple[_Term, _Term] | None:
    """Two terms of one sum: a product, and one that can begin with it."""
    found = [
        (first, second, one, other)
        for terms in _sums(map)
        for first, second in permutations(terms, 2)
        if (one := _product(map, first)) is not None and (other := _product(map, second)) is not None
        if other.init is None and one.result.type == other.result.type
    ]
    steps = _Steps(kernel) if found else None
    return next(((first, second) for first, second, one, other in found if steps and steps.admit(one, other)), None)


class _Steps:
    """What the steps of a kernel sum."""

    def __init__(self, kernel: KernelOp):
        assert kernel.schedule is not None
        part = part_of_kernel(kernel)
        plans = [StreamPlan(part, axis) for axis in kernel.schedule.stream.as_dict()]
        self.verdicts = {state: verdict for plan in plans for state, verdict in plan.verdicts.items()}
        follows = any(verdict.repair is not None for verdict in self.verdicts.values())
        self.are_plain = not follows and not any(isinstance(op, WhereOp) for op in part.ops)

    def admit(self, first: ContractOp, second: ContractOp) -> bool:
        """Whether the second product can add to the sum of the first. Where it adds to it in each step, the first has to
        do so in the same steps, and nothing else to move what both add to."""
        if second.result not in self.verdicts:
            return True
        if first.result not in self.verdicts or not self.are_plain:
            return False
        return self.verdicts[first.result].stage == self.verdicts[second.result].stage


def _sums(map: MapOp) -> Iterator[list[_Term]]:
    """Of each sum of a map the arguments that nothing else in it asks for."""
    for op in map.body.block.ops:
        if isinstance(op, Addition) and not _is_term(op):
            yield list(_terms(op))


def _is_term(op: Addition) -> bool:
    uses = list(op.result.uses)
    return len(uses) == 1 and type(uses[0].operation) is type(op)


def _terms(sum: Addition) -> Iterator[_Term]:
    for operand in sum.operands:
        if len(list(operand.uses)) > 1:
            continue
        if isinstance(operand, BlockArgument):
            yield _Term(operand, sum)
        elif isinstance(operand.owner, Addition) and type(operand.owner) is type(sum):
            yield from _terms(operand.owner)


def _into(second: ContractOp, first: ContractOp, map: MapOp) -> ContractOp:
    """The second product, begun with the first, behind which it comes to stand."""
    multiply = None if second.multiply is None else second.multiply.data
    type, init = second.result.type, first.result
    joined = ContractOp(second.lhs, second.rhs, second.over_axes, type, second.accumulate, init, multiply)
    joined.attributes |= second.attributes
    joined.location = second.location
    block = map.parent_block()
    assert block is not None
    block.insert_op_before(joined, map)
    replace(second, [], joined.result)
    return joined


def _leave_out(map: MapOp, term: _Term) -> None:
    """A map without one of the terms of a sum."""
    (rest,) = [operand for operand in term.addition.operands if operand is not term.arg]
    term.addition.result.replace_all_uses_with(rest)
    term.addition.detach()
    term.addition.erase()
    place = term.arg.index
    map.body.block.erase_arg(term.arg)
    map.operands = [operand for index, operand in enumerate(map.operands) if index != place]
