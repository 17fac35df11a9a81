"""Choosing sizes: how long it takes, and how far the choice is from the best of an exhaustive search over the same
model, for every example on every machine. Needs no GPU.

python benchmarks/choice.py [--runs N] [--lengths default|large|both] [EXAMPLE ...]
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import Sketch, choose, estimate, merit, sketch_of, timing
from treadle.compiler.cost.choice.candidates import Candidates, candidates
from treadle.compiler.counting import counted
from treadle.compiler.machines import Machine, load_machine, machine_names
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, run_passes
from treadle.compiler.progress import progress
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import KernelOp

GOAL_MS, GOAL_RATIO = 200.0, 1.02
LARGE = 4096
FEW = 32
"""A default this small is a batch or a number of heads, and stays."""


@dataclass(frozen=True)
class Row:
    """All kernels of one example on one machine."""

    example: str
    machine: str
    lengths: str
    candidates: int
    milliseconds: float
    """Of processors, median."""
    most_milliseconds: float
    ratio: float
    """The time of the choice over that of the best candidate, of the kernel where it is largest."""


def sketches(path: Path, machine: str) -> list[tuple[Sketch, dict[str, int]]]:
    """The kernels of an example before their sizes are chosen, and the default sizes of their axes."""
    module = load_module(path)
    passes = list(pipeline(Options(machine)))
    run_passes(module, passes[: [spec.name for spec in passes].index(CHOOSING_PASS)])
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    defaults = default_sizes(function)
    found = [sketch_of(op, op.schedule) for op in module.walk() if isinstance(op, KernelOp) and op.schedule is not None]
    return [
        (each, {a: defaults.get(a, 1024) if size == DYNAMIC else size for a, size in each.sizes.items()})
        for each in found
    ]


def at(lengths: str, sketch: Sketch, defaults: Mapping[str, int]) -> dict[str, int]:
    long = {axis for axis, size in sketch.sizes.items() if size == DYNAMIC and defaults[axis] > FEW}
    return {axis: LARGE if lengths == "large" and axis in long else size for axis, size in defaults.items()}


def milliseconds(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], runs: int) -> list[float]:
    spent: list[float] = []
    gc.collect()  # of what earlier rows left
    for _ in range(runs):
        start = process_time()
        choose(sketch, machine, sizes, {})
        spent.append(1e3 * (process_time() - start))
    return spent


def best_us(sketch: Sketch, found: Candidates, machine: Machine, sizes: Mapping[str, int]) -> float:
    """The least time of all candidates with the fewest spills. Where conditions limit a stream, each by itself."""
    if sketch.conditional is None:
        times = timing(sketch.plan(found.tiles, found.warps, about=1.0, rereads=found.rereads), machine, sizes)
        its = merit(times)
        spills = np.broadcast_to(its.spills, len(found))
        all_us = np.where(times.blocks_per_sm > 0, its.time_us, np.inf)
        return float(all_us[spills == spills[np.isfinite(all_us)].min()].min())
    merits = [merit(each) for each in _one_by_one(sketch, found, machine, sizes)]
    return float(min(merits).time_us)


def _one_by_one(sketch: Sketch, found: Candidates, machine: Machine, sizes: Mapping[str, int]) -> Iterator[object]:
    for i in range(len(found)):
        one = found[i]
        if (estimated := estimate(sketch.plan(one.tiles, one.warps, rereads=one.rereads), machine, sizes)) is not None:
            yield estimated


def row(path: Path, machine: str, lengths: str, runs: int) -> Row:
    count, ratio = 0, 0.0
    spent = [0.0] * runs
    of_machine = load_machine(machine)
    for sketch, defaults in sketches(path, machine):
        sizes = at(lengths, sketch, defaults)
        found = candidates(sketch, sizes, {}, of_machine.most_in_cluster)
        count += len(found)
        spent = [a + b for a, b in zip(spent, milliseconds(sketch, of_machine, sizes, runs), strict=True)]
        chosen = merit(choose(sketch, of_machine, sizes, {}).estimate).time_us
        ratio = max(ratio, float(chosen) / best_us(sketch, found, of_machine, sizes))
    middle = results.Sample(tuple(spent)).median
    return Row(
        path.stem,
        machine,
        lengths,
        count,
        round(middle, 2),
        round(max(spent), 2),
        round(ratio, 4),
    )


def lines(rows: Sequence[Row]) -> str:
    head = ["example", "machine", "lengths", "candidates", "ms", "most ms", "choice / best"]
    return results.table(
        head,
        [
            [
                each.example,
                each.machine,
                each.lengths,
                str(each.candidates),
                f"{each.milliseconds:.1f}",
                f"{each.most_milliseconds:.1f}",
                f"{each.ratio:.4f}",
            ]
            for each in rows
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("examples", nargs="*", help="names of examples (default: all, and the result is kept)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--lengths", choices=("default", "large", "both"), default="both")
    given = parser.parse_args()
    paths = [programs.EXAMPLES / f"{name}.mlir" for name in given.examples] or sorted(programs.EXAMPLES.glob("*.mlir"))
    kinds = ("default", "large") if given.lengths == "both" else (given.lengths,)
    load = round(os.getloadavg()[0], 1)
    with progress("choosing"):
        rows = [
            row(path, machine, kind, given.runs)
            for path in counted(paths, "examples")
            for machine in machine_names()
            for kind in kinds
        ]
    print(lines(rows))
    slowest = max(each.most_milliseconds for each in rows)
    furthest = max(each.ratio for each in rows)
    print(f"load of the machine before the runs: {load}")
    print(f"slowest choice {slowest:.1f} ms of processors, {results.goal(slowest, GOAL_MS)}")
    print(f"furthest from the best {furthest:.4f}, {results.goal(furthest, GOAL_RATIO)}")
    if not given.examples:
        summary = {"slowest_ms": slowest, "furthest": furthest, "goals": [GOAL_MS, GOAL_RATIO], "load": load}
        path = results.write("choice", {**summary, "rows": [asdict(each) for each in rows]})
        print(f"written to {path}")


if __name__ == "__main__":
    main()
