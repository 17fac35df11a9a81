"""What the cost model says of a compiled module: transfers, memory, sizes and an estimate of the time."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import (
    LEVELS,
    Memory,
    Plan,
    Sketch,
    estimate,
    footprint,
    peak_memory,
    plan_of,
    sizes_of_kernel,
    transfer_bytes,
    transfer_expression,
    transfer_values,
    transfers_at,
)
from treadle.compiler.cost.choice.levers import Lever, levers
from treadle.compiler.cost.timing.clusters import bytes_across, bytes_exchanged
from treadle.compiler.cost.timing.links import Link, links_of, with_least
from treadle.compiler.cost.timing.overlap import overlaps
from treadle.compiler.cost.timing.roofline import flop, limits_us, tile_use, wave_use
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.explain.symbols import Expressions
from treadle.compiler.machines import Machine, machine_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, derivation_of


@dataclass(frozen=True)
class LevelCost:
    """H and M of one level for one kernel. H counts what crosses into and out of the level; M is that of one
    group, for `device` that of the whole kernel."""

    name: str
    transfer_values: int
    transfer_bytes: int
    transfer_expr: str
    at_most: bool
    """Whether the transfers are upper bounds: conditions may leave out more, by data or of an axis that groups hold."""
    memory_values: int
    memory_bytes: int
    capacity_bytes: int


@dataclass(frozen=True)
class StepCost:
    """The loop of one stream when it repeats itself, on a quarter of an SM."""

    stream: Mapping[str, int]
    """The axis, and the piece of it that a step takes."""
    number: float
    """Of steps: as many as a group takes on average."""
    warps: int
    clocks: float
    """From one step of all these warps to the next."""
    stages: Sequence[Mapping[str, Any]]
    """Of one warp, in order: `name`, `unit` and `clocks`."""
    use: Mapping[str, float]
    """The part of the time for which products and scalar work are under way."""


@dataclass(frozen=True)
class KernelCost:
    """One kernel at one set of sizes; every time is an estimate."""

    name: str
    sizes: Mapping[str, int]
    """Of the axes."""
    group: Mapping[str, int]
    stream: Sequence[Mapping[str, int]]
    warps: Mapping[str, int]
    shared: Mapping[str, int]
    """What each block of a cluster has of an axis that the group holds whole, where they share a group."""
    levels: Sequence[LevelCost]
    flop: int
    """Of its products, edges aside."""
    blocks: int
    blocks_per_sm: int
    limited_by: str
    """What keeps an SM from holding more blocks."""
    waves: float
    in_turns: bool
    """Whether a block on each SM takes one piece after another (`cuda-persist`); then `blocks` are pieces."""
    cluster: int
    """Blocks that bring together what they read alike (`cuda-cluster`), or share a group; 1 where each is alone."""
    cluster_along: Mapping[str, int]
    """How many of them lie along which axes, the outermost first."""
    cluster_bytes: int
    """What the blocks of clusters bring each other. Of what they read alike, device memory and L2 give so much less."""
    wave_use: float
    """The part of the blocks' places that is filled, in all waves."""
    tile_use: float
    """The part of all tiles that lies within the axes."""
    stages: int
    """Pieces of each tile of a stream that are in shared memory at once."""
    shared_bytes: int
    """Of a block, all stages and paddings."""
    registers_per_thread: int
    registers_spilled: int
    """Registers that a thread lacks."""
    units_us: Mapping[str, float]
    """How long each unit is busy."""
    time_us: float | None
    """None where the kernel does not fit the machine."""
    limits_us: Mapping[str, float]
    """The least time of each unit, whatever the kernel."""
    limit_us: float
    """The largest of them."""
    share_of_limit: float | None
    """`limit_us / time_us`."""
    bottleneck: str
    does_not_fit: str
    """Why the machine cannot run it; empty where it can."""
    why: str
    """What choosing the sizes recorded."""
    steps: Sequence[StepCost] = ()
    """Of each stream that computes, in order."""
    levers: Sequence[Lever] | None = None
    """What would make it faster, and its time then."""
    links: Sequence[Link] = ()
    """What passes between each memory and the next, the farthest first; none where the kernel does not fit."""
    expressions: Expressions | None = None

    @property
    def step(self) -> StepCost | None:
        """Of the stream that takes longest."""
        return max(self.steps, key=lambda step: step.number * step.clocks, default=None)

    def as_dict(self) -> dict[str, Any]:
        links = [asdict(link) | {"least_us": link.least_us} for link in self.links]
        return asdict(self) | {"step": None if self.step is None else asdict(self.step), "links": links}


@dataclass(frozen=True)
class Explanation:
    machine: str
    kernels: Sequence[KernelCost]
    launch: float
    """What one launch after another adds, in seconds."""

    def __str__(self) -> str:
        """As `treadle explain` prints it."""
        from treadle.compiler.explain.text import explanation_text

        whole: Any = self  # the checker knows this file by two names, and the class by both
        return explanation_text(whole)

    @property
    def launch_us(self) -> float:
        """What launching the kernels one after another adds."""
        return 1e6 * self.launch * len(self.kernels)

    @property
    def time_us(self) -> float | None:
        """Of all kernels, one after another, with their launches."""
        times = [kernel.time_us for kernel in self.kernels]
        known = [time for time in times if time is not None]
        return sum(known) + self.launch_us if len(known) == len(times) else None

    @property
    def bottleneck(self) -> str:
        """Of the kernel that takes longest."""
        if any(kernel.time_us is None for kernel in self.kernels):
            return "does not fit"
        slowest = max(self.kernels, key=lambda kernel: kernel.time_us or 0, default=None)
        return "nothing" if slowest is None else slowest.bottleneck

    @property
    def sizes(self) -> dict[str, int]:
        return {axis: size for kernel in self.kernels for axis, size in kernel.sizes.items()}

    @property
    def levels(self) -> list[LevelCost]:
        """Of all kernels: transfers add up, of the memory the largest counts."""
        return [_together([kernel.levels[i] for kernel in self.kernels]) for i in range(len(LEVELS)) if self.kernels]

    @property
    def limit_us(self) -> float:
        return sum(kernel.limit_us for kernel in self.kernels)

    @property
    def share_of_limit(self) -> float | None:
        return None if not self.time_us else self.limit_us / self.time_us

    def as_dict(self) -> dict[str, Any]:
        """What `--json` prints; `docs/model.md` says what each key means."""
        return {
            "machine": self.machine,
            "sizes": self.sizes,
            "levels": [asdict(level) for level in self.levels],
            "time_us": self.time_us,
            "launch_us": self.launch_us,
            "limit_us": self.limit_us,
            "share_of_limit": self.share_of_limit,
            "bottleneck": self.bottleneck,
            "kernels": [kernel.as_dict() for kernel in self.kernels],
        }

    def to_json(self) -> str:
        return json.dumps(self.as_dict(), indent=2)


def _together(levels: Sequence[LevelCost]) -> LevelCost:
    return LevelCost(
        levels[0].name,
        sum(level.transfer_values for level in levels),
        sum(level.transfer_bytes for level in levels),
        " + ".join(level.transfer_expr for level in levels if level.transfer_expr != "0") or "0",
        any(level.at_most for level in levels),
        max(level.memory_values for level in levels),
        max(level.memory_bytes for level in levels),
        levels[0].capacity_bytes,
    )


def explain(
    module: ModuleOp,
    machine: Machine,
    sizes: Mapping[str, int] | None = None,
    sketches: Mapping[str, Sketch] | None = None,
    expressions: bool = False,
    as_made: bool = False,
) -> Explanation:
    """Explain every kernel of a module, explicit or with its sizes chosen, at the default sizes or those given
    (TreadleError). With `sketches` of its kernels, as they were before their streams were expanded, also what would
    make them faster; with `expressions`, costs in symbols, of explicit kernels (which imports sympy). `as_made`: of
    kernels that were made for the sizes of the program, and for the machine of the module, whatever is given."""
    kernels: list[KernelCost] = []
    for function in (op for op in module.ops if isinstance(op, FuncOp)):
        for kernel in (op for op in function.walk() if isinstance(op, KernelOp)):
            sketch = (sketches or {}).get(kernel.kernel_name.data)
            made = _made(kernel, function, machine_of(module)) if as_made else None
            kernels.append(_explain_kernel(kernel, function, machine, sizes or {}, sketch, expressions, made))
    return Explanation(machine.name, kernels, machine.launch)


def _made(kernel: KernelOp, function: FuncOp, machine: Machine) -> Made:
    """Whether blocks take pieces in turns is decided for the sizes of its program, by the schedule if that says it."""
    turns = UNDECIDED if kernel.schedule is None else kernel.schedule.turns.data
    if turns != UNDECIDED:
        return Made(turns > 0)
    found = estimate(plan_of(kernel), machine, sizes_of_kernel(kernel, function))
    return Made(found is not None and found.in_turns)


def _explain_kernel(
    kernel: KernelOp,
    function: FuncOp,
    machine: Machine,
    given: Mapping[str, int],
    sketch: Sketch | None,
    expressions: bool,
    made: Made | None,
) -> KernelCost:
    sizes = sizes_of_kernel(kernel, function, given)
    plan = plan_of(kernel)
    near = peak_memory(kernel) if kernel.is_expanded else None
    found = kernel_cost(plan, machine, sizes, near, _why(function, plan.name), sketch, kernel.is_expanded, made)
    if not (expressions and kernel.is_expanded):
        return found
    from treadle.compiler.explain.symbols import expressions_of

    symbols, bound = expressions_of(kernel, machine)
    links = with_least(found.links, plan, machine, sizes, bound) if found.links else ()
    return replace(found, expressions=symbols, links=links)


def time_and_memory(kernel: KernelOp, function: FuncOp, machine: Machine) -> tuple[float | None, int]:
    """Of all that `explain` says of a kernel, at the sizes of its program: microseconds, None if it does not fit, and
    the bytes of its arrays in the memory of the device."""
    sizes, plan = sizes_of_kernel(kernel, function), plan_of(kernel)
    _, bytes = _memory(plan, sizes, "device", None)
    time = estimate(plan, machine, sizes)
    does_not_fit = _why_not(bytes, plan.blocks(sizes), machine, time is not None)
    return None if does_not_fit or time is None else time.time_us, bytes


def kernel_cost(
    plan: Plan,
    machine: Machine,
    sizes: Mapping[str, int],
    near: Mapping[str, Memory] | None = None,
    why: str = "",
    sketch: Sketch | None = None,
    in_order: bool = False,
    made: Made | None = None,
) -> KernelCost:
    """The costs of a plan. `near` is M of near levels where it is known exactly; `in_order`: the plan's instructions
    stand in the order of the program."""
    needs, time = footprint(plan, machine), estimate(plan, machine, sizes, made)
    levels = [_level(plan, machine, sizes, level, near) for level in LEVELS]
    near_bytes = sum(each.memory_bytes for each in levels[1:])
    does_not_fit = _why_not(levels[0].memory_bytes, plan.blocks(sizes), machine, time is not None)
    time = None if does_not_fit else time
    needs = needs if time is None else time.footprint
    cluster = None if time is None else time.cluster
    limits = limits_us(plan, machine, sizes)
    limit = max(limits.values(), default=0.0)
    known = {axis: max(size, 1) for axis, size in sizes.items()}
    return KernelCost(
        name=plan.name,
        sizes=sizes,
        group={pieces.axis: pieces.size for pieces in plan.groups},
        stream=[{pieces.axis: pieces.size} for pieces in plan.streams],
        warps=plan.warps,
        shared={pieces.axis: pieces.size for pieces in plan.parts},
        levels=levels,
        flop=flop(plan, sizes),
        blocks=plan.blocks(sizes),
        blocks_per_sm=0 if time is None else time.blocks_per_sm,
        limited_by="" if time is None else time.limited_by,
        waves=0.0 if time is None else time.waves,
        in_turns=time is not None and time.in_turns,
        cluster=int(plan.cluster) if cluster is None else cluster.blocks,
        cluster_along=_blocks_along(plan) if cluster is None else dict(cluster.sides),
        cluster_bytes=int(bytes_exchanged(plan, sizes)) if cluster is None else bytes_across(plan, sizes, cluster),
        wave_use=0.0 if time is None else wave_use(time.waves),
        tile_use=tile_use(plan, sizes),
        stages=needs.stages,
        shared_bytes=needs.shared_bytes,
        registers_per_thread=needs.registers_per_thread,
        registers_spilled=needs.spilled,
        units_us={} if time is None else time.units_us,
        time_us=None if time is None else time.time_us,
        limits_us=limits,
        limit_us=limit,
        share_of_limit=None if time is None or not time.time_us else limit / time.time_us,
        bottleneck="does not fit" if time is None else time.bottleneck,
        does_not_fit=does_not_fit,
        why=why,
        steps=tuple(_steps(plan, machine, sizes, time.blocks_per_sm)) if in_order and time is not None else (),
        levers=levers(sketch, machine, known, time.time_us) if sketch is not None and time is not None else None,
        links=() if time is None else links_of(plan, machine, sizes, time, near_bytes),
    )


def _blocks_along(plan: Plan) -> dict[str, int]:
    """Along which axis the blocks of a cluster lie that share a group, and how many."""
    return {pieces.axis: int(plan.cluster) for pieces in plan.parts}


def _why_not(bytes: int, blocks: int, machine: Machine, of_block: bool) -> str:
    if not of_block:
        return "one block takes more registers or shared memory than an SM has"
    if bytes > (capacity := machine.levels["device"].capacity):
        return f"its arrays take {bytes:,} bytes, device memory has {capacity:,}"
    if blocks > machine.limits.grid:
        return f"it takes {blocks:,} blocks, a grid has at most {machine.limits.grid:,}"
    return ""


def _steps(plan: Plan, machine: Machine, sizes: Mapping[str, int], blocks_per_sm: int) -> Iterator[StepCost]:
    for found in overlaps(plan, machine, blocks_per_sm):
        stages = [{"name": stage.name, "unit": stage.unit, "clocks": stage.clocks} for stage in found.stages]
        stream = plan.streams[found.stream]
        number = float(stream.mean(sizes))
        yield StepCost({stream.axis: stream.size}, number, found.warps, found.clocks_of_step, stages, found.use)


def _level(
    plan: Plan, machine: Machine, sizes: Mapping[str, int], level: str, near: Mapping[str, Memory] | None
) -> LevelCost:
    values, size = _memory(plan, sizes, level, near)
    of_block = {"shared": machine.limits.shared_per_block}
    return LevelCost(
        level,
        transfer_values(plan, level, sizes),
        transfer_bytes(plan, level, sizes),
        transfer_expression(plan, level),
        any(each.is_at_most for each in transfers_at(plan, level)),
        values,
        size,
        of_block.get(level, machine.levels[level].capacity),
    )


def _memory(plan: Plan, sizes: Mapping[str, int], level: str, near: Mapping[str, Memory] | None) -> tuple[int, int]:
    """M in values and bytes."""
    if level == "device":
        arrays = {t.array: (int(t.whole(sizes)), t.width) for t in plan.transfers}
        return sum(n for n, _ in arrays.values()), sum(n * width for n, width in arrays.values())
    if near is not None:
        return near[level].values, near[level].bytes
    tiles = [tile for tile in plan.tiles if (tile.role in ("shared", "staged", "listed")) == (level == "shared")]
    return sum(tile.elements for tile in tiles), sum(tile.elements * tile.width for tile in tiles)


def _why(function: FuncOp, kernel: str) -> str:
    for rewrite, subject, _, reason in (step.texts() for step in reversed(derivation_of(function.attributes))):
        if rewrite == "choose sizes" and subject == f"@{kernel}":
            return reason
    return ""
