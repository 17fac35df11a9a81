"""`treadle run`: run a program, compare it with the reference, and say so in one line an output."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cli.inputs import inputs_of
from treadle.compiler.cli.program import Printing, compile_options, load_program
from treadle.compiler.cli.story import derivation_lines, schedule_lines
from treadle.compiler.conditions import with_conditions
from treadle.compiler.derivation.story import Story
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Observer, Observers, PassRun, print_cuda, run_pipeline
from treadle.compiler.progress import progress
from treadle.compiler.sizes import set_default_sizes
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import BackendUnavailable, Choice, choose_backend, make_backend
from treadle.runtime.coarse import EMULATED, coarse_sums
from treadle.runtime.failures import refused_kernel, unable, wrong_kernel
from treadle.runtime.inputs import Input
from treadle.runtime.interpreter import run_function
from treadle.runtime.verify import Verdict, verify

if TYPE_CHECKING:
    from treadle.runtime.emulator import LaunchReport

Outputs = Sequence[NDArray[Any]]


class WrongKernel(Exception):
    """A kernel did what no correct kernel does; the message is its verdict."""


class Execution:
    """One program on one set of inputs: how it runs at any level, and how the result is judged."""

    def __init__(self, algorithm: ModuleOp, inputs: Sequence[Input], sizes: dict[str, int], checks: bool, file: str):
        self.algorithm = algorithm
        self.inputs = inputs
        self.sizes = sizes
        self.checks = checks
        self.file = file
        self.printed: str | None = None
        """The CUDA C of the last run."""
        self.reports: Sequence[LaunchReport] | None = None
        """What the emulator counted in the last run; None where something else ran."""
        self.launched: Sequence[str] = ()
        """The kernels that it launched."""
        self.capability: tuple[int, int] | None = None
        """Of the GPU that it ran on."""

    def run(self, module: ModuleOp, backend: str) -> Outputs:
        """The results of `module` where `backend` says (TreadleError)."""
        if backend == "interpreter":
            with progress("running (interpreter)"):
                return run_function(module, self.inputs, sizes=self.sizes).results
        return self._run_cuda(module, backend)

    def judge(self, outputs: Outputs, backend: str) -> tuple[Verdict, ...]:
        with progress("computing the float64 reference"):
            return verify(
                self.algorithm,
                self.inputs,
                outputs,
                backend,
                sizes=self.sizes,
                coarse=self._coarse(backend),
                with_conditions=with_conditions,
            )

    def _coarse(self, backend: str) -> float | None:
        """As `verify` takes it."""
        capability = EMULATED if backend == "emulator" else self.capability
        if self.printed is None or capability is None:
            return None
        return coarse_sums(self.printed, self.launched, capability)

    def _run_cuda(self, module: ModuleOp, backend: str) -> Outputs:
        from treadle.runtime.host import execute

        try:
            numbers = [given if isinstance(given, np.ndarray) else given.item() for given in self.inputs]
            runner = self._backend(module, backend)
            self.reports = runner.reports if backend == "emulator" else None
            self.launched = runner.variants
            self.capability = runner.capability if backend == "gpu" else None
            with progress(f"running ({backend})"):
                return execute(module, numbers, runner)
        except wrong_kernel() as error:
            raise WrongKernel(f"WRONG ({backend}): {error}") from error
        except refused_kernel() as error:
            raise InternalError(f"the compiler refuses what treadle printed: {error}", self.file) from error
        except unable() as error:
            raise TreadleError(f"{backend}: {error}", self.file) from error

    def _backend(self, module: ModuleOp, backend: str) -> Any:
        self.printed = print_cuda(module)
        with progress(_MAKING[backend]):
            return make_backend(backend, self.printed, kernel_names(module), machine_of(module).arch, self.checks)


_MAKING = {"gpu": "nvcc", "ptx": "nvcc", "emulator": "compiling the kernels for the host"}


class EachPass(Observer):
    """Runs the module after every pass that changed it, and notes the first whose result is wrong."""

    compares = True

    def __init__(self, execution: Execution, backend: str):
        self.execution = execution
        self.backend = backend
        self.failed: tuple[str, str] | None = None
        self.lines: list[str] = []

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        if self.failed is not None:
            return
        if not run.changed:
            self.lines.append(f"  {run.name}: unchanged")
            return
        backend = self.backend if is_cuda(module) else "interpreter"
        if is_cuda(module) and backend == "interpreter":
            self.lines.append(f"  {run.name}: not run: the interpreter ends at the hierarchy level")
            return
        runnable = printable(module) if backend != "interpreter" else module
        try:
            verdicts = self.execution.judge(self.execution.run(runnable, backend), backend)
            wrong = [str(verdict) for verdict in verdicts if not verdict.ok and not verdict.unverifiable]
            said = wrong or [str(verdict) for verdict in verdicts]
        except WrongKernel as error:
            wrong = said = [str(error)]
        if wrong:
            self.failed = run.name, wrong[0]
        self.lines += [f"  {run.name}: {line}" for line in said]


class Prediction(Observer):
    """What the cost model says, at these sizes, of the streams as they were expanded."""

    def __init__(self, sizes: dict[str, int]):
        self.sizes = sizes
        self.lines: list[str] = []

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        if run.name != LAST_HIERARCHY_PASS:
            return
        from treadle.compiler.explain import explain

        for kernel in explain(module, machine_of(module), self.sizes).kernels:
            for level in kernel.levels:
                self.lines.append(
                    f"  @{kernel.name}  {level.name:8}  {level.transfer_values:,} values, "
                    f"{level.transfer_bytes:,} bytes: {level.transfer_expr}"
                )


def command(arguments: Namespace) -> int:
    program = load_program(arguments)
    choice = _choose(arguments)
    with progress("making the inputs" if arguments.inputs is None else "reading the inputs"):
        inputs, sizes = inputs_of(program, arguments)
    options = compile_options(arguments)
    printing = Printing(arguments, options)
    execution = Execution(program.module.clone(), inputs, sizes, not arguments.no_checks, arguments.file)
    set_default_sizes(program.function, sizes)
    story = Story()
    each = EachPass(execution, choice.backend) if arguments.verify_each else None
    prediction = Prediction(sizes) if arguments.verbose else None
    watching = (printing, story, each, prediction)
    observers = Observers(*(observer for observer in watching if observer is not None))
    module = program.module
    with progress("deriving the kernels"):
        run_pipeline(module, options, observers, last=LAST_HIERARCHY_PASS if choice.backend == "interpreter" else None)
    if each is not None and (code := _tell_each(each)) is not None:
        return code
    if arguments.verbose:
        print("\n".join(_told(story, prediction.lines if prediction else [], sizes, choice, module)), flush=True)
    try:
        verdicts = execution.judge(execution.run(module, choice.backend), choice.backend)
    except WrongKernel as error:
        print(error)
        return 1
    if arguments.report:
        from treadle.compiler.cli.report_traffic import memory_lines

        print("\n".join(memory_lines(execution.printed, execution.reports, execution.launched)))
    for verdict in verdicts:
        print(verdict)
    return exit_code(verdicts)


def exit_code(verdicts: Sequence[Verdict]) -> int:
    """0 where all are verified, 1 where one is wrong, else 4: the reference cannot tell."""
    if all(verdict.ok for verdict in verdicts):
        return 0
    return 4 if all(verdict.ok or verdict.unverifiable for verdict in verdicts) else 1


def is_cuda(module: ModuleOp) -> bool:
    return any(op.name == "cuda.launch" for op in module.walk())


def printable(module: ModuleOp) -> ModuleOp:
    """A copy in which every access to device memory that coalescing has not seen yet takes one element."""
    from xdsl.dialects.builtin import ArrayAttr, IntAttr

    from treadle.dialects.cuda.accesses import GlobalAccess

    copy = module.clone()
    for op in copy.walk():
        if isinstance(op, GlobalAccess) and op.widths is None:
            op.properties["widths"] = ArrayAttr([IntAttr(1)])
    return copy


def _choose(arguments: Namespace) -> Choice:
    try:
        choice = choose_backend(arguments.backend)
    except BackendUnavailable as error:
        instead = f" ('--backend {error.instead}' needs none)" if error.instead else ""
        raise TreadleError(f"{error}{instead}") from error
    if choice.reason and (choice.backend == "interpreter" or "is here" in choice.reason):
        print(f"running in the {choice.backend}: {choice.reason}", file=sys.stderr)
    return choice


def _tell_each(each: EachPass) -> int | None:
    """Say what every pass did to the result; the exit code, if one made it wrong."""
    print("\n".join(["after each pass", *each.lines]))
    if each.failed is None:
        return None
    name, verdict = each.failed
    print(f"WRONG: pass '{name}' is the first that changes the result: {verdict}")
    return 1


def _told(
    story: Story, transfers: Sequence[str], sizes: dict[str, int], choice: Choice, module: ModuleOp
) -> Iterator[str]:
    yield "derived"
    yield from derivation_lines(story.derivation, reasons=False)
    yield "sizes"
    yield from schedule_lines(story.schedules, story.derivation)
    yield f"predicted transfers ({', '.join(f'{axis} = {size}' for axis, size in sizes.items())})"
    yield from transfers
    machine = machine_of(module)
    where = f", kernels made for {machine.name} ({machine.arch})" if choice.backend != "interpreter" else ""
    why = f" ({choice.reason})" if choice.reason else ""
    yield f"ran in: {choice.backend}{why}{where}"
