"""Random programs of rows: reductions, laws, maps, conditions and positions over one long axis of known length, which a
block or a cluster of blocks may hold whole. They multiply nothing."""

from __future__ import annotations

import random

from random_diagrams import Program

LENGTHS = (2, 31, 257, 300, 1000, 2048, 4095, 4097, 12345, 16384, 32769, 40000, 65536, 65537, 70001, 100003)
ROWS = (1, 2, 3)
WEIGHTS = {"map": 4, "reduce": 3, "cast": 1.5, "law": 3, "cascade": 4, "where": 3, "index": 0.7}


def random_rows(seed: int) -> str:
    dice, aside = random.Random(f"rows {seed}"), random.Random(f"aside of rows {seed}")
    axes: dict[str, int | None] = {"x": dice.choice(LENGTHS), "r": None}
    if dice.random() < 0.2:
        axes["s"] = dice.choice((1, 2, 5))
    program = Program(aside, dice, axes, dice.choice(["f32", "f32", "f16", "bf16", "i32"]))
    kinds = [["r", "x"], ["r", "x"], ["x"], ["r"], ["x", "r"], *([["r", "s", "x"], ["s", "x"]] if "s" in axes else [])]
    for i in range(dice.choice([1, 2, 2, 3])):
        chosen = ["r", "x"] if i == 0 else dice.choice(kinds)
        program.argument(chosen, program.format if dice.random() < 0.7 else dice.choice(["f16", "f32"]))
    program.values = list(program.arguments)
    while not program.lines or dice.random() < 0.75:
        (operation,) = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))
        getattr(program, operation)()
    return program.text()
