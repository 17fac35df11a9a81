"""Random programs down the whole road: what is printed computes what the program says, or the program is refused in
words. Nothing else may happen."""

from __future__ import annotations

import random
from math import prod

import pytest

from random_diagrams import SYMBOLIC, random_program
from roads import Road, compiled
from treadle.compiler.errors import InternalError, TreadleError

MOST_ELEMENTS = 200_000


def sizes(road: Road, dice: random.Random) -> dict[str, int]:
    return {axis: dice.choice(SYMBOLIC) for axis in road.symbolic}


def check(seed: int) -> bool:
    """Whether the program of a seed ran, at a few sizes."""
    text = random_program(seed)
    if text is None:
        return False
    try:
        road = compiled(text)
    except InternalError as error:
        pytest.fail(f"{error}\n{text}")
    except TreadleError:
        return False
    dice = random.Random(seed)
    for run in range(3):
        chosen = sizes(road, dice)
        if run == 2 and chosen and dice.random() < 0.3:
            chosen[dice.choice(list(chosen))] = 0
        if prod(max(size, 1) for size in chosen.values()) > MOST_ELEMENTS:
            continue
        for verdict in road.verdicts(road.inputs(chosen, seed), chosen):
            assert verdict.ok or verdict.unverifiable, f"seed {seed}, {chosen}: {verdict}\n{text}"
    return True


@pytest.mark.parametrize("seed", range(24))
def test_a_random_program(seed: int) -> None:
    check(seed)


@pytest.mark.full
@pytest.mark.parametrize("block", range(24, 1224, 50))
def test_many_random_programs(block: int) -> None:
    """Most of them run."""
    ran = [check(seed) for seed in range(block, block + 50)]
    assert sum(ran) > len(ran) / 2
