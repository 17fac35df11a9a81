"""Carry a delayed product from loop to loop, where loops of one stream follow each other.

Conditions part a stream into loops: of pieces that they cut, and of pieces that are whole (masks are peeled). Each has
turns of the same rings, behind those of the loop before. So the first turn of one may start the last product of another
beside its own first products, as within a loop: the stream is filled once, and drained once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects import cuda
from treadle.passes.loops.delay import Delayed, Parts, delayable, rings_of_tiles, tile_of
from treadle.passes.loops.turns import is_number

PURE = ("arith", "diagram")
"""What may stand between two loops that become one stream of products."""

Sum = Counter[SSAValue | None]
"""A number as a sum: how often each value is in it; None stands for 1."""


def chains_of(block: Block, tiles: dict[SSAValue, SSAValue], carries: bool) -> list[list[Delayed]]:
    """The loops of a block with a product to delay; those together through which it can be carried."""
    chains: list[list[Delayed]] = []
    for loop in [op for op in block.ops if isinstance(op, scf.ForOp)]:
        what = delayable(loop, tiles)
        if what is None:
            continue
        if carries and chains and goes_on(chains[-1][-1], what):
            chains[-1].append(what)
        else:
            chains.append([what])
    return chains


def goes_on(before: Delayed, what: Delayed) -> bool:
    """Whether a loop goes on where another ends: it begins with the states that the other leaves, which nobody else
    reads; what starts its delayed product depends on nothing but the turn of the ring; and its turns are those behind
    the turns of the other. Then its product of the turn before its first is the last of the other."""
    loop, other = what.loop, before.loop
    if tuple(loop.iter_args) != tuple(other.results) or any(len(list(each.uses)) != 1 for each in other.results):
        return False
    if not _is_same_product(before, what) or not all(map(_is_counted, (other, loop))):
        return False
    begun, begin = _first_turn(before), _first_turn(what)
    if begun is None or begin is None or begin != _plus(begun, _terms(other.ub)):
        return False
    return all(op.dialect_name() in PURE for op in _between(other, loop))


def _is_same_product(before: Delayed, what: Delayed) -> bool:
    one, two = before.product, what.product
    alike = one.axis == two.axis and one.lhs.type == two.lhs.type and tile_of(one.rhs) is tile_of(two.rhs)
    return alike and before.ring is what.ring and before.position == what.position


def _is_counted(loop: scf.ForOp) -> bool:
    """Whether its position is the number of its turn."""
    return is_number(loop.lb, 0) and is_number(loop.step, 1)


def _between(first: Operation, last: Operation) -> Iterator[Operation]:
    op = first.next_op
    while op is not None and op is not last:
        yield op
        op = op.next_op


def _first_turn(what: Delayed) -> Sum | None:
    """The turn of the ring in the first turn of a loop; None where what starts or ends the product depends on the
    position of the loop in another way than by the turn that it is."""
    position = what.loop.body.block.args[0]
    on_ring = [op for op in (*what.begin, *what.release) if isinstance(op, cuda.AwaitOp | cuda.ReleaseOp)]
    turns = [_terms(op.turn) for op in on_ring]
    if not turns or any(turn != turns[0] for turn in turns) or turns[0][position] != 1:
        return None
    base = _plus(turns[0], Counter({position: -1}))
    for op in what.begin:
        is_turn = not base or any(_terms(result) == turns[0] for result in op.results)
        if position in op.operands and not is_turn:
            return None
    return base


def _terms(value: SSAValue) -> Sum:
    owner = value.owner
    if isinstance(owner, arith.AddiOp):
        return _plus(_terms(owner.lhs), _terms(owner.rhs))
    if isinstance(owner, arith.ConstantOp) and is_number(value, 0):
        return Counter()
    return Counter({value: 1})


def _plus(one: Sum, two: Sum) -> Sum:
    found = Counter(one)
    found.update(two)
    return Counter({value: count for value, count in found.items() if count})


@dataclass
class Carried:
    """The rewrite of loops that follow each other, or of one: the first turn that there is without its product, the
    turns of all loops behind it with that of the turn before, and the last product; nothing where there is no turn."""

    chain: Sequence[Delayed]
    parts: list[Parts] = field(default_factory=list[Parts])

    def build(self) -> None:
        self.parts = [Parts(what) for what in self.chain]
        first, last = self.chain[0].loop, self.chain[-1].loop
        sums, turns = self._turns(len(self.chain))
        test = arith.CmpiOp(first.lb, turns, "ult")
        test.result.name_hint = "has_turns"
        some = Block()
        states = self._all_turns(some)
        some.add_op(scf.YieldOp(*states))
        none = Block([scf.YieldOp(*first.iter_args)])
        branch = scf.IfOp(test.result, [result.type for result in last.results], Region(some), Region(none))
        branch.location = first.location
        for old, new in zip(last.results, branch.results, strict=True):
            new.name_hint = old.name_hint
        Rewriter.replace_op(last, [*sums, test, branch], list(branch.results))
        for what in reversed(self.chain[:-1]):
            Rewriter.erase_op(what.loop)

    def _turns(self, loops: int) -> tuple[list[arith.AddiOp], SSAValue]:
        """How many turns so many loops have together, and what computes it."""
        sums: list[arith.AddiOp] = []
        total: SSAValue = self.chain[0].loop.ub
        for what in self.chain[1:loops]:
            sums.append(sum := arith.AddiOp(total, what.loop.ub))
            total = sum.result
            total.name_hint = "turns"
        return sums, total

    def _all_turns(self, target: Block) -> list[SSAValue]:
        carried = self._first_turn(target, 0)
        mains: list[scf.ForOp] = []
        for number, part in enumerate(self.parts):
            mains.append(part.loop(target, self._start(target, number), carried))
            carried = list(mains[-1].results)
        states: list[SSAValue] = list(carried[:-1])
        states[self.chain[-1].position] = self.parts[-1].last(target, mains[-1])
        return states

    def _first_turn(self, target: Block, number: int) -> list[SSAValue]:
        """Of the first loop from that one on that has turns: the states, and the left operand of the product."""
        part, loop = self.parts[number], self.chain[number].loop
        inits = list(self.chain[0].loop.iter_args)
        if number + 1 == len(self.parts):
            return part.first_turn(target, inits)
        some, other = Block(), Block()
        values, others = part.first_turn(some, inits), self._first_turn(other, number + 1)
        some.add_op(scf.YieldOp(*values))
        other.add_op(scf.YieldOp(*others))
        test = arith.CmpiOp(loop.lb, loop.ub, "ult")
        test.result.name_hint = "begins_here"
        branch = scf.IfOp(test.result, [value.type for value in values], Region(some), Region(other))
        branch.location = loop.location
        for old, new in zip(others, branch.results, strict=True):
            new.name_hint = old.name_hint
        target.add_ops([test, branch])
        return list(branch.results)

    def _start(self, target: Block, number: int) -> SSAValue:
        """The first turn of a loop that follows another turn: its own first, if loops before it have any."""
        loop = self.chain[number].loop
        second = arith.AddiOp(loop.lb, loop.step)
        second.result.name_hint = "second"
        target.add_op(second)
        if not number:
            return second.result
        sums, turns = self._turns(number)
        has_begun = arith.CmpiOp(loop.lb, turns, "ult")
        start = arith.SelectOp(has_begun.result, loop.lb, second.result)
        has_begun.result.name_hint, start.result.name_hint = "has_begun", "start"
        target.add_ops([*sums, has_begun, start])
        return start.result


def delay_products(kernel: cuda.KernelOp, carries: bool = True) -> list[list[str]]:
    """Delay what can be delayed in the loops of a kernel's consumers; the names of the sums, by the loops together
    through which they are carried."""
    roles = cuda.roles_of(kernel)
    if roles is None:
        return []
    chains = chains_of(roles.consumers.block, rings_of_tiles(kernel), carries)
    found = [[f"%{what.wait.result.name_hint}" for what in chain] for chain in chains]
    for chain in chains:
        Carried(chain).build()
    return found
