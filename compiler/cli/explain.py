"""`treadle explain`: transfers and memory at each level, the chosen sizes, and why; side by side; as plots."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cli.program import Program, check_outputs, compile_options, load_program
from treadle.compiler.cost import Sketch, sketch_of
from treadle.compiler.counting import counted
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import explain
from treadle.compiler.explain.cases import UNFUSED, Row, cases, parse_ranges, row, under_one_limit
from treadle.compiler.explain.symbols import Symbols, symbols_of
from treadle.compiler.explain.table import table_text
from treadle.compiler.explain.text import explanation_text, symbols_text
from treadle.compiler.files import write_all_whole
from treadle.compiler.machines import DEFAULT_MACHINE, load_machine, machine_of
from treadle.compiler.pipeline import (
    LAST_DECORATING_PASS,
    LAST_HIERARCHY_PASS,
    MACHINE_OF_ARCH,
    Observer,
    Options,
    PassRun,
    run_pipeline,
)
from treadle.compiler.progress import progress
from treadle.compiler.sizes import axes_of_function, default_sizes, set_default_sizes
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.read import with_fitting
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.set_machine import SetMachinePass

PLOTS = ("roofline", "time", "transfers")


class Sketches(Observer):
    """Reads the kernels while they are decorated: to choose their sizes again, for other machines."""

    def __init__(self) -> None:
        self.found: dict[str, Sketch] = {}

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        if run.name == LAST_DECORATING_PASS:
            kernels = (op for op in module.walk() if isinstance(op, KernelOp) and not op.is_expanded)
            self.found = {op.kernel_name.data: sketch_of(op, op.schedule) for op in kernels if op.schedule is not None}


def command(arguments: Namespace) -> int:
    plots = _plots(arguments.plot)
    check_outputs(arguments, *plots.values())
    given = parse_ranges(arguments.size)
    arguments.size = [f"{axis}={size}" for axis, size in given[0].items()]
    program = load_program(arguments)
    if any(op.dialect_name() == "cuda" for op in program.module.walk()):
        raise TreadleError(
            "its kernels are at the level of CUDA already, and costs are read above it: explain what comes before "
            "convert-hierarchy-to-cuda",
            arguments.file,
        )
    options = _with_own_machine(compile_options(arguments))
    machines = _machines(arguments, options)
    if options.passes and UNFUSED in arguments.against:
        raise TreadleError(
            "--against unfused derives the program in another way than --replay asks for: leave one of them away"
        )
    if (unbound := _unbound(program)) and not arguments.derivation:
        return _in_symbols(program, arguments, [replace(options, machine=machine) for machine in machines], unbound)
    compared = cases(machines, given, arguments.against, arguments.rates == "sustained")
    if arguments.derivation and len(compared) > 1:
        raise TreadleError(
            f"--derivation tells of one case, and {len(compared)} are asked for: give one machine and one size of "
            "each axis, and leave --against away"
        )
    rows: list[Row] = []
    if len(compared) > 1 or plots:
        with progress("working out"):
            made = [row(program.module, case, options) for case in counted(compared, "cases")]
            rows = under_one_limit(made)
    write_all_whole({path: _drawn(kind, program, rows, options) for kind, path in plots.items()})
    if len(compared) > 1:
        data = {"cases": [each.as_dict() for each in rows]}
        print(json.dumps(data, indent=2) if arguments.json else table_text(rows))
        return 0
    _one(program, arguments, replace(options, machine=machines[0]))
    return 0


def _with_own_machine(options: Options) -> Options:
    """A derivation names its machine, unless the command line does."""
    own = [SetMachinePass.from_spec(spec) for spec in options.passes if spec.name == SetMachinePass.name]
    if options.machine or options.arch or not own:
        return options
    return replace(options, machine=own[-1].file or own[-1].machine, arch=own[-1].arch)


def _one(program: Program, arguments: Namespace, options: Options) -> None:
    set_default_sizes(program.function, program.sizes)
    if arguments.derivation:
        print(_derivation(program, options), end="")
        return
    sketches = Sketches()
    with progress("deriving the kernels"):
        run_pipeline(program.module, options, sketches, last=LAST_HIERARCHY_PASS)
    machine = machine_of(program.module)
    if arguments.rates == "sustained":
        machine = machine.as_sustained()
    with progress("reading costs off the kernels"):
        explanation = explain(program.module, machine, program.sizes, sketches.found, expressions=True)
    print(explanation.to_json() if arguments.json else explanation_text(explanation))


def _machines(arguments: Namespace, options: Options) -> list[str]:
    """The machines to explain for, each known (TreadleError)."""
    if arguments.machine is None:
        return [options.machine or MACHINE_OF_ARCH.get(options.arch or "", DEFAULT_MACHINE)]
    names = [name.strip() for name in arguments.machine.split(",")]
    if not all(names):
        raise TreadleError(f"--machine {arguments.machine}: a name is missing between the commas")
    for name in names:
        load_machine(name)
    return names


def _unbound(program: Program) -> list[str]:
    """Symbolic axes whose size nobody says."""
    axes = axes_of_function(program.function)
    static = {axis: size for axis, size in axes.items() if size != DYNAMIC}
    known = with_fitting(program.function.body.block, default_sizes(program.function) | program.sizes | static)
    return [axis for axis in axes if axis not in known]


def _in_symbols(program: Program, arguments: Namespace, asked: list[Options], unbound: list[str]) -> int:
    """Costs stay symbolic where sizes are not known; the time asks for them."""
    found: dict[str, list[Symbols]] = {}
    for options in asked:
        module = program.module.clone()
        run_pipeline(module, options, last=LAST_HIERARCHY_PASS)
        found[options.machine or ""] = symbols_of(module)
    if arguments.json:
        told = [
            {"machine": name, "needs": unbound, "time_us": None, "kernels": [each.as_dict() for each in kernels]}
            for name, kernels in found.items()
        ]
        print(json.dumps(told[0] if len(told) == 1 else {"cases": told}, indent=2))
    else:
        print("\n\n".join(f"on {name}\n\n{symbols_text(kernels)}" for name, kernels in found.items()))
    print(end="", flush=True)
    wanted = " ".join(f"--size {axis}=1000" for axis in unbound)
    raise TreadleError(
        f"the sizes of {', '.join(unbound)} are not known, so there is no time to tell: give them, as in {wanted}, or "
        "state defaults in the attribute 'sizes' of the program",
        arguments.file,
    )


def _plots(texts: list[str]) -> dict[str, str]:
    """`roofline=OUT.svg` by kind (TreadleError)."""
    plots: dict[str, str] = {}
    for text in texts:
        kind, _, path = text.partition("=")
        if kind not in PLOTS or not path:
            raise TreadleError(
                f"--plot {text}: write {', '.join(f'{each}=OUT.svg' for each in PLOTS[:-1])} or {PLOTS[-1]}=OUT.svg"
            )
        if kind in plots:
            raise TreadleError(f"--plot {kind} is given twice, as {plots[kind]} and as {path}: keep one")
        plots[kind] = path
    return plots


def _drawn(kind: str, program: Program, rows: list[Row], options: Options) -> str:
    from treadle.compiler.explain import plots

    if kind == "transfers":
        module = program.module.clone()
        run_pipeline(module, replace(options, machine=rows[0].case.machine), last=LAST_HIERARCHY_PASS)
        sizes = axes_of_function(program.function) | default_sizes(program.function) | dict(rows[0].case.sizes)
        return plots.transfers(module, sizes)
    return plots.roofline(rows) if kind == "roofline" else plots.time_over_size(rows)


def _derivation(program: Program, options: Options) -> str:
    sizes = {**axes_of_function(program.function), **default_sizes(program.function), **program.sizes}
    recorder = Recorder({axis: size for axis, size in sizes.items() if size != DYNAMIC})
    run_pipeline(program.module, options, recorder)
    return recorder.text(f"derivation of @{program.function.sym_name.data}")
