"""Everything that needs a GPU, in one run: speed beside what else one could use, launches, other ways than the model's
choice, what each pass brings, predictions, compute-sanitizer and tests.

    python benchmarks/gpu.py [--only PART] [--quick] [--minutes N]      (or: make gpu)
    python benchmarks/gpu.py --unmeasured --minutes 13
    python benchmarks/gpu.py --prepare h100 --archive prepared.tar.xz [--quick] [--unmeasured]
    python benchmarks/gpu.py --prepared prepared.tar.xz --minutes 13 [--unmeasured]

On a machine without a GPU it says so, claims nothing and writes nothing. What is not installed, or fails, is told in
the result; it never stops the rest: each test is a process of its own, with a limit; cases are measured in a process
that is watched, and where it hangs or ends another goes on. What matters most comes first, each part has its share of
the minutes, and the result is written anew after each step, so that a run that is cut off has told what it found.
Times are of kernels between CUDA events, in the same process, on the same numbers and in turns.

A run replaces no result: a second one of a day has `-2` in its name. `--unmeasured` begins with what no result holds
(`known.py`): the suites of modules, compute-sanitizer on kernels whose code it has not seen, predictions of the
programs with fewest rows, cases of speed without a time of that device, then launches, then passes left out.

`--prepare` needs no GPU: it compiles what would be measured, keeps that in the cache ($TREADLE_CACHE), and packs it
into a file that may be taken to the machine that has one; there, `--prepared` takes it. Results go to
`benchmarks/results`, or to $TREADLE_RESULTS."""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parent))

import carried
import checks
import known
import preparing
import results
import ways

if TYPE_CHECKING:
    from speed.cases import Case

SHARES = {
    **{"speed": 0.38, "launch": 0.08, "tune": 0.1, "ablation": 0.1, "predict": 0.12},
    **{"sanitizer": 0.1, "tests": 0.12},
}
"""Of the minutes, what each part may take; what one leaves the next ones have."""
PARTS = tuple(SHARES)
UNMEASURED = {"suites": 0.2, "sanitizer": 0.14, "predict": 0.14, "speed": 0.26, "launch": 0.06, "ablation": 0.2}
"""The same, in the order of a run that begins with what no result holds."""
DEVICES = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}
"""Under which name results hold what was measured on a device that a machine describes."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=(*PARTS, "suites"), action="append", help="leave out the other parts")
    parser.add_argument("--unmeasured", action="store_true", help="first, and only, what no result holds")
    parser.add_argument(
        "--quick", action="store_true", help="few sizes, and nobody beside whom compiling takes minutes"
    )
    parser.add_argument(
        "--cases", metavar="PATTERN", default="", help="of speed: only cases whose names hold this regular expression"
    )
    parser.add_argument(
        "--slow",
        metavar="PATTERN",
        default="",
        help="those beside whom compiling takes minutes only on cases whose names hold this regular expression",
    )
    parser.add_argument(
        "--tests", metavar="PATTERN", default="", help="of tests: only those whose names hold this regular expression"
    )
    parser.add_argument(
        "--older", action="store_true", help="of speed: also our kernels for the older machine, whose code runs here"
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
    known_parts = UNMEASURED if parsed.unmeasured else SHARES
    if unknown := [part for part in parsed.only or () if part not in known_parts and not parsed.prepare]:
        parser.error(f"--only {unknown[0]}: parts of this run are {', '.join(known_parts)} (--unmeasured has others)")
    if parsed.prepare:
        capability = preparing.capability_of(parsed.prepare)
        machines = preparing.machines_for(parsed.prepare, capability)
        parts = parsed.only or (UNMEASURED if parsed.unmeasured else PARTS)
        chosen = chosen_by(parsed, DEVICES.get(parsed.prepare, parsed.prepare))
        others = [preparing.prepare_suites(capability, parsed.workers)] if "suites" in parts else []
        wanted = preparing.programs_of(tuple(parts), machines, chosen)
        return preparing.prepare(capability, parsed.workers, wanted, parsed.archive, others)
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
    run = Run(parsed)
    return run.parts(tuple(parsed.only or run.shares))


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
        self.chosen = chosen_by(parsed, gpu.name)
        self.ran: list[checks.Done] = []
        self.shares = UNMEASURED if parsed.unmeasured else SHARES
        os.environ[results.LABEL] = results.free_label(self.device, os.environ.get(results.LABEL, ""))

    def keep(self) -> Path:
        return results.write("gpu", self.data, self.device)

    def parts(self, parts: Sequence[str]) -> int:
        """0 if all that ran is right; what was not run is said in the file."""
        self.data["not run"] = [part for part in self.shares if part not in parts]
        path = self.keep()
        ends = self._ends(parts)
        for part in self.shares:
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
        parts = [part for part in self.shares if part in parts]
        begin, whole, told = monotonic(), sum(self.shares[part] for part in parts), 0.0
        ends: dict[str, float] = {}
        for part in parts:
            told += self.shares[part]
            ends[part] = self.end if self.end == checks.FOREVER else begin + (self.end - begin) * told / whole
        return ends

    def _commands(
        self,
        part: str,
        commands: dict[str, list[str]],
        limit: float,
        workers: int,
        added: Mapping[str, Mapping[str, str]] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`added` is kept beside what came of a command, by its name."""
        kept = self.data.setdefault(part, [])

        def found(done: checks.Done) -> None:
            kept.append(done.as_json() | (added or {}).get(done.what, {}))
            self.ran.append(done)
            self.keep()

        checks.run_all(commands, limit, workers, self.until, found, environment)

    def _tests(self) -> None:
        limit, workers = self.parsed.limit, self.parsed.workers
        self._commands("tests", self._chosen(checks.test_commands(self.machines)), limit, workers)
        self._commands("tests", self._chosen(checks.suite_commands()), checks.LONG * limit, workers)

    def _suites(self) -> None:
        """Those of modules, on the kernels that they derived beforehand, if they did."""
        commands = self._chosen(checks.suite_commands(checks.FIRST_SUITES))
        kept = {checks.KEPT_FOR_SUITES: str(preparing.suites_folder())}
        limit = checks.LONG * self.parsed.limit
        self._commands("suites", commands, limit, self.parsed.workers, environment=kept)

    def _chosen(self, commands: dict[str, list[str]]) -> dict[str, list[str]]:
        return {what: command for what, command in commands.items() if re.search(self.parsed.tests, what)}

    def _sanitizer(self) -> None:
        if (sanitizer := checks.find_sanitizer()) is None:
            self.data["sanitizer"] = "not run: it is not installed"
            return
        codes = digests(self.machines)
        held = known.checked(self.device) if self.parsed.unmeasured else set[tuple[str, str]]()
        added: dict[str, dict[str, str]] = {}

        def is_wanted(what: str, program: str, machine: str) -> bool:
            added[what] = {"code": codes[program, machine]}
            return (what, codes[program, machine]) not in held

        commands = checks.sanitizer_commands(sanitizer, self.machines, is_wanted)
        self._commands("sanitizer", commands, 3 * self.parsed.limit, self.parsed.workers, added)

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

    def _ablation(self) -> None:
        """Ways without each pass, in a file of their own."""
        import ablation

        measuring = ablation.Measuring(self.device, self.machines[0], self.until)
        measuring.all(preparing.cases_of_ablation(self.chosen), ways.OTHER_SIZES, self._child)
        self.ran += measuring.ended

    def _predict_together(self) -> None:
        """All programs in one file, those first of which results hold fewest rows. A program that stops the process is
        left out, and the others go on in a second file."""
        from treadle.compiler.cli.bench import PROGRAMS

        left = known.first_unknown(PROGRAMS, known.predicted(self.device))
        for label in ("", "-others"):
            path = results.RESULTS / f"{results.name_of(f'predict{label}', self.device)}.json"
            files = [f"examples/{program}.mlir" for program in left]
            minutes = [] if self.until == checks.FOREVER else ["--minutes", f"{self._minutes_left():.3f}"]
            predict = ["-m", "treadle.compiler.main", "bench", "predict", *files, "-o", str(path), *minutes]
            self._commands("predict", {f"predict {', '.join(left)}": [sys.executable, *predict]}, checks.FOREVER, 1)
            begun = known.programs_in(path)
            left = [program for program in left if program not in begun][0 if begun else 1 :]
            if self.ran[-1].ok or not left or monotonic() >= self.until:
                return

    def _minutes_left(self) -> float:
        """Without the last seconds, in which a row that was begun ends."""
        return max(0.01, (self.until - monotonic() - LAST_ROW_SECONDS) / 60)

    def _predict(self) -> None:
        """Each program in a process of its own, which keeps its rows in a file of its own."""
        from treadle.compiler.cli.bench import PROGRAMS

        if self.parsed.unmeasured:
            self._predict_together()
            return
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
        from speed.conditions import Conditions
        from speed.found import of_older
        from speed.kept import Kept
        from speed.kernels import SLOW
        from speed.news import Job
        from speed.watch import Watch

        older = self.machines[1:] if self.parsed.older else []
        if not self.parsed.prepared:
            every = preparing.programs_of(("speed",), self.machines, self.chosen)
            preparing.prepare(self.capability, os.cpu_count() or 1, every)
        listed = preparing.cases_of_speed(self.chosen)
        with_all = self._with_all(listed)
        with ExitStack() as stack:
            ahead, *aheads = (stack.enter_context(closing(Ahead(listed, each))) for each in (self.machines[0], *older))
            folder, conditions = stack.enter_context(caches()), stack.enter_context(Conditions())
            begin = monotonic()
            warm(with_all, Path(__file__).resolve(), folder, self.until)
            print(f"compiled for those who take a minute: {monotonic() - begin:.0f} s", flush=True)
            kept = Kept(self.data, self.keep, conditions)
            with closing(Watch(self._child, self.until, kept.found, kept.end)) as watch:
                for case in listed:
                    if monotonic() >= self.until:
                        self.data["speed, not begun"] = [str(each) for each in listed if str(each) not in kept.cases]
                        break
                    beside = {of_older(name): each[case] for name, each in zip(older, aheads, strict=True)}
                    made = {who: lowered for who, lowered in beside.items() if lowered is not None}
                    watch.measure(Job(case, () if case in with_all else SLOW, ahead[case], older=made))
            kept.keep()
        self.ran += kept.ended
        print(kept, flush=True)

    def _with_all(self, listed: Sequence[Case]) -> list[Case]:
        """Those on which they are measured, too, who compile for a minute."""
        from speed.cases import cases

        of_few = self.parsed.few or self.parsed.unmeasured
        few = {str(each) for each in cases(quick=True)}
        return [
            each
            for each in listed
            if not self.parsed.quick and (not of_few or str(each) in few) and re.search(self.parsed.slow, str(each))
        ]

    def _child(self, descriptor: int) -> list[str]:
        triton = ["--triton-attention", str(self.parsed.triton_attention)] if self.parsed.triton_attention else []
        return [sys.executable, str(Path(__file__).resolve()), "--child", str(descriptor), *triton]


LAST_ROW_SECONDS = 15


def chosen_by(parsed: argparse.Namespace, device: str) -> preparing.Chosen:
    return preparing.Chosen(parsed.quick, device if parsed.unmeasured else None, parsed.cases, parsed.older)


def digests(machines: Sequence[str]) -> dict[tuple[str, str], str]:
    """Of the code of what compute-sanitizer runs, by program and machine."""
    given = [(program, sizes, machine) for machine in machines for program, sizes in checks.SMALL.items()]
    with ProcessPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
        return {
            (program, machine): code for (program, _, machine), code in zip(given, pool.map(digest, given), strict=True)
        }


def digest(given: tuple[str, Sequence[str], str]) -> str:
    """Empty where it does not compile: what runs tells why."""
    program, sizes, machine = given
    (wanted,) = preparing.of_runs([(program, sizes)], [machine])
    try:
        return hashlib.sha256(wanted.cuda().encode()).hexdigest()[:16]
    except Exception:
        return ""


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
