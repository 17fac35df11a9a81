"""What groups do to find where their streams begin and end, before these run: by the same laws that write it
(`passes/streams/limits.py`), into blocks of its own, so that the kernel is left as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from treadle.compiler.amounts import is_any
from treadle.compiler.cost.kernel.issue import issued_by_turn
from treadle.compiler.cost.kernel.names import name_of
from treadle.compiler.cost.kernel.plan import Issue, Pieces
from treadle.compiler.cost.kernel.spread import Spread
from treadle.compiler.cost.kernel.tasks import Crossing, Holding, Task
from treadle.compiler.cost.kernel.work import Labour, labours_of, width_of
from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.hierarchy import LoadOp, StreamOp
from treadle.passes.streams.limits import LimitWriter
from treadle.passes.streams.ranges import Search
from treadle.passes.streams.searches import Ends
from treadle.passes.streams.visits import Visits


@dataclass(frozen=True)
class Finding:
    """What a group does to find the limits of its streams."""

    searches: int = 0
    """Streams of their own, along the whole axis."""
    crossings: tuple[Crossing, ...] = ()
    tasks: tuple[Task, ...] = ()
    holdings: tuple[Holding, ...] = ()

    def issues(self, spread: Spread, streams: tuple[Pieces, ...]) -> Iterator[Issue]:
        """The instructions, those of steps in the stream of a search."""
        for kind, count in issued_by_turn(0):
            yield from [Issue(kind, count, streams)] * self.searches
        for task in self.tasks:
            around = streams if task.streamed else ()
            yield from (Issue(kind, count, around) for kind, count in task.issued(spread) if is_any(count))


@dataclass
class Findings:
    """Of all sizes of pieces; those that a group finds alike are written once."""

    axis: str
    """The streamed one."""
    comes_to_shared: Callable[[SSAValue], bool]
    held_row: Callable[[ReduceOp], Holding]
    """What is held of a state."""
    read_back: Callable[[SSAValue], Labour]
    """How a tile in shared memory is read back."""
    known: dict[tuple[object, ...], Finding] = field(default_factory=dict[tuple[object, ...], Finding])

    def of(self, visits: Sequence[Visits], pieces: Mapping[str, int]) -> Finding:
        if all(each.are_all for each in visits):
            return Finding()
        # Of the sizes only whether there is more than one element is asked.
        key = (*visits, *(axis for axis, size in pieces.items() if size > 1))
        if key not in self.known:
            self.known[key] = _Written(self, pieces).finding(visits)
        return self.known[key]


class _Written:
    """The operations that find the limits in one group."""

    def __init__(self, findings: Findings, pieces: Mapping[str, int]):
        self.findings = findings
        self.pieces = pieces
        self.block = Block()
        self.arrays: dict[SSAValue, SSAValue] = {}
        """The array of the kernel that each source of a load stands for."""
        self.tiles: dict[SSAValue, SSAValue] = {}
        self.searched: dict[Search, Ends] = {}

    def finding(self, visits: Sequence[Visits]) -> Finding:
        axis = self.findings.axis
        for each in visits:
            each.write(LimitWriter(axis, self.pieces[axis], self._add, self._resolve, self._load, self.searched))
        searches = [op for op in self.block.ops if isinstance(op, StreamOp)]
        steps = [op for search in searches for op in search.step.block.ops]
        tasks = [*self._tasks(self.block.ops, streamed=False), *self._tasks(steps, streamed=True)]
        states = [op for op in steps if isinstance(op, ReduceOp)]
        crossings = [task.work for task in tasks if isinstance(task.work, Crossing)]
        staged = [Holding("staged", each.axes, each.width) for each in crossings if each.level == "shared"]
        held = (*staged, *map(self.findings.held_row, states))
        return Finding(len(searches), tuple(crossings), tuple(tasks), held)

    def _tasks(self, ops: Iterable[Operation], streamed: bool) -> Iterator[Task]:
        for op in ops:
            if isinstance(op, LoadOp):
                yield from self._loaded(op, streamed)
                continue
            yield from (Task(labour, (None,), streamed) for labour in labours_of(op))
            if isinstance(op, ReduceOp):
                yield Task(op, (None,), streamed)

    def _loaded(self, load: LoadOp, streamed: bool) -> Iterator[Task]:
        crossing = self._crossing(load)
        yield Task(crossing, (None,), streamed)
        if crossing.level == "shared":
            yield Task(self.findings.read_back(self.arrays[load.source]), (None,), streamed)

    def _crossing(self, load: LoadOp) -> Crossing:
        array = self.arrays[load.source]
        level = "shared" if self.findings.comes_to_shared(array) else "register"
        assert isinstance(array, BlockArgument)
        name = name_of(array, f"array{array.index}")
        return Crossing(name, level, False, axes_of(array.type), width_of(array.type), True)

    def _add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def _resolve(self, value: SSAValue) -> SSAValue:
        if value not in self.tiles:
            self.tiles[value] = self.block.insert_arg(self._tile(value.type), len(self.block.args))
        return self.tiles[value]

    def _load(self, value: SSAValue) -> LoadOp:
        source = self.block.insert_arg(value.type, len(self.block.args))
        self.arrays[source] = value
        return LoadOp(source, self._tile(value.type))

    def _tile(self, type: Attribute) -> Attribute:
        if not is_array(type):
            return type
        sizes = {axis: self.pieces.get(axis, size) for axis, size in sizes_of(type).items()}
        return array_type(format_of(type), sizes, "register")
