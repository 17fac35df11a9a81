"""Everything that needs a GPU, in one run: tests, compute-sanitizer, and speed beside what else one could use.

    python benchmarks/gpu.py [--only tests|sanitizer|launch|speed] [--quick]        (or: make gpu)

On a machine without a GPU it says so, claims nothing and writes nothing. What is not installed, or fails, is told in
the result; it never stops the rest. Times are of kernels between CUDA events, in the same process and on the same
numbers."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import checks
import results

PARTS = ("tests", "sanitizer", "launch", "speed")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave out the other parts")
    parser.add_argument("--quick", action="store_true", help="few sizes")
    parser.add_argument(
        "--triton-attention", type=Path, metavar="FILE", help="Triton's tutorials/06-fused-attention.py"
    )
    parsed = parser.parse_args(arguments)
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        print(f"{missing}: nothing was tested or measured")
        return 0
    return run_parts(tuple(parsed.only or PARTS), parsed.quick, parsed.triton_attention)


def run_parts(parts: Sequence[str], quick: bool, triton_attention: Path | None = None) -> int:
    """0 if all that ran is right; what was not run is said in the file."""
    import pycuda.autoprimaryctx  # noqa: F401
    from pycuda import driver

    device = driver.Context.get_device()
    capability = device.compute_capability()
    data: dict[str, Any] = {"capability": "{}.{}".format(*capability), "driver": driver.get_driver_version()}
    ran: list[checks.Done] = []
    if "tests" in parts:
        ran += checks.run_all(checks.test_commands())
        data["tests"] = [each.as_json() for each in ran]
    if "sanitizer" in parts:
        sanitizer = checks.find_sanitizer()
        checked = checks.run_all(checks.sanitizer_commands(sanitizer)) if sanitizer else []
        data["sanitizer"] = [each.as_json() for each in checked] if sanitizer else "not run: it is not installed"
        ran += checked
    if "launch" in parts:
        import launch_time

        data["launch"] = launch_time.report(launch_time.measure(gpu=True), gpu=True)
    if "speed" in parts:
        data |= speed(quick, device.name(), triton_attention)
    data["not run"] = [part for part in PARTS if part not in parts]
    path = results.write("gpu", data, device.name())
    print(f"written to {path.relative_to(checks.ROOT)}")
    failed = [each.what for each in ran if not each.ok]
    print(
        f"{len(ran) - len(failed)} of {len(ran)} commands right" + (f"; FAILED: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


def speed(quick: bool, device: str, triton_attention: Path | None) -> dict[str, Any]:
    """Every case, and the goals; printed as it comes."""
    from speed import kernels
    from speed.clock import cuda_timer
    from speed.goals import GOALS
    from speed.measured import measure_all, table

    kernels.TUTORIAL[:] = [triton_attention] if triton_attention else []
    found = measure_all(quick, cuda_timer(), device)
    judged = [goal.judge(found) for goal in GOALS]
    print(table(found), *judged, sep="\n")
    return {"speed": [each.as_json() for each in found], "goals": [each.as_json() for each in judged]}


if __name__ == "__main__":
    sys.exit(main())
