"""Kernels over sizes, predicted and measured: what a row is, and what is said of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.bench.rates import Rates, with_rates
from treadle.compiler.counting import counted
from treadle.compiler.explain.costs import Explanation, KernelCost, explain
from treadle.compiler.machines import Machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.sizes import axes_of_function, default_sizes, set_default_sizes
from treadle.compiler.source import load_module, only_function
from treadle.compiler.told_sizes import told_axes
from treadle.dialects.diagram.array import DYNAMIC

LENGTHS = (512, 1024, 2048, 4096, 8192)
FEW = 32
"""A default this small is a batch or a number of heads, and stays."""
WITHIN, SHARE = 0.15, 0.9
"""The goal: predictions within 15 % for 90 % of the rows."""


class Device(Protocol):
    """A GPU, or in tests something like one."""

    name: str

    def rates(self, machine: Machine) -> Rates: ...

    def seconds(self, file: Path, made_for: Mapping[str, int], sizes: Mapping[str, int], machine: Machine) -> float:
        """Of one run of kernels that are made for some sizes."""
        ...

    def moved(
        self, file: Path, made_for: Mapping[str, int], sizes: Mapping[str, int], machine: Machine
    ) -> Mapping[str, float] | None: ...


@dataclass(frozen=True)
class Row:
    """One program at one set of sizes. Times are of its kernels one after another, launches in flight included."""

    program: str
    sizes: Mapping[str, int]
    predicted_us: float
    measured_us: float
    bottleneck: str
    predicted_bytes: Mapping[str, int]
    """H of each level."""
    measured_bytes: Mapping[str, float] | None
    """From the profiler, None where it could not count."""
    stays_in_l2: bool = False
    """Whether L2 holds all arrays, so that one repetition finds what the one before it left."""
    kernels: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Sizes of each: `group`, `stream`, `warps` and whether it takes pieces `in_turns`."""

    @property
    def error(self) -> float:
        """Of the prediction: 0.1 is ten per cent too long."""
        return self.predicted_us / self.measured_us - 1

    @property
    def is_hit(self) -> bool:
        return bool(abs(self.error) <= WITHIN)  # numpy's own kind of truth is none that JSON knows

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "error": self.error, "hit": self.is_hit, "hypothesis": "" if self.is_hit else self.why}

    @property
    def why(self) -> str:
        """A first hypothesis for a miss, from what can be seen here; a person goes on from it."""
        moved = (self.measured_bytes or {}).get("device")
        if moved and moved > 1.25 * self.predicted_bytes["device"]:
            return "device memory moves more than predicted: pieces that were to stay in L2 do not"
        if self.error < 0:
            return f"slower than {self.bottleneck} explains: waits that the model lacks"
        if self.stays_in_l2:
            return "faster than predicted: L2, in which repetitions find the arrays, gives more than was measured"
        return f"faster than predicted: {self.bottleneck} overlaps with more than the model grants"


def sizes_of(file: Path) -> Iterator[dict[str, int]]:
    """Every length for every long symbolic axis together, but for those to which reads give one."""
    function = only_function(load_module(file), str(file))
    known = default_sizes(function)
    told = told_axes(function)
    symbolic = [axis for axis, size in axes_of_function(function).items() if size == DYNAMIC and axis not in told]
    for length in LENGTHS:
        yield {axis: length if known.get(axis, length) > FEW else known[axis] for axis in symbolic}


def found_in_l2(machine: Machine, arrays: int) -> Machine:
    """The machine as repetitions of a kernel whose arrays have so many bytes see it: what fits L2 they find there."""
    device, l2 = machine.levels["device"], machine.levels["l2"]
    if arrays > l2.capacity:
        return machine
    found = replace(device, bandwidth=l2.bandwidth, latency=l2.latency or device.latency)
    return replace(machine, levels={**machine.levels, "device": found})


def lowered(file: Path, made_for: Mapping[str, int], machine: Machine) -> ModuleOp:
    """A program whose kernels have the sizes that are best for some sizes of the axes, and run at any."""
    module: ModuleOp = load_module(file)
    set_default_sizes(only_function(module, str(file)), made_for)
    run_pipeline(module, Options(machine.name), last=LAST_HIERARCHY_PASS)
    return module


def predicted(module: ModuleOp, sizes: Mapping[str, int], machine: Machine) -> Explanation:
    """By the model, with the rates of `machine`, of repetitions."""
    found = explain(module, machine, sizes, as_made=True)
    arrays = max(level.memory_bytes for level in found.levels if level.name == "device")
    return explain(module, found_in_l2(machine, arrays), sizes, as_made=True)


def compare(files: Sequence[Path], machine: Machine, device: Device, minutes: float = inf) -> Iterator[Rates | Row]:
    """Measure the rates first, then every program at every size, each with kernels that are made once, for the size in
    the middle; nothing is begun after so many minutes."""
    until = monotonic() + 60 * minutes
    rates = device.rates(machine)
    yield rates
    lasting = with_rates(machine, rates)
    wanted = [(file, sizes) for file in files for sizes in sizes_of(file)]
    modules: dict[Path, tuple[ModuleOp, Mapping[str, int]]] = {}
    for program, sizes in counted(wanted, "rows"):
        if monotonic() > until:
            return
        if program not in modules:
            lengths = list(sizes_of(program))
            made_for = lengths[len(lengths) // 2]
            modules = {program: (lowered(program, made_for, machine), made_for)}
        module, made_for = modules[program]
        if (row := _row(program, module, made_for, sizes, machine, lasting, device)) is not None:
            yield row


def _row(
    program: Path,
    module: ModuleOp,
    made_for: Mapping[str, int],
    sizes: Mapping[str, int],
    machine: Machine,
    lasting: Machine,
    device: Device,
) -> Row | None:
    """None where it does not fit."""
    found = predicted(module, sizes, lasting)
    if found.time_us is None:
        return None
    return Row(
        program.stem,
        sizes,
        found.time_us,
        device.seconds(program, made_for, sizes, machine) * 1e6,
        found.bottleneck,
        {level.name: level.transfer_bytes for level in found.levels},
        device.moved(program, made_for, sizes, machine),
        found.levels[0].memory_bytes <= machine.levels["l2"].capacity,
        {kernel.name: _sizes_of_kernel(kernel) for kernel in found.kernels},
    )


def _sizes_of_kernel(kernel: KernelCost) -> dict[str, Any]:
    stream = {axis: size for each in kernel.stream for axis, size in each.items()}
    return {"group": kernel.group, "stream": stream, "warps": kernel.warps, "in_turns": kernel.in_turns}


def summary(rows: Sequence[Row]) -> str:
    hits = sum(row.is_hit for row in rows)
    met = bool(rows) and hits >= SHARE * len(rows)
    return (
        f"{hits} of {len(rows)} predictions within {WITHIN:.0%}; the goal, {SHARE:.0%} of them, is "
        f"{'met' if met else 'not met'}"
    )
