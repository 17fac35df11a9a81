"""Which pieces of its axis a stream is fed, in order: runs of pieces that go through the same region.

A stream with limits (`hierarchy.stream`) takes the pieces that hold a position from `first` up to `end`. Those within
the range in which conditions hold throughout make one run through `step`; what is left before and after them goes
through `border`. The last run may hold the one piece that reaches past the end of the axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, IntegerAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue

from treadle.compiler.lowering.pending import Listed
from treadle.dialects import cuda
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of, format_of, is_array, sizes_of
from treadle.dialects.hierarchy import PieceOp, StreamOp, YieldOp


def yielded(region: Region) -> tuple[SSAValue, ...]:
    terminator = region.block.last_op
    assert isinstance(terminator, YieldOp)
    return tuple(terminator.operands)


@dataclass(frozen=True)
class Run:
    """Pieces that begin from `start` on and before `end`."""

    region: Region
    start: SSAValue
    end: SSAValue
    is_full: bool
    """Whether none of them reaches past the end of the axis."""
    begin: SSAValue | None = None
    """Before which all is absent, if not positions alone say so and the first of them may reach before it: what memory
    holds there may be nobody's (batches padded on the left)."""
    stop: SSAValue | None = None
    """From where on all is absent, if not positions alone say so and the last of them may reach past it: what memory
    holds there may be nobody's (a cache past its length)."""
    where: str = ""
    """Which pieces these are, for a comment."""


@dataclass(frozen=True)
class RunWriter:
    """Writes the ends of the runs of one stream; `emit` appends an operation, `size` is the whole size of the axis,
    `scalar` gives what became of a limit."""

    stream: StreamOp
    emit: Callable[[Operation], SSAValue]
    size: SSAValue
    scalar: Callable[[SSAValue], SSAValue]
    divides: bool = False
    """Whether no piece reaches past the end of the axis."""

    def runs(self) -> list[Run]:
        fed, axis = self.stream.fed, self.stream.axis
        assert fed is not None
        lowest = self._not_negative(self.scalar(fed[0]))
        first = self._down(lowest, f"{axis}_first")
        begin = None if self._is_for_others(fed[0]) or self._begins_a_piece(fed[0]) else lowest
        if begin is not None:
            begin.name_hint = f"{axis}_begin"
        end = self._named(arith.MinSIOp(self.scalar(fed[1]), self.size), f"{axis}_stop")
        stop = None if self._is_for_others(fed[1]) else end
        stop = None if self.stream.size == 1 else stop  # no piece reaches past an end
        if self.stream.border is None:
            return self._tested(first, end, begin, stop)
        assert self.stream.whole is not None
        low, high = (self.scalar(limit) for limit in self.stream.whole)
        last = self._down(self._smaller(high, end))
        if _is_zero(low) and begin is None:
            until = self._named(arith.MaxSIOp(first, last), f"{axis}_whole")
            return self._after(first, until, end, None, stop)
        # What is tested in no piece may hold for more than is fed: of a piece before the beginning, part is not loaded.
        low = self._up(self._larger(low, first if begin is None else begin))
        some = self.emit(arith.CmpiOp(low, last, "slt"))
        since = self._named(arith.SelectOp(some, low, first), f"{axis}_whole_first")
        until = self._named(arith.SelectOp(some, last, first), f"{axis}_whole")
        before = Run(self.stream.border, first, since, True, begin, where="the border before: elements are tested")
        return [before, *self._after(since, until, end, begin, stop)]

    def _tested(self, first: SSAValue, end: SSAValue, begin: SSAValue | None, stop: SSAValue | None) -> list[Run]:
        if self.divides:
            return [Run(self.stream.step, first, end, True, begin, stop)]
        full = self._down(self._larger(end, first), f"{self.stream.axis}_full")
        return [
            Run(self.stream.step, first, full, True, begin),
            Run(
                self.stream.step, self._larger(full, first), end, False, begin, stop, "the last piece, which is smaller"
            ),
        ]

    def _after(
        self, since: SSAValue, until: SSAValue, end: SSAValue, begin: SSAValue | None, stop: SSAValue | None
    ) -> list[Run]:
        """Where no piece is whole, the border behind takes the first, too."""
        assert self.stream.border is not None
        return [
            Run(self.stream.step, since, until, True, where="the condition holds: no test"),
            Run(self.stream.border, until, end, False, begin, stop, "the border: elements are tested"),
        ]

    # -- arithmetic ----------------------------------------------------------------------------------

    def _named(self, op: Operation, name: str | None) -> SSAValue:
        result = self.emit(op)
        result.name_hint = name
        return result

    def _index(self, number: int) -> SSAValue:
        return self.emit(arith.ConstantOp.from_int_and_width(number, IndexType()))

    def _down(self, value: SSAValue, name: str | None = None) -> SSAValue:
        """Where the piece begins that holds a position; towards zero for one before the axis."""
        if _is_zero(value):
            return value
        piece = self._index(self.stream.size)
        return self._named(arith.MuliOp(self.emit(arith.DivSIOp(value, piece)), piece), name)

    def _up(self, value: SSAValue) -> SSAValue:
        """Where the first piece begins that lies behind a position, which is not negative."""
        return self._down(self.emit(arith.AddiOp(value, self._index(self.stream.size - 1))))

    def _larger(self, one: SSAValue, other: SSAValue) -> SSAValue:
        return one if _is_zero(other) and _is_zero(one) else self.emit(arith.MaxSIOp(one, other))

    def _smaller(self, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.emit(arith.MinSIOp(one, other))

    def _is_for_others(self, limit: SSAValue) -> bool:
        """Whether what lies beyond a limit is there for other pieces: it moves with positions alone, and not all
        factors are of those positions, as they are of the parts into which an axis is split."""
        axes = {leaf.owner.axis.data for leaf in _leaves(limit) if isinstance(leaf.owner, PieceOp)}
        is_of_factors = axes != {self.stream.axis} and axes <= _factor_axes(self.stream)
        return is_of_positions(limit) and not is_of_factors

    def _begins_a_piece(self, limit: SSAValue) -> bool:
        number = 0 if self.stream.size == 1 else _number(limit)
        return number is not None and number % self.stream.size == 0

    def _not_negative(self, value: SSAValue) -> SSAValue:
        return value if _is_zero(value) else self.emit(arith.MaxSIOp(value, self._index(0)))


def in_turns(runs: Sequence[Run], listed: Listed, emit: Callable[[Operation], SSAValue]) -> list[Run]:
    """Runs of the pieces that a list has, which follow each other, as turns. Of the pieces that it has no room for
    nothing is known: they belong to the last run."""
    ends: list[SSAValue] = []
    for run in runs[:-1]:
        ends.append(emit(cuda.SelectedBeforeOp(listed.tile, run.end, listed.count)))
        ends[-1].name_hint = "turns"
    start = emit(arith.ConstantOp.from_int_and_width(0, IndexType()))
    pairs = zip(runs, [start, *ends], [*ends, listed.turns], strict=True)
    return [replace(run, start=since, end=until) for run, since, until in pairs]


def is_of_positions(limit: SSAValue) -> bool:
    """Whether a limit moves with the pieces of axes, and with nothing but those."""
    leaves = list(_leaves(limit))
    return bool(leaves) and all(isinstance(leaf.owner, PieceOp) for leaf in leaves)


def _factor_axes(stream: StreamOp) -> set[str]:
    """The axes that all factors have which are multiplied in sums over the axis of a stream."""
    contracts = [op for op in stream.walk() if isinstance(op, ContractOp) and stream.axis in op.over_axes]
    factors = [set(axes_of(operand.type)) for op in contracts for operand in (op.lhs, op.rhs)]
    return set[str].intersection(*factors) if factors else set()


def _leaves(limit: SSAValue) -> Iterator[SSAValue]:
    """What a limit is computed from, constants left out."""
    match limit.owner:
        case arith.ConstantOp():
            return
        case Operation() as op if op.dialect_name() == "arith":
            for operand in op.operands:
                yield from _leaves(operand)
        case _:
            yield limit


def _is_zero(value: SSAValue) -> bool:
    return _number(value) == 0


def _number(value: SSAValue) -> int | None:
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp) or not isinstance(owner.value, IntegerAttr):
        return None
    return owner.value.value.data


def twins(stream: StreamOp) -> dict[Operation, Operation]:
    """For operations of `border`, the operation of `step` that does the same on the same types, or else on arrays of
    the same shapes: each of one sort the one of its rank. The two never run at once, so what one keeps in shared memory
    may take the other's place."""
    if stream.border is None:
        return {}
    found: dict[Operation, Operation] = {}
    # What is made in registers in the border, where a condition is asked of it, the step may have as it is loaded.
    for of_type in (_itself, _shape_of):
        taken = set(found.values())
        ranked: dict[object, list[Operation]] = {}
        for op in stream.step.block.ops:
            if op not in taken:
                ranked.setdefault(_sort_of(op, of_type), []).append(op)
        for op in stream.border.block.ops:
            if op not in found and (same := ranked.get(_sort_of(op, of_type))):
                found[op] = same.pop(0)
    return found


def _sort_of(op: Operation, of_type: Callable[[Attribute], object]) -> object:
    """What two operations that do the same on tiles of the same shapes agree in."""
    outside = tuple(operand for operand in op.operands if _home_of(operand) is not op.parent)
    types = tuple(of_type(value.type) for value in (*op.operands, *op.results))
    return op.name, tuple(sorted(op.properties.items(), key=lambda item: item[0])), types, outside


def _itself(type: Attribute) -> object:
    return type


def _shape_of(type: Attribute) -> object:
    """Of an array, all but where it lies."""
    return (format_of(type), *sizes_of(type).items()) if is_array(type) else type


def _home_of(value: SSAValue) -> Block | None:
    return value.owner if isinstance(value.owner, Block) else value.owner.parent
