"""Rewrite a loop whose turns take their powers before they know their maximum."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from xdsl.dialects import math, scf
from xdsl.dialects.builtin import FloatAttr, f32
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects import cuda
from treadle.dialects.cuda.rings import let_alternate
from treadle.dialects.diagram import FillOp, ReduceOp
from treadle.passes.expressions.scalars import Leaf, Node, build_map, compare, number, select, total
from treadle.passes.loops.load_ahead import with_more_state
from treadle.passes.speculation.law import Speculation, is_start
from treadle.passes.speculation.registers import registers_of

Mapping = dict[SSAValue, SSAValue]

FEW = 4
"""Registers that are moved from turn to turn sooner than turns are written twice."""


def speculate(found: Speculation) -> None:
    """Rewrite the loop."""
    _Rewrite(found).build()


class _Rewrite:
    def __init__(self, found: Speculation):
        self.found = found
        self.ones = [value for value in found.wanted if found.is_one(value)]
        self.big = [value for value in found.wanted if found.made_again(value)]
        self.rows = [op for op in found.told if op.results[0] in found.alone and op.results[0] is not found.kept]
        self.results = (found.kept, *(value for value in found.wanted if value not in found.alone), *found.carried)
        """What a turn has either way, in the order of the branch's results."""

    def build(self) -> None:
        found, body = self.found, self.found.loop.body.block
        loop = with_more_state(found.loop, self._begin())
        arguments = dict(zip(found.carried, body.args[-len(found.carried) :], strict=True))
        before = InsertPoint.before(found.extremum)
        quick: Mapping = dict(arguments)
        for op in found.again:
            Rewriter.insert_op(_clone(op, quick), before)
        test = cuda.ExceedsOp(quick[found.sum.result], found.limit)
        test.result.name_hint = "grown"
        ones = {value: FillOp(FloatAttr(1.0, f32), value.type) for value in self.ones}
        for value, op in ones.items():
            op.result.name_hint = f"{value.name_hint}_one"
        stays = {found.kept: found.before, **{value: op.result for value, op in ones.items()}, **quick}
        branch = scf.IfOp(
            test.result,
            [value.type for value in self.results],
            Region(self._anew()),
            Region(Block([scf.YieldOp(*(stays[value] for value in self.results))])),
        )
        branch.location = found.extremum.location
        for value, result in zip(self.results, branch.results, strict=True):
            result.name_hint = value.name_hint
        Rewriter.insert_op([*ones.values(), test, branch], before)
        self._replace(dict(zip(self.results, branch.results, strict=True)))
        self._hand_on(loop, branch)

    def _begin(self) -> list[SSAValue]:
        """What is told from the extremum that the loop begins with, before the loop."""
        loop, place = self.found.loop, InsertPoint.before(self.found.loop)
        mapping: Mapping = {self.found.kept: loop.iter_args[self.found.position]}
        for op in self.rows:
            Rewriter.insert_op(_clone(op, mapping), place)
        return [self._kept(value, mapping, lambda op: Rewriter.insert_op(op, place)) for value in self.found.carried]

    def _anew(self) -> Block:
        block, mapping = Block(), Mapping()
        for op in self.found.told:
            block.add_op(_clone(op, mapping))
        carried = {value: self._kept(value, mapping, block.add_op) for value in self.found.carried}
        block.add_op(scf.YieldOp(*((mapping | carried)[value] for value in self.results)))
        return block

    def _kept(self, value: SSAValue, mapping: Mapping, add: Callable[[Operation], object]) -> SSAValue:
        """What goes to the next turn: of an extremum that may not lag, an offset that makes every power infinite."""
        if value is not self.found.offset:
            return mapping[value]
        extremum, offset = Leaf(mapping[self.found.kept]), Leaf(mapping[value])
        size = Node(math.AbsFOp, (extremum,), extremum.type)
        lags = compare(size, "<", number(self.found.finite))
        map = build_map(select(lags, offset, number(-inf)), value.type, f"{value.name_hint}_kept")
        add(map)
        return map.result

    def _replace(self, made: Mapping) -> None:
        """What the branch makes goes where it was made before; to sums, what they begin with is added there."""
        for op in self.found.told:
            value = op.results[0]
            if value not in made:
                continue
            if isinstance(op, ReduceOp) and op is not self.found.extremum and op.init is not None:
                whole = build_map(total(Leaf(op.init), Leaf(made[value])), value.type, value.name_hint, op.location)
                Rewriter.insert_op(whole, InsertPoint.before(op))
                value.replace_all_uses_with(whole.result)
            else:
                value.replace_all_uses_with(made[value])
        for op in reversed(self.found.told):
            Rewriter.erase_op(op)

    def _hand_on(self, loop: scf.ForOp, branch: scf.IfOp) -> None:
        end = loop.body.block.last_op
        assert isinstance(end, scf.YieldOp)
        made = dict(zip(self.results, branch.results, strict=True))
        big = {made[value] for value in self.big if registers_of(value) > FEW}
        if places := [i for i, value in enumerate(end.operands) if value in big]:
            let_alternate(loop, places)
        Rewriter.replace_op(end, scf.YieldOp(*end.operands, *branch.results[-len(self.found.carried) :]))


def _clone(op: Operation, mapping: Mapping) -> Operation:
    """A copy of what the operands are mapped to, under its name; of a sum, what it adds up alone."""
    if isinstance(op, ReduceOp) and op.init is not None and is_start(op, op.init):
        clone: Operation = ReduceOp(op.kind.data, mapping.get(op.operand, op.operand), op.over_axes, op.result.type)
        clone.attributes |= op.attributes
    else:
        clone = op.clone(value_mapper=mapping)
    clone.location = op.location
    for old, new in zip(op.results, clone.results, strict=True):
        new.name_hint = old.name_hint
        mapping[old] = new
    return clone
