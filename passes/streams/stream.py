"""The parts of a stream along an axis: initialise, step, finish, and the merge of two parts of the axis.

`StreamParts` writes them from a `StreamPlan`. What is made of them, and where the pieces come from, its users
say: explicit kernels (`hierarchy_expand_streams`), and laws for a person to read and check (`streams.laws`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import i32
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects.diagram import ContractOp, ExtentOp, FillOp, IndexOp, MapOp, ReduceOp, ScanOp, WhereOp
from treadle.dialects.diagram.accumulators import goes_on
from treadle.dialects.diagram.array import DYNAMIC, array_type, format_of, level_of, sizes_of
from treadle.dialects.diagram.condition import Both, Condition, Term
from treadle.dialects.diagram.lagging import SLACK, skip_ones, slack_of
from treadle.passes._functions import unite_equal
from treadle.passes.expressions.conditions import inputs_of, parts_of, spelled
from treadle.passes.expressions.lagging import lagging
from treadle.passes.expressions.reductions import (
    combine,
    is_neutral,
    kind_of,
    neutral_of,
    operands_of,
    rebuilt,
)
from treadle.passes.expressions.scalars import (
    Expression,
    Leaf,
    axes_in,
    build_map,
    leaves,
    number,
    product,
    substitute,
)
from treadle.passes.streams.changes import Repair, is_growing
from treadle.passes.streams.lagging import follows_what_lags
from treadle.passes.streams.neutral import decided
from treadle.passes.streams.repairs import Moments, changes_at, hint_of, location_of, stood_in
from treadle.passes.streams.stages import StreamPlan, is_scanned_along, scans_of
from treadle.passes.streams.undefined import axes_reduced, presence, told, undefined_with

Named = dict[SSAValue, SSAValue]
"""What stands for each value of the decorated kernel at one moment."""


@dataclass
class Scope:
    """Values of the decorated kernel as tiles, at one place of what is made of it."""

    block: Block
    values: Named

    def inner(self, block: Block) -> Scope:
        return Scope(block, dict(self.values))

    def add(self, op: Operation, stands_for: SSAValue | None = None) -> SSAValue:
        self.block.add_op(op)
        if stands_for is not None:
            self.values[stands_for] = op.results[0]
        return op.results[0]


class StreamParts(ABC):
    """Writes the parts of the streams of a plan. A user of it says what a tile is, where an operand comes from
    that no operation of the part makes, and what is done with a piece that leaves."""

    def __init__(self, plan: StreamPlan):
        self.plan = plan

    @abstractmethod
    def tile(self, type: Attribute) -> Attribute:
        """The type of what a part holds of an array."""

    @abstractmethod
    def fetch(self, scope: Scope, value: SSAValue) -> None:
        """Bring a value into scope."""

    @abstractmethod
    def leave(self, scope: Scope, value: SSAValue) -> None:
        """A step has made a piece of a result."""

    @abstractmethod
    def end(self, block: Block, values: Sequence[SSAValue]) -> None:
        """End a part with what it gives."""

    # -- the parts --------------------------------------------------------------------------------

    def initialise(self, states: Sequence[SSAValue], known: Named | None = None) -> Block:
        """The states before the first piece; `known`: what is before the stream."""
        block = Block()
        begun = [self._beginning(block, state, known or {}) for state in states]
        self.end(block, begun)
        return block

    def _beginning(self, block: Block, state: SSAValue, known: Named) -> SSAValue:
        if (beginning := self.plan.beginning_of(state)) is not None:
            return known[beginning]
        fill = FillOp(neutral_of(state), self.tile(state.type))
        fill.location = location_of(state)
        fill.result.name_hint = hint_of(state, "start")
        block.add_op(fill)
        return fill.result

    def step(
        self,
        outer: Scope,
        stream: int,
        block: Block,
        assumed: frozenset[WhereOp] = frozenset(),
        certain: Sequence[Condition] = (),
    ) -> None:
        """Fill a block whose first arguments are the states before the piece, for pieces in which the conditions
        of `assumed` hold, and of the others those parts that are `certain`."""
        states = self.plan.states_in(stream)
        scope = outer.inner(block)
        step = Step(self, scope, name_all(states, block.args[: len(states)], "so_far"))
        for op in self.plan.step_of(stream):
            holds = isinstance(op, WhereOp) and op in assumed
            if isinstance(op, WhereOp) and not holds and any(part in certain for part in parts_of(op.holds)):
                self._keep(scope, op, [part for part in parts_of(op.holds) if part not in certain])
                continue
            self.fetch_all(scope, op.operands[:1] if holds else _asked(op))
            if isinstance(op, ContractOp | ReduceOp) and self.plan.state_of_sum(op.result) in step.before:
                step.update(op)
            elif is_scanned_along(op, self.plan.axis):
                self._scan(scope, op, step.before)
            elif holds:
                scope.values[op.results[0]] = scope.values[op.operands[0]]
            elif op in self.plan.asking:
                self._copy_of_states(scope, op, step.after)
            elif not self._decide(scope, op, states):
                self.copy(scope, op)
        for value in self.plan.saved_in_step(stream):
            self.leave(scope, value)
        self.end(block, [step.after[state] for state in states])
        unite_equal(block)

    def _scan(self, scope: Scope, op: ScanOp, before: Named) -> None:
        """Scan a piece, from what came before it; in reverse from nothing."""
        assert op.total is not None
        init = None if op.is_reverse else before[op.total]
        scope.add(op.of(scope.values[op.operand], self.tile(op.result.type), init=init), op.result)

    def _copy_of_states(self, scope: Scope, op: Operation, states: Named) -> None:
        """The same operation on the states themselves, where numbers may stand for them."""
        asked = [value for value in op.operands if self.plan.has_stand_in(value, states)]
        inner = Scope(scope.block, scope.values | {value: self._of_states(scope, value, states) for value in asked})
        self.copy(inner, op)
        scope.values |= {result: inner.values[result] for result in op.results}

    def _of_states(self, scope: Scope, value: SSAValue, states: Named) -> SSAValue:
        """A state, or what is made of such, though a number stands for it."""
        if value in states or not isinstance(value.owner, Operation):
            return states[value]
        inner = scope.inner(scope.block)
        self._copy_of_states(inner, value.owner, states)
        return inner.values[value]

    def _keep(self, scope: Scope, op: WhereOp, left: Sequence[Condition]) -> None:
        """Write a condition of which only some parts are left to test, or none."""
        if not left:
            self.fetch_all(scope, op.operands[:1])
            scope.values[op.result] = scope.values[op.operand]
            return
        condition = Both(tuple(left))
        names = inputs_of(condition)
        inputs = {name: value for value, name in names.items()}
        test = WhereOp(op.operand, spelled(condition, names), inputs, op.result.type)
        test.location, test.result.name_hint = op.location, op.result.name_hint
        self.copy(scope, test)
        scope.values[op.result] = scope.values.pop(test.result)
        test.erase()

    def _decide(self, scope: Scope, op: Operation, states: Iterable[SSAValue]) -> bool:
        """Write what a map chooses by whether a state is neutral, if it does: in a step a finite number stands for a
        state while it is."""
        chosen = decided(op, [r for r in self.plan.stood_in(op) if r in states])
        if chosen is None:
            return False
        (result,) = op.results
        if isinstance(chosen, Leaf) and chosen.value.type == result.type:
            scope.values[result] = scope.values[chosen.value]
            return True
        here = substitute(chosen, lambda leaf: Leaf(scope.values[leaf.value]))
        scope.add(build_map(here, self.tile(result.type), result.name_hint, op.location), result)
        return True

    def finish(self, outer: Scope, stream: int, block: Block, exports: Sequence[SSAValue]) -> None:
        """Fill a block whose first arguments are the states after the last piece."""
        states = self.plan.states_in(stream)
        scope = outer.inner(block)
        ends = name_all(states, block.args[: len(states)], "end")
        scope.values |= ends
        self.tell_undefined(outer, scope, stream, ends)
        for op in self.plan.finish_of(stream):
            self.copy(scope, op)
        self.end(block, [scope.values[value] for value in exports])

    def tell_undefined(self, outer: Scope, scope: Scope, stream: int, ends: Named) -> None:
        """Let finished states be NaN where the formula has no number (`streams.undefined`)."""
        for state, guards in undefined_with(self.plan, stream).items():
            self._tell_undefined(outer, scope, state, [Leaf(ends[guard]) for guard in guards], guards)

    def _tell_undefined(
        self, outer: Scope, scope: Scope, state: SSAValue, ends: Sequence[Leaf], guards: Sequence[SSAValue]
    ) -> None:
        """Let a finished state be NaN where one of its guards is neutral though there was an element."""
        end = Leaf(scope.values[state])
        neutral = [is_neutral(guard, value) for guard, value in zip(guards, ends, strict=True)]
        whole = told(end, neutral, self._presence(outer, state, guards))
        scope.add(build_map(whole, end.value.type, hint_of(state, "told"), location_of(state)), state)

    def _presence(self, outer: Scope, state: SSAValue, guards: Sequence[SSAValue]) -> Iterator[Expression]:
        """What must hold for a state to have had an element."""
        made: dict[Term, Expression] = {}

        def resolve(term: Term) -> Expression:
            if isinstance(term, SSAValue):
                self.fetch_all(outer, [term])
                return Leaf(outer.values[term])
            assert isinstance(term, str)
            if term not in made:
                index = IndexOp(self.tile(array_type(i32, {term: sizes_of(state.type)[term]}, level_of(state.type))))
                index.location = location_of(state)
                made[term] = Leaf(outer.add(index))
            return made[term]

        sizes = {axis: self.static_size(axis, size) for axis, size in axes_reduced(state, guards).items()}

        def size_of(axis: str) -> Expression:
            if (size := sizes[axis]) != DYNAMIC:
                return number(size, i32)
            extent = ExtentOp(axis)
            extent.location = location_of(state)
            extent.result.name_hint = f"extent_{axis}"
            return Leaf(outer.add(extent))

        return presence(self.plan, state, sizes, size_of, resolve)

    def static_size(self, axis: str, size: int) -> int:
        """The size of an axis, if it is the same wherever the parts are used; `DYNAMIC` otherwise."""
        return size

    def merge(self, outer: Scope, stream: int, block: Block) -> None:
        """Fill a block whose first arguments are the states of one part of the axis, then those of the next."""
        states = self.plan.states_in(stream)
        count = len(states)
        parts = [
            name_all(states, block.args[:count], "first"),
            name_all(states, block.args[count : 2 * count], "second"),
        ]
        merge = Merge(self, outer.inner(block), parts)
        for state in states:
            merge.update(state)
        self.end(block, [merge.after[state] for state in states])
        unite_equal(block)

    # -- one operation ----------------------------------------------------------------------------

    def copy(self, scope: Scope, op: Operation) -> None:
        """The same operation on tiles. Of a condition streams know already where it holds."""
        self.fetch_all(scope, _asked(op))
        new = op.clone(scope.values) if not isinstance(op, WhereOp) else _tested(op, scope.values)
        for old, result in zip(op.results, list(new.results), strict=True):
            scope.values[old] = Rewriter.replace_value_with_new_type(result, self.tile(old.type))
        scope.block.add_op(new)

    def fetch_all(self, scope: Scope, operands: Iterable[SSAValue]) -> None:
        for operand in operands:
            if operand not in scope.values:
                self.fetch(scope, operand)


def _asked(op: Operation) -> Sequence[SSAValue]:
    """The operands of an operation, without those from which it is only known where a condition holds."""
    return (op.operand, *op.asked.values()) if isinstance(op, WhereOp) else op.operands


def _tested(op: WhereOp, values: Named) -> WhereOp:
    inputs = {name: values[value] for name, value in op.asked.items()}
    new = WhereOp(values[op.operand], op.condition, inputs, op.result.type)
    new.attributes |= op.attributes
    new.location, new.result.name_hint = op.location, op.result.name_hint
    return new


class Following:
    """States that follow when one that they depend on moves: `before` it did, and `after`."""

    def __init__(self, parts: StreamParts, scope: Scope):
        self.parts = parts
        self.plan = parts.plan
        self.scope = scope
        self.after: Named = {}
        self.added: Named = {}

    def repaired(self, state: SSAValue, repair: Repair, before: Named) -> SSAValue:
        """An accumulator as it would be, had the states always been as they are after."""
        old = before[state]
        moments = Moments(before.__getitem__, self._value, self._itself, self._added)
        for apply, change in changes_at(state, repair, self.plan, moments):
            present = axes_in(change)
            if not leaves(change):
                continue
            sizes = {axis: size for axis, size in sizes_of(old.type).items() if axis in present}
            type = array_type(format_of(old.type), sizes, level_of(old.type))
            made = build_map(change, type, "repair", location_of(state))
            self.scope.add(made)
            applied = apply(Leaf(old), Leaf(made.result))
            map = build_map(applied, old.type, hint_of(state, "repaired"), location_of(state))
            if apply is product and follows_what_lags(repair) and len(present) < len(sizes_of(old.type)):
                skip_ones(map)
            old = self.scope.add(map)
        return old

    def _value(self, value: SSAValue) -> SSAValue:
        if value not in self.scope.values:
            self.parts.fetch(self.scope, value)
        return self.scope.values[value]

    def _itself(self, value: SSAValue) -> SSAValue:
        """A state after the step, though a number may stand for it."""
        return self.after.get(value) or self._value(value)

    def _added(self, value: SSAValue) -> SSAValue:
        """What a piece adds to a sum."""
        return self.added[value]

    def moved(self, state: SSAValue, new: SSAValue) -> None:
        """Keep the new value of a state. Where it is neutral still, a finite number stands for it in what is
        made from it."""
        self.after[state] = self.scope.values[state] = new
        if state not in self.plan.guarded:
            return
        self.scope.add(stood_in(state, new), state)


class Step(Following):
    """The states of one step."""

    def __init__(self, parts: StreamParts, scope: Scope, before: Named):
        super().__init__(parts, scope)
        self.before = before

    def update(self, op: ContractOp | ReduceOp) -> None:
        """Take one state through the piece: repair it, then reduce the piece into it."""
        state = self.plan.state_of_sum(op.result)
        if state is not op.result or goes_on(op, self.plan.axis):
            self._go_on(op, state)
            return
        repair = self.plan.verdicts[state].repair
        into = self.before[state] if repair is None else self.repaired(state, repair, self.before)
        operands = [self.scope.values[operand] for operand in operands_of(op)]
        if any(is_growing(scan.result) for scan in scans_of(state)):
            self._add(op, operands)
            return
        new = rebuilt(op, operands, self.before[state].type, into)
        new.attributes.pop(SLACK, None)
        new.result.name_hint = hint_of(state, "new")
        self.scope.add(new)
        if (slack := slack_of(op)) is not None:
            new = self._lagging(state, new.result, slack)
        self.moved(state, new.result)

    def _add(self, op: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> None:
        """Take a sum through the piece, by which what is scanned in reverse grows: it stands by itself."""
        state = op.result
        alone = rebuilt(op, operands, self.before[state].type)
        alone.result.name_hint = hint_of(state, "added")
        self.added[state] = self.scope.add(alone)
        both = combine(kind_of(state), Leaf(self.before[state]), Leaf(alone.result))
        self.moved(state, self.scope.add(build_map(both, alone.result.type, hint_of(state, "new"), op.location)))

    def _go_on(self, op: ContractOp | ReduceOp, state: SSAValue) -> None:
        """Add one of several products to a state."""
        sum_so_far = op.init if op.init in self.plan.goes_on else None
        into = self.before[state] if sum_so_far is None else self.scope.values[sum_so_far]
        operands = [self.scope.values[operand] for operand in operands_of(op)]
        new = rebuilt(op, operands, self.before[state].type, into)
        new.result.name_hint = op.result.name_hint if state is not op.result else hint_of(state, "new")
        self.scope.add(new, op.result)
        if state is op.result:
            self.moved(state, new.result)

    def _lagging(self, state: SSAValue, new: SSAValue, slack: float) -> MapOp:
        """What a state lags behind, as long as it does so by little."""
        kept = lagging(kind_of(state), Leaf(self.before[state]), Leaf(new), slack)
        op = build_map(kept, new.type, hint_of(state, "lagging"), location_of(state))
        self.scope.add(op)
        return op


class Merge(Following):
    """The states of two parts of the axis, made one."""

    def __init__(self, parts: StreamParts, scope: Scope, before: Sequence[Named]):
        super().__init__(parts, scope)
        self.before = before
        self.later: Named | None = None
        """The states of the part behind the one that is repaired, if there is one."""

    def _added(self, value: SSAValue) -> SSAValue:
        """What the part behind has summed."""
        if self.later is not None:
            return self.later[value]
        fill = FillOp(neutral_of(value), self.parts.tile(value.type))
        fill.location = location_of(value)
        return self.scope.add(fill)

    def update(self, state: SSAValue) -> None:
        """Repair what each part has gathered, then combine both."""
        repair, parts = self.plan.verdicts[state].repair, list[SSAValue]()
        for before, later in zip(self.before, (self.before[1], None), strict=True):
            self.later = later
            parts.append(before[state] if repair is None else self.repaired(state, repair, before))
        one, other = parts
        both = combine(kind_of(state), Leaf(one), Leaf(other))
        self.moved(state, self.scope.add(build_map(both, one.type, hint_of(state, "both"), location_of(state))))


def name_all(states: Sequence[SSAValue], arguments: Sequence[SSAValue], suffix: str) -> Named:
    for state, argument in zip(states, arguments, strict=True):
        argument.name_hint = hint_of(state, suffix)
    return dict(zip(states, arguments, strict=True))
