"""Random programs down the whole road, on values that are rare: what is printed computes what the program says, or the
program is refused in words. Nothing else may happen. (`test_random_prefixes.py` runs them on common values, at every
level.)"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import Any

import numpy as np
import pytest
from random_held_rows import in_other_order, random_held_rows, rare_rows
from random_rows import ROWS, random_rows

from random_diagrams import SYMBOLIC, random_program
from roads import Road, compiled, fitting
from treadle.compiler.errors import InternalError, TreadleError
from treadle.runtime.interpreter import entry_function

MOST_ELEMENTS = 200_000


def sizes(road: Road, dice: random.Random) -> dict[str, int]:
    return fitting(entry_function(road.algorithm), {axis: dice.choice(SYMBOLIC) for axis in road.symbolic})


SIZES_OF_VALUES = {"huge": (1e4, 1e30), "tiny": (1e-6, 1e-39)}
"""What inputs are multiplied by: of 16 bits, then of f32."""
MODES = ("special", "equal", *SIZES_OF_VALUES)


def changed(given: Any, mode: str, dice: np.random.Generator) -> Any:
    """An input with infinities, NaN, zeros of both signs and subnormals among its elements; or all equal; or far
    from 1."""
    given = np.asarray(given)
    if given.dtype.kind == "i":
        return given
    wide = given.astype(np.float32)
    if mode == "special":
        chance = dice.random(wide.shape)
        for share, value in ((0.06, 1e-40), (0.05, -0.0), (0.012, np.nan), (0.008, -np.inf), (0.004, np.inf)):
            wide = np.where(chance < share, np.float32(value), wide)
    elif mode == "equal":
        wide = np.full_like(wide, 0.75)
    else:
        wide = wide * np.float32(SIZES_OF_VALUES[mode][given.dtype == np.float32])
    with np.errstate(over="ignore"):
        return np.asarray(wide).astype(given.dtype)


def check_values(seed: int) -> None:
    text = random_program(seed)
    try:
        road = None if text is None else compiled(text)
    except InternalError:
        raise
    except TreadleError:
        return
    if road is None:
        return
    dice = random.Random(seed)
    for mode in MODES:
        chosen = sizes(road, dice)
        if prod(max(size, 1) for size in chosen.values()) > MOST_ELEMENTS // 4:
            continue
        inputs = [changed(given, mode, np.random.default_rng(seed)) for given in road.inputs(chosen, seed)]
        for verdict in road.verdicts(inputs, chosen):
            assert not verdict.wrong, f"seed {seed}, {mode}, {chosen}: {verdict}\n{text}"


def check_rows(seed: int) -> None:
    """On common and on rare values; on either machine, of which one has clusters."""
    text, dice = random_rows(seed), random.Random(seed)
    road = compiled(text, machine=dice.choice(["a100", "h100"]))
    chosen = fitting(entry_function(road.algorithm), {axis: dice.choice(ROWS) for axis in road.symbolic})
    common, mode = road.inputs(chosen, seed), dice.choice(MODES)
    rare = [changed(given, mode, np.random.default_rng(seed)) for given in common]
    for inputs, kind in ((common, "common"), (rare, mode)):
        for verdict in road.verdicts(inputs, chosen):
            assert not verdict.wrong, f"seed {seed}, {kind}, {chosen}: {verdict}\n{text}"


def check_held_rows(seed: int) -> None:
    """On common values, on rows of rare ones, and where inputs lie otherwise in memory."""
    text, dice = random_held_rows(seed), random.Random(seed)
    try:
        road = compiled(text, machine=dice.choice(["a100", "h100", "l40s"]))
    except InternalError:
        raise
    except TreadleError:  # a program that only hands on, or a map that another axis was added to
        return
    chosen = fitting(entry_function(road.algorithm), {axis: dice.choice((0, *ROWS, 5)) for axis in road.symbolic})
    common, numbers = [np.asarray(given) for given in road.inputs(chosen, seed)], np.random.default_rng(seed)
    for change in (None, rare_rows, in_other_order):
        inputs = common if change is None else [change(given, numbers) for given in common]
        for verdict in road.verdicts(inputs, chosen):
            kind = "common" if change is None else change.__name__
            assert not verdict.wrong, f"seed {seed}, {kind}, {chosen}: {verdict}\n{text}"


EVERY_DAY = {check_values: range(2000, 2008), check_rows: (0, 1, 2, 91, 97, 104), check_held_rows: (1, 4, 6, 8)}
"""Seeds of each kind of programs."""
AT_TIMES = {check_values: range(2008, 2408, 50), check_rows: range(200, 600, 50), check_held_rows: range(100, 500, 50)}
"""The first of fifty each."""


def grid(seeds: Mapping[Callable[[int], None], Iterable[int]]) -> list[Any]:
    return [pytest.param(check, seed, id=f"{check.__name__}-{seed}") for check, each in seeds.items() for seed in each]


@pytest.mark.parametrize(("check", "seed"), grid(EVERY_DAY))
def test_a_random_program(check: Callable[[int], None], seed: int) -> None:
    check(seed)


@pytest.mark.full
@pytest.mark.parametrize(("check", "first"), grid(AT_TIMES))
def test_many_random_programs(check: Callable[[int], None], first: int) -> None:
    for seed in range(first, first + 50):
        check(seed)


def test_rows_lie_otherwise_and_are_the_same() -> None:
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    made = [in_other_order(given, np.random.default_rng(seed)) for seed in range(40)]
    assert len({each.strides for each in made}) >= 5
    assert all(np.array_equal(each, given) or not each.strides[0] for each in made)


def test_held_rows_have_everything() -> None:
    """Of what such a program may hold, nothing is rare."""
    programs = [random_held_rows(seed) for seed in range(200)]
    for part in ("reduce max", "reduce min", "where", "< 0", "not (", "2 *", "f8E", "rsqrt", "math.log", "over [x, r]"):
        assert sum(part in text for text in programs) >= len(programs) / 25, part
