"""Gradients of diagrams, derived, are what differences in float64 say they are, for every program there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from differences import check, differentiated, is_float

from treadle.compiler.errors import TreadleError
from treadle.compiler.raised import raised
from treadle.compiler.source import load_module
from treadle.runtime.interpreter import entry_function

ROOT = Path(__file__).parents[1]
PROGRAMS = sorted(
    [
        *(ROOT / "examples").glob("*.mlir"),
        *(ROOT / "tests" / "programs").glob("*.mlir"),
        *(ROOT / "tests" / "programs" / "found").glob("*.mlir"),
        *(ROOT / "tests" / "linalg").glob("*.mlir"),
    ]
)


OF = {"quantised_matmul": ("W", "w_scale"), "scaled_blocks": ("a", "s")}
"""Where a gradient goes straight through a rounding to 8 bits that the reference does, and differences do not, or is
itself rounded to 8 bits, as its argument is: by what else."""

SIZES = {"maximum_of_some_elements": {"q": 3, "x": 2507}, "condition_on_an_axis_held_whole": {"d": 53}}
"""Where fewer elements leave a maximum of none."""

REFUSED = {
    "around_a_boundary": "the gradient of a diagram is made of diagram operations: differentiate it before fusion",
    "merged_result": "diagram operations: it merges dimensions of a result: return the result as it is",
}


UNDEFINED = {"masked_by_choice": "rows of it are NaN, and so are their gradients"}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_gradient_is_what_differences_say(path: Path) -> None:
    module = raised(load_module(str(path)))
    function = entry_function(module)
    if not any(is_float(type) for type in function.function_type.inputs):
        pytest.skip("no argument of floats")
    if path.stem in UNDEFINED:
        pytest.skip(UNDEFINED[path.stem])
    if path.stem in REFUSED:
        with pytest.raises(TreadleError, match=REFUSED[path.stem]):
            differentiated(module)
        return
    check(module, OF.get(path.stem, ()), SIZES.get(path.stem))
