"""Failures are made small: what has nothing to do with one goes."""

from __future__ import annotations

from collections import Counter

import pytest
import random_prefixes
from shrinking import shrunk

from random_diagrams import random_program
from treadle.compiler.source import parse_module


@pytest.mark.parametrize("seed", [1, 8, 13])
def test_only_what_fails_is_left(seed: int) -> None:
    """The failure here: that there is an operation of some kind."""
    text = random_program(seed)
    assert text is not None
    kinds = {op.name for op in parse_module(text).walk() if op.name.startswith("diagram.")} - {"diagram.yield"}
    for kind in sorted(kinds):
        small = shrunk(text, lambda program, kind=kind: kind in program)
        left = [op.name for op in parse_module(small).walk() if op.name in kinds]
        assert left == [kind], small


def test_a_mistake_of_a_pass_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that forget what was so far."""
    from treadle.passes.streams import stream

    original = stream.rebuilt

    def forgetful(op, operands, type, init=None):  # pyright: ignore  the signature of what it stands for
        return original(op, operands, type, None)

    monkeypatch.setattr(stream, "rebuilt", forgetful)
    found = next(found for seed in range(50) if (found := random_prefixes.check(seed, Counter())) is not None)
    assert "in small pieces: wrong" in found["trouble"]
    operations = [op for op in parse_module(found["small"]).walk() if op.name.startswith("diagram.")]
    assert len([op for op in operations if op.name != "diagram.yield"]) <= 2, found["small"]
