"""Gradients of random programs are what differences say: of what they compute, some is infinite, or no number, and then
there is nothing to compare."""

from __future__ import annotations

import numpy as np
import pytest
from differences import check, inputs_of, is_float, odd_sizes, run

from random_diagrams import random_program
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import CastOp
from treadle.dialects.diagram.array import format_of
from treadle.runtime.interpreter import entry_function

REFUSED = (
    "rename one of them for a gradient",  # a read at positions along an axis that its array has, too
    "no law for that is known",  # a read where data say, or at remainders
    "no gradient of that is known",  # a read at steps over quotients, or of elements that are absent
)


@pytest.mark.sample(60)
@pytest.mark.parametrize("seed", range(600))
def test_of_a_random_program(seed: int) -> None:
    text = random_program(seed)
    if text is None:
        pytest.skip("no program")
    module = parse_module(text)
    function = entry_function(module)
    if not any(is_float(type) for type in function.function_type.inputs):
        pytest.skip("no argument of floats")
    values = [*function.body.block.args, *(op.results[0] for op in function.walk() if isinstance(op, CastOp))]
    if any("f8" in str(format_of(value.type)) for value in values):
        pytest.skip("what is rounded to 8 bits is rounded in the reference, too, and moves in steps")
    if any(np.isnan(result).any() for result in run(module, inputs_of(function, odd_sizes(function)))):
        pytest.skip("a result is no number")
    try:
        check(module)
    except TreadleError as error:
        if not any(reason in str(error) for reason in REFUSED):
            raise
        pytest.skip(f"refused: {error.message}")
