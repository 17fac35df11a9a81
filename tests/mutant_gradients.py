"""Holds gradients against differences with one mistake in them, in a process of its own: `python mutant_gradients.py
NAME`.

Exits with 1 at the first program whose gradient is another, else with 0."""

from __future__ import annotations

import sys

from mutated import ROOT, mutate
from mutations_gradients import MUTATIONS

PROGRAMS = (
    "examples/attention.mlir",
    "examples/attention_causal.mlir",
    "examples/layer_norm.mlir",
    "examples/swiglu.mlir",
    "tests/programs/recurrent_cells.mlir",
    "tests/programs/gradients/ties.mlir",
    "tests/programs/gradients/two_sums.mlir",
)


def survives() -> bool:
    from differences import check

    from treadle.compiler.errors import TreadleError
    from treadle.compiler.source import load_module

    for path in PROGRAMS:
        try:
            check(load_module(ROOT / path))
        except (AssertionError, TreadleError, ValueError):
            print(f"{path}: differs")
            return False
    return True


if __name__ == "__main__":
    mutate(MUTATIONS, sys.argv[1:])
    sys.exit(0 if survives() else 1)
