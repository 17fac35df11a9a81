"""Random programs through every prefix of the pipeline, at every level (`random_prefixes.py`): a sample of them.
`benchmarks/random_programs.py`, which `make test-all` runs, sends ten thousand. A failure is made small first."""

from __future__ import annotations

from collections import Counter

import pytest
from random_prefixes import PRODUCTS, check
from random_products import random_products

from random_diagrams import random_program


@pytest.mark.sample(13)
@pytest.mark.parametrize("seed", range(24))
def test_a_random_program(seed: int) -> None:
    if (found := check(seed, Counter())) is not None:
        pytest.fail(f"seed {seed}, {found['trouble']}\n{found['small']}")


@pytest.mark.sample(6)
@pytest.mark.parametrize("seed", range(40))
def test_random_products(seed: int) -> None:
    if (found := check(seed, Counter(), PRODUCTS)) is not None:
        pytest.fail(f"seed {seed}, {found['trouble']}\n{found['small']}")


def test_every_level_runs() -> None:
    """What is said to have run did: after each pass that changes anything, and to the end."""
    tally: Counter[str] = Counter()
    seeds = iter(range(100, 200))
    while tally["whole"] < 2:
        assert check(next(seeds), tally) is None
    for name in ("fusion", "tiling", "hierarchy-expand-streams, in small pieces", "convert-hierarchy-to-cuda"):
        assert tally[name] > 0, (name, tally)


def test_programs_have_everything() -> None:
    """Of what a program may hold, nothing is rare."""
    programs = [text for seed in range(200) if (text := random_program(seed)) is not None]
    parts = (
        "contract",
        "reduce max",
        "map",
        "where",
        "read",
        "@softmax",
        "@variance",
        "%unread",
        "math.exp",
        "up_to",
        "<1x",
        "7x",
    )
    for part in parts:
        assert sum(part in text for text in programs) >= len(programs) / 25, part


def test_products_have_everything() -> None:
    """Of what such a program may hold, nothing is rare."""
    programs = [random_products(seed) for seed in range(200)]
    parts = (
        "over [k, l",
        "over [l, k",
        "reduce add",
        "arith.select",
        "where",
        " // ",
        " % ",
        "N[",
        "+ N[",
        "expand",
        "collapse",
        "fixed",
        "extent",
        "tf32",
        "sizes =",
        "@softmax",
        *(f"x{format}," for format in ("f16", "bf16", "f32", "i8", "ui8", "f8E4M3FN", "f8E5M2")),
    )
    for part in parts:
        assert sum(part in text for text in programs) >= len(programs) / 25, part
