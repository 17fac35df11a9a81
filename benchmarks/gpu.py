"""Everything that needs a GPU, in one run: speed beside what else one could use, launches, other ways than the model's
choice, predictions, compute-sanitizer and tests.

    python benchmarks/gpu.py [--only PART] [--quick] [--minutes N]      (or: make gpu)
    python benchmarks/gpu.py --prepare h100 --archive prepared.tar.xz [--quick]
    python benchmarks/gpu.py --prepared prepared.tar.xz --minutes 13

On a machine without a GPU it says so, claims nothing and writes nothing. What is not installed, or fails, is told in
the result; it never stops the rest: each test is a process of its own, with a limit; cases are measured in a process
that is watched, and where it hangs or ends another goes on. What matters most comes first, each part has its share of
the minutes, and the result is written anew after each step, so that a run that is cut off has told what it found.
Times are of kernels between CUDA events, in the same process, on the same numbers and in turns.

`--prepare` needs no GPU: it compiles what would be measured, keeps that in the cache ($TREADLE_CACHE), and packs it
into a file that may be taken to the machine that has one; there, `--prepared` takes it. Results go to
`benchmarks/results`, or to $TREADLE_RESULTS."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

import carried
import checks
import preparing
import results

SHARES = {"speed": 0.42, "launch": 0.08, "tune": 0.15, "predict": 0.12, "sanitizer": 0.1, "tests": 0.13}
"""Of the minutes, what each part may take; what one leaves the next ones have."""
PARTS = tuple(SHARES)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave out the other parts")
    parser.add_argument(
        "--quick", action="store_true", help="few sizes, and nobody beside whom compiling takes minutes"
    )
    parser.add_argument(
        "--cases", metavar="PATTERN", default="", help="of speed: only cases whose names hold this regular expression"
    )
    parser.add_argument(
        "--tests", metavar="PATTERN", default="", help="of tests: only those whose names hold this regular expression"
    )
    parser.add_argument(
        "--few", action="store_true", help="those beside whom compiling takes minutes for a few cases of each kind only"
    )
    parser.add_argument("--minutes", type=float, default=checks.FOREVER, help="begin nothing after so many")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a test (default 120)")
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1), help="tests that run at a time")
    parser.add_argument(
        "--prepare", metavar="MACHINE", help="compile what would be measured there, and measure nothing"
    )
    parser.add_argument("--archive", type=Path, metavar="FILE", help="with --prepare: pack it, as prepared.tar.xz")
    parser.add_argument(
        "--prepared", type=Path, metavar="FILE", help="such a file: unpack it, and compile nothing beforehand"
    )
    parser.add_argument(
        "--triton-attention", type=Path, metavar="FILE", help="Triton's tutorials/06-fused-attention.py"
    )
    parser.add_argument("--warm", metavar="CASES", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, metavar="DESCRIPTOR", help=argparse.SUPPRESS)
    parsed = parser.parse_args(arguments)
    if parsed.prepare:
        capability = preparing.capability_of(parsed.prepare)
        machines = preparing.machines_for(parsed.prepare, capability)
        wanted = preparing.programs_of(parsed.only or PARTS, machines, parsed.quick)
        return preparing.prepare(capability, parsed.workers, wanted, parsed.archive)
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        print(f"{missing}: nothing was tested or measured")
        return 0
    if parsed.warm:
        from speed.ahead import warm_here

        warm_here(parsed.warm)
        return 0
    if parsed.prepared:
        carried.unpack(parsed.prepared)
    if parsed.child is not None:
        measure_in_child(Connection(parsed.child), parsed.triton_attention)
    return Run(parsed).parts(tuple(parsed.only or PARTS))


class Run:
    """A run: what was found so far, written down each time that there is more. It uses the device itself nowhere."""

    def __init__(self, parsed: argparse.Namespace):
        from treadle.runtime.gpu_facts import driver_facts, gpus

        self.parsed = parsed
        self.until = self.end = monotonic() + 60 * parsed.minutes
        gpu, driver = gpus()[0], driver_facts()
        self.device = gpu.name
        self.capability = gpu.capability
        self.data: dict[str, Any] = {"capability": "{}.{}".format(*gpu.capability)}
        self.data |= {"driver": driver.release, "CUDA of the driver": "{}.{}".format(*driver.cuda)} if driver else {}
        self.machines = preparing.machines_for(preparing.machine_of_device(gpu.name), gpu.capability)
        self.ran: list[checks.Done] = []

    def keep(self) -> Path:
        return results.write("gpu", self.data, self.device)

    def parts(self, parts: Sequence[str]) -> int:
        """0 if all that ran is right; what was not run is said in the file."""
        self.data["not run"] = [part for part in PARTS if part not in parts]
        path = self.keep()
        ends = self._ends(parts)
        for part in PARTS:
            if part in parts:
                self.until = ends[part]
                print(f"-- {part}", flush=True)
                getattr(self, f"_{part}")()
                path = self.keep()
        print(f"written to {path}")
        failed = [each.what for each in self.ran if not each.ok]
        told = f"; FAILED: {', '.join(failed)}" if failed else ""
        print(f"{len(self.ran) - len(failed)} of {len(self.ran)} commands right{told}")
        return 1 if failed else 0

    def _ends(self, parts: Sequence[str]) -> dict[str, float]:
        """When each part begins nothing more: the minutes that are left, by the shares of those parts."""
        begin, whole, told = monotonic(), sum(SHARES[part] for part in parts), 0.0
        ends: dict[str, float] = {}
        for part in (part for part in PARTS if part in parts):
            told += SHARES[part]
            ends[part] = self.end if self.end == checks.FOREVER else begin + (self.end - begin) * told / whole
        return ends

    def _commands(self, part: str, commands: dict[str, list[str]], limit: float, workers: int) -> None:
        kept = self.data.setdefault(part, [])

        def found(done: checks.Done) -> None:
            kept.append(done.as_json())
            self.ran.append(done)
            self.keep()

        checks.run_all(commands, limit, workers, self.until, found)

    def _tests(self) -> None:
        limit, workers = self.parsed.limit, self.parsed.workers
        self._commands("tests", self._chosen(checks.test_commands(self.machines)), limit, workers)
        self._commands("tests", self._chosen(checks.suite_commands()), checks.LONG * limit, workers)

    def _chosen(self, commands: dict[str, list[str]]) -> dict[str, list[str]]:
        return {what: command for what, command in commands.items() if re.search(self.parsed.tests, what)}

    def _sanitizer(self) -> None:
        if (sanitizer := checks.find_sanitizer()) is None:
            self.data["sanitizer"] = "not run: it is not installed"
            return
        commands = checks.sanitizer_commands(sanitizer, self.machines)
        self._commands("sanitizer", commands, 3 * self.parsed.limit, self.parsed.workers)

    def _launch(self) -> None:
        command = [sys.executable, str(Path(__file__).with_name("launch_time.py"))]
        self._commands("launch", {"launch_time.py": command}, 2 * self.parsed.limit, 1)

    def _tune(self) -> None:
        """Other ways to make the kernels that are measured first, each program in a process of its own."""
        folder, name = results.RESULTS, results.slug(self.device)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as texts:
            commands: dict[str, list[str]] = {}
            for case in preparing.tuned():
                program = Path(texts) / f"{results.slug(str(case))}.mlir"
                program.write_text(case.program, encoding="utf-8")
                kept = folder / f"tune-{program.stem}-{name}-{results.today()}.derivation"
                sizes = [text for axis, size in case.open_sizes.items() for text in ("--size", f"{axis}={size}")]
                count = ["--count", str(preparing.OTHERS), "-o", str(kept)]
                tune = ["-m", "treadle.compiler.main", "tune", str(program), *sizes, *count]
                commands[f"tune {case}"] = [sys.executable, *tune]
            self._commands("tune", commands, 3 * self.parsed.limit, 1)

    def _predict(self) -> None:
        """Each program in a process of its own, which keeps its rows in a file of its own."""
        from treadle.compiler.cli.bench import PROGRAMS

        folder, name = results.RESULTS, results.slug(self.device)
        commands: dict[str, list[str]] = {}
        for program in PROGRAMS:
            path = folder / f"predict-{program}-{name}-{results.today()}.json"
            predict = ["-m", "treadle.compiler.main", "bench", "predict", f"examples/{program}.mlir", "-o", str(path)]
            commands[f"predict {program}"] = [sys.executable, *predict]
        folder.mkdir(parents=True, exist_ok=True)
        self._commands("predict", commands, 3 * self.parsed.limit, 1)

    def _speed(self) -> None:
        """Every case, one after another, and the goals; printed as it comes."""
        from speed.ahead import Ahead, caches, warm
        from speed.cases import Case, cases
        from speed.conditions import Conditions
        from speed.kept import Kept
        from speed.kernels import SLOW
        from speed.watch import Watch

        if not self.parsed.prepared:
            every = preparing.programs_of(("speed",), self.machines, self.parsed.quick)
            preparing.prepare(self.capability, os.cpu_count() or 1, every)
        listed: list[Case] = [each for each in cases(self.parsed.quick) if re.search(self.parsed.cases, str(each))]
        few = {str(each) for each in cases(quick=True)}
        with_all = [each for each in listed if not self.parsed.quick and (not self.parsed.few or str(each) in few)]
        with caches() as folder, closing(Ahead(listed, self.machines[0])) as ahead, Conditions() as conditions:
            begin = monotonic()
            warm(with_all, Path(__file__).resolve(), folder, self.until)
            print(f"compiled for those who take a minute: {monotonic() - begin:.0f} s", flush=True)
            kept = Kept(self.data, self.keep, conditions)
            with closing(Watch(self._child, self.until, kept.found, kept.end)) as watch:
                for case in listed:
                    if monotonic() >= self.until:
                        self.data["speed, not begun"] = [str(each) for each in listed if str(each) not in kept.cases]
                        break
                    watch.measure(case, () if case in with_all else SLOW, ahead[case])
            kept.keep()
        self.ran += kept.ended
        print(kept, flush=True)

    def _child(self, descriptor: int) -> list[str]:
        triton = ["--triton-attention", str(self.parsed.triton_attention)] if self.parsed.triton_attention else []
        return [sys.executable, str(Path(__file__).resolve()), "--child", str(descriptor), *triton]


def measure_in_child(connection: Connection, triton_attention: Path | None) -> NoReturn:
    """What the process that began this one says; what went wrong is the last that it says itself."""
    from speed import kernels
    from speed.child import serve

    kernels.TUTORIAL[:] = [triton_attention] if triton_attention else []
    status = 1
    try:
        serve(connection)
        status = 0
    except BaseException:
        sys.stdout.flush()
        traceback.print_exc()
    finally:
        os._exit(status)  # after a fault libraries neither tidy up nor keep quiet


if __name__ == "__main__":
    sys.exit(main())
