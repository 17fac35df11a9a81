"""How long `treadle compile` takes, as a user waits for it: whole processes, with start-up; and how long its pages of
every example take (`page_time.py`), the first time with nvcc's time on top, which is not counted.

python benchmarks/compile_time.py [--runs N] [--without-pages]

The pages of all examples take ten minutes; a result without them says nothing of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import page_time
import programs
import results
from processes import in_turn, treadle

GOALS = {"sm_80": 1.0, "sm_90a": 1.5}
"""Seconds, on 2 x86-64 cores, for attention, by architecture; sm_80 is what is compiled for where nothing is said."""

IMPORTS = [
    sys.executable,
    "-c",
    "import numpy, xdsl.dialects.builtin, xdsl.dialects.func, xdsl.dialects.math, xdsl.parser",
]
"""What every compilation imports of others: a floor, and a measure of how fast the machine was."""

OTHERS = {
    "TileLang 0.1.15": ("attention f16 d 128, sm_90a, to CUDA C", 3.0 + 2.4),
    "Triton 3.6.0": ("attention f16 d 128, sm_90a, to a cubin", 0.22 + 2.6),
}
"""Import and lowering, in seconds, measured once on 2 x86-64 cores of this kind, cold, medians that swing by some
40 %. Triton's ends with machine code, ours and TileLang's with CUDA C: nvcc comes on top for both."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--without-pages", action="store_true", help="leave out the pages, which take ten minutes")
    arguments = parser.parse_args()
    runs = arguments.runs
    load = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as folder:
        output = ["-o", str(Path(folder) / "a.cu")]
        commands = {
            f"treadle compile {name}, {arch}": treadle(
                "compile", str(programs.EXAMPLES / f"{name}.mlir"), "--arch", arch, *output
            )
            for name in ("attention", "matmul", "two_kernels")
            for arch in GOALS
        }
        others = {"treadle --version": treadle("--version"), "importing NumPy and xDSL's dialects alone": IMPORTS}
        samples = in_turn({**commands, **others}, runs)
    pages = None if arguments.without_pages else page_time.slowest_pages(runs)
    mine = samples["treadle compile attention, sm_90a"].wall.median
    ratios = {name: round(seconds / mine, 2) for name, (_, seconds) in OTHERS.items()}
    rows = [
        [name, f"{sample.wall.median:.2f} s", f"{sample.work.median:.2f} s", ""] for name, sample in samples.items()
    ]
    rows += [
        [f"{name}: {what}", f"{seconds:.2f} s", "", f"{ratios[name]:.1f} x"] for name, (what, seconds) in OTHERS.items()
    ]
    rows += [] if pages is None else page_time.rows(pages)
    print(results.table(["whole process, median", "waited", "worked", "treadle's"], rows))
    print(f"load of the machine before the runs: {load}")
    for arch, goal in GOALS.items():
        print(f"attention, {arch}, {results.goal(samples[f'treadle compile attention, {arch}'].wall.median, goal)}")
    if pages is not None:
        print(page_time.verdict(pages))
    path = results.write(
        "compile-time",
        {
            "unit": "seconds, whole process",
            "goals": GOALS,
            "treadle": {
                name: {"waited": sample.wall.as_json(), "worked": sample.work.as_json()}
                for name, sample in samples.items()
            },
            **({} if pages is None else {"pages": page_time.as_json(pages)}),
            "load": load,
            "others": {
                name: {"what": what, "seconds": seconds, "ratio": ratios[name]}
                for name, (what, seconds) in OTHERS.items()
            },
            "note": "the others' figures were measured earlier, on another day, on a machine of the same kind",
        },
    )
    print(f"written to {path}")


if __name__ == "__main__":
    main()
