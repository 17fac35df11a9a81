"""Between any two rewrites a program is whole: it verifies, computes the same, and is what its picture shows."""

from __future__ import annotations

from itertools import cycle

import pytest
from test_examples import EXAMPLES, FOLDER
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.draw.sequence import steps_of
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Observer, Options, run_pipeline
from treadle.compiler.sizes import default_sizes
from treadle.compiler.source import load_module
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function
from treadle.runtime.verify import verify

ODD = (3, 13, 7, 2, 5)
"""Sizes of symbolic axes, none of which a tile divides."""


class EachRewrite(Observer):
    """Runs a program after every rewrite."""

    def __init__(self, module: ModuleOp):
        self.algorithm, function = module.clone(), entry_function(module)
        self.sizes = dict(zip(default_sizes(function), cycle(ODD)))
        self.inputs = make_inputs(function, axis_sizes(function, self.sizes), 0)
        self.seen: list[str] = []

    def after_rewrite(self, module: ModuleOp) -> None:
        module.verify()
        self.seen.append(str(steps_of(module)[-1]))
        results = run_function(module, self.inputs, sizes=self.sizes).results
        for verdict in verify(self.algorithm, self.inputs, results, "interpreter", sizes=self.sizes):
            assert verdict.ok, f"{self.seen[-1]}: {verdict}"


@pytest.mark.sample(7)
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_rewrite_leaves_a_program_that_computes_the_same(name: str):
    module = load_module(FOLDER / f"{name}.mlir")
    each = EachRewrite(module)
    run_pipeline(module, Options(), each, last=LAST_HIERARCHY_PASS)
    assert each.seen == [str(step) for step in steps_of(module)]
