"""Random programs of rows in rare values (`random_rare_rows.py`), at every level in the interpreter, in small pieces
and in parts that are merged."""

from __future__ import annotations

import random

import numpy as np
import pytest
from random_rare_rows import RareRows
from test_undefined_rows import check_levels
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import Options, pipeline
from treadle.compiler.source import parse_module


def asked(program: RareRows, dice: random.Random) -> dict[str, dict[str, tuple[int | str, ...]]]:
    """What is asked of passes: parts, small pieces, or nothing."""
    choice = dice.random()
    if choice < 0.3:
        cut = {"parts": (3,)} if (program.length or 0) > 3 else {"length": (8,)}
        return {"hierarchy-split-streams": {**cut}}
    return {"hierarchy-choose-sizes": {"stream": ("x=16",)}} if choice < 0.7 else {}


@pytest.mark.sample(8)
@pytest.mark.parametrize("seed", range(50))
def test_rare_values_at_every_level(seed: int) -> None:
    program, dice = RareRows(seed), random.Random(seed)
    machine, given = dice.choice(["a100", "h100"]), program.inputs(seed)
    options = asked(program, dice)
    plain = list(pipeline(Options(machine=machine)))
    passes = [ArgSpec(spec.name, options[spec.name]) if spec.name in options else spec for spec in plain]
    with np.errstate(all="ignore"):
        try:
            check_levels(parse_module(program.text), passes, given)
        except TreadleError:  # what is asked of it is not possible
            check_levels(parse_module(program.text), plain, given)
