"""The choice of sizes against an exhaustive search over the same model, on every example and machine.

The choice estimates all candidates together, with arrays; here sizes are taken one at a time, with numbers, from what
the hardware takes at once: any multiple of 16 rows, columns and values of depth, in any number of warps. Sizes that
need more registers than a thread has are left out where others fit, as the choice does. The whole of that search takes
minutes a kernel, so a test takes a sample of it, evenly spread and different for every case; `--full` takes more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from random import Random

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import Merit, Sketch, choose, estimate, merit, plan_of, sketch_of, timing
from treadle.compiler.cost.choice.candidate import covering
from treadle.compiler.cost.choice.candidates import ROW, candidates
from treadle.compiler.cost.timing.overlap import overlaps
from treadle.compiler.machines import load_machine, machine_names
from treadle.compiler.pipeline import CHOOSING_PASS, LAST_HIERARCHY_PASS, Options, pipeline, run_passes
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass

EXAMPLES = sorted((Path(__file__).resolve().parents[1] / "examples").glob("*.mlir"))
LANE_WARPS = (1, 2, 4, 8)
POWERS = tuple(1 << i for i in range(11))
WITHIN = 1.02
LARGE = 4096
TRIED = 60
"""Of all sizes there are."""

Tried = tuple[Mapping[str, int], Mapping[str, int]]
"""Sizes of the pieces, and warps along axes."""


@cache
def sketches(path: Path, machine: str = Options().machine) -> list[tuple[Sketch, dict[str, int]]]:
    """The kernels of an example before their sizes are chosen, and the default sizes of its axes."""
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


def multiples(sketch: Sketch, axis: str | None, sizes: Mapping[str, int], granule: int, most: int) -> list[int]:
    """Of the granule; where an array has neighbours along the axis, of whole lines, or a part of one: of half a line
    where a stream has scores along it."""
    if axis is None:
        return [1]
    halves = 1 + (axis == sketch.stream and any(axis in each.result for each in sketch.products))
    lines = [128 // halves // width for axes, width in sketch.arrays if axes[-1:] == (axis,)]
    end = min(most, max(granule, covering(sizes[axis])))
    return [
        size for size in range(granule, end + 1, granule) if all(size % line == 0 or line % size == 0 for line in lines)
    ]


def of_products(sketch: Sketch, sizes: Mapping[str, int]) -> Iterator[Tried]:
    row, column, stream = sketch.roles.row, sketch.roles.column, sketch.stream
    has_scores = any(stream in each.result for each in sketch.products)
    steps = multiples(sketch, stream, sizes, sketch.alignment, 256 if has_scores else 128)
    steps = [1] if sketch.steps_singly else steps
    columns = multiples(sketch, column, sizes, 16, 256)
    splits = sketch.roles.splits_columns
    heights = (1, 2, 4) if splits else (1, 2)
    for n, tiles, wide, step in product(range(1, 17), heights, columns, steps):
        cut = {axis: size for axis, size in ((column, wide), (stream, step)) if axis}
        if row is None:
            yield cut, {}
            continue
        high = ROW * n * tiles
        if high > max(4 * ROW, covering(sizes[row])):  # four warps share the copies, though there are fewer rows
            continue
        yield {**cut, row: high}, {row: n}
        for across in range(2, 17):
            if column and splits and wide % (16 * across) == 0 and n * across <= 16:
                yield {**cut, row: high}, {row: n, column: across}


def of_lanes(sketch: Sketch, sizes: Mapping[str, int]) -> Iterator[Tried]:
    axes = max(sketch.arrays, key=lambda array: prod(sizes[axis] for axis in array[0]))[0]
    lane = axes[-1] if axes else None
    rows = [axis for axis in (*reversed(axes), *sketch.group) if axis in sketch.group and axis != lane]
    row = rows[0] if rows else None
    steps = up_to(sketch.stream, sizes, 32, 1024) if sketch.stream == lane else up_to(sketch.stream, sizes, 1, 32)
    lanes = up_to(lane, sizes, 1, 4096) if lane in sketch.group else (None,)
    for wide, high, step, warps in product(lanes, up_to(row, sizes, 1, 64), steps, LANE_WARPS):
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


def best_of(sketch: Sketch, machine: str, sizes: Mapping[str, int], tried: list[Tried]) -> tuple[Merit, Tried] | None:
    found: list[tuple[Merit, int]] = []
    for i, (tiles, warps) in enumerate(tried):
        of_plan = estimate(sketch.plan(tiles, warps), load_machine(machine), sizes)
        if of_plan is not None:
            found.append((merit(of_plan), i))
    return (min(found)[0], tried[min(found)[1]]) if found else None


def sizes_at(scale: str, sketch: Sketch, defaults: Mapping[str, int]) -> dict[str, int]:
    large = {axis for axis, size in sketch.sizes.items() if size == DYNAMIC and defaults[axis] > 32}
    return {axis: LARGE if scale == "large" and axis in large else size for axis, size in defaults.items()}


def cases() -> Iterator[tuple[Path, str, str]]:
    yield from product(EXAMPLES, machine_names(), ("default", "large"))


@pytest.mark.parametrize(("path", "machine", "scale"), list(cases()), ids=lambda value: getattr(value, "stem", value))
@pytest.mark.sample(15, each=False)
def test_the_choice_is_the_best_there_is(path: Path, machine: str, scale: str):
    for sketch, defaults in sketches(path):
        sizes = sizes_at(scale, sketch, defaults)
        choice = choose(sketch, load_machine(machine), sizes, {})
        everything = list(every(sketch, sizes))
        drawn = Random(f"{path.stem} {machine} {scale}").sample(everything, min(TRIED, len(everything)))
        found = best_of(sketch, machine, sizes, drawn)
        if found is not None:
            best, where = found
            chosen = merit(choice.estimate)
            assert chosen.spills <= best.spills, f"{choice.candidate} but {where}"
            faster = chosen.time_us <= WITHIN * best.time_us
            assert faster or chosen.spills < best.spills, f"{choice.candidate} but {where}"


def test_pieces_of_different_lengths_fill_their_last_wave():
    """Of many candidates at a time the last wave counts as a whole one, of each by itself its pieces are dealt out."""
    machine = load_machine("h100-pcie")
    (path,) = (path for path in EXAMPLES if path.stem == "linear_attention_causal")
    for sketch, defaults in sketches(path, machine.name):
        sizes = sizes_at("large", sketch, defaults)
        found = candidates(sketch, sizes, {}, machine.most_in_cluster)
        tried = [(found[i].tiles, found[i].warps) for i in range(len(found))]
        best = best_of(sketch, machine.name, sizes, tried)
        assert best is not None
        assert merit(choose(sketch, machine, sizes, {}).estimate).time_us <= WITHIN * best[0].time_us


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
@pytest.mark.sample(6)
def test_every_size_there_is_is_a_candidate(path: Path):
    """So what was not drawn was tried by the choice, too."""
    for sketch, defaults in sketches(path):
        if not sketch.has_products:
            continue
        sizes = sizes_at("large", sketch, defaults)
        found = candidates(sketch, sizes, {})
        known = {tuple(sorted((found[i].tiles | found[i].warps).items())) for i in range(len(found))}
        assert known == {tuple(sorted((dict(tiles) | dict(warps)).items())) for tiles, warps in every(sketch, sizes)}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    "name", ["attention", "matmul", "swiglu", "conv1d", "softmax", "quantised_matmul", "attention_packed"]
)
def test_many_are_estimated_as_each_one_is(name: str, machine: str):
    (path,) = (each for each in EXAMPLES if each.stem == name)
    of_machine = load_machine(machine)
    for sketch, defaults in sketches(path):
        sizes = sizes_at("large", sketch, defaults)
        found = candidates(sketch, sizes, {})
        together = timing(sketch.plan(found.tiles, found.warps, about=1.0), of_machine, sizes)
        for i in range(0, len(found), max(1, len(found) // 40)):
            one = found[i]
            alone = timing(sketch.plan(one.tiles, one.warps), of_machine, sizes)
            assert together.footprint.of(i) == alone.footprint
            assert np.broadcast_to(together.blocks_per_sm, len(found))[i] == alone.blocks_per_sm
            assert together.time_us[i] == pytest.approx(alone.time_us)


# -- what the model says of warpgroups ----------------------------------------------------------------


@pytest.mark.parametrize("name", ["attention", "attention_causal", "attention_bf16", "matmul", "matmul_tn"])
def test_products_are_those_of_warpgroups_where_a_machine_has_them(name: str):
    (path,) = (each for each in EXAMPLES if each.stem == name)
    ((sketch, defaults),) = sketches(path)
    sizes = sizes_at("large", sketch, defaults)
    needs = choose(sketch, load_machine("h100"), sizes, {}).estimate.footprint
    assert needs.producers == 4
    assert needs.warps in (4, 8, 12)
    assert choose(sketch, load_machine("a100"), sizes, {}).estimate.footprint.producers == 0


def test_warpgroups_have_the_registers_that_roles_give_them():
    (path,) = (each for each in EXAMPLES if each.stem == "attention")
    ((sketch, defaults),) = sketches(path)
    sizes = sizes_at("large", sketch, defaults)
    for groups, most in ((1, 255), (2, 240), (3, 160)):
        tiles = dict.fromkeys(sketch.group, 1) | {"q": 64 * groups, "x": 64, "d": 64, "e": 64}
        found = estimate(sketch.plan(tiles, {"q": 4 * groups}), load_machine("h100"), sizes)
        assert found is not None
        assert found.footprint.most_registers == most
        assert (found.footprint.warps, found.footprint.producers) == (4 * groups, 4)


@pytest.mark.parametrize("name", ["attention", "matmul"])
@pytest.mark.parametrize(("per_sm", "per_thread"), [(32_768, 255), (65_536, 128)])
def test_roles_have_no_more_registers_than_a_machine(name: str, per_sm: int, per_thread: int):
    """Whose file says less than Hopper has: a block of several warpgroups takes 65,536."""
    (path,) = (each for each in EXAMPLES if each.stem == name)
    ((sketch, defaults),) = sketches(path)
    h100 = load_machine("h100")
    limits = replace(h100.limits, registers_per_sm=per_sm, registers_per_thread=per_thread)
    needs = choose(sketch, replace(h100, limits=limits), sizes_at("large", sketch, defaults), {}).estimate.footprint
    assert needs.registers_per_thread <= needs.most_registers <= per_thread
    assert needs.registers_taken * 32 * (needs.warps + needs.producers) <= per_sm


def test_the_step_of_a_warpgroup_is_that_of_its_products():
    """`m64nNk16` takes N / 2 clocks of the tensor cores; nobody issues `ldmatrix`."""
    (path,) = (each for each in EXAMPLES if each.stem == "attention")
    module = load_module(path)
    passes = list(pipeline(Options(machine="h100")))
    choosing = [spec.name for spec in passes].index(CHOOSING_PASS)
    run_passes(module, passes[:choosing])
    HierarchyChooseSizesPass(group="q=128", stream="x=128").apply(Context(), module)
    run_passes(module, passes[choosing + 1 : [spec.name for spec in passes].index(LAST_HIERARCHY_PASS) + 1])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    (step,) = overlaps(plan_of(kernel), load_machine("h100"), 1)
    scores, _, output = (stage.clocks for stage in step.stages)
    assert scores == 64 / 16 * 128 / 2
    assert output == 128 / 16 * 64 / 2
