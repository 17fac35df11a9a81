"""A decorated kernel, read once; then a plan for any sizes of its pieces, quickly: choosing tries hundreds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from xdsl.ir import Operation, SSAValue

from treadle.compiler.amounts import Amount, is_any, most
from treadle.compiler.cost.ahead import begun_ahead, divided
from treadle.compiler.cost.blocks import ENTRY_BYTES, blocks_of, entries_of
from treadle.compiler.cost.boxes import comes_in_boxes
from treadle.compiler.cost.fed import AboutFed, AboutPieces, Fed, FedPieces
from treadle.compiler.cost.issue import (
    Product,
    issued_by_turn,
    kept_registers,
    least_of_streams,
    product_of,
    read_before,
    spared_registers,
)
from treadle.compiler.cost.limits import are_found_together, fed_of_visits
from treadle.compiler.cost.moments import Moments, moments_of_decorated
from treadle.compiler.cost.names import name_of
from treadle.compiler.cost.neighbours import order_in_memory
from treadle.compiler.cost.operands import (
    computes_with,
    is_needed_first,
    left_operand,
    read_back,
    stays_in_registers,
    written,
)
from treadle.compiler.cost.plan import Issue, Pieces, Plan, Tile, Transfer, Work
from treadle.compiler.cost.roles import (
    ProductAxes,
    alignment_of,
    lies_along_columns,
    lies_in_rows,
    product_axes,
    results_of,
    stream_use,
    vector_in_rows,
)
from treadle.compiler.cost.searches import Finding, Findings
from treadle.compiler.cost.selected import blocks_that_spare, lists_of, transfers_of
from treadle.compiler.cost.spread import Spread
from treadle.compiler.cost.steps import Steps
from treadle.compiler.cost.tasks import ADDRESS, Crossing, Holding, Task, is_asked_in
from treadle.compiler.cost.warpgroups import can_be_of_warpgroups
from treadle.compiler.cost.work import labours_of, rounding_to, width_of
from treadle.dialects.diagram import ContractOp, ExtentOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, shape_of, sizes_of
from treadle.dialects.diagram.contract import is_multiplied
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr, promoted_every
from treadle.passes.expressions.scalars import leaves
from treadle.passes.kernels.near import comes_to_shared
from treadle.passes.streams.changes import BEFORE
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.visits import Visits, visits_of


@dataclass(frozen=True)
class Sketch:
    """What a decorated kernel does, by axis; `plan` puts in the sizes of the pieces."""

    name: str
    sizes: Mapping[str, int]
    """Every axis, in order of appearance; DYNAMIC where symbolic."""
    group: tuple[str, ...]
    stream: str | None
    whole: tuple[str, ...]
    roles: ProductAxes
    alignment: int
    """Tiles of products have sides that are multiples of this: whole axes are padded to it."""
    products_of_streams: tuple[int, ...]
    """How many products a step of each stream has: as many numbers as there are streams."""
    arrays: tuple[tuple[tuple[str, ...], int], ...]
    """Axes and bytes of a value of each array at device level."""
    batch: frozenset[str]
    """Axes that some product has in both operands and its result."""
    reduced: frozenset[str]
    """Axes that something is reduced over."""
    crossings: tuple[Crossing, ...]
    tasks: tuple[Task, ...]
    holdings: tuple[Holding, ...]
    steps_singly: bool
    """Whether a product sums over the streamed axis and another one: it takes one index of the streamed one a step."""
    vector: int
    """How many elements of a row a lane takes of what lies in rows."""
    results: tuple[tuple[str, ...], ...]
    """The axes of the results of products."""
    suits_warpgroups: bool
    """Whether warpgroups can do its products, whatever its sizes."""
    conditional: StreamPlan | None
    """How the streamed axis runs, if there are conditions."""
    findings: Findings | None
    """How groups find the limits of streams then."""
    subloops: Mapping[str, int]
    """The pieces in which contractions walk an axis, where they do not take what a group holds at once."""
    moments: Moments | None
    """What a lane holds at once, where there are no products."""

    @property
    def streams(self) -> int:
        """How often the axis is streamed."""
        return len(self.products_of_streams)

    @cached_property
    def products(self) -> tuple[Product, ...]:
        return tuple(task.work for task in self.tasks if isinstance(task.work, Product))

    @cached_property
    def finds_limits(self) -> bool:
        """Whether all warps together look for where a stream begins and ends, so that none can walk it by itself."""
        axes = (*self.group, *self.whole, *([self.stream] if self.stream is not None else []))
        return any(map(are_found_together, self._visits(dict.fromkeys(axes, 1))))

    @cached_property
    def longest_held(self) -> str | None:
        """The longest axis that a group holds whole and reduces."""
        held = [axis for axis in self.whole if axis in self.reduced]
        return max(held, key=lambda axis: self.sizes[axis], default=None)

    @cached_property
    def shared_by_blocks(self) -> str | None:
        """The axis that the blocks of a cluster may share, each a part of it. None where a step of a stream would need
        parts of others, or what is saved lacks the axis, which every block would save."""
        if self.has_products or self.stream is not None:
            return None
        lacking = (each for each in self.crossings if each.saves and self.longest_held not in each.axes)
        return None if any(lacking) else self.longest_held

    def parts_of_blocks(self, tiles: Mapping[str, Amount]) -> dict[str, Amount]:
        """What each block of a cluster has of an axis that the group holds whole, where any of these tiles is less."""
        return {axis: tiles[axis] for axis in self.whole if is_any(tiles[axis] < self.sizes[axis])}

    @property
    def keeps_left(self) -> bool:
        """Whether there are left operands that all steps of the stream share."""
        return any(product.left == "lasting" for product in self.products)

    @property
    def has_products(self) -> bool:
        return bool(self.products)

    def plan(
        self,
        tiles: Mapping[str, Amount],
        warps: Mapping[str, Amount],
        about: Amount | None = None,
        rereads: Amount = False,
    ) -> Plan:
        """With arrays for sizes, of all these candidates together: then `about` must say what part of the stream
        conditions leave, 1 where there are none. Without it, groups are asked one by one."""
        taken = self._empty | dict(tiles)
        padded = {axis: self._padded(axis, size) for axis, size in taken.items()}
        groups = tuple(Pieces(axis, tiles[axis]) for axis in self.group)
        shared = tuple(Pieces(axis, size) for axis, size in self.parts_of_blocks(tiles).items())
        visits = self._visits(tiles) if about is None else [Visits()] * self.streams
        fed = self._fed(visits, tiles, groups) if about is None else self._fed_about(about, tiles)
        all_streams = tuple(self._pieces(each, tiles) for each in fed)
        streams = all_streams[:1]
        found = self._finding(tiles)
        searches = tuple(Pieces(pieces.axis, pieces.size) for pieces in streams * found.searches)
        spread = Spread(
            padded, warps, self.roles.row, self.has_products, rereads, self.subloops, self.vector, self.results
        )
        return Plan(
            self.name,
            groups,
            (*searches, *all_streams),
            warps,
            (
                *(
                    self._transfer(crossing, taken, padded, (*groups, *shared), visits, fed)
                    for crossing in (*found.crossings, *self.crossings)
                    if not self._is_spared(crossing, tiles, visits)
                ),
                *transfers_of(visits, (*groups, *shared)),
            ),
            (*found.issues(spread, searches[:1]), *self._issues(spread, streams)),
            (
                *(holding.tile(padded, spread) for holding in (*self.holdings, *found.holdings)),
                *self._lists(visits, tiles),
            ),
            tuple(Work(each.format, (*each.result, *each.over), stream) for each, stream in self._done),
            self.roles.row,
            self.suits_warpgroups and not self.finds_limits,
            self._kept(spread),
            self._spared(spread),
            0 if self.moments is None else self.moments.registers(_present(padded), warps),
            frozenset(axis for axis, size in self.sizes.items() if size != DYNAMIC),
            shared,
            prod(pieces.count(self.sizes) for pieces in shared),
            self._exchanged(padded, warps, {pieces.axis for pieces in shared}),
        )

    def _is_spared(self, crossing: Crossing, tiles: Mapping[str, Amount], visits: Sequence[Visits]) -> bool:
        """Whether no step loads a table, since the list of pieces has room for all, and each is one cell."""
        if self.stream is None or crossing.stream is None or self.sizes[self.stream] == DYNAMIC:
            return False
        selected = visits[crossing.stream].selection is not None
        return selected and bool(crossing.spared) and not is_asked_in(crossing.spared, tiles)

    def _lists(self, visits: Sequence[Visits], tiles: Mapping[str, Amount]) -> Iterator[Tile]:
        if self.stream is not None:
            yield from lists_of(visits, self.sizes[self.stream], tiles[self.stream])

    def _exchanged(self, tiles: Mapping[str, Amount], warps: Mapping[str, Amount], shared: Container[str]) -> Amount:
        """Bytes of all parts of results that a thread reads from each block of a cluster that shares these axes."""
        if self.moments is None:
            return 0
        lanes = self.moments.lanes(_present(tiles), warps)
        parts = [each for each in self.holdings if any(axis in shared for axis in each.reduced or ())]
        return sum(lanes.elements(each.axes) * each.width for each in parts)

    @property
    def _done(self) -> Iterator[tuple[Product, int | None]]:
        """Every product as often as it is done, with its stream, in the order of the streams."""
        tasks = [(task.work, task.streams) for task in self.tasks if isinstance(task.work, Product)]
        for stream in (None, *range(self.streams)):
            yield from ((work, stream) for work, streams in tasks if stream in streams)

    def _kept(self, spread: Spread) -> Amount:
        """Registers for left operands, of the stream that keeps most."""
        kept: dict[int | None, Amount] = defaultdict(float)
        for product, stream in self._done:
            kept[stream] = kept[stream] + kept_registers(product, spread)
        return most(0, *kept.values())

    def _spared(self, spread: Spread) -> Amount:
        """Of those what subloops leave in shared memory."""
        spared: dict[int | None, Amount] = defaultdict(float)
        for product, stream in self._done:
            spared[stream] = spared[stream] + spared_registers(product, spread)
        return least_of_streams(spared)

    def part_fed(self, tiles: Mapping[str, int], sizes: Mapping[str, int], asked: int) -> float:
        """How much of the streamed axis conditions leave, of all streams together, as so many groups along each axis
        that limits depend on say."""
        fed = self._fed_of(tiles)
        return sum(1.0 if each is None else each.part(sizes, asked) for each in fed) / max(len(fed), 1)

    def limiting(self, tiles: Mapping[str, int]) -> tuple[str, ...]:
        """The axes whose pieces say how much that is."""
        around = {pieces.axis for each in self._fed_of(tiles) if each is not None for pieces in each.around}
        return tuple(axis for axis in self.group if axis in around) + ((self.stream,) if self.stream else ())

    def _fed_of(self, tiles: Mapping[str, int]) -> list[Fed | None]:
        return self._fed(self._visits(tiles), tiles, tuple(Pieces(axis, tiles[axis]) for axis in self.group))

    def _issues(self, spread: Spread, streams: tuple[Pieces, ...]) -> Iterator[Issue]:
        once: dict[str, Amount] = defaultdict(float)
        each_step: dict[str, Amount] = defaultdict(float)
        if streams:
            for products in self.products_of_streams:
                for kind, count in issued_by_turn(products):
                    each_step[kind] += count
        for task in self.tasks:
            place = each_step if task.streamed else once
            for kind, count in task.issued(spread):
                if kind == "leaving":  # each result by copies of its own
                    yield Issue(kind, count, ())
                    continue
                place[kind] += task.times * count
            if isinstance(task.work, Product):
                once["ldmatrix"] += task.reads_left * read_before(task.work, spread)
        yield from (Issue(kind, count, ()) for kind, count in once.items() if is_any(count))
        yield from (Issue(kind, count, streams) for kind, count in each_step.items() if is_any(count))

    @property
    def _empty(self) -> dict[str, Amount]:
        """Axes without elements that are neither cut nor streamed: the schedule does not name them, and tiles have them
        all the same."""
        cut = (*self.group, self.stream)
        return {axis: size for axis, size in self.sizes.items() if size == 0 and axis not in cut}

    def _padded(self, axis: str, size: Amount) -> Amount:
        if axis not in self.whole and axis not in self._empty:
            return size
        return -(-most(size, 1) // self.alignment) * self.alignment

    def _finding(self, tiles: Mapping[str, Amount]) -> Finding:
        """What a group does to find the limits of its streams; of many candidates, one with the smallest pieces."""
        if self.findings is None:
            return Finding()
        smallest = {axis: int(np.min(size)) for axis, size in tiles.items()}
        return self.findings.of(self._visits(smallest), smallest)

    def _visits(self, tiles: Mapping[str, int]) -> list[Visits]:
        """The pieces that conditions leave to each stream."""
        if self.conditional is None:
            return [Visits()] * self.streams
        return [visits_of(self.conditional, stream, tiles) for stream in self.conditional.streams]

    def _fed(
        self, visits: Sequence[Visits], tiles: Mapping[str, Amount], groups: tuple[Pieces, ...]
    ) -> list[Fed | None]:
        if self.stream is None:
            return []
        pieces = Pieces(self.stream, tiles[self.stream])
        # a condition may speak of an axis that every group holds whole: one piece of it
        around = (*groups, *(Pieces(axis, tiles[axis]) for axis in self.whole))
        return [fed_of_visits(each, pieces, around) for each in visits]

    def _fed_about(self, part: Amount, tiles: Mapping[str, Amount]) -> Sequence[AboutFed | None]:
        if self.stream is None:
            return []
        pieces = Pieces(self.stream, tiles[self.stream])
        return [None if self.conditional is None else AboutFed(pieces, part)] * self.streams

    def _pieces(self, fed: Fed | AboutFed | None, tiles: Mapping[str, Amount]) -> Pieces:
        assert self.stream is not None
        size = tiles[self.stream]
        if fed is None:
            return Pieces(self.stream, size)
        return FedPieces(self.stream, size, fed) if isinstance(fed, Fed) else AboutPieces(self.stream, size, fed)

    def _transfer(
        self,
        crossing: Crossing,
        taken: Mapping[str, Amount],
        padded: Mapping[str, Amount],
        groups: tuple[Pieces, ...],
        visits: Sequence[Visits],
        fed: Sequence[Fed | AboutFed | None],
    ) -> Transfer:
        again = tuple(pieces for pieces in groups if pieces.axis not in crossing.axes)
        limited = None if crossing.stream is None else fed[crossing.stream]
        is_tested = crossing.stream is not None and bool(crossing.tested_by)
        assumed = visits[crossing.stream].assumed if crossing.stream is not None else frozenset[WhereOp]()
        part = "border" if limited is not None and is_tested and crossing.tested_by <= assumed else "all"
        comes = () if crossing.saves or crossing.level != "shared" else tuple(padded[axis] for axis in crossing.axes)
        # what limits depend on is not known of many candidates
        in_boxes = bool(comes) and not isinstance(limited, AboutFed) and crossing.in_boxes[limited is not None]
        return Transfer(
            crossing.array,
            crossing.level,
            crossing.saves,
            crossing.axes,
            crossing.width,
            again,
            limited,
            part,
            comes,
            in_boxes,
            blocks=crossing.blocks,
            near=tuple((axis, taken[axis]) for axis in crossing.near),
        )


def sketch_of(kernel: KernelOp, schedule: ScheduleAttr) -> Sketch:
    group = tuple(schedule.group.as_dict())
    stream = next(iter(schedule.stream.as_dict()), None)
    return _Reader(kernel, group, stream, schedule).sketch()


class _Reader:
    """Gathers a sketch from one decorated kernel."""

    def __init__(self, kernel: KernelOp, group: tuple[str, ...], stream: str | None, schedule: ScheduleAttr):
        self.kernel = kernel
        self.group = group
        self.stream = stream
        self.schedule = schedule
        self.whole = tuple(schedule.whole.as_dict())
        *self.operations, terminator = kernel.body.block.ops
        self.results = tuple(terminator.operands)
        self.products = [op for op in self.operations if isinstance(op, ContractOp)]
        self.use = stream_use(kernel, stream)
        self.roles = product_axes(kernel, group)

    def sketch(self) -> Sketch:
        values = [*self.kernel.body.block.args, *(op.results[0] for op in self.operations)]
        sizes = {op.axis.data: DYNAMIC for op in self.operations if isinstance(op, ExtentOp)}
        for value in values:
            sizes.update(zip(axes_of(value.type), shape_of(value.type), strict=True))
        outside = [*self.use.inputs, *self.results]
        conditional = self.use.plan if any(isinstance(op, WhereOp) for op in self.operations) else None
        return Sketch(
            name=self.kernel.kernel_name.data,
            sizes=sizes,
            group=self.group,
            stream=self.stream,
            whole=self.whole,
            roles=self.roles,
            alignment=alignment_of(self.products),
            products_of_streams=tuple(
                len([op for op in each if isinstance(op, ContractOp)]) for each in self.use.steps
            ),
            arrays=tuple((axes_of(value.type), width_of(value.type)) for value in outside),
            batch=frozenset(axis for op in self.products for axis in _batch_axes(op)),
            reduced=frozenset(
                axis for op in self.operations if isinstance(op, ContractOp | ReduceOp) for axis in op.over_axes
            ),
            crossings=(*self._loads(), *self._entries(), *self._saves()),
            tasks=tuple(self._tasks()),
            holdings=tuple(self._holdings()),
            steps_singly=any(self._sums_beside_stream(op) for op in self.operations),
            results=results_of(self.products),
            vector=vector_in_rows([width_of(value.type) for value in outside], self.products),
            suits_warpgroups=can_be_of_warpgroups(self.kernel, self.roles.row),
            conditional=conditional,
            findings=None if conditional is None else Findings(conditional.axis, self._comes_to_shared, self._held_row),
            subloops=self.kernel.schedule.subloop.as_dict() if self.kernel.schedule is not None else {},
            moments=None if self.products else moments_of_decorated(self.kernel, self.schedule),
        )

    def _sums_beside_stream(self, op: Operation) -> bool:
        if not isinstance(op, ContractOp):
            return False
        sizes = sizes_of(op.lhs.type) | sizes_of(op.rhs.type)
        columns = [axis for axis in axes_of(op.result.type) if axis not in self.group and sizes[axis] != 1]
        if self.stream in columns and len(columns) > 1:
            return True
        if self.stream not in op.over_axes:
            return False
        return any(axis != self.stream and sizes[axis] != 1 for axis in op.over_axes)

    def _comes_to_shared(self, value: SSAValue) -> bool:
        return comes_to_shared(value, self.products, self.roles.row, self.stream)

    def _loads(self) -> list[Crossing]:
        return [
            Crossing(
                name_of(value, f"input{i}"),
                "shared" if self._comes_to_shared(value) else "register",
                False,
                axes_of(value.type),
                width_of(value.type),
                self.stream in axes_of(value.type),
                stream,
                self._tested_by(value, stream),
                self._in_boxes(value),
                blocks=blocks_of(value),
                near=order_in_memory(value),
                spared=self._spared_by(value, stream),
            )
            for i, (value, times) in enumerate(self.use.inputs.items())
            for stream in self.use.fed_in.get(value, (None,) * times)
        ]

    def _entries(self) -> list[Crossing]:
        """What is read to find the elements of arrays that are scattered."""
        return [
            Crossing(
                each.name,
                "register",
                False,
                each.axes,
                ENTRY_BYTES,
                self.stream in axes_of(value.type),
                stream,
                blocks=each.blocks,
                spared=self._spared_by(value, stream),
            )
            for value, times in self.use.inputs.items()
            for each in entries_of(value)
            for stream in self.use.fed_in.get(value, (None,) * times)
        ]

    def _in_boxes(self, value: SSAValue) -> tuple[bool, bool]:
        without, within = (
            comes_in_boxes(value, self.products, self.roles.row, self.stream, limited) for limited in (False, True)
        )
        return without, within

    def _tested_by(self, value: SSAValue, stream: int | None) -> frozenset[WhereOp]:
        if stream is None or self.use.plan is None:
            return frozenset()
        step = self.use.plan.step_of(stream)
        uses = [use for use in value.uses if use.operation in step]
        tests = frozenset(use.operation for use in uses if isinstance(use.operation, WhereOp) and use.index)
        return tests if len(tests) == len({use.operation for use in uses}) else frozenset()

    def _spared_by(self, value: SSAValue, stream: int | None) -> Mapping[str, int]:
        tests = self._tested_by(value, stream)
        if stream is None or self.use.plan is None or not tests:
            return {}
        return blocks_that_spare(self.use.plan, stream, tests, (*self.group, *self.whole, self.use.plan.axis))

    def _saves(self) -> list[Crossing]:
        return [
            Crossing(
                name_of(value, f"output{i}"),
                "register",
                True,
                axes_of(value.type),
                width_of(value.type),
                self.stream in axes_of(value.type),
                leaves=self._leaves(value),
                near=axes_of(value.type)[::-1],
            )
            for i, value in enumerate(self.results)
        ]

    def _tasks(self) -> Iterator[Task]:
        for crossing in (*self._loads(), *self._saves()):
            yield Task(crossing, (crossing.stream,), crossing.streamed)
        for value, times in self.use.inputs.items():
            if self._comes_to_shared(value) and not is_multiplied(value):
                for stream in self.use.fed_in.get(value, (None,) * times):
                    yield Task(read_back(value), (stream,), self.stream in axes_of(value.type))
        for op, stream in self._made():
            yield from (Task(labour, (stream,), stream is not None) for labour in labours_of(op))
            if isinstance(op, ReduceOp):
                yield Task(op, (stream,), stream is not None)
        read: set[SSAValue] = set()
        for op in self.products:
            streams = self._streams_of(op)
            streamed = streams != (None,)
            left = left_operand(op, self.roles.row)
            yield Task(product_of(op, self._left(op), self.kernel.schedule), streams, streamed, left not in read)
            read.add(left)
            if self.stream in op.over_axes and op.accumulate != format_of(op.result.type):
                # A stream keeps the sum as it accumulates, and rounds it in the end.
                yield Task(rounding_to(op.result.type), (None,), False)
            for operand in (op.lhs, op.rhs):
                if isinstance(operand.owner, Operation) and self._in_shared(op, operand):
                    yield Task(written(operand), streams, streamed)

    def _made(self) -> Iterator[tuple[Operation, int | None]]:
        """What is computed, repairs of states included, and the stream whose steps do it."""
        if self.use.plan is None:
            return ((op, None) for op in self.operations)
        return Steps(self.use.plan).operations()

    def _left(self, op: ContractOp) -> str:
        operand = left_operand(op, self.roles.row)
        if not self._in_shared(op, operand):
            return "registers"
        changes = self.stream is None or self.stream in axes_of(operand.type)
        return "shared" if changes or isinstance(operand.owner, Operation) else "lasting"

    def _in_shared(self, product: ContractOp, operand: SSAValue) -> bool:
        """Inputs always, what is computed unless it is there already."""
        return not isinstance(operand.owner, Operation) or not stays_in_registers(product, operand, self.roles.row)

    def _holdings(self) -> list[Holding]:
        return [
            *self._held_inputs(),
            *self._held_products(),
            *self._held_rows(),
            *self._held_parts(),
            *self._held_results(),
        ]

    def _held_inputs(self) -> list[Holding]:
        held: list[Holding] = []
        for value, times in self.use.inputs.items():
            axes, width = axes_of(value.type), width_of(value.type)
            if not self._comes_to_shared(value):
                held += self._held_loaded(value)
                continue
            # The second stream has tiles of its own in shared memory.
            role = "staged" if self.stream in axes else "shared"
            held += [Holding(role, axes, width)] * times
            if not is_multiplied(value):
                along_columns = lies_along_columns(axes, self.stream, self.roles.row, self.products)
                held.append(Holding("column" if along_columns else "value", axes, width))
            else:
                held += self._held_beside_products(value)
        return held

    def _held_loaded(self, value: SSAValue) -> Iterator[Holding]:
        axes, width = axes_of(value.type), width_of(value.type)
        if not lies_in_rows(axes, self.products):
            along_columns = lies_along_columns(axes, self.stream, self.roles.row, self.products)
            yield Holding("column" if along_columns else "value", axes, width)
            return
        streams = self.use.fed_in.get(value)
        if streams is None:
            in_steps = any(use.operation in step for use in value.uses for step in self.use.steps)
            yield Holding("value" if in_steps else "loaded", axes, width, None, axes)
            return
        users = {use.operation for use in value.uses}
        for stream in streams:
            role = "next" if is_needed_first(users, self.use.steps[stream]) else "loaded"
            yield Holding(role, axes, width, stream, axes)
            yield Holding("address", axes[:-1], ADDRESS, stream, axes)

    def _held_beside_products(self, value: SSAValue) -> Iterator[Holding]:
        """What steps read back of an operand's tile, to compute with it."""
        axes, users = axes_of(value.type), {use.operation for use in value.uses}
        for stream in self.use.fed_in.get(value, ()):
            users_there = users.intersection(self.use.steps[stream])
            if computes_with(users_there) and lies_in_rows(axes, self.products):
                yield Holding("loaded", axes, width_of(value.type), stream, axes)

    def _held_products(self) -> list[Holding]:
        held: list[Holding] = []
        for op in self.products:
            axes = axes_of(op.result.type)
            streams = self._streams_of(op)
            if self.stream in axes:
                held += [Holding("passing", axes, 4, stream) for stream in streams]
            else:
                held.append(Holding("carried", axes, 4))
            if promoted_every(self.kernel.schedule, op):
                held += [Holding("partial", axes, 4, stream) for stream in streams]
            for operand in (op.lhs, op.rhs):
                if isinstance(operand.owner, Operation):
                    roles = ("shared", "moving") if self._in_shared(op, operand) else ("passing",)
                    held += [self._held_operand(role, operand, each) for role in roles for each in streams]
        return held + self._held_ahead()

    def _held_operand(self, role: str, operand: SSAValue, stream: int | None) -> Holding:
        axes = axes_of(operand.type)
        in_rows = axes if role == "moving" and lies_in_rows(axes, self.products) else None
        return Holding(role, axes, width_of(operand.type), stream, in_rows)

    def _streams_of(self, op: Operation) -> tuple[int | None, ...]:
        """The streams in whose steps an operation is."""
        return tuple(stream for stream, step in enumerate(self.use.steps) if op in step) or (None,)

    def _held_ahead(self) -> list[Holding]:
        maps = [op for op in self.operations if isinstance(op, MapOp) and self.products]
        found = [("ahead", op, axes) for op in maps for axes in begun_ahead(op)]
        found += [("dividing", op, axes) for op in maps for axes in divided(op)]
        kept = [each for each in found if self.stream in each[2] and self.roles.row in each[2]]
        return [Holding(role, axes, 4, stream) for role, op, axes in kept for stream in self._streams_of(op)]

    def _held_rows(self) -> list[Holding]:
        """The state of the stream's reductions; what is reduced at once, little is left of."""
        reductions = [op for op in self.operations if isinstance(op, ReduceOp) and self.stream in op.over_axes]
        repairing = self._repairing()
        return [self._held_row(op, op.result in repairing) for op in reductions]

    def _held_row(self, op: ReduceOp, repairs: bool = False) -> Holding:
        """Where what it reduces lies in rows over the lanes, fewer of them share a row."""
        axes, along = axes_of(op.result.type), axes_of(op.operand.type)
        if lies_in_rows(along, self.products):
            return Holding("repairing" if repairs else "state", axes, 4, None, along)
        return Holding("row", axes, 4, None, None if self.products else along)

    def _held_parts(self) -> Iterator[Holding]:
        """What warps hold of results whose rows they share: of those that repair others, in every step of a stream."""
        if self.products:
            return
        repairing = self._repairing()
        for op in self.operations:
            if isinstance(op, ReduceOp):
                of_steps = self.stream in op.over_axes and op.result in repairing
                axes, width = axes_of(op.result.type), width_of(op.result.type)
                streams = self._streams_of(op) if of_steps else (None,)
                yield from (Holding("parts", axes, width, each, reduced=tuple(op.over_axes)) for each in streams)

    def _repairing(self) -> frozenset[SSAValue]:
        """The states by whose changes others are repaired."""
        if self.use.plan is None:
            return frozenset()
        repairs = [verdict.repair for verdict in self.use.plan.verdicts.values() if verdict.repair is not None]
        found = (leaf for repair in repairs for leaf in leaves(repair.expression))
        return frozenset(leaf.value for leaf in found if leaf.version == BEFORE)

    def _held_results(self) -> list[Holding]:
        """Results on their way out; where there are products the accumulators are counted already."""
        if not self.products:
            return [Holding("value", axes_of(value.type), width_of(value.type)) for value in self.results]
        return [
            Holding("turned" if axes_of(value.type)[-1:] == (self.roles.row,) else "leaving", axes_of(value.type), 2)
            for value in self.results
            if self._leaves(value)
        ]

    def _leaves(self, value: SSAValue) -> bool:
        """Whether a result goes out by way of shared memory: 16-bit numbers of products, at the end."""
        return bool(self.products) and width_of(value.type) == 2 and self.stream not in axes_of(value.type)


def _present(tiles: Mapping[str, Amount]) -> dict[str, Amount]:
    """The sizes of tiles, of which none is empty."""
    return {axis: most(size, 1) for axis, size in tiles.items()}


def _batch_axes(op: ContractOp) -> set[str]:
    return set(axes_of(op.lhs.type)) & set(axes_of(op.rhs.type)) & set(axes_of(op.result.type))
