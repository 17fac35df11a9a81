"""Everything that needs a GPU, in one run: tests, compute-sanitizer, and speed beside what else one could use.

    python benchmarks/gpu.py [--only tests|sanitizer|speed] [--quick]        (or: make gpu)

On a machine without a GPU it says so, claims nothing and writes nothing. What is not installed, or fails, is told in
the result; it never stops the rest. Times are of kernels between CUDA events, in the same process and on the same
numbers."""

from __future__ import annotations

import argparse
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parent))

import programs
import results

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("tests", "sanitizer", "speed")

Call = Callable[[], Any]
"""One use of a kernel: starts it, and does not wait."""


class NotHere(Exception):
    """What one would compare with is not installed, or does not do this."""


# -- what is measured ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """One computation: attention (`b`, `h`, `q`, `x`, `d`) or a matrix product (`m`, `n`, `k`), in f16."""

    kind: str
    sizes: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(f'{axis} {size}' for axis, size in self.sizes.items())}"

    @property
    def flop(self) -> int:
        """Of the products: two for each multiplication and addition."""
        s = self.sizes
        if self.kind == "matmul":
            return 2 * s["m"] * s["n"] * s["k"]
        return 4 * s["b"] * s["h"] * s["q"] * s["x"] * s["d"]

    @property
    def program(self) -> str:
        if self.kind == "matmul":
            return programs.matmul(self.sizes)
        return programs.attention(self.sizes["d"], {axis: size for axis, size in self.sizes.items() if axis != "d"})

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the inputs."""
        s = self.sizes
        if self.kind == "matmul":
            return (s["m"], s["k"]), (s["k"], s["n"])
        return tuple((s["b"], s["h"], s[rows], s["d"]) for rows in ("q", "x", "x"))


def cases(quick: bool) -> list[Case]:
    """Published figures are at 16k tokens: batch times length stays the same."""
    lengths = (1024, 4096) if quick else (512, 1024, 2048, 4096, 8192, 16384)
    attention = [
        Case("attention", {"b": 16384 // length, "h": 2048 // d, "q": length, "x": length, "d": d})
        for d in (64, 128)
        for length in lengths
    ]
    products = [Case("matmul", dict.fromkeys("mnk", size)) for size in ((2048,) if quick else (1024, 2048, 4096, 8192))]
    return [*attention, *products]


# -- how it is measured --------------------------------------------------------------------------------


class Timer(Protocol):
    """Seconds that the device takes for some calls."""

    def __call__(self, call: Call, repeats: int) -> float: ...


def cuda_timer() -> Timer:
    """Between CUDA events on the default stream, which is PyTorch's too."""
    from pycuda import driver

    def seconds(call: Call, repeats: int) -> float:
        begin, end = driver.Event(), driver.Event()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return begin.time_till(end) / 1e3

    return seconds


SAMPLES, SAMPLE_SECONDS = 15, 0.02


def measure(call: Call, timer: Timer, samples: int = SAMPLES, least: float = SAMPLE_SECONDS) -> results.Sample:
    """Seconds of one call. Each sample repeats it until the clock's grain and the launch do not matter; what comes
    before is for warming up."""
    once = max(timer(call, 3) / 3, 1e-9)
    once = max(timer(call, 3) / 3, 1e-9)
    repeats = max(1, math.ceil(least / once))
    return results.Sample(tuple(timer(call, repeats) / repeats for _ in range(samples)))


# -- who is measured -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """A kernel ready to run on a case, and what it computed once."""

    call: Call
    result: Callable[[], Any]
    """A numpy array."""


def treadle_arch(capability: tuple[int, int]) -> str:
    """What to make kernels for."""
    return "sm_90a" if capability == (9, 0) else "sm_80"


def prepare_treadle(case: Case, inputs: Sequence[Any], capability: tuple[int, int]) -> Prepared:
    """The whole road once, as `treadle run` takes it; then its launches again and again."""
    from treadle.compiler.cli.run import kernel_names
    from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
    from treadle.compiler.source import parse_module
    from treadle.runtime.gpu import GpuBackend
    from treadle.runtime.host import execute

    class Recorder(GpuBackend):
        """Remembers launches, so that they can be repeated without the host's part."""

        def __init__(self, *arguments: Any):
            super().__init__(*arguments)
            self.launches: list[Call] = []

        def launch(self, *arguments: Any) -> None:
            super().launch(*arguments)
            self.launches.append(lambda: super(Recorder, self).launch(*arguments))

    arch = treadle_arch(capability)
    module = parse_module(case.program)
    run_pipeline(module, Options(arch=arch))
    backend = Recorder(print_cuda(module), kernel_names(module), arch)
    (result,) = execute(module, inputs, backend)
    return Prepared(lambda: [launch() for launch in backend.launches], lambda: result)


def prepare_torch(case: Case, inputs: Sequence[Any], what: str) -> Prepared:
    """PyTorch on the same numbers (NotHere)."""
    torch = _torch()
    arrays = [torch.from_numpy(each).cuda() for each in inputs]
    function = _torch_function(torch, case, what)
    call = lambda: function(*arrays)  # noqa: E731
    return Prepared(call, lambda: call().cpu().numpy())


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise NotHere("PyTorch is not installed") from error
    if not torch.cuda.is_available():
        raise NotHere("this PyTorch has no CUDA")
    return torch


def _torch_function(torch: Any, case: Case, what: str) -> Callable[..., Any]:
    if what == "cuBLAS":
        return torch.matmul
    if what == "Triton":
        if case.kind == "matmul":
            torch._inductor.config.max_autotune_gemm_backends = "TRITON"
            return torch.compile(torch.matmul, mode="max-autotune-no-cudagraphs")
        from torch.nn.attention.flex_attention import flex_attention

        return torch.compile(flex_attention)
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = {"SDPA flash": SDPBackend.FLASH_ATTENTION, "SDPA cuDNN": SDPBackend.CUDNN_ATTENTION}[what]

    def attention(*arrays: Any) -> Any:
        with sdpa_kernel([backend]):
            return torch.nn.functional.scaled_dot_product_attention(*arrays)

    return attention


PEERS = {"attention": ("SDPA flash", "SDPA cuDNN", "Triton"), "matmul": ("cuBLAS", "Triton")}
"""Beside treadle. Triton's attention is FlexAttention without a change of the score, its product is what torch.compile
tunes: both are Triton kernels."""


# -- speed ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One kernel on one case: its time, or why there is none."""

    who: str
    seconds: results.Sample | None = None
    error: float | None = None
    """Largest difference from the first peer's result."""
    reason: str = ""

    def tflops(self, case: Case) -> float | None:
        return case.flop / self.seconds.median / 1e12 if self.seconds else None

    def as_json(self, case: Case) -> dict[str, Any]:
        if self.seconds is None:
            return {"who": self.who, "not measured": self.reason}
        tflops = round(case.flop / self.seconds.median / 1e12, 2)
        return {"who": self.who, "tflops": tflops, "seconds": self.seconds.as_json(), "largest difference": self.error}


def measure_case(
    case: Case, makers: Mapping[str, Callable[[], Prepared]], timer: Timer, difference: Callable[[Any, Any], float]
) -> list[Measured]:
    """Everybody on one case. The first result that there is, treadle's aside, is what the others are compared with."""
    found: list[Measured] = []
    reference: Any = None
    for who in sorted(makers, key=lambda each: each == "treadle"):
        try:
            prepared = makers[who]()
            result = prepared.result()
            reference = result if reference is None else reference
            found.append(Measured(who, measure(prepared.call, timer), difference(result, reference)))
        except Exception as error:
            # Whatever a peer raises is its own: it is told, and the others go on.
            said = str(error).strip().splitlines()
            found.append(Measured(who, reason=f"{type(error).__name__}: {said[0] if said else ''}"))
    return found


def largest_difference(one: Any, other: Any) -> float:
    import numpy as np

    return float(np.max(np.abs(one.astype(np.float32) - other.astype(np.float32)), initial=0))


def speed(quick: bool, timer: Timer, capability: tuple[int, int]) -> list[tuple[Case, list[Measured]]]:
    """All cases."""
    import numpy as np

    found: list[tuple[Case, list[Measured]]] = []
    for case in cases(quick):
        random = np.random.default_rng(0)
        inputs = [random.standard_normal(shape, np.float32).astype(np.float16) for shape in case.shapes]

        def ours(case: Case = case, inputs: Sequence[Any] = inputs) -> Prepared:
            return prepare_treadle(case, inputs, capability)

        def theirs(what: str, case: Case = case, inputs: Sequence[Any] = inputs) -> Callable[[], Prepared]:
            return lambda: prepare_torch(case, inputs, what)

        makers = {"treadle": ours, **{what: theirs(what) for what in PEERS[case.kind]}}
        found.append((case, measure_case(case, makers, timer, largest_difference)))
        print(speed_lines([found[-1]]), flush=True)
    return found


def speed_lines(found: Sequence[tuple[Case, Sequence[Measured]]]) -> str:
    """TFLOP/s, a row a case and kernel; and each as a part of the best of the others."""
    rows: list[list[str]] = []
    for case, measured in found:
        best = max((each.tflops(case) or 0 for each in measured if each.who != "treadle"), default=0)
        for each in measured:
            tflops = each.tflops(case)
            if tflops is None:
                rows.append([f"{case}: {each.who}", "not measured", each.reason])
                continue
            share = f"{100 * tflops / best:.0f} %" if best else ""
            rows.append([f"{case}: {each.who}", f"{tflops:.1f} TFLOP/s", share])
    return results.table(["", "median", "of the best other"], rows)


# -- tests and sanitizer -------------------------------------------------------------------------------


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


# -- the whole -----------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="leave out the other parts")
    parser.add_argument("--quick", action="store_true", help="few sizes")
    parsed = parser.parse_args(arguments)
    from treadle.runtime.gpu import missing_for_gpu

    if (missing := missing_for_gpu()) is not None:
        print(f"{missing}: nothing was tested or measured")
        return 0
    return run_parts(tuple(parsed.only or PARTS), parsed.quick)


def run_parts(parts: Sequence[str], quick: bool) -> int:
    """0 if all that ran is right; what was not run is said in the file."""
    import pycuda.autoprimaryctx  # noqa: F401
    from pycuda import driver

    device = driver.Context.get_device()
    capability = device.compute_capability()
    data: dict[str, Any] = {"capability": "{}.{}".format(*capability), "driver": driver.get_driver_version()}
    ran: list[Done] = []
    if "tests" in parts:
        ran += run_all(test_commands())
        data["tests"] = [each.as_json() for each in ran]
    if "sanitizer" in parts:
        sanitizer = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
        checked = run_all(sanitizer_commands(sanitizer)) if sanitizer else []
        data["sanitizer"] = [each.as_json() for each in checked] if sanitizer else "not run: it is not installed"
        ran += checked
    if "speed" in parts:
        found = speed(quick, cuda_timer(), capability)
        data["speed"] = [
            {"case": str(case), "flop": case.flop, "kernels": [each.as_json(case) for each in measured]}
            for case, measured in found
        ]
        print(speed_lines(found))
    data["not run"] = [part for part in PARTS if part not in parts]
    path = results.write("gpu", data, device.name())
    print(f"written to {path.relative_to(ROOT)}")
    failed = [each.what for each in ran if not each.ok]
    print(
        f"{len(ran) - len(failed)} of {len(ran)} commands right" + (f"; FAILED: {', '.join(failed)}" if failed else "")
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
