"""What a lane of a kernel without products holds at once, moment by moment.

All arrays of such a kernel lie alike: its axes over lanes and warps, as `lowering.layouts.blocked` spreads them. What a
step loads is under way together; what it computes element by element for a reduction is made there, of what it is made
of; so moments are where a step begins and where it reduces. Read once of the kernel with its streams expanded; then for
any sizes of its pieces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import MemRefType
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.amounts import Amount, ceil_div, choice, most
from treadle.compiler.cost.kernel.lanes import Lanes
from treadle.compiler.cost.kernel.roles import vector_in_rows
from treadle.compiler.cost.kernel.work import SLOW_FUNCTIONS, width_of
from treadle.compiler.cost.levels.peak import lives_in, near_arrays
from treadle.compiler.cost.reading.ahead import divided
from treadle.compiler.lowering.pairs import by_lanes, taken_singly
from treadle.dialects.diagram import CastOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.approximations import is_approximate, is_by_polynomial
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.hierarchy import KernelOp, LoadOp, SaveOp, StreamOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.dialects.hierarchy.stream import moved_by_steps

ADDRESS = 0.75
"""Registers for each address that a lane makes, of two each: ptxas 13.0 makes many of them before it needs them."""

DIVIDING = 0.45
"""The part of what is divided that is on its way at a time, as beside products."""


MAKING = 0.3
"""The part of what is made for a reduction, of values that stay, that is on its way: with pieces of 32 elements a lane,
ptxas 13.0 spills mean and variance at 64 registers and not at 72."""

SLOW = 10
"""Registers in which a function is worked out that no special-function unit computes."""

PART_HELD = {"address": ADDRESS, "dividing": DIVIDING, "making": MAKING, "slow": SLOW}
"""Registers for each element of what is no value."""

FEW = 8
"""Registers of a step that is so short that nvcc makes one loop body of several: where it saves, too, what the next one
loads comes beside what this one saves."""


@dataclass(frozen=True, order=True)
class Held:
    """An array of which a lane holds its part: `value`; `address`, one for each index of these axes; what is on its way
    to others, as `dividing` and `making`; what a `slow` function takes, whatever its axes."""

    kind: str
    axes: tuple[str, ...]
    width: int

    def registers(self, lanes: Lanes) -> Amount:
        count = lanes.elements(self.axes)
        if self.kind in PART_HELD:
            return PART_HELD[self.kind] * count
        packed = ceil_div(count * self.width, 4)
        # Narrow numbers that are no neighbours in a row come one by one, each to a register.
        return choice(lanes.are_neighbours(self.axes), packed, count * most(1, self.width // 4))


@dataclass(frozen=True)
class Moment:
    held: tuple[Held, ...]
    saves: bool
    """Whether a step begins that also saves."""

    def registers(self, of_each: Mapping[Held, Amount]) -> Amount:
        total = sum(of_each[each] for each in self.held)
        return total + choice(total <= FEW, total, 0) if self.saves else total


@dataclass(frozen=True)
class Moments:
    """Of one kernel, whatever its sizes."""

    axes: tuple[str, ...]
    """Of all that it holds, in order of appearance."""
    buffers: tuple[tuple[tuple[str, ...], bool], ...]
    """The axes of each array in device memory, and whether it is a result."""
    vector: int
    """Elements of a row that a lane takes."""
    singly: frozenset[str]
    """The axes of which it takes single ones."""
    moments: tuple[Moment, ...]

    def lanes(self, tiles: Mapping[str, Amount], warps: Mapping[str, Amount]) -> Lanes:
        return Lanes(self.axes, self.buffers, self.vector, self.singly, tiles, warps)

    def registers(self, tiles: Mapping[str, Amount], warps: Mapping[str, Amount]) -> Amount:
        """Of a lane, at the moment when it holds most."""
        lanes = self.lanes(tiles, warps)
        of_each = {each: each.registers(lanes) for moment in self.moments for each in moment.held}
        return most(0, *(moment.registers(of_each) for moment in self.moments))


def moments_of_decorated(kernel: KernelOp, schedule: ScheduleAttr) -> Moments:
    """Of a copy whose streams are expanded with pieces of 1: which values there are does not depend on sizes."""
    # The pass imports the cost model.
    from treadle.passes.hierarchy_expand_streams import expanded

    group = dict.fromkeys((*schedule.group.as_dict(), *schedule.whole.as_dict()), 1)
    decided = ScheduleAttr(group, dict.fromkeys(schedule.stream.as_dict(), 1), {}, {})
    copy = kernel.clone()
    try:
        explicit = expanded(copy, decided)
        found = moments_of(explicit)
        explicit.erase()
    finally:
        copy.erase()
    return found


def moments_of(kernel: KernelOp) -> Moments:
    """Of a kernel whose streams are expanded."""
    arrays = moved_by_steps(kernel, [arg for arg in kernel.body.block.args if is_array(arg.type)])
    buffers = tuple((axes_of(arg.type), isinstance(arg.type, MemRefType)) for arg in arrays)
    made = [result for op in kernel.body.walk() for result in op.results if is_array(result.type)]
    moved = [value.type for op in kernel.body.walk() for value in _moved(op)]
    return Moments(
        by_lanes(kernel, list(dict.fromkeys(axis for value in made for axis in axes_of(value.type)))),
        buffers,
        vector_in_rows(map(width_of, moved), ()),
        taken_singly(kernel),
        _largest(_moments(kernel.body.block, frozenset())),
    )


def held_in_turns(kernel: KernelOp, tiles: Mapping[str, Amount], warps: Mapping[str, Amount]) -> dict[StreamOp, Amount]:
    """Registers of a lane for what it holds at once in a turn of each stream, which are expanded."""
    lanes = moments_of(kernel).lanes(tiles, warps)
    found: dict[StreamOp, Amount] = {}
    for stream in (op for op in kernel.body.walk() if isinstance(op, StreamOp)):
        assert stream.parent is not None
        lives, index = lives_in(stream.parent), list(stream.parent.ops).index(stream)
        around = near_arrays(value for value, (born, last) in lives.items() if born < index <= last)
        turn = _largest(_moments(stream.step.block, around))
        of_each = {each: each.registers(lanes) for moment in turn for each in moment.held}
        found[stream] = most(0, *(moment.registers(of_each) for moment in turn))
    return found


def _moved(op: Operation) -> Iterator[SSAValue]:
    """What is loaded or saved."""
    if isinstance(op, LoadOp):
        yield op.result
    elif isinstance(op, SaveOp):
        yield op.value


@dataclass(frozen=True)
class _Found:
    held: Counter[Held]
    saves: bool = False

    def is_within(self, other: _Found) -> bool:
        return self.held <= other.held and self.saves <= other.saves and self != other


def _largest(moments: Iterator[_Found]) -> tuple[Moment, ...]:
    """Without those that hold no more than another one."""
    found: list[_Found] = []
    for moment in moments:
        if moment not in found:
            found.append(moment)
    kept = [each for each in found if not any(each.is_within(other) for other in found)]
    return tuple(Moment(tuple(sorted(each.held.elements())), each.saves) for each in kept)


def _moments(block: Block, outside: frozenset[SSAValue]) -> Iterator[_Found]:
    lives = lives_in(block)
    first = outside | near_arrays(value for value, (born, last) in lives.items() if born < 0 <= last)
    begin = _held(first) + Counter(_accesses(block))
    in_stream = isinstance(block.parent_op(), StreamOp)
    yield _Found(begin, in_stream and any(isinstance(op, SaveOp) for op in block.ops))
    for i, op in enumerate(block.ops):
        if isinstance(op, MapOp):
            yield from (_Found(begin + Counter([each])) for each in _held_by_map(op))
        elif op.regions:
            around = near_arrays(value for value, (born, last) in lives.items() if born < i <= last)
            for region in op.regions:
                yield from _moments(region.block, outside | around)
        elif isinstance(op, ReduceOp):
            yield _Found(_held_while_reducing(op, i, lives, outside))


def _held_by_map(op: MapOp) -> Iterator[Held]:
    yield from (Held("dividing", axes, 4) for axes in divided(op))
    if any(map(_is_slow, op.body.block.ops)):
        yield Held("slow", (), 4)


def _is_slow(scalar: Operation) -> bool:
    return scalar.name in SLOW_FUNCTIONS and not is_approximate(scalar) and not is_by_polynomial(scalar)


def _held_while_reducing(
    op: ReduceOp, index: int, lives: Mapping[SSAValue, tuple[int, int]], outside: frozenset[SSAValue]
) -> Counter[Held]:
    stays = {value for value, (born, last) in lives.items() if born < index < last}
    read = set(_sources(op.operand, lives, index))
    making = [] if op.operand in read or not read <= stays else [Held("making", axes_of(op.operand.type), 4)]
    return _held(outside | near_arrays(stays | read | {op.result})) + Counter(making)


def _held(values: frozenset[SSAValue]) -> Counter[Held]:
    return Counter(Held("value", axes_of(value.type), width_of(value.type)) for value in values)


def _accesses(block: Block) -> Iterator[Held]:
    """The addresses of what a block loads and saves: elements along the last axis follow each other, all else is a
    stride away that only the launch knows."""
    for op in block.ops:
        for value in _moved(op):
            yield Held("address", axes_of(value.type)[:-1], 8)


def _sources(value: SSAValue, lives: Mapping[SSAValue, tuple[int, int]], index: int) -> Iterator[SSAValue]:
    """The arrays that the operation at `index` needs: what is made for it alone, element by element, is no such."""
    if value not in lives or lives[value][1] > index or not isinstance(value.owner, MapOp | CastOp | WhereOp):
        yield value
        return
    for operand in value.owner.operands:
        yield from _sources(operand, lives, index)
