"""Tests and compute-sanitizer on a GPU: each a process of its own, for after a fault a context does nothing more, and
with a limit, for a kernel that waits for ever ends with its process only."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from time import monotonic, perf_counter
from typing import Any

import programs

ROOT = programs.ROOT
FOREVER = float("inf")


@dataclass(frozen=True)
class Done:
    """A command that ran, or did not for lack of time."""

    what: str
    ok: bool
    seconds: float
    tail: str = ""
    """The last lines of what it said."""

    def as_json(self) -> dict[str, Any]:
        return {"what": self.what, "ok": self.ok, "seconds": round(self.seconds, 1), "said": self.tail}

    def told(self, which: str = "") -> str:
        lines = self.tail.splitlines()
        why = f": {lines[-1].strip()}" if lines and not self.ok else ""
        return f"{'ok    ' if self.ok else 'FAILED'}  {which}{self.what} ({self.seconds:.0f} s){why}"


SMALL = {
    "attention": ("b=1", "h=2", "q=70", "x=150"),
    "attention_bf16": (),
    "matmul": ("m=70", "n=72", "k=200"),
    "softmax": (),
    "two_kernels": (),
    "attention_causal": ("b=1", "h=2", "q=200", "x=200"),
    "attention_window": ("b=1", "h=2", "q=200", "x=200"),
    "attention_mixed": ("b=2", "h=3", "q=120", "x=16"),
    "attention_paged": (),
    "matmul_epilogue": ("t=70", "o=72", "i=200"),
    "swiglu": (),
    "embedding": (),
}
"""Programs for the sanitizer, at sizes with full and partial pieces."""

FIRST = (
    "matmul",
    "attention",
    "attention_causal",
    "softmax",
    "rms_norm",
    "split_k",
    "attention_f8",
    "attention_gqa",
    "attention_decode",
    "matmul_nt",
    "matmul_tn",
    "matmul_tt",
    "matmul_transposed",
    "matmul_epilogue",
    "attention_lengths",
)
"""What is run before the other examples: one of each kind of kernel, what others build on before that."""

OF_EIGHT_BITS = {"attention_f8": ("b=1", "h=2", "q=224", "x=144"), "attention_mixed": ("b=2", "h=3", "q=120", "x=16")}
"""Sizes at which sums of 14 bits still tell a right result from a wrong one: in place of those of the files."""

LARGE = {
    "matmul": ("m=2104", "n=4104", "k=520"),
    "attention": ("b=1", "h=32", "q=1000", "x=520"),
    "attention_causal": ("b=1", "h=32", "q=1000", "x=1000"),
    "matmul_epilogue": ("t=2104", "o=4104", "i=520"),
    "attention_f8": ("b=1", "h=60", "q=1000", "x=208"),
    "softmax": ("row=3001", "x=4104"),
}
"""Sizes at which grids are persistent and warpgroups take turns; the last pieces are not whole."""

ODD = (("attention", ("q=1", "x=1")), ("attention", ("q=65", "x=1031")), ("matmul", ("m=1", "n=1", "k=1")))

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def treadle_run(program: str, sizes: Sequence[str] = (), machine: str = "a100") -> list[str]:
    """It tells, too, which variants of the kernels were launched."""
    chosen = [part for size in sizes for part in ("--size", size)]
    file = programs.file_of(program).relative_to(ROOT).as_posix()
    run = [sys.executable, "-m", "treadle.compiler.main", "run", file, "--backend", "gpu", "--report"]
    return [*run, "--machine", machine, *chosen]


def runs() -> Iterator[tuple[str, Sequence[str]]]:
    """Examples and their sizes, what tells most first; then the programs of the tests, at those that they state."""
    yield from ((program, OF_EIGHT_BITS.get(program, ())) for program in FIRST)
    yield from LARGE.items()
    yield from ODD
    others = (path.stem for path in sorted(programs.EXAMPLES.glob("*.mlir")) if path.stem not in FIRST)
    yield from ((program, OF_EIGHT_BITS.get(program, ())) for program in others)
    yield from ((program, ()) for program in programs.of_tests())


SUITES = {"test_torch_modules.py": 4, "test_torch.py": 8, "test_torch_training.py": 8, "test_torch_families.py": 16}
"""Tests that compare modules with eager PyTorch, and in how many parts: kernels are derived for half a minute each."""

FIRST_SUITES = {"test_torch_modules.py": 8, "test_torch.py": 16}
"""Those of a run that begins with what nobody measured, in smaller parts: what has ended is known when time is up."""

KEPT_FOR_SUITES = "TREADLE_TEST_CACHE"
"""Names the cache folder of the tests (`tests/conftest.py`)."""

LONG = 3
"""How many times the limit of a test one of those may take."""


def test_commands(machines: Sequence[str]) -> dict[str, list[str]]:
    """The tests that need a GPU, then every example and every program of the tests, verified, with the kernels that are
    made for each machine."""
    return {"pytest": _pytest("tests/test_gpu.py", "tests/test_gpu_calls.py")} | {
        _told("run", program, sizes, machine): treadle_run(program, sizes, machine)
        for program, sizes in runs()
        for machine in machines
    }


def suite_commands(suites: Mapping[str, int] = SUITES, device: str = "cuda") -> dict[str, list[str]]:
    """The suites of modules as `make test-all` runs them, with modules and tensors on the device; or only those of
    their tests that could, where they are."""
    where = ("--device", "cuda") if device == "cuda" else ("--movable",)
    return {
        f"{file} {' '.join(where)} --part {part}/{parts}": _pytest(
            f"tests/{file}", "--all", *where, "--part", f"{part}/{parts}", "-rs"
        )
        for file, parts in suites.items()
        for part in range(1, parts + 1)
    }


def _pytest(*given: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given]


def find_sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def sanitizer_commands(
    sanitizer: str, machines: Sequence[str], is_wanted: Callable[[str, str, str], bool] = lambda *_: True
) -> dict[str, list[str]]:
    """Of the first machine before others; `is_wanted` is asked by what is told of a command, program and machine."""
    return {
        what: [*_under(sanitizer, tool), *treadle_run(program, sizes, machine)]
        for machine in machines
        for tool in TOOLS
        for program, sizes in SMALL.items()
        if is_wanted(what := _told(tool, program, sizes, machine), program, machine)
    }


def _under(sanitizer: str, tool: str) -> list[str]:
    """memcheck would tell of every call of the driver that fails, too: cuda-bindings asks a driver for functions of
    newer ones, and goes without. Of initcheck's reports only those of kernels count (`initcheck.py`)."""
    if tool == "initcheck":
        return [sys.executable, str(ROOT / "benchmarks" / "initcheck.py"), sanitizer]
    quiet = ["--report-api-errors", "no"] if tool == "memcheck" else []
    return [sanitizer, "--tool", tool, "--error-exitcode", "9", *quiet]


def _told(what: str, program: str, sizes: Sequence[str], machine: str) -> str:
    return " ".join((what, program, *sizes, "for", machine))


def run_all(
    commands: Mapping[str, Sequence[str]],
    limit: float = 120,
    workers: int = 1,
    until: float = FOREVER,
    found: Callable[[Done], object] = lambda done: None,
    environment: Mapping[str, str] | None = None,
) -> list[Done]:
    """Some at a time, told as they end; those that have not begun at `until`, of the monotonic clock, are left out.
    `environment` is added to ours."""
    done: list[Done] = []
    added = environment or {}
    with ThreadPoolExecutor(workers) as pool:
        begun = [pool.submit(_run_in_time, what, command, limit, until, added) for what, command in commands.items()]
        for each in as_completed(begun):
            done.append(each.result())
            found(done[-1])
            print(done[-1].told(f"{len(done)}/{len(begun)}  "), flush=True)
    return done


def _run_in_time(what: str, command: Sequence[str], limit: float, until: float, environment: Mapping[str, str]) -> Done:
    left = until - monotonic()
    if left <= 0:
        return Done(what, False, 0.0, NOT_RUN)
    return run_one(what, command, min(limit, left), environment)


NOT_RUN = "not run: the time is over"


def run_one(what: str, command: Sequence[str], limit: float, environment: Mapping[str, str] | None = None) -> Done:
    """With all processes that it starts: those of a tool, too, end with it."""
    start = perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        said, _ = process.communicate(timeout=limit)
        ok = process.returncode == 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        ok, said = False, f"{said}\nno end after {limit:.0f} s"
    return Done(what, ok, perf_counter() - start, last_lines(said))


def last_lines(said: str) -> str:
    return "\n".join(said.strip().splitlines()[-8:])
