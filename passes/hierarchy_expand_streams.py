"""`hierarchy-expand-streams`: from a decorated kernel to groups and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import LocationAttr, MemRefType, ModuleOp, UnknownLoc
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter
from xdsl.utils.exceptions import PassFailedException

from treadle.dialects.diagram.array import (
    DYNAMIC,
    array_type,
    axes_of,
    encoding_of,
    format_of,
    is_array,
    shape_of,
    sizes_of,
    with_level,
)
from treadle.dialects.diagram.ops import ContractOp, FillOp, MapOp, ReduceOp
from treadle.dialects.hierarchy.ops import GroupOp, KernelOp, LoadOp, SaveOp, StreamOp, YieldOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes._assuming import assuming, erase_unused
from treadle.passes._cascades import BEFORE, Repair
from treadle.passes._functions import functions, kernels, label, note, unite_equal
from treadle.passes._limits import LimitWriter, spell_range
from treadle.passes._parts import part_of_kernel
from treadle.passes._reductions import (
    is_neutral,
    neutral_of,
    operands_of,
    rebuilt,
    reduce_alone,
    stand_in_of,
)
from treadle.passes._scalars import (
    Expression,
    Leaf,
    axes_in,
    build_map,
    leaves,
    number,
    select,
    substitute,
)
from treadle.passes._stages import StreamPlan
from treadle.passes._visits import Visits, visits_of

PASS = "hierarchy-expand-streams"


@dataclass(frozen=True)
class HierarchyExpandStreamsPass(ModulePass):
    """Make the order of a decided schedule explicit: one `hierarchy.group`, in it loads, streams with
    initialise, step and finish, and saves.

    Before:

    ```
    !x = tensor<?x?xf32, #diagram.array<[i, x]>>
    !xd = tensor<?x?xf32, #diagram.array<[i, x], level = device>>
    !s = tensor<?xf32, #diagram.array<[i]>>
    !sr = tensor<?xf32, #diagram.array<[i], level = register>>
    func.func @f(%x: !x) -> !s {
      %s = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!s)
          schedule #hierarchy.schedule<group = [i = 8], stream = [x = 16]> {
        %m = diagram.reduce max %a over [x] : !xd -> !sr
        hierarchy.yield %m : !sr
      }
      func.return %s : !s
    }
    ```

    After:

    ```
    !x = tensor<?x?xf32, #diagram.array<[i, x]>>
    !xd = tensor<?x?xf32, #diagram.array<[i, x], level = device>>
    !xt = tensor<8x16xf32, #diagram.array<[i, x], level = register>>
    !s = tensor<?xf32, #diagram.array<[i]>>
    !st = tensor<8xf32, #diagram.array<[i], level = register>>
    !sd = memref<?xf32, #diagram.array<[i], level = device>>
    func.func @f(%x: !x) -> !s {
      %s = hierarchy.kernel @f (%a = %x : !x as !xd) saves (%to: !sd) -> (!s)
          schedule #hierarchy.schedule<group = [i = 8], stream = [x = 16]> {
        hierarchy.group [i = 8] {
          %m = hierarchy.stream [x = 16] -> (!st) initialise {
            %m_start = diagram.fill 0xFF800000 : f32 -> !st
            hierarchy.yield %m_start : !st
          } step (%m_so_far: !st) {
            %a_piece = hierarchy.load %a : !xd -> !xt
            %m_new = diagram.reduce max %a_piece over [x] into %m_so_far : !xt -> !st
            hierarchy.yield %m_new : !st
          } finish (%m_end: !st) {
            hierarchy.yield %m_end : !st
          }
          hierarchy.save %m into %to : !st, !sd
        }
        hierarchy.yield
      }
      func.return %s : !s
    }
    ```

    Legal by the laws that `_stages` and `_cascades` find for each reduction. A repaired accumulator is
    multiplied by the ratio of its summands after and before; where the state that moved is still neutral, a
    finite number stands for it, since nothing that counts can have been added. Sums are kept in the format
    in which the algorithm accumulates them and rounded to that of the result once, after the last piece.
    """

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for kernel in kernels(function):
                if not kernel.is_expanded:
                    _expand(function, kernel)


def _expand(function: func.FuncOp, kernel: KernelOp) -> None:
    schedule = kernel.schedule
    if schedule is None or not schedule.is_decided:
        raise PassFailedException(
            f"@{kernel.kernel_name.data}: the schedule is not decided (run tiling and hierarchy-choose-sizes)"
        )
    axis = next(iter(schedule.stream.as_dict()), "")
    _keep_states_apart(kernel, axis)
    plan = StreamPlan(part_of_kernel(kernel), axis)
    expansion = _Expansion(kernel, schedule, plan)
    new = expansion.kernel()
    _note(function, kernel, plan, expansion.visits)
    for old, output in zip(kernel.outputs, new.outputs, strict=True):
        output.name_hint = old.name_hint
        old.replace_all_uses_with(output)
    block = kernel.parent_block()
    assert block is not None
    block.insert_op_before(new, kernel)
    kernel.detach()
    kernel.erase()


def _note(function: func.FuncOp, kernel: KernelOp, plan: StreamPlan, visits: Mapping[int, Visits]) -> None:
    for stream in plan.streams:
        states = ", ".join(label(state) for state in plan.states_in(stream)) or "none"
        subject = f"stream {stream + 1} of @{kernel.kernel_name.data} along {plan.axis}"
        note(function, PASS, subject, "initialise, step, finish", f"state: {states}")
        _note_visits(function, subject, plan.axis, visits[stream])


def _note_visits(function: func.FuncOp, subject: str, axis: str, visits: Visits) -> None:
    if not visits.some.is_whole:
        fed = f"fed {spell_range(visits.some, axis)}; elsewhere every element leaves the neutral one"
        note(function, PASS, subject, "a neutral element changes nothing", fed)
    if visits.every is not None:
        where = spell_range(visits.every, axis)
        note(function, PASS, subject, "a condition that holds selects", f"not tested in pieces within {where}")


def _keep_states_apart(kernel: KernelOp, axis: str) -> None:
    """Let each reduction over the streamed axis be a state alone: what it is rounded to, and what is added
    to it, follow as operations of their own."""
    for op in list(kernel.body.block.ops):
        if isinstance(op, ContractOp | ReduceOp) and axis in op.over_axes:
            reduce_alone(op)


# -- expanding ------------------------------------------------------------------------------------


@dataclass
class _Scope:
    """Values of the decorated kernel as tiles, at one place of the explicit one."""

    block: Block
    values: dict[SSAValue, SSAValue]

    def inner(self, block: Block) -> _Scope:
        return _Scope(block, dict(self.values))

    def add(self, op: Operation, stands_for: SSAValue | None = None) -> SSAValue:
        self.block.add_op(op)
        if stands_for is not None:
            self.values[stands_for] = op.results[0]
        return op.results[0]


class _Expansion:
    """One kernel in its explicit form."""

    def __init__(self, kernel: KernelOp, schedule: ScheduleAttr, plan: StreamPlan):
        self.old = kernel
        self.schedule = schedule
        self.plan = plan
        self.pieces = {**schedule.group.as_dict(), **schedule.stream.as_dict()}
        tiles = schedule.tile_sizes()
        self.visits = {stream: visits_of(plan, stream, tiles) for stream in plan.streams}
        self.arguments: dict[SSAValue, SSAValue] = {}
        self.destinations: dict[SSAValue, SSAValue] = {}

    def kernel(self) -> KernelOp:
        body = self._empty_body()
        group = Block()
        self._fill_group(_Scope(group, {}))
        op = GroupOp(self.schedule.group, Region(group))
        op.location = self.old.location
        body.add_ops([op, YieldOp()])
        results = [output.type for output in self.old.outputs]
        name = self.old.kernel_name.data
        new = KernelOp(name, list(self.old.inputs), results, Region(body), self.schedule)
        new.attributes |= self.old.attributes
        new.location = self.old.location
        return new

    def _empty_body(self) -> Block:
        """A block with the arguments of the kernel, and a place to save each result to."""
        given = self.old.body.block.args
        results = [output.type for output in self.old.outputs]
        block = Block(arg_types=[*(arg.type for arg in given), *(_buffer(type) for type in results)])
        for old, new in zip(given, block.args, strict=False):
            self.arguments[old] = new
            new.name_hint = old.name_hint
        terminator = self.old.body.block.last_op
        assert terminator is not None
        for value, new in zip(terminator.operands, block.args[len(given) :], strict=True):
            self.destinations[value] = new
            new.name_hint = _hint(value, "to")
        return block

    def _fill_group(self, scope: _Scope) -> None:
        for old, new in self.arguments.items():
            if not is_array(old.type):
                scope.values[old] = new
            elif self.plan.axis not in axes_of(old.type) and old.uses:
                self._load(scope, old)
        for op in list(self.old.body.block.ops)[:-1]:
            if self.plan.is_fixed(op.results[0]):
                self._copy(scope, op)
        for stream in self.plan.streams:
            self._stream(scope, stream)
        for value in self.plan.part.leaving:
            if not self.plan.is_piece(value):
                self._save(scope, value)

    # -- one operation ----------------------------------------------------------------------------

    def _copy(self, scope: _Scope, op: Operation) -> None:
        """The same operation on tiles."""
        self._load_operands(scope, op)
        new = op.clone(scope.values)
        for old, result in zip(op.results, list(new.results), strict=True):
            scope.values[old] = Rewriter.replace_value_with_new_type(result, self._tile(old.type))
        scope.block.add_op(new)

    def _copy_assuming(self, scope: _Scope, map: MapOp, selects: AbstractSet[Operation]) -> None:
        """A map in which the conditions of some selects hold."""
        self._load_operands(scope, map)
        new = assuming(map, selects)
        if isinstance(new, SSAValue):
            scope.values[map.result] = scope.values[new]
            return
        self._copy(scope, new)
        scope.values[map.result] = scope.values[new.result]
        new.erase()

    def _load_operands(self, scope: _Scope, op: Operation) -> None:
        for operand in op.operands:
            if operand not in scope.values:
                self._load(scope, operand)

    def _load(self, scope: _Scope, argument: SSAValue) -> None:
        multiplied = any(isinstance(use.operation, ContractOp) for use in argument.uses)
        type = self._tile(argument.type, "shared" if multiplied else "register")
        load = LoadOp(self.arguments[argument], type)
        load.location = self.old.location
        load.result.name_hint = _hint(argument, "piece")
        scope.add(load, argument)

    def _save(self, scope: _Scope, value: SSAValue) -> None:
        save = SaveOp(scope.values[value], self.destinations[value])
        save.location = _location(value)
        scope.block.add_op(save)

    def _tile(self, type: Attribute, level: str = "register") -> Attribute:
        """The type of the piece that a group holds of an array."""
        if not is_array(type):
            return type
        sizes = {axis: self.pieces.get(axis, size) for axis, size in sizes_of(type).items()}
        if missing := [axis for axis, size in sizes.items() if size == DYNAMIC]:
            raise PassFailedException(
                f"@{self.old.kernel_name.data}: axis '{missing[0]}' has no size and is neither grouped nor "
                "streamed in the schedule"
            )
        return array_type(format_of(type), sizes, level)

    # -- one stream -------------------------------------------------------------------------------

    def _stream(self, scope: _Scope, stream: int) -> None:
        states = self.plan.states_in(stream)
        exports = self.plan.exports_of(stream)
        visits = self.visits[stream]
        border = None if visits.every is None else Region(self._step(scope, stream, states))
        op = StreamOp(
            self.schedule.stream,
            [self._tile(value.type) for value in exports],
            Region(self._initialise(states)),
            Region(self._step(scope, stream, states, visits.assumed)),
            Region(self._finish(scope, stream, states, exports)),
            self._limits(scope, visits),
            border,
        )
        op.location = self.old.location
        scope.block.add_op(op)
        for value, result in zip(exports, op.outputs, strict=True):
            result.name_hint = value.name_hint
            scope.values[value] = result

    def _limits(self, scope: _Scope, visits: Visits) -> list[SSAValue]:
        """The ranges of the pieces that a stream is fed, and of those that need no test."""
        if visits.are_all:
            return []

        def add(op: Operation) -> SSAValue:
            op.location = self.old.location
            return scope.add(op)

        writer = LimitWriter(self.plan.axis, add, lambda value: scope.values[value])
        limits = [*writer.limits(visits.some)]
        return limits if visits.every is None else [*limits, *writer.limits(visits.every)]

    def _initialise(self, states: Sequence[SSAValue]) -> Block:
        block = Block()
        for state in states:
            fill = FillOp(neutral_of(state), self._tile(state.type))
            fill.location = _location(state)
            fill.result.name_hint = _hint(state, "start")
            block.add_op(fill)
        block.add_op(YieldOp(*(op.results[0] for op in block.ops)))
        return block

    def _step(
        self,
        outer: _Scope,
        stream: int,
        states: Sequence[SSAValue],
        assumed: frozenset[arith.SelectOp] = frozenset(),
    ) -> Block:
        """One step, for pieces in which the conditions of `assumed` hold."""
        block = Block(arg_types=[self._tile(state.type) for state in states])
        scope = outer.inner(block)
        step = _Step(self, scope, _name_all(states, block.args, "so_far"))
        for op in self.plan.step_of(stream):
            self._load_operands(scope, op)
            if isinstance(op, ContractOp | ReduceOp) and op.result in step.before:
                step.update(op)
            elif isinstance(op, MapOp) and (selects := assumed & set(op.body.block.ops)):
                self._copy_assuming(scope, op, selects)
            else:
                self._copy(scope, op)
        for value in self.plan.saved_in_step(stream):
            self._save(scope, value)
        block.add_op(YieldOp(*(step.after[state] for state in states)))
        unite_equal(block)
        if assumed:
            erase_unused(block)
        return block

    def _finish(self, outer: _Scope, stream: int, states: Sequence[SSAValue], exports: Sequence[SSAValue]) -> Block:
        block = Block(arg_types=[self._tile(state.type) for state in states])
        scope = outer.inner(block)
        scope.values |= _name_all(states, block.args, "end")
        for op in self.plan.finish_of(stream):
            self._copy(scope, op)
        block.add_op(YieldOp(*(scope.values[value] for value in exports)))
        return block


class _Step:
    """The states of one step: `before` it, and `after`."""

    def __init__(self, expansion: _Expansion, scope: _Scope, before: dict[SSAValue, SSAValue]):
        self.expansion = expansion
        self.plan = expansion.plan
        self.scope = scope
        self.before = before
        self.after: dict[SSAValue, SSAValue] = {}

    def update(self, op: ContractOp | ReduceOp) -> None:
        """Take one state through the piece: repair it, then reduce the piece into it."""
        state, repair = op.result, self.plan.verdicts[op.result].repair
        into = self.before[state] if repair is None else self._repaired(state, repair)
        operands = [self.scope.values[operand] for operand in operands_of(op)]
        new = rebuilt(op, operands, self.before[state].type, into)
        new.result.name_hint = _hint(state, "new")
        self.after[state] = self.scope.add(new, state)
        if state in self.plan.guarded:
            self._guard(state)

    def _repaired(self, state: SSAValue, repair: Repair) -> SSAValue:
        before = self.before[state]
        change = substitute(repair.expression, self._at_this_moment)
        if not leaves(change):
            return before
        present = axes_in(change)
        sizes = {axis: size for axis, size in sizes_of(before.type).items() if axis in present}
        type = array_type(format_of(before.type), sizes, "register")
        factor = build_map(change, type, "repair", _location(state))
        self.scope.add(factor)
        applied = repair.apply(Leaf(before), Leaf(factor.result))
        return self.scope.add(build_map(applied, before.type, _hint(state, "repaired"), _location(state)))

    def _at_this_moment(self, leaf: Leaf) -> Expression:
        """What a leaf of a repair stands for here. While a guarded state was neutral nothing was added, so
        there is nothing to repair: its new value takes its place."""
        if leaf.version != BEFORE:
            return Leaf(self.scope.values[leaf.value])
        before = Leaf(self.before[leaf.value])
        if leaf.value not in self.plan.guarded:
            return before
        return select(is_neutral(leaf.value, before), Leaf(self.scope.values[leaf.value]), before)

    def _guard(self, state: SSAValue) -> None:
        """Let a finite number stand for a state that is neutral still, in the pieces made from it."""
        new = Leaf(self.after[state])
        finite = select(is_neutral(state, new), number(stand_in_of(state), new.type), new)
        self.scope.add(build_map(finite, new.value.type, _hint(state, "safe"), _location(state)), state)


def _name_all(states: Sequence[SSAValue], arguments: Sequence[SSAValue], suffix: str) -> dict[SSAValue, SSAValue]:
    for state, argument in zip(states, arguments, strict=True):
        argument.name_hint = _hint(state, suffix)
    return dict(zip(states, arguments, strict=True))


def _hint(value: SSAValue, suffix: str) -> str | None:
    return f"{value.name_hint}_{suffix}" if value.name_hint else None


def _location(value: SSAValue) -> LocationAttr:
    return value.owner.location if isinstance(value.owner, Operation) else UnknownLoc()


def _buffer(type: Attribute) -> MemRefType:
    return MemRefType(format_of(type), shape_of(type), memory_space=encoding_of(with_level(type, "device")))
