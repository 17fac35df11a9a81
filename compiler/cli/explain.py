"""`treadle explain`: transfers and memory at each level, the chosen sizes, and why."""

from __future__ import annotations

from argparse import Namespace

from treadle.compiler.cli.program import compile_options, load_program
from treadle.compiler.explain import explain
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, run_pipeline
from treadle.compiler.sizes import set_default_sizes


def command(arguments: Namespace) -> int:
    program = load_program(arguments)
    set_default_sizes(program.function, program.sizes)
    run_pipeline(program.module, compile_options(arguments), last=LAST_HIERARCHY_PASS)
    explanation = explain(program.module, machine_of(program.module), program.sizes)
    print(explanation.to_json() if arguments.json else explanation)
    return 0
