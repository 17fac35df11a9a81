"""Everything that needs a GPU, in one run: tests, speed beside what else one could use, and compute-sanitizer.

    python benchmarks/gpu.py [--only tests|speed|launch|sanitizer] [--quick] [--minutes N]        (or: make gpu)
    python benchmarks/gpu.py --prepare h100 [--quick]

On a machine without a GPU it says so, claims nothing and writes nothing. What is not installed, or fails, is told in
the result; it never stops the rest: each test and each case is a process of its own, with a limit. What matters most
comes first, and the result is written anew after each of them, so that a run that is cut off has told what it found.
Times are of kernels between CUDA events, in the same process and on the same numbers.

`--prepare` needs no GPU: it compiles what would be measured and keeps that in the cache ($TREADLE_CACHE), which may be
taken to the machine that has one. Results go to `benchmarks/results`, or to $TREADLE_RESULTS."""

from __future__ import annotations

import argparse
import os
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import checks
import results

PARTS = ("tests", "speed", "launch", "sanitizer")
CASE_LIMIT = 240
"""Seconds for a case of the speed part, compilations of all who are measured included."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave out the other parts")
    parser.add_argument(
        "--quick", action="store_true", help="few sizes, and nobody beside whom compiling takes minutes"
    )
    parser.add_argument("--minutes", type=float, default=checks.FOREVER, help="begin nothing after so many")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a test (default 120)")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1), help="tests that run at a time")
    parser.add_argument(
        "--prepare", metavar="MACHINE", help="compile what would be measured there, and measure nothing"
    )
    parser.add_argument(
        "--triton-attention", type=Path, metavar="FILE", help="Triton's tutorials/06-fused-attention.py"
    )
    parser.add_argument("--case", nargs=2, metavar=("NUMBER", "FILE"), help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.prepare:
        capability = capability_of(parsed.prepare)
        machines = machines_for(parsed.prepare, capability)
        return prepare(capability, parsed.workers, programs_of(parsed.only or PARTS, machines, parsed.quick))
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        print(f"{missing}: nothing was tested or measured")
        return 0
    if parsed.case:
        measure_one(int(parsed.case[0]), Path(parsed.case[1]), parsed.quick, parsed.triton_attention)
        return 0
    return Run(parsed).parts(tuple(parsed.only or PARTS))


class Run:
    """A run: what was found so far, written down each time that there is more. It uses the device itself nowhere."""

    def __init__(self, parsed: argparse.Namespace):
        from treadle.runtime.gpu_facts import driver_facts, gpus

        self.parsed = parsed
        self.until = monotonic() + 60 * parsed.minutes
        gpu, driver = gpus()[0], driver_facts()
        self.device = gpu.name
        self.capability = gpu.capability
        self.data: dict[str, Any] = {"capability": "{}.{}".format(*gpu.capability)}
        self.data |= {"driver": driver.release, "CUDA of the driver": "{}.{}".format(*driver.cuda)} if driver else {}
        self.machines = machines_for(machine_of_device(gpu.name), gpu.capability)
        self.ran: list[checks.Done] = []

    def keep(self) -> Path:
        return results.write("gpu", self.data, self.device)

    def parts(self, parts: Sequence[str]) -> int:
        """0 if all that ran is right; what was not run is said in the file."""
        self.data["not run"] = [part for part in PARTS if part not in parts]
        path = self.keep()
        for part in PARTS:
            if part in parts:
                print(f"-- {part}", flush=True)
                getattr(self, f"_{part}")()
                path = self.keep()
        print(f"written to {path}")
        failed = [each.what for each in self.ran if not each.ok]
        told = f"; FAILED: {', '.join(failed)}" if failed else ""
        print(f"{len(self.ran) - len(failed)} of {len(self.ran)} commands right{told}")
        return 1 if failed else 0

    def _commands(self, part: str, commands: dict[str, list[str]], limit: float, workers: int) -> None:
        kept = self.data.setdefault(part, [])

        def found(done: checks.Done) -> None:
            kept.append(done.as_json())
            self.ran.append(done)
            self.keep()

        checks.run_all(commands, limit, workers, self.until, found)

    def _tests(self) -> None:
        self._commands("tests", checks.test_commands(self.machines), self.parsed.limit, self.parsed.workers)

    def _sanitizer(self) -> None:
        if (sanitizer := checks.find_sanitizer()) is None:
            self.data["sanitizer"] = "not run: it is not installed"
            return
        commands = checks.sanitizer_commands(sanitizer, self.machines)
        self._commands("sanitizer", commands, 3 * self.parsed.limit, self.parsed.workers)

    def _launch(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("launch_time.py"))]
        self._commands("launch", {"launch_time.py": command}, 2 * self.parsed.limit, 1)

    def _speed(self) -> None:
        """Every case, one after another, and the goals; printed as it comes."""
        from speed.cases import cases
        from speed.goals import GOALS
        from speed.measured import Found, table

        every = programs_of(("speed",), self.machines, self.parsed.quick)
        prepare(self.capability, os.cpu_count() or 1, every)
        found: list[Found] = []
        kept = self.data.setdefault("speed", [])
        with tempfile.TemporaryDirectory() as folder:
            for number, case in enumerate(cases(self.parsed.quick)):
                file = Path(folder) / f"{number}.pickle"
                done = checks.run_all({str(case): self._case(number, file)}, CASE_LIMIT, 1, self.until)[0]
                self.ran.append(done)
                if file.exists():
                    found.append(pickle.loads(file.read_bytes()))
                    kept.append(found[-1].as_json())
                    print(table(found[-1:]), flush=True)
                if not done.ok:
                    kept.append(done.as_json())
                judged = [goal.judge(found) for goal in GOALS]
                self.data["goals"] = [each.as_json() for each in judged]
                self.keep()
        print(table(found), *(goal.judge(found) for goal in GOALS), sep="\n", flush=True)

    def _case(self, number: int, file: Path) -> list[str]:
        quick = ["--quick"] if self.parsed.quick else []
        triton = ["--triton-attention", str(self.parsed.triton_attention)] if self.parsed.triton_attention else []
        return [sys.executable, str(Path(__file__).resolve()), "--case", str(number), str(file), *quick, *triton]


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


def programs_of(parts: Sequence[str], machines: Sequence[str], quick: bool) -> list[Program]:
    """Of the tests, for every machine; of the cases that are measured, for the first."""
    import programs
    from speed.cases import cases

    found: list[Program] = []
    if "tests" in parts:
        for program, sizes in checks.runs():
            known = {axis: int(size) for axis, size in (each.split("=") for each in sizes)}
            found += [Program(programs.example(program), known, machine) for machine in machines]
    if "speed" in parts:
        found += [Program(case.program, case.open_sizes, machines[0], fixed=True) for case in cases(quick)]
    return found


def prepare(capability: tuple[int, int], workers: int, every: Sequence[Program]) -> int:
    """Compile programs for a device, some at a time: 1 if one does not compile."""
    failed = 0
    with ProcessPoolExecutor(workers) as pool:
        begun = {pool.submit(compile_one, program, capability): program for program in every}
        for count, each in enumerate(as_completed(begun), 1):
            if (error := each.exception()) is not None:
                failed += 1
                print(
                    f"FAILED  {begun[each].machine}, {begun[each].sizes}: {type(error).__name__}: {error}", flush=True
                )
            if count % 10 == 0 or count == len(every):
                print(f"compiled {count - failed} of {len(every)} programs", flush=True)
    return 1 if failed else 0


def compile_one(program: Program, capability: tuple[int, int]) -> None:
    """Machine code of one program, into the cache."""
    from treadle.compiler.machines import load_machine
    from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
    from treadle.compiler.sizes import set_default_sizes
    from treadle.compiler.source import parse_module
    from treadle.runtime.gpu import arch_for
    from treadle.runtime.inputs import axis_sizes
    from treadle.runtime.interpreter import entry_function
    from treadle.runtime.nvcc import compile_cubin

    module = parse_module(program.text)
    function = entry_function(module)
    if not program.fixed:
        set_default_sizes(function, axis_sizes(function, program.sizes))
    run_pipeline(module, Options(program.machine, sizes=program.sizes if program.fixed else {}))
    target = arch_for(load_machine(program.machine).arch, capability)
    assert target is not None
    compile_cubin(print_cuda(module), target)


def measure_one(number: int, file: Path, quick: bool, triton_attention: Path | None) -> None:
    """One case, in this process; what is found is written after each who is measured."""
    from speed import kernels
    from speed.cases import cases
    from speed.clock import cuda_timer
    from speed.measured import Found, measure_one_case

    from treadle.runtime.gpu import driver

    kernels.TUTORIAL[:] = [triton_attention] if triton_attention else []
    case = list(cases(quick))[number]

    def keep(found: Found) -> None:
        partial = file.with_suffix(".partial")
        partial.write_bytes(pickle.dumps(found))
        partial.replace(file)

    timer = cuda_timer()
    measure_one_case(case, timer, driver().Context.get_device().name(), kernels.SLOW if quick else (), keep)


if __name__ == "__main__":
    sys.exit(main())
