"""Kernels over sizes, predicted and measured: what a row is, and what is said of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.bench.rates import Rates
from treadle.compiler.counting import counted
from treadle.compiler.explain.costs import Explanation, explain
from treadle.compiler.machines import Machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.sizes import axes_of_function, default_sizes, set_default_sizes
from treadle.compiler.source import load_module, only_function
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

    def seconds(self, file: Path, sizes: Mapping[str, int], machine: Machine) -> float: ...

    def moved(self, file: Path, sizes: Mapping[str, int], machine: Machine) -> Mapping[str, float] | None: ...


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
    """Whether L2 holds all that is moved, so that one repetition finds what the one before it left."""

    @property
    def error(self) -> float:
        """Of the prediction: 0.1 is ten per cent too long."""
        return self.predicted_us / self.measured_us - 1

    @property
    def is_hit(self) -> bool:
        return abs(self.error) <= WITHIN

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
            return "faster than predicted: repetitions find the arrays in L2, which the model reads from device memory"
        return f"faster than predicted: {self.bottleneck} overlaps with more than the model grants"


def sizes_of(file: Path) -> Iterator[dict[str, int]]:
    """Every length for every long symbolic axis together."""
    function = only_function(load_module(file), str(file))
    known = default_sizes(function)
    symbolic = [axis for axis, size in axes_of_function(function).items() if size == DYNAMIC]
    for length in LENGTHS:
        yield {axis: length if known.get(axis, length) > FEW else known[axis] for axis in symbolic}


def predicted(file: Path, sizes: Mapping[str, int], machine: Machine, arch: str | None = None) -> Explanation:
    """By the model, with the rates of `machine`; the sizes of pieces are those that are compiled."""
    module: ModuleOp = load_module(file)
    set_default_sizes(only_function(module, str(file)), sizes)
    run_pipeline(module, Options(machine.name, arch), last=LAST_HIERARCHY_PASS)
    return explain(module, machine, sizes)


def compare(files: Sequence[Path], machine: Machine, device: Device) -> tuple[Rates, list[Row]]:
    """Measure the rates first, then every program at every size."""
    rates = device.rates(machine)
    lasting = replace(machine, sustained=rates.as_sustained()).as_sustained()
    rows: list[Row] = []
    wanted = [(file, sizes) for file in files for sizes in sizes_of(file)]
    for program, sizes in counted(wanted, "rows"):
        found = predicted(program, sizes, lasting)
        if found.time_us is None:
            continue
        rows.append(
            Row(
                program.stem,
                sizes,
                found.time_us,
                device.seconds(program, sizes, machine) * 1e6,
                found.bottleneck,
                {level.name: level.transfer_bytes for level in found.levels},
                device.moved(program, sizes, machine),
                found.levels[0].transfer_bytes <= machine.levels["l2"].capacity,
            )
        )
    return rates, rows


def summary(rows: Sequence[Row]) -> str:
    hits = sum(row.is_hit for row in rows)
    met = bool(rows) and hits >= SHARE * len(rows)
    return (
        f"{hits} of {len(rows)} predictions within {WITHIN:.0%}; the goal, {SHARE:.0%} of them, is "
        f"{'met' if met else 'not met'}"
    )
