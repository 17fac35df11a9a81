"""The choice of sizes against an exhaustive search over the same model, on every example and machine, and its speed.

What is searched is every size that a product or a warp can be given, not only what `candidates` proposes: any power of
two of every piece and of the warps along every axis (other numbers do not share out copies evenly). Sizes that need
more registers than a thread has are left out where others fit, as the choice does: there the model knows too little.
Both compare by `merit`, which is the estimated time unless the machine has warpgroups; what it says of those is tested
by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import pytest
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import Estimate, Merit, Plan, Sketch, choose, estimate, merit, sketch_of, suits_warpgroups
from treadle.compiler.cost.candidates import ROW, covering
from treadle.compiler.machines import Machine, load_machine, machine_names
from treadle.compiler.pipeline import LAST_DECORATING_PASS, Options, pipeline, run_passes
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import KernelOp

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.mlir"))
WARPS = (1, 2, 4, 8)
POWERS = tuple(1 << i for i in range(11))
WITHIN = 1.02
LARGE = 4096

Tried = tuple[Mapping[str, int], Mapping[str, int]]
"""Sizes of the pieces, and warps along axes."""


@cache
def sketches(path: Path) -> list[tuple[Sketch, dict[str, int]]]:
    """The kernels of an example before their sizes are chosen, and the default sizes of its axes."""
    module = load_module(path)
    passes = list(pipeline(Options()))
    run_passes(module, passes[: [spec.name for spec in passes].index(LAST_DECORATING_PASS)])
    (function,) = (op for op in module.ops if isinstance(op, FuncOp))
    defaults = default_sizes(function)
    found = [sketch_of(op, op.schedule) for op in module.walk() if isinstance(op, KernelOp) and op.schedule is not None]
    return [
        (each, {a: defaults.get(a, 1024) if size == DYNAMIC else size for a, size in each.sizes.items()})
        for each in found
    ]


def every(sketch: Sketch, sizes: Mapping[str, int]) -> Iterator[Tried]:
    single = dict.fromkeys((*sketch.group, *([sketch.stream] if sketch.stream else [])), 1)
    whole = {axis: sketch.sizes[axis] for axis in sketch.whole}
    for tiles, warps in (of_products if sketch.has_products else of_lanes)(sketch, sizes):
        yield {**single, **tiles, **whole}, warps


def up_to(axis: str | None, sizes: Mapping[str, int], least: int, most: int = 1024) -> tuple[int, ...]:
    """Powers of two, none more than twice as large as the axis."""
    if axis is None:
        return (1,)
    return tuple(size for size in POWERS if least <= size <= min(most, max(least, covering(sizes[axis]))))


def of_products(sketch: Sketch, sizes: Mapping[str, int]) -> Iterator[Tried]:
    row, column, stream = sketch.roles.row, sketch.roles.column, sketch.stream
    columns = up_to(column, sizes, 16, 256)
    # One product a step is left out: see `LEAST_STEPS`.
    least = 2 * sketch.alignment
    steps = up_to(stream, sizes, least, 128) if stream and sizes[stream] > sketch.alignment else (sketch.alignment,)
    rows = [(ROW * n * tiles, n) for n in WARPS for tiles in (1, 2, 4)]
    for (height, along), wide, step in product(rows, columns, steps):
        tiles = {axis: size for axis, size in ((column, wide), (stream, step)) if axis}
        if row is None:
            yield tiles, {}
            continue
        if height // along // ROW > (4 if sketch.roles.splits_columns else 2):
            continue
        if height > max(ROW, covering(sizes[row])):
            continue
        yield {**tiles, row: height}, {row: along}
        if column is None or not sketch.roles.splits_columns:
            continue
        for across in (2, 4, 8):
            if wide >= 16 * across and along * across <= WARPS[-1]:
                yield {**tiles, row: height}, {row: along, column: across}


def of_lanes(sketch: Sketch, sizes: Mapping[str, int]) -> Iterator[Tried]:
    axes = max(sketch.arrays, key=lambda array: prod(sizes[axis] for axis in array[0]))[0]
    lane = axes[-1] if axes else None
    rows = [axis for axis in (*reversed(axes), *sketch.group) if axis in sketch.group and axis != lane]
    row = rows[0] if rows else None
    steps = up_to(sketch.stream, sizes, 32, 1024) if sketch.stream == lane else up_to(sketch.stream, sizes, 1, 32)
    lanes = up_to(lane, sizes, 1, 4096) if lane in sketch.group else (None,)
    for wide, high, step, warps in product(lanes, up_to(row, sizes, 1, 64), steps, WARPS):
        tiles = {axis: size for axis, size in ((sketch.stream, step), (row, high)) if axis}
        if lane is not None and wide is not None:
            tiles[lane] = wide
            if wide >= 32 * warps:
                # Rows lie beside each other only where the lanes are more than a row has.
                if high == 1:
                    yield tiles, {lane: warps}
                continue
            if wide < covering(sizes[lane]):
                continue  # lanes would have nothing to do
        if row is not None and warps <= high <= 4 * warps:
            yield tiles, {row: warps}
        elif row is None and warps == 1:
            yield tiles, {}


def best_of(sketch: Sketch, machine: Machine, sizes: Mapping[str, int]) -> tuple[Merit, Tried]:
    found: list[tuple[Merit, int]] = []
    tried = list(every(sketch, sizes))
    for i, (tiles, warps) in enumerate(tried):
        plan = sketch.plan(tiles, warps)
        of_plan = estimate(plan, machine, sizes)
        if of_plan is not None:
            found.append((merit(sketch, plan, machine, of_plan), i))
    assert found
    best, i = min(found)
    return best, tried[i]


def sizes_at(scale: str, sketch: Sketch, defaults: Mapping[str, int]) -> dict[str, int]:
    large = {axis for axis, size in sketch.sizes.items() if size == DYNAMIC and defaults[axis] > 32}
    return {axis: LARGE if scale == "large" and axis in large else size for axis, size in defaults.items()}


@pytest.mark.parametrize("scale", ["default", "large"])
@pytest.mark.parametrize("machine", machine_names())
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sample(len(EXAMPLES))
def test_the_choice_is_the_best_there_is(path: Path, machine: str, scale: str):
    of_machine = load_machine(machine)
    for sketch, defaults in sketches(path):
        sizes = sizes_at(scale, sketch, defaults)
        choice = choose(sketch, of_machine, sizes, {})
        plan = sketch.plan(choice.candidate.tiles, choice.candidate.warps)
        chosen = merit(sketch, plan, of_machine, choice.estimate)
        best, where = best_of(sketch, of_machine, sizes)
        assert chosen[:2] <= best[:2], f"{choice.candidate} but {where}"
        assert chosen.time_us <= WITHIN * best.time_us, f"{choice.candidate} but {where}"


# -- what merit says -------------------------------------------------------------------------------


def merits(name: str, machine: str) -> list[tuple[Sketch, Plan, Estimate, Merit]]:
    of_machine = load_machine(machine)
    (path,) = (each for each in EXAMPLES if each.stem == name)
    found: list[tuple[Sketch, Plan, Estimate, Merit]] = []
    for sketch, defaults in sketches(path):
        sizes = sizes_at("large", sketch, defaults)
        for plan in (sketch.plan(tiles, warps) for tiles, warps in every(sketch, sizes)):
            of_plan = estimate(plan, of_machine, sizes)
            if of_plan is not None:
                found.append((sketch, plan, of_plan, merit(sketch, plan, of_machine, of_plan)))
    return found


@pytest.mark.parametrize(("name", "machine"), [("attention", "a100"), ("matmul", "a100"), ("softmax", "h100")])
def test_without_warpgroups_merit_is_time(name: str, machine: str):
    for _, _, of_plan, its in merits(name, machine):
        assert its == (False, of_plan.footprint.spilled > 0, of_plan.time_us)


def test_products_of_single_warps_come_last_where_there_are_warpgroups():
    for sketch, plan, of_plan, its in merits("matmul", "h100"):
        (row,) = (pieces for pieces in plan.groups if pieces.axis == sketch.roles.row)
        of_64_rows = 64 * (plan.warp_count // 4) == row.size and plan.warp_count in (4, 8)
        assert suits_warpgroups(sketch, plan) == (of_64_rows and plan.warps[row.axis] == plan.warp_count)
        assert its == (not suits_warpgroups(sketch, plan), of_plan.footprint.spilled > 0, of_plan.time_us)


def test_larger_pieces_of_scores_are_worth_at_most_a_sixth_a_doubling():
    weights: dict[int, set[float]] = defaultdict(set)
    for sketch, plan, of_plan, its in merits("attention", "h100"):
        if suits_warpgroups(sketch, plan):
            weights[sum(pieces.size for pieces in plan.streams)].add(round(its.time_us / of_plan.time_us, 6))
    assert sorted(weights) == [32, 64, 128]
    few, more, most = (weight for size in sorted(weights) for weight in weights[size])
    assert 1 < more / most < few / more < 7 / 6
