"""How long the emulator takes for kernels that it has compiled, and how long that compiling takes.

python benchmarks/emulator_time.py [--runs N]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results

from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function

CASES: Mapping[str, tuple[str, str, Mapping[str, int]]] = {
    "attention 256 x 256, d 64": ("sm_80", programs.attention(64), {"b": 1, "h": 1, "q": 256, "x": 256}),
    "attention 256 x 256, d 128": ("sm_80", programs.attention(128), {"b": 1, "h": 1, "q": 256, "x": 256}),
    "matmul 256^3": ("sm_80", programs.matmul({"m": 256, "n": 256, "k": 256}), {"m": 256, "n": 256, "k": 256}),
    "attention 256 x 256, d 64, sm_90a": ("sm_90a", programs.attention(64), {"b": 1, "h": 1, "q": 256, "x": 256}),
}
GOALS = {
    ("attention 256 x 256, d 64", True): 1.5,
    ("attention 256 x 256, d 64", False): 0.5,
    ("matmul 256^3", True): 3.0,
    ("attention 256 x 256, d 64, sm_90a", True): 5.0,
}
"""Seconds of a run, with checks and without."""

COMPILE_GOAL = 5.0


def measure(name: str, checks: bool, runs: int) -> tuple[float, results.Sample]:
    """Seconds to compile for the host, and of runs; the emulator's own runtime is compiled before."""
    arch, text, sizes = CASES[name]
    module = parse_module(text)
    function = entry_function(module.clone())
    inputs = make_inputs(function, axis_sizes(function, sizes), 0)
    run_pipeline(module, Options(arch=arch))
    start = perf_counter()
    backend = EmulatorBackend(print_cuda(module), kernel_names(module), checks=checks)
    backend.module(kernel_names(module)[0])  # what is launched: all rows are aligned
    compiling = perf_counter() - start
    seconds: list[float] = []
    for _ in range(runs):
        start = perf_counter()
        execute(module, inputs, backend)
        seconds.append(perf_counter() - start)
    return compiling, results.Sample(tuple(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TREADLE_CACHE"] = folder  # or the compiler would not be asked
        found = {(name, checks): measure(name, checks, runs) for name in CASES for checks in (True, False)}
    rows: list[list[str]] = []
    for (name, checks), (compiling, sample) in found.items():
        bound = GOALS.get((name, checks))
        said = results.goal(sample.median, bound) if bound else ""
        rows.append(
            [f"{name}, {'all checks' if checks else 'no checks'}", f"{sample.median:.3f} s", said, f"{compiling:.2f} s"]
        )
    print(results.table(["", "run, median", "", "compiled in"], rows))
    print(f"load of the machine before the runs: {load}")
    worst = max(compiling for compiling, _ in found.values())
    print(f"compiling for the host, kernel and runtime, {results.goal(worst, COMPILE_GOAL)}")
    path = results.write(
        "emulator-time",
        {
            "unit": "seconds",
            "load": load,
            "cases": [
                {
                    "what": name,
                    "checks": checks,
                    "run": sample.as_json(),
                    "goal": GOALS.get((name, checks)),
                    "compile": round(compiling, 3),
                }
                for (name, checks), (compiling, sample) in found.items()
            ],
        },
    )
    print(f"written to {path}")


if __name__ == "__main__":
    main()
