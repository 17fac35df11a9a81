"""Gradients of random programs are what differences say: of what they compute, some is infinite, or no number, and then
there is nothing to compare."""

from __future__ import annotations

import numpy as np
import pytest
from differences import check, inputs_of, is_float, odd_sizes, run

from random_diagrams import random_program
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import entry_function


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
    if any(np.isnan(result).any() for result in run(module, inputs_of(function, odd_sizes(function)))):
        pytest.skip("a result is no number")
    try:
        check(module)
    except TreadleError as error:  # a read at positions along an axis that its array has, too
        if "rename one of them for a gradient" not in str(error):
            raise
        pytest.skip("refused: an axis is read at another position")
