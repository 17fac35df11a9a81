"""The operations that a kernel or a role executes, in order, with numbers in the place of its sizes: loops turn as
often as they would, of branches the one is taken that would be."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import NARROW

Numbers: TypeAlias = dict[SSAValue, int]
Computation: TypeAlias = Callable[[Numbers], None]
"""Adds to what is known the number that an operation makes of it; nothing, where it is made of something unknown."""

Step: TypeAlias = "tuple[Operation, scf.ForOp | scf.IfOp | None, Computation | None, bool]"
"""An operation, itself if it is a loop or a branch, what it computes, and whether it is given."""

MOST_PIECES = 3
"""What a block of a grid that is smaller than its work does one after another: enough for every state of the barriers
that one piece can leave to the next."""

MOST_TURNS = 256
"""Turns of a loop that are looked at where it is only counted what is executed."""

ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add,
    "arith.subi": operator.sub,
    "arith.muli": operator.mul,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": operator.mod,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.divsi": lambda a, b: abs(a) // b * (1 if a >= 0 else -1),
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.maxsi": max,
    "arith.minsi": min,
}
DIVISIONS = frozenset(name for name in ARITHMETIC if "div" in name or "rem" in name)

ORDERED: tuple[Callable[[int, int], bool], ...] = (operator.lt, operator.le, operator.gt, operator.ge)
COMPARISONS: tuple[Callable[[int, int], bool], ...] = (operator.eq, operator.ne, *ORDERED, *ORDERED)
"""By the number of the predicate; sizes and positions are never negative."""


@dataclass
class Execution:
    """Executes blocks, again and again with other numbers; what an operation computes is found out once."""

    gives: Callable[[Operation], bool] = lambda op: True
    """Whether who asks looks at an operation; the others are computed all the same. Asked once of each."""
    steps: dict[Block, list[Step]] = field(default_factory=dict[Block, "list[Step]"])
    most_turns: int | None = None
    """Of a loop, how many turns are executed at most, the last one among them; None for all."""
    times: int = 1
    """How many times the operation that was just given is executed there: the turns between are like the one before
    them."""

    def of(self, block: Block, known: Numbers) -> Iterator[Operation]:
        """The operations that are executed, but for loops and branches themselves, as far as this `gives` them; `known`
        gathers the numbers that all compute (KeyError for a loop or a branch that depends on an unknown one)."""
        if block not in self.steps:
            self.steps[block] = list(self._steps_of(block))
        for op, around, compute, is_given in self.steps[block]:
            if around is None:
                if compute is not None:
                    compute(known)
                if is_given:
                    yield op
            elif isinstance(around, scf.ForOp):
                yield from self._loop(around, known)
            else:
                taken = around.true_region if known[around.cond] else around.false_region
                if taken.blocks:
                    yield from self.of(taken.block, known)

    def _steps_of(self, block: Block) -> Iterator[Step]:
        """Those that do anything."""
        for op in block.ops:
            around = op if isinstance(op, scf.ForOp | scf.IfOp) else None
            compute, is_given = computation(op), self.gives(op)
            if around is not None or compute is not None or is_given:
                yield op, around, compute, is_given

    def _loop(self, op: scf.ForOp, known: Numbers) -> Iterator[Operation]:
        body = op.body.block
        position, *carried = body.args
        assert body.last_op is not None
        yielded = tuple(body.last_op.operands)
        _move(known, op.iter_args, carried)
        numbers = range(known[op.lb], known[op.ub], max(known[op.step], 1))
        outside = self.times
        for number, times in self._turns(numbers[:MOST_PIECES] if NARROW in op.attributes else numbers):
            self.times = outside * times
            known[position] = number
            yield from self.of(body, known)
            _move(known, yielded, carried)
        self.times = outside
        _move(known, carried, op.results)

    def _turns(self, numbers: range) -> Iterator[tuple[int, int]]:
        """The positions of the turns that are executed, and how many turns each stands for."""
        if self.most_turns is None or len(numbers) <= self.most_turns:
            yield from ((number, 1) for number in numbers)
            return
        *first, middle, last = (*numbers[: self.most_turns - 1], numbers[-1])
        yield from ((number, 1) for number in first)
        yield middle, len(numbers) - self.most_turns + 1
        yield last, 1


def executed(block: Block, known: Numbers) -> Iterator[Operation]:
    """`Execution.of`, once."""
    return Execution().of(block, known)


def counted(block: Block, known: Numbers) -> Iterator[tuple[Operation, int]]:
    """The same, and how many times each is executed: of a long loop only `MOST_TURNS` turns are looked at, so that what
    loops carry is not what it would be (KeyError as there)."""
    execution = Execution(most_turns=MOST_TURNS)
    for op in execution.of(block, known):
        yield op, execution.times


def _move(known: Numbers, sources: Sequence[SSAValue], targets: Sequence[SSAValue]) -> None:
    """Numbers that a loop carries."""
    found = [(target, known[source]) for source, target in zip(sources, targets, strict=True) if source in known]
    known.update(found)


def computation(op: Operation) -> Computation | None:
    """How an operation makes a number of numbers; None if it does not."""
    if isinstance(op, arith.ConstantOp):
        return _giving(op.result, op.value.value.data) if isinstance(op.value, IntegerAttr) else None
    if isinstance(op, cuda.BlockIndexOp | cuda.ClusterIndexOp | cuda.BlockInClusterOp):
        return _first_block(op.result)
    if isinstance(op, cuda.GridSizeOp):
        return _grid_size(op.result)
    if isinstance(op, cuda.ExceedsOp):  # a warp by itself, seldom: nobody else waits for what it does then
        return _giving(op.result, 0)
    if isinstance(op, cuda.SelectedOp):  # as if all were selected
        return _applied(operator.mul, (op.turn,), op.result, op.step.data)
    if isinstance(op, cuda.SelectedBeforeOp):
        return _applied(ARITHMETIC["arith.divui"], (op.count,), op.result, 2)
    function = _function_of(op)
    return None if function is None else _applied(function, tuple(op.operands), op.results[0])


def number_of(value: SSAValue, known: Numbers) -> int | None:
    """A number that a kernel computes from those that are known; None if it needs another."""
    if value in known or not isinstance(value.owner, Operation):
        return known.get(value)
    if any(number_of(operand, known) is None for operand in value.owner.operands):
        return None
    if (compute := computation(value.owner)) is not None:
        compute(known)
    return known.get(value)


def _giving(result: SSAValue, number: int) -> Computation:
    def compute(known: Numbers) -> None:
        known[result] = number

    return compute


def _first_block(result: SSAValue) -> Computation:
    def compute(known: Numbers) -> None:
        known.setdefault(result, 0)

    return compute


def _grid_size(result: SSAValue) -> Computation:
    def compute(known: Numbers) -> None:
        known.setdefault(result, max(1, -(-max(known.values(), default=1) // MOST_PIECES)))

    return compute


def _function_of(op: Operation) -> Callable[..., int] | None:
    if op.name in ARITHMETIC:
        return _safe(ARITHMETIC[op.name]) if op.name in DIVISIONS else ARITHMETIC[op.name]
    match op:
        case arith.CmpiOp():
            return COMPARISONS[op.predicate.value.data]
        case arith.IndexCastOp():
            return int
        case arith.SelectOp():
            return _selected
        case _:
            return None


def _safe(divide: Callable[[int, int], int]) -> Callable[[int, int], int]:
    """The place in an empty grid is of no account."""
    return lambda a, b: divide(a, b) if b else 0


def _selected(condition: int, a: int, b: int) -> int:
    return a if condition else b


def _applied(
    function: Callable[..., int], operands: tuple[SSAValue, ...], result: SSAValue, *others: int
) -> Computation:
    def compute(known: Numbers) -> None:
        numbers = [known.get(operand) for operand in operands]
        if None not in numbers:
            known[result] = int(function(*numbers, *others))

    return compute
