"""`treadle explain`: transfers and memory at each level, the chosen sizes, and why."""

from __future__ import annotations

from argparse import Namespace

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cli.program import compile_options, load_program
from treadle.compiler.cost import Sketch, sketch_of
from treadle.compiler.explain import explain
from treadle.compiler.explain.text import explanation_text
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import LAST_DECORATING_PASS, LAST_HIERARCHY_PASS, Observer, PassRun, run_pipeline
from treadle.compiler.sizes import set_default_sizes
from treadle.dialects.hierarchy import KernelOp


class Sketches(Observer):
    """Reads the kernels while they are decorated: to choose their sizes again, for other machines."""

    def __init__(self) -> None:
        self.found: dict[str, Sketch] = {}

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        if run.name == LAST_DECORATING_PASS:
            kernels = (op for op in module.walk() if isinstance(op, KernelOp))
            self.found = {op.kernel_name.data: sketch_of(op, op.schedule) for op in kernels if op.schedule is not None}


def command(arguments: Namespace) -> int:
    program = load_program(arguments)
    set_default_sizes(program.function, program.sizes)
    sketches = Sketches()
    run_pipeline(program.module, compile_options(arguments), sketches, last=LAST_HIERARCHY_PASS)
    machine = machine_of(program.module)
    explanation = explain(program.module, machine, program.sizes, sketches.found, expressions=True)
    print(explanation.to_json() if arguments.json else explanation_text(explanation))
    return 0
