"""What the cost model says of a compiled module: transfers, memory, sizes and an estimate of the time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import (
    LEVELS,
    Plan,
    estimate,
    footprint,
    peak_memory,
    plan_of,
    sizes_of_kernel,
    transfer_bytes,
    transfer_expression,
    transfer_values,
)
from treadle.compiler.machines import Machine
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import derivation_of


@dataclass(frozen=True)
class LevelCost:
    """H and M of one level for one kernel. H counts what crosses into and out of the level; M is that of one
    group, for `device` that of the whole kernel."""

    name: str
    transfer_values: int
    transfer_bytes: int
    transfer_expr: str
    memory_values: int
    memory_bytes: int
    capacity_bytes: int


@dataclass(frozen=True)
class KernelCost:
    name: str
    sizes: Mapping[str, int]
    """Of the axes."""
    group: Mapping[str, int]
    stream: Sequence[Mapping[str, int]]
    warps: Mapping[str, int]
    levels: Sequence[LevelCost]
    blocks: int
    blocks_per_sm: int
    limited_by: str
    """What keeps an SM from holding more blocks."""
    waves: float
    stages: int
    """Pieces of each tile of a stream that are in shared memory at once."""
    shared_bytes: int
    """Of a block, all stages and paddings."""
    registers_per_thread: int
    """An estimate."""
    registers_spilled: int
    """Registers that a thread lacks, an estimate."""
    units_us: Mapping[str, float]
    """How long each unit is busy."""
    time_us: float | None
    """An estimate; None where the kernel does not fit the machine."""
    bottleneck: str
    why: str
    """What choosing the sizes recorded."""


@dataclass(frozen=True)
class Explanation:
    machine: str
    kernels: Sequence[KernelCost]

    @property
    def time_us(self) -> float | None:
        """Of all kernels, one after another; an estimate."""
        times = [kernel.time_us for kernel in self.kernels]
        known = [time for time in times if time is not None]
        return sum(known) if len(known) == len(times) else None

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "time_us": self.time_us}, indent=2)

    def __str__(self) -> str:
        parts = [_kernel_text(kernel) for kernel in self.kernels]
        return "\n\n".join([f"on {self.machine}", *(parts or ["no kernels: the program computes nothing"])])


def explain(module: ModuleOp, machine: Machine, sizes: Mapping[str, int] | None = None) -> Explanation:
    """Explain every kernel of a module, explicit or with its sizes chosen, at the default sizes or those
    given (TreadleError)."""
    kernels = [
        _explain_kernel(kernel, function, machine, sizes or {})
        for function in module.ops
        if isinstance(function, FuncOp)
        for kernel in function.walk()
        if isinstance(kernel, KernelOp)
    ]
    return Explanation(machine.name, kernels)


def _explain_kernel(kernel: KernelOp, function: FuncOp, machine: Machine, given: Mapping[str, int]) -> KernelCost:
    sizes = sizes_of_kernel(kernel, function, given)
    plan = plan_of(kernel)
    needs = footprint(plan, machine)
    time = estimate(plan, machine, sizes)
    return KernelCost(
        name=plan.name,
        sizes=sizes,
        group={pieces.axis: pieces.size for pieces in plan.groups},
        stream=[{pieces.axis: pieces.size} for pieces in plan.streams],
        warps=plan.warps,
        levels=[_level(kernel, plan, machine, sizes, level) for level in LEVELS],
        blocks=plan.blocks(sizes),
        blocks_per_sm=0 if time is None else time.blocks_per_sm,
        limited_by="" if time is None else time.limited_by,
        waves=0.0 if time is None else time.waves,
        stages=needs.stages,
        shared_bytes=needs.shared_bytes,
        registers_per_thread=needs.registers_per_thread,
        registers_spilled=needs.spilled,
        units_us={} if time is None else time.units_us,
        time_us=None if time is None else time.time_us,
        bottleneck="does not fit" if time is None else time.bottleneck,
        why=_why(function, plan.name),
    )


def _level(kernel: KernelOp, plan: Plan, machine: Machine, sizes: Mapping[str, int], level: str) -> LevelCost:
    values, size = _memory(kernel, plan, sizes, level)
    of_block = {"shared": machine.limits.shared_per_block}
    return LevelCost(
        level,
        transfer_values(plan, level, sizes),
        transfer_bytes(plan, level, sizes),
        transfer_expression(plan, level),
        values,
        size,
        of_block.get(level, machine.levels[level].capacity),
    )


def _memory(kernel: KernelOp, plan: Plan, sizes: Mapping[str, int], level: str) -> tuple[int, int]:
    """M in values and bytes."""
    if level == "device":
        arrays = {t.array: (prod(sizes[axis] for axis in t.axes), t.width) for t in plan.transfers}
        return sum(n for n, _ in arrays.values()), sum(n * width for n, width in arrays.values())
    if kernel.is_expanded:
        peak = peak_memory(kernel)[level]
        return peak.values, peak.bytes
    tiles = [tile for tile in plan.tiles if (tile.role == "shared") == (level == "shared")]
    return sum(tile.elements for tile in tiles), sum(tile.elements * tile.width for tile in tiles)


def _why(function: FuncOp, kernel: str) -> str:
    for rewrite, subject, _, reason in (step.texts() for step in reversed(derivation_of(function.attributes))):
        if rewrite == "choose sizes" and subject == f"@{kernel}":
            return reason
    return ""


# -- text -----------------------------------------------------------------------------------------


def _kernel_text(kernel: KernelCost) -> str:
    lines = [f"kernel @{kernel.name}   {_sizes_text(kernel.sizes)}", f"  {_schedule_text(kernel)}"]
    if kernel.why:
        lines.append(f"  why: {kernel.why}")
    lines += [f"  {line}" for line in _table(kernel.levels)]
    lines += [f"  {_block_text(kernel)}", f"  {_time_text(kernel)}"]
    return "\n".join(lines)


def _block_text(kernel: KernelCost) -> str:
    stages = f" in {kernel.stages} stages" if kernel.stages > 1 else ""
    spilled = f" ({kernel.registers_spilled} more in local memory)" if kernel.registers_spilled else ""
    limit = f" (more do not fit: {kernel.limited_by})" if kernel.limited_by else ""
    return (
        f"a block: {_number(kernel.shared_bytes)} bytes of shared memory with padding{stages}, about "
        f"{kernel.registers_per_thread} registers a thread{spilled}; {_number(kernel.blocks)} blocks, "
        f"{kernel.blocks_per_sm} on an SM{limit}, {kernel.waves:.2f} waves"
    )


def _schedule_text(kernel: KernelCost) -> str:
    streams = [f"stream {_sizes_text(stream)}" for stream in kernel.stream]
    group = f"group {_sizes_text(kernel.group)}" if kernel.group else "one group"
    warps = f"warps {_sizes_text(kernel.warps)}" if kernel.warps else "one warp"
    return "; ".join([group, *streams, warps])


def _time_text(kernel: KernelCost) -> str:
    if kernel.time_us is None:
        return "does not fit the machine"
    units = ", ".join(f"{unit} {used:.3g}" for unit, used in kernel.units_us.items())
    return f"time (estimate): {kernel.time_us:.3g} us, bound by {kernel.bottleneck}; busy, in us: {units}"


def _table(levels: Sequence[LevelCost]) -> list[str]:
    head = ("level", "H values", "H bytes", "M bytes", "of", "H in values")
    rows = [
        (
            level.name,
            _number(level.transfer_values),
            _number(level.transfer_bytes),
            _number(level.memory_bytes),
            _number(level.capacity_bytes),
            level.transfer_expr,
        )
        for level in levels
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(5)]
    return [
        "  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in range(1, 5)), row[5]])
        for row in (head, *rows)
    ]


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in sizes.items())


def _number(value: int) -> str:
    return f"{value:,}"
