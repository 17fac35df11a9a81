"""Tests and compute-sanitizer on a GPU, each a command of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import programs

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Done:
    """A command that ran."""

    what: str
    ok: bool
    seconds: float
    tail: str = ""
    """The last lines of what it said, if it failed."""

    def as_json(self) -> dict[str, Any]:
        failed = {} if self.ok else {"said": self.tail}
        return {"what": self.what, "ok": self.ok, "seconds": round(self.seconds, 1), **failed}


SMALL = {
    "attention": ("b=1", "h=2", "q=70", "x=150"),
    "attention_bf16": (),
    "matmul": ("m=70", "n=72", "k=200"),
    "softmax": (),
    "two_kernels": (),
}
"""Programs for the sanitizer, at sizes with full and partial pieces."""

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def treadle_run(program: str, sizes: Sequence[str] = ()) -> list[str]:
    chosen = [part for size in sizes for part in ("--size", size)]
    file = f"examples/{program}.mlir"
    return [sys.executable, "-m", "treadle.compiler.main", "run", file, "--backend", "gpu", *chosen]


def test_commands() -> dict[str, list[str]]:
    """The tests that need a GPU, then every example, verified."""
    runs = {f"treadle run {path.stem}": treadle_run(path.stem) for path in sorted(programs.EXAMPLES.glob("*.mlir"))}
    odd = treadle_run("attention", ("q=1", "x=1")), treadle_run("attention", ("q=65", "x=1031"))
    return {
        "pytest": [sys.executable, "-m", "pytest", "-q", "tests/test_gpu.py"],
        **runs,
        "treadle run attention, one of each": odd[0],
        "treadle run attention, odd": odd[1],
    }


def find_sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")


def sanitizer_commands(sanitizer: str) -> dict[str, list[str]]:
    return {
        f"{tool} {program}": [sanitizer, "--tool", tool, "--error-exitcode", "9", *treadle_run(program, sizes)]
        for tool in TOOLS
        for program, sizes in SMALL.items()
    }


def run_all(commands: Mapping[str, Sequence[str]], limit: float = 600) -> list[Done]:
    found: list[Done] = []
    for what, command in commands.items():
        found.append(run_one(what, command, limit))
        print(f"{'ok    ' if found[-1].ok else 'FAILED'}  {what}", flush=True)
    return found


def run_one(what: str, command: Sequence[str], limit: float) -> Done:
    start = perf_counter()
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit, check=False)
        ok, said = done.returncode == 0, done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        ok, said = False, f"no end after {limit:.0f} s"
    return Done(what, ok, perf_counter() - start, "" if ok else "\n".join(said.strip().splitlines()[-8:]))
