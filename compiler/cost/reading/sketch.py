"""A decorated kernel, read once; then a plan for any sizes of its pieces, quickly: choosing tries hundreds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod

import numpy as np
from xdsl.ir import Operation, SSAValue

from treadle.compiler.amounts import Amount, is_any, most
from treadle.compiler.cost.kernel.issue import (
    Product,
    issued_by_turn,
    kept_registers,
    least_of_streams,
    product_of,
    read_before,
    spared_registers,
)
from treadle.compiler.cost.kernel.operands import left_operand, written
from treadle.compiler.cost.kernel.plan import RENAMED, Issue, Pieces, Plan, Tile, Transfer, Work
from treadle.compiler.cost.kernel.roles import (
    ProductAxes,
    alignment_of,
    axis_across,
    reach_of,
    results_of,
    vector_in_rows,
)
from treadle.compiler.cost.kernel.spread import Spread
from treadle.compiler.cost.kernel.tasks import Crossing, Holding, Task, is_asked_in
from treadle.compiler.cost.kernel.warpgroups import can_be_of_warpgroups, keeps_a_rest
from treadle.compiler.cost.kernel.work import labours_of, rounding_to, width_of
from treadle.compiler.cost.reading.crossings import Crossings
from treadle.compiler.cost.reading.decorated import Decorated
from treadle.compiler.cost.reading.fed import AboutFed, AboutPieces, Fed, FedPieces
from treadle.compiler.cost.reading.holdings import Holdings
from treadle.compiler.cost.reading.moments import Moments, moments_of_decorated
from treadle.compiler.cost.reading.phases import phases_of_step
from treadle.compiler.cost.reading.searches import Finding, Findings
from treadle.compiler.cost.reading.selected import lists_of, transfers_of
from treadle.compiler.cost.reading.stream_limits import are_found_together, fed_of_visits, is_limited_twice
from treadle.dialects.diagram import ContractOp, ExtentOp, ReduceOp, RenameOp, ScanOp, SwapOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, shape_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.bounded import is_factor, loaded_factor
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes._recurrences import recurrence_of, stand_in
from treadle.passes.streams.stages import StreamPlan
from treadle.passes.streams.visits import StreamTests, Visits


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
    """Tiles of products have sides that are multiples of this: whole axes are padded to it, or to half a step."""
    products_of_streams: tuple[int, ...]
    """How many products a step of each stream has: as many numbers as there are streams."""
    arrays: tuple[tuple[tuple[str, ...], int], ...]
    """Axes and bytes of a value of each array at device level."""
    batch: frozenset[str]
    """Axes that some product has in both operands and its result."""
    reduced: frozenset[str]
    """Axes that something is reduced over."""
    scanned: frozenset[str]
    """Axes along which something is scanned, rows of which one warp has."""
    granules: Mapping[str, int]
    """Axes of which every piece, and what a warp has of it, is so many elements, or several times as many: blocks of
    them are swapped."""
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
    phases: int = 1
    """In how many groups steps read their tiles, one after another."""
    recurs: bool = False
    """Whether it is a recurrence along the streamed axis, which it is fed one position after another."""
    met: tuple[tuple[str, ...], ...] = ()
    """The axes that each step of a recurrence reduces."""
    renamed: int = 0
    """How many arrays a step of it needs under other names of their axes."""
    outer: frozenset[str] = frozenset()
    """The axes along which elements meet as those of factors do, where there are no products."""

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
        return any(map(are_found_together, self._visits_of_smallest))

    @cached_property
    def limited_twice(self) -> bool:
        """Whether conditions on positions limit a stream at both ends."""
        return any(map(is_limited_twice, self._visits_of_smallest))

    @cached_property
    def _visits_of_smallest(self) -> list[Visits]:
        axes = (*self.group, *self.whole, *([self.stream] if self.stream is not None else []))
        return self._visits(dict.fromkeys(axes, 1))

    @cached_property
    def longest_held(self) -> str | None:
        """The longest axis that a group holds whole and reduces, and that nothing is scanned along."""
        held = [axis for axis in self.whole if axis in self.reduced and axis not in self.scanned]
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
        across = axis_across(warps, self.roles.row, self.results, self.group)
        spread = Spread(
            padded, warps, self.roles.row, self.has_products, rereads, self.subloops, self.vector, self.results, across
        )
        if self.recurs and self.moments is not None:
            spread = replace(spread, lanes=self.moments.lanes(_present(padded), warps))
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
            self.phases,
            self.limited_twice,
            across,
            None if spread.lanes is None else RENAMED * self.renamed + sum(map(spread.lanes.exchanges, self.met)),
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

    def part_fed(self, tiles: Mapping[str, int], sizes: Mapping[str, int], asked: int) -> tuple[float, float]:
        """How much of the streamed axis conditions leave, of all streams together, on average and to the group to which
        they leave most, as so many groups along each axis that limits depend on say."""
        parts = [(1.0, 1.0) if each is None else each.part(sizes, asked) for each in self._fed_of(tiles)]
        count = max(len(parts), 1)
        return sum(mean for mean, _ in parts) / count, sum(most for _, most in parts) / count

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
                if kind.startswith("leaving"):  # each result by copies of its own
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
        step = reach_of(self.alignment)
        return -(-most(size, 1) // step) * step

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
        return [each.visits(tiles) for each in self._stream_tests]

    @cached_property
    def _stream_tests(self) -> list[StreamTests]:
        plan = self.conditional
        return [] if plan is None else [StreamTests(plan, stream) for stream in plan.streams]

    def _fed(
        self, visits: Sequence[Visits], tiles: Mapping[str, Amount], groups: tuple[Pieces, ...]
    ) -> list[Fed | None]:
        if self.stream is None:
            return []
        pieces = Pieces(self.stream, tiles[self.stream])
        # a condition may speak of an axis that every group holds whole: one piece of it
        around = (*groups, *(Pieces(axis, tiles[axis]) for axis in self.whole))
        tests = [()] * len(visits) if self.conditional is None else [each.tests for each in self._stream_tests]
        return [fed_of_visits(each, pieces, around, those) for each, those in zip(visits, tests, strict=True)]

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
            windows=crossing.windows,
            near=tuple((axis, taken[axis]) for axis in crossing.near),
            is_limited=crossing.added > 0,
            added=crossing.added,
            among=crossing.among,
            source=crossing.source,
            taken={} if crossing.source is None else {axis: taken[axis] for axis in crossing.axes},
        )


def sketch_of(kernel: KernelOp, schedule: ScheduleAttr) -> Sketch:
    group = tuple(schedule.group.as_dict())
    stream = next(iter(schedule.stream.as_dict()), None)
    recurrence = recurrence_of(kernel)
    at = Decorated(kernel if recurrence is None else stand_in(kernel, recurrence), group, stream, schedule)
    crossings, holdings = Crossings(at), Holdings(at, recurrence is not None)
    loads, saves = crossings.loads(), crossings.saves()
    outside = [*at.use.inputs, *at.results]
    conditional = at.use.plan if any(isinstance(op, WhereOp) for op in at.operations) else None
    return Sketch(
        name=at.kernel.kernel_name.data,
        sizes=axes_of_kernel(kernel),
        group=at.group,
        stream=at.stream,
        whole=at.whole,
        roles=at.roles,
        alignment=alignment_of(at.products),
        products_of_streams=tuple(len([op for op in each if isinstance(op, ContractOp)]) for each in at.use.steps),
        arrays=tuple((axes_of(value.type), width_of(value.type)) for value in outside),
        batch=frozenset(axis for op in at.products for axis in _batch_axes(op)),
        reduced=frozenset(
            axis for op in at.operations if isinstance(op, ContractOp | ReduceOp) for axis in op.over_axes
        ),
        scanned=frozenset(op.axis.data for op in at.operations if isinstance(op, ScanOp)),
        granules=_granules(at),
        crossings=(*loads, *crossings.entries(), *crossings.entries_added(), *saves),
        tasks=tuple(_tasks(at, (*loads, *saves))),
        holdings=tuple(holdings.all()),
        steps_singly=any(at.sums_beside_stream(op) for op in at.operations),
        results=results_of(at.products, at.roles.single),
        vector=vector_in_rows([width_of(value.type) for value in outside], at.products),
        suits_warpgroups=can_be_of_warpgroups(at.kernel, at.roles.row)
        and not keeps_a_rest((op, at.left_of(op)) for op in at.products),
        conditional=conditional,
        findings=None
        if conditional is None
        else Findings(conditional.axis, at.comes_to_shared, holdings.of_row, at.read_back),
        subloops=at.kernel.schedule.subloop.as_dict() if at.kernel.schedule is not None else {},
        moments=None if at.products else moments_of_decorated(kernel, at.schedule),
        phases=_phases(at),
        recurs=recurrence is not None,
        met=() if recurrence is None else _met(at, recurrence.axis.data),
        renamed=sum(isinstance(op, RenameOp) for op in at.operations),
        outer=at.outer,
    )


def _met(at: Decorated, stream: str) -> tuple[tuple[str, ...], ...]:
    reduced = [op.over_axes for op in at.operations if isinstance(op, ReduceOp)]
    return tuple(over for axes in reduced if (over := tuple(axis for axis in axes if axis != stream)))


def _granules(at: Decorated) -> dict[str, int]:
    found: dict[str, int] = {}
    for op in at.operations:
        if isinstance(op, SwapOp):
            found[op.axis.data] = lcm(found.get(op.axis.data, 1), 2 * op.length)
    return found


def axes_of_kernel(kernel: KernelOp) -> dict[str, int]:
    """The size of every axis, in order of appearance; DYNAMIC where symbolic."""
    if (recurrence := recurrence_of(kernel)) is not None:
        kernel = stand_in(kernel, recurrence)
    *operations, _ = kernel.body.block.ops
    sizes = {op.axis.data: DYNAMIC for op in operations if isinstance(op, ExtentOp)}
    for value in (*kernel.body.block.args, *(op.results[0] for op in operations)):
        sizes.update(zip(axes_of(value.type), shape_of(value.type), strict=True))
    return sizes


def _phases(at: Decorated) -> int:
    tiles = [value for value in at.use.inputs if at.comes_to_shared(value) and at.stream in axes_of(value.type)]
    return min(filter(None, (phases_of_step(tiles, step) for step in at.use.steps)), default=1)


def _tasks(at: Decorated, crossings: Iterable[Crossing]) -> Iterator[Task]:
    for crossing in crossings:
        yield Task(crossing, (crossing.stream,), crossing.streamed)
    for value, times in at.use.inputs.items():
        if at.comes_to_shared(value) and not is_factor(value):
            for stream in at.use.fed_in.get(value, (None,) * times):
                yield Task(at.read_back(value), (stream,), at.stream in axes_of(value.type))
    for op, stream in at.made():
        yield from (Task(labour, (stream,), stream is not None) for labour in labours_of(op))
        if isinstance(op, ReduceOp):
            yield Task(op, (stream,), stream is not None)
    read: set[SSAValue] = set()
    for op in at.products:
        streams = at.streams_of(op)
        streamed = streams != (None,)
        left = left_operand(op, at.roles.row)
        yield Task(product_of(op, at.left_of(op), at.kernel.schedule), streams, streamed, left not in read)
        read.add(left)
        if at.stream in op.over_axes and op.accumulate != format_of(op.result.type):
            # A stream keeps the sum as it accumulates, and rounds it in the end.
            yield Task(rounding_to(op.result.type), (None,), False)
        for operand in (op.lhs, op.rhs):
            if isinstance(loaded_factor(operand).owner, Operation) and at.in_shared(op, operand):
                yield Task(written(operand), streams, streamed)


def _present(tiles: Mapping[str, Amount]) -> dict[str, Amount]:
    """The sizes of tiles, of which none is empty."""
    return {axis: most(size, 1) for axis, size in tiles.items()}


def _batch_axes(op: ContractOp) -> set[str]:
    return set(axes_of(op.lhs.type)) & set(axes_of(op.rhs.type)) & set(axes_of(op.result.type))
