"""`hierarchy-expand-streams`: from a decorated kernel to groups and streams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.cost.kernel.roles import contractions_of, scheduled_row
from treadle.compiler.errors import Refusal
from treadle.compiler.sizes import REDUCES, sizes_of_whole_arrays, why_unknown
from treadle.dialects.diagram import SwapOp
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
from treadle.dialects.diagram.condition import Condition
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, SaveOp, SelectOp, StreamOp, YieldOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes._functions import functions, kernels, label, note
from treadle.passes._parts import part_of_kernel
from treadle.passes._recurrences import recurrence_of
from treadle.passes.expressions.conditions import inputs_of, spelled
from treadle.passes.expressions.reductions import keep_states_apart
from treadle.passes.kernels.near import comes_to_shared
from treadle.passes.streams.limits import LimitWriter, spell_range
from treadle.passes.streams.positions import Positions
from treadle.passes.streams.ranges import Search
from treadle.passes.streams.repairs import hint_of, location_of
from treadle.passes.streams.searches import Ends
from treadle.passes.streams.selections import Selection, room_of, spell_selection
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.stream import Scope, StreamParts
from treadle.passes.streams.visits import Visits, visits_of

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

    Legal by the laws that `streams.stages` and `streams.cascades` find for each reduction. A repaired accumulator is
    multiplied by the ratio of its summands after and before; where the state that moved is still neutral, a finite
    number stands for it, since nothing that counts can have been added; not where the ratio is 0 then, and the
    accumulator is, too. Where it is neutral at the end though the row has elements, what followed it is NaN, as in the
    formula (`streams.undefined`). Sums are kept in the format in which the algorithm accumulates them and rounded to
    that of the result once, after the last piece."""

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
    _check_known(function, kernel, axis)
    _check_swaps(kernel, schedule.group.as_dict())
    keep_states_apart(kernel, axis)
    plan = StreamPlan(part_of_kernel(kernel), axis)
    expansion = _Expansion(kernel, schedule, plan)
    new = expansion.kernel()
    for old, output in zip(kernel.outputs, new.outputs, strict=True):
        output.name_hint = old.name_hint
        old.replace_all_uses_with(output)
    block = kernel.parent_block()
    assert block is not None
    block.insert_op_before(new, kernel)
    kernel.detach()
    _note(function, kernel, plan, expansion.visits)
    kernel.erase()


def expanded(kernel: KernelOp, schedule: ScheduleAttr) -> KernelOp:
    """The explicit form of a decorated kernel under any decided schedule, beside it; its states are kept apart."""
    axis = next(iter(schedule.stream.as_dict()), "")
    keep_states_apart(kernel, axis)
    return _Expansion(kernel, schedule, StreamPlan(part_of_kernel(kernel), axis)).kernel()


def _check_known(function: func.FuncOp, kernel: KernelOp, axis: str) -> None:
    """Once pieces of it are all that is left of a streamed axis, its whole size is that of an array of the program."""
    if axis and axis not in sizes_of_whole_arrays(function):
        raise Refusal(kernel, why_unknown(kernel.kernel_name.data, axis, REDUCES))


def _check_swaps(kernel: KernelOp, pieces: Mapping[str, int]) -> None:
    """A group has both blocks of each pair that is swapped."""
    for op in kernel.walk():
        if isinstance(op, SwapOp) and (size := pieces.get(op.axis.data, 0)) % (2 * op.length):
            raise Refusal(
                op,
                f"blocks of {op.length} are swapped in pairs along '{op.axis.data}', of which groups have {size}: "
                f"give it a multiple of {2 * op.length}",
            )


def _note(function: func.FuncOp, kernel: KernelOp, plan: StreamPlan, visits: Mapping[int, Visits]) -> None:
    for stream in plan.streams:
        states = ", ".join(label(state) for state in plan.states_in(stream)) or "none"
        subject = f"stream {stream + 1} of @{kernel.kernel_name.data} along {plan.axis}"
        note(function, PASS, subject, "initialise, step, finish", f"state: {states}")
        _note_visits(function, subject, plan.axis, visits[stream])


def _note_visits(function: func.FuncOp, subject: str, axis: str, visits: Visits) -> None:
    if not visits.some.is_whole:
        fed = f"fed {spell_range(visits.some, axis)}; every other element is absent"
        note(function, PASS, subject, "a reduction passes over what is absent", fed)
    if visits.selection is not None:
        fed = f"fed {spell_selection(visits.selection)}"
        note(function, PASS, subject, "a reduction passes over what is absent", fed)
    if visits.unselected:
        note(function, f"decline {PASS}", subject, "a cell of a table has one value", visits.unselected)
    if visits.every is not None:
        where = spell_range(visits.every, axis)
        note(function, PASS, subject, "a condition that holds excludes nothing", f"not tested in pieces within {where}")


# -- expanding ------------------------------------------------------------------------------------


class _Expansion(StreamParts):
    """One kernel in its explicit form."""

    def __init__(self, kernel: KernelOp, schedule: ScheduleAttr, plan: StreamPlan):
        super().__init__(plan)
        self.old = kernel
        self.schedule = schedule
        self.pieces = {**schedule.group.as_dict(), **schedule.stream.as_dict()}
        tiles = schedule.tile_sizes()
        self.visits = {stream: visits_of(plan, stream, tiles) for stream in plan.streams}
        self.arguments: dict[SSAValue, SSAValue] = {}
        self.destinations: dict[SSAValue, list[SSAValue]] = {}
        """A value may be several results."""
        self.searched: dict[Search, Ends] = {}
        self.selected: dict[tuple[object, ...], SSAValue] = {}
        self.whole_sizes = {axis: size for arg in kernel.body.block.args for axis, size in sizes_of(arg.type).items()}
        self.products = contractions_of(kernel)
        self.row = scheduled_row(kernel, schedule)

    def kernel(self) -> KernelOp:
        body = self._empty_body()
        body.add_ops([self._group(), YieldOp()])
        results = [output.type for output in self.old.outputs]
        name = self.old.kernel_name.data
        new = KernelOp(name, list(self.old.inputs), results, Region(body), self.schedule)
        new.attributes |= self.old.attributes
        new.location = self.old.location
        return new

    def _group(self) -> GroupOp:
        if (recurrence := recurrence_of(self.old)) is not None:
            given = self.old, recurrence, self.schedule
            return Positions(*given, self.tile, self.arguments, self.destinations).group()
        group = Block()
        self._fill_group(Scope(group, {}))
        op = GroupOp(self.schedule.group, Region(group))
        op.location = self.old.location
        return op

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
            self.destinations.setdefault(value, []).append(new)
            new.name_hint = hint_of(value, "to")
        return block

    def _fill_group(self, scope: Scope) -> None:
        for old, new in self.arguments.items():
            if not is_array(old.type):
                scope.values[old] = new
            elif self.plan.axis not in axes_of(old.type) and old.uses:
                self.fetch(scope, old)
        for op in list(self.old.body.block.ops)[:-1]:
            if self.plan.is_fixed(op.results[0]):
                self.copy(scope, op)
        for stream in self.plan.streams:
            self._stream(scope, stream)
        for value in self.plan.part.leaving:
            if not self.plan.is_piece(value):
                self.leave(scope, value)

    def _stream(self, scope: Scope, stream: int) -> None:
        states = [self.tile(state.type) for state in self.plan.states_in(stream)]
        exports, visits = self.plan.exports_of(stream), self.visits[stream]
        step, finish, border = Block(arg_types=states), Block(arg_types=states), Block(arg_types=states)
        if visits.every is not None:
            self.step(scope, stream, border, certain=self._certain(visits))
        self.step(scope, stream, step, visits.assumed)
        self.finish(scope, stream, finish, exports)
        limits = self._limits(scope, visits)
        op = StreamOp(
            self.schedule.stream,
            [self.tile(value.type) for value in exports],
            Region(self.initialise(self.plan.states_in(stream), scope.values)),
            Region(step),
            Region(finish),
            limits,
            None if visits.every is None else Region(border),
            self._selected(scope, visits, limits),
        )
        op.location = self.old.location
        scope.block.add_op(op)
        for value, result in zip(exports, op.outputs, strict=True):
            result.name_hint = value.name_hint
            scope.values[value] = result

    def _certain(self, visits: Visits) -> Sequence[Condition]:
        """What holds throughout every piece that is fed: the list has room for all if their number is known."""
        is_known = self.whole_sizes.get(self.plan.axis) != DYNAMIC
        return visits.selection.certain if visits.selection is not None and is_known else ()

    def _limits(self, scope: Scope, visits: Visits) -> list[SSAValue]:
        """The ranges of the pieces that a stream is fed, and of those that need no test."""

        def add(op: Operation) -> SSAValue:
            for each in op.walk():
                each.location = self.old.location
            return scope.add(op)

        writer = LimitWriter(
            self.plan.axis,
            self.pieces[self.plan.axis],
            add,
            lambda value: scope.values[value],
            self._load,
            self.searched,
        )
        return visits.write(writer)

    def _selected(self, scope: Scope, visits: Visits, limits: Sequence[SSAValue]) -> SSAValue | None:
        """The pieces that tables leave, selected once for all streams that are fed the same."""
        if visits.selection is None:
            return None
        key = (visits.selection, *limits[:2])
        if key not in self.selected:
            select = self._select(visits.selection, (limits[0], limits[1]))
            select.location = self.old.location
            self.selected[key] = scope.add(select)
            self.selected[key].name_hint = "pieces"
        return self.selected[key]

    def _select(self, selection: Selection, limits: tuple[SSAValue, SSAValue]) -> SelectOp:
        names = inputs_of(selection.condition)
        inputs = {name: self.arguments[value] for value, name in names.items()}
        (axis, piece), *_ = self.schedule.stream.as_dict().items()
        room = room_of(self.whole_sizes[axis], piece)
        text = spelled(selection.condition, names)
        return SelectOp({axis: piece}, limits, text, inputs, dict(selection.cells), room)

    def fetch(self, scope: Scope, value: SSAValue) -> None:
        scope.add(self._load(value), value)

    def _load(self, value: SSAValue) -> LoadOp:
        is_shared = comes_to_shared(value, self.products, self.row, self.plan.axis or None)
        type = self.tile(value.type, "shared" if is_shared else "register")
        load = LoadOp(self.arguments[value], type)
        load.location = self.old.location
        load.result.name_hint = hint_of(value, "piece")
        return load

    def leave(self, scope: Scope, value: SSAValue) -> None:
        for destination in self.destinations[value]:
            save = SaveOp(scope.values[value], destination)
            save.location = location_of(value)
            scope.block.add_op(save)

    def end(self, block: Block, values: Sequence[SSAValue]) -> None:
        block.add_op(YieldOp(*values))

    def tile(self, type: Attribute, level: str = "register") -> Attribute:
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


def _buffer(type: Attribute) -> MemRefType:
    return MemRefType(format_of(type), shape_of(type), memory_space=encoding_of(with_level(type, "device")))
