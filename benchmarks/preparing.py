"""What a run on a GPU compiles, compiled beforehand, on any machine with nvcc: machine code, into the cache."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent))

import carried
import checks
import known
import programs
from ways import path_of, ways_of

if TYPE_CHECKING:
    from speed.cases import Case


def capability_of(machine: str) -> tuple[int, int]:
    """Of a device that a machine describes."""
    from treadle.compiler.machines import load_machine

    major, minor = divmod(int(load_machine(machine).arch.removeprefix("sm_").rstrip("af")), 10)
    return major, minor


def machines_for(machine: str | None, capability: tuple[int, int]) -> list[str]:
    """The machine that describes a device, if one does, and that of the older generation whose CUDA C it compiles."""
    from treadle.compiler.machines import DEFAULT_MACHINE, load_machine
    from treadle.runtime.gpu import arch_for

    names = dict.fromkeys(([machine] if machine else []) + [DEFAULT_MACHINE])
    return [name for name in names if arch_for(load_machine(name).arch, capability) is not None]


def machine_of_device(device: str) -> str | None:
    from treadle.compiler.cli.bench import machine_called
    from treadle.compiler.errors import TreadleError

    try:
        return machine_called(device).name
    except TreadleError as error:
        print(error)
        return None


@dataclass(frozen=True)
class Program:
    """What is to be compiled: its text, sizes of axes that it leaves open, and the machine; with `fixed` for these
    sizes alone, else for any."""

    text: str
    sizes: Mapping[str, int]
    machine: str
    fixed: bool = False

    def cuda(self, passes: tuple[Any, ...] = ()) -> str:
        """As the pipeline makes it, or these passes."""
        from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
        from treadle.compiler.sizes import set_default_sizes
        from treadle.compiler.source import parse_module
        from treadle.runtime.inputs import axis_sizes
        from treadle.runtime.interpreter import entry_function

        module = parse_module(self.text)
        function = entry_function(module)
        if not self.fixed:
            set_default_sizes(function, axis_sizes(function, self.sizes))
        run_pipeline(module, Options(self.machine, sizes=self.sizes if self.fixed else {}, passes=passes))
        return print_cuda(module)

    def __str__(self) -> str:
        return f"{self.text.partition('func.func ')[2].partition('(')[0]} for {self.machine}, {dict(self.sizes)}"


@dataclass(frozen=True)
class Rates:
    """The kernels that measure what a machine sustains."""

    machine: str

    def cuda(self) -> str:
        from treadle.compiler.bench.rates import text
        from treadle.compiler.machines import load_machine

        return text(load_machine(self.machine))


@dataclass(frozen=True)
class Launched:
    """A kernel whose launches are timed: one of `launch_time.CASES`, or the function."""

    machine: str
    example: str | None = None

    def cuda(self) -> str:
        import launch_time

        return launch_time.kernel_of(self.example, self.machine).cuda


@dataclass(frozen=True)
class Way:
    """A program as other passes make it."""

    program: Program
    what: str
    passes: tuple[Any, ...]

    @property
    def machine(self) -> str:
        return self.program.machine

    def cuda(self) -> str:
        return self.program.cuda(self.passes)

    def __str__(self) -> str:
        return f"{self.program}, {self.what}"


@dataclass(frozen=True)
class TakenApart:
    """One of the ways to make a case's kernels, by its number; they are in the cache (`ways.py`)."""

    case: Case
    machine: str
    number: int

    def cuda(self) -> str:
        return ways_of(self.case, self.machine)[self.number].cuda

    def __str__(self) -> str:
        return f"{self.case}, {ways_of(self.case, self.machine)[self.number].what}"


@dataclass(frozen=True)
class OfSuites:
    """A kernel that a suite of modules derived, by the file where its cache keeps it."""

    kept: Path
    machine: str

    def cuda(self) -> str:
        return json.loads(self.kept.read_text(encoding="utf-8"))["cuda"]

    def __str__(self) -> str:
        return f"the suites' {self.kept.stem}"


class Wanted(Protocol):
    """CUDA C for a machine."""

    @property
    def machine(self) -> str: ...

    def cuda(self) -> str: ...


@dataclass(frozen=True)
class Chosen:
    """Of speed and of passes left out: which cases, and made for whom."""

    quick: bool = False
    """Of speed only a few."""
    unmeasured: str | None = None
    """Only those of which no result holds a time of this device."""
    pattern: str = ""
    """Only those whose names hold this regular expression."""
    older: bool = False
    """Of speed also kernels for the other machines."""

    def holds(self, case: Case, measured: set[str]) -> bool:
        return str(case) not in measured and re.search(self.pattern, str(case)) is not None


EVERY = Chosen()


def programs_of(parts: Sequence[str], machines: Sequence[str], chosen: Chosen = EVERY) -> list[Wanted]:
    """In the order of the parts: of cases and predictions for the first machine, of what is tested for every one."""
    makers: dict[str, Callable[[], Iterator[Wanted]]] = {
        "speed": lambda: _of_speed(machines if chosen.older else machines[:1], chosen),
        "ablation": lambda: _of_ablation(machines, chosen),
        "launch": lambda: _of_launches(machines),
        "tune": lambda: _of_tuning(machines),
        "predict": lambda: _of_predictions(machines),
        "sanitizer": lambda: of_runs(checks.SMALL.items(), machines),
        "tests": lambda: of_runs(checks.runs(), machines),
    }
    return [program for part, make in makers.items() if part in parts for program in make()]


def _of_speed(machines: Sequence[str], chosen: Chosen) -> Iterator[Wanted]:
    yield from (
        Program(case.program, case.open_sizes, machine, fixed=True)
        for case in cases_of_speed(chosen)
        for machine in machines
    )


def cases_of_speed(chosen: Chosen = EVERY) -> list[Case]:
    from speed.cases import cases

    held = known.speeds(chosen.unmeasured) if chosen.unmeasured else set[str]()
    return [case for case in cases(chosen.quick) if chosen.holds(case, held)]


def cases_of_ablation(chosen: Chosen = EVERY) -> list[Case]:
    """Those whose passes are left out."""
    import ablation

    held = known.taken_apart(chosen.unmeasured) if chosen.unmeasured else set[str]()
    return [case for case in ablation.programs() if chosen.holds(case, held)]


def _of_ablation(machines: Sequence[str], chosen: Chosen) -> Iterator[Wanted]:
    """The ways are made on the way, some programs at a time."""
    cases, machine = cases_of_ablation(chosen), machines[0]
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for case, every in zip(cases, pool.map(ways_of, cases, [machine] * len(cases)), strict=True):
            print(f"{len(every)} ways of {case}", flush=True)
            yield from (TakenApart(case, machine, i) for i, way in enumerate(every) if not way.refused)


OTHERS = 4
"""Other sizes of each kernel that are measured."""


def tuned() -> Iterator[Case]:
    """The cases of which other ways are measured: those that a GPU found behind the others."""
    from speed import cases

    yield cases.attention(4, 16, 4096, 128, causal=True)
    yield cases.product(8192)
    yield cases.attention(16, 16, 1024, 128, causal=True)
    yield cases.layer(4096, 4096, 4096)
    yield cases.attention(4, 32, 4096, 64)


def _of_tuning(machines: Sequence[str]) -> Iterator[Wanted]:
    """Each way beside the model's choice; those that build on what was faster are known on the GPU only."""
    from treadle.compiler.pipeline import Options, pipeline
    from treadle.compiler.source import parse_module
    from treadle.compiler.tune.alternatives import alternatives

    for case in tuned():
        program = Program(case.program, case.open_sizes, machines[0], fixed=True)
        passes = pipeline(Options(machines[0], sizes=case.open_sizes))
        yield program
        for each in alternatives(parse_module(case.program), passes, OTHERS):
            yield Way(program, str(each), each.applied(passes))


def _of_launches(machines: Sequence[str]) -> Iterator[Wanted]:
    import launch_time

    yield from (Launched(machine, example) for example, machine in launch_time.CASES if machine in machines)
    yield Launched(launch_time.FUNCTION_MACHINE)


def _of_predictions(machines: Sequence[str]) -> Iterator[Wanted]:
    from treadle.compiler.bench.predict import sizes_of
    from treadle.compiler.cli.bench import PROGRAMS

    yield Rates(machines[0])
    for name in PROGRAMS:
        lengths = list(sizes_of(programs.EXAMPLES / f"{name}.mlir"))
        # One kernel for all of them, made for the middle one.
        yield Program(programs.example(name), lengths[len(lengths) // 2], machines[0])


def of_runs(runs: Iterable[tuple[str, Sequence[str]]], machines: Sequence[str]) -> Iterator[Program]:
    """Examples, or programs of the tests, at these sizes."""
    for program, sizes in runs:
        known = {axis: int(size) for axis, size in (each.split("=") for each in sizes)}
        yield from (Program(programs.example(program), known, machine) for machine in machines)


def suites_folder() -> Path:
    """Where the suites of modules keep what they derive, when they are prepared, or run on what was."""
    from treadle.runtime.cache import cache_directory

    folder = cache_directory() / "suites"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def prepare_suites(capability: tuple[int, int], workers: int) -> Path:
    """Let the suites derive their kernels here, where the interpreter computes them, and compile these for a device:
    the folder where all of that is."""
    folder = suites_folder()
    # Without a C++ compiler on the path there is no emulator.
    environment = {checks.KEPT_FOR_SUITES: str(folder), "CXX": "", "PATH": str(folder)}
    commands = checks.suite_commands(checks.FIRST_SUITES, "cpu")
    checks.run_all(commands, 3600, workers, environment=environment)
    machine = {"sm_80": "a100", "sm_90a": "h100"}
    with _cache(folder):
        kept = sorted((folder / "kernels").glob("*.json"))
        archs = [json.loads(path.read_text(encoding="utf-8"))["arch"] for path in kept]
        prepare(capability, workers, [OfSuites(path, machine[arch]) for path, arch in zip(kept, archs, strict=True)])
    return folder


@contextmanager
def _cache(folder: Path) -> Iterator[None]:
    before = os.environ.get("TREADLE_CACHE")
    os.environ["TREADLE_CACHE"] = str(folder)
    try:
        yield
    finally:
        os.environ.pop("TREADLE_CACHE")
        if before is not None:
            os.environ["TREADLE_CACHE"] = before


def prepare(
    capability: tuple[int, int],
    workers: int,
    every: Sequence[Wanted],
    archive: Path | None = None,
    others: Sequence[Path] = (),
) -> int:
    """Compile for a device, some at a time, and pack it into a file, if one is named, with others of the cache: 1 if
    something does not compile."""
    failed, made = 0, dict[str, int]()
    kept = {path_of(each.case, each.machine) for each in every if isinstance(each, TakenApart)}
    with ProcessPoolExecutor(workers) as pool:
        begun = {pool.submit(compile_one, each, capability): each for each in every}
        for count, each in enumerate(as_completed(begun), 1):
            if (error := each.exception()) is not None:
                failed += 1
                print(f"FAILED  {begun[each]}: {type(error).__name__}: {error}", flush=True)
            else:
                made.update([each.result()])
            if count % 10 == 0 or count == len(every):
                print(f"compiled {count - failed} of {len(every)}: {sum(made.values()) / 2**20:.1f} MiB", flush=True)
    if archive is not None:
        packed = [*others, *(file for path in sorted(kept) for file in carried.with_checksum(path))]
        print(f"packed into {archive.name}: {carried.judged(carried.pack(made, archive, packed))}", flush=True)
    return 1 if failed else 0


def compile_one(program: Wanted, capability: tuple[int, int]) -> tuple[str, int]:
    """Machine code into the cache: its file's name and bytes, those of its log too."""
    from treadle.compiler.machines import load_machine
    from treadle.runtime.gpu import arch_for
    from treadle.runtime.nvcc import compile_cubin

    target = arch_for(load_machine(program.machine).arch, capability)
    assert target is not None
    cubin = compile_cubin(program.cuda(), target)
    return cubin.path.name, cubin.path.stat().st_size + len(cubin.log)
