"""What Python takes to start a kernel on arrays of a geometry that it has met before: microseconds a call.

    python benchmarks/launch_time.py [--without-driver]

By every door: a compiled kernel and a function over named axes on tensors of a GPU, the same as an operator of PyTorch,
and a compiled kernel on arrays of numpy, which are copied there and back. On a GPU calls on tensors are timed until the
queue is full, never waiting for a result. Without one, the driver of `tests/driver` answers at once: all is timed but
what NVIDIA's does; tensors lie on the CPU, so the maps of tensor copies are not encoded. Without that driver (it takes
nvcc, a C++ compiler and cuda-bindings) launches end before cuda-bindings, and numpy's arrays are not timed."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results

ROOT = Path(__file__).resolve().parent.parent
CASES = {
    ("attention", "a100"): {"b": 1, "h": 1, "q": 64, "x": 64},
    ("attention", "h100"): {"b": 1, "h": 1, "q": 128, "x": 128},
    ("matmul", "a100"): {"m": 64, "n": 64, "k": 64},
    ("matmul", "h100"): {"m": 128, "n": 128, "k": 64},
    ("softmax", "a100"): {"row": 8, "x": 64},
}
"""Programs, and sizes at which a kernel takes less time than starting it."""
FUNCTION_MACHINE = "a100"
GOAL_US = 10.0
CALLS, RUNS = 200, 25

GPU, STAND_IN, NONE = "called", "one that answers at once", "not called"
"""Which driver is asked."""

Call = Callable[[], Any]


class Clock:
    """Microseconds of one call, in runs of many."""

    def __init__(self, driver: str):
        import torch

        self.wait: Call = torch.cuda.synchronize if driver == GPU else lambda: None
        self.now = perf_counter if driver == GPU else process_time

    def __call__(self, call: Call) -> results.Sample:
        found: list[float] = []
        for _ in range(RUNS):
            self.wait()
            begin = self.now()
            for _ in range(CALLS):
                call()
            found.append((self.now() - begin) / CALLS)
        self.wait()
        return results.Sample(tuple(found))

    def once(self, call: Call) -> float:
        begin = self.now()
        call()
        return self.now() - begin


def tensors_for(kernel: Any, sizes: dict[str, int], device: str) -> list[Any]:
    import torch

    dtypes = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32}
    shapes = [[size or sizes[axis] for axis, size in each.axes.items()] for each in kernel.arguments]
    return [
        torch.zeros(shape, dtype=dtypes[each.format], device=device)
        for shape, each in zip(shapes, kernel.arguments, strict=True)
    ]


def known(kernel: Any, given: Sequence[Any], driver: str) -> None:
    """The first call, on tensors of the CPU: what it launches is started again at later ones, by that driver."""
    import torch

    from treadle.runtime.prepared import Prepared
    from treadle.runtime.torch_geometry import geometry
    from treadle.runtime.torch_gpu import TorchBackend, device_array, traced
    from treadle.runtime.torch_replay import Replay

    _, plan = traced(kernel.module, nothing_done(TorchBackend), [device_array(each) for each in given])
    assert plan is not None
    encoded = ctypes.create_string_buffer(128).raw
    functions = kernel.backend("gpu", False).functions if driver == STAND_IN else None

    def prepare(launch: Any) -> Prepared:
        start = functions._start(launch) if functions else lambda pointer, stream: None
        return Prepared(start, launch.arguments, lambda map, address: encoded)

    kernel.keep(geometry(given)[0], Replay(plan, prepare, torch.device("cpu"), lambda: 0))


def nothing_done(base: type) -> Any:
    """A device that allocates and launches nothing, and on which every tensor map is made."""
    import torch

    class Nothing(base):
        has_tensor_maps = True

        def launch(self, *arguments: Any) -> None: ...

        def tensor_map(self, *arguments: Any) -> Any:
            return object()

    return Nothing(None, torch.device("cpu"))


def measure(driver: str) -> list[dict[str, Any]]:
    clock, found = Clock(driver), list[dict[str, Any]]()
    for (name, machine), sizes in CASES.items():
        if driver == GPU and not runs_here(machine):
            continue
        kernel = kernel_of(name, machine)
        given = tensors_for(kernel, sizes, "cuda" if driver == GPU else "cpu")
        arrays = [each.cpu().numpy() for each in given]
        found.append(timed(f"{name} on tensors", machine, clock, kernel, given, driver))
        if driver != NONE:
            call = partial(kernel.run, *arrays, backend="gpu")
            found.append(row(f"{name} on arrays of numpy", machine, clock.once(call), clock(call)))
    if driver != GPU or runs_here("a100"):
        found.extend(of_functions(clock, driver))
    return found


def timed(
    what: str, machine: str, clock: Clock, kernel: Any, given: Sequence[Any], driver: str, call: Any = None
) -> dict[str, Any]:
    call = call or kernel.run
    first = clock.once(lambda: call(*given) if driver == GPU else known(kernel, given, driver))
    return row(what, machine, first, clock(lambda: call(*given)))


def of_functions(clock: Clock, driver: str) -> Iterator[dict[str, Any]]:
    """A function over named axes, called, and as an operator of PyTorch."""
    from treadle.torch import operator

    attention, machine = function(), FUNCTION_MACHINE
    given = halves("cuda" if driver == GPU else "cpu")
    kernel = attention.compiled(*given)
    yield timed("attention as a function", machine, clock, kernel, given, driver, attention)
    made = operator("timed::attention", attention)
    yield timed("attention as an operator", machine, clock, kernel, given, driver, made)


def function() -> Any:
    import treadle
    import treadle.language as tl

    @treadle.kernel("q d, x d, x e -> q e", machine=FUNCTION_MACHINE)
    def attention(Q: Any, K: Any, V: Any) -> Any:
        return tl.contract(tl.softmax(tl.contract(Q, K, over="d"), over="x"), V, over="x")

    return attention


def halves(device: str) -> list[Any]:
    import torch

    return [torch.zeros(64, 64, dtype=torch.float16, device=device) for _ in "QKV"]


def kernel_of(example: str | None, machine: str) -> Any:
    """That of an example, or of the function."""
    import treadle

    if example is None:
        return function().compiled(*halves("cpu"))
    return treadle.compile(ROOT / "examples" / f"{example}.mlir", machine=machine)


def row(what: str, machine: str, first: float, later: results.Sample) -> dict[str, Any]:
    us = {"median": later.median, "least": min(later.seconds), "most": max(later.seconds)}
    us = {key: round(value * 1e6, 2) for key, value in us.items()} | {"runs": len(later.seconds)}
    return {"what": what, "machine": machine, "first_us": round(first * 1e6), "later_us": us}


def runs_here(machine: str) -> bool:
    import torch

    from treadle.compiler.machines import load_machine
    from treadle.runtime.gpu import arch_for

    return arch_for(load_machine(machine).arch, torch.cuda.get_device_capability()) is not None


def report(found: Sequence[dict[str, Any]], driver: str) -> dict[str, Any]:
    rows = [
        [
            f"{each['what']} for {each['machine']}",
            f"{each['first_us']} us",
            f"{each['later_us']['least']:.1f} us",
            f"{each['later_us']['median']:.1f} us",
        ]
        for each in found
    ]
    print(results.table(["Python a call", "first", "later: least", "median"], rows))
    worst = max(each["later_us"]["median"] for each in found if each["what"].endswith("tensors"))
    print(f"later calls on tensors, the driver's launch {driver}: {results.goal(worst, GOAL_US)}")
    load = round(os.getloadavg()[0], 1)
    return {"unit": "microseconds", "driver": driver, "goal": GOAL_US, "load": load, "cases": found}


def with_stand_in() -> int | None:
    """The same again, in a process that finds the driver that answers at once; None where none can be made."""
    from treadle.runtime.cuda_driver import is_installed
    from treadle.runtime.nvcc import find_nvcc

    if not is_installed() or (nvcc := find_nvcc()) is None or shutil.which("g++") is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        options = ["-std=c++17", "-O1", "-shared", "--cudart=none", "-Xcompiler=-fPIC,-fvisibility=hidden"]
        subprocess.run([nvcc, *options, str(ROOT / "tests" / "driver" / "libcuda.cpp"), "-o", str(library)], check=True)
        found = os.pathsep.join(filter(None, [folder, os.environ.get("LD_LIBRARY_PATH")]))
        environment = {**os.environ, "LD_LIBRARY_PATH": found, "DRIVER_AT_ONCE": "1"}
        return subprocess.run([sys.executable, __file__, "--stand-in"], env=environment, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--without-driver", action="store_true", help="end launches before cuda-bindings")
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    from treadle.runtime.gpu import missing_for_gpu

    driver = STAND_IN if parsed.stand_in else GPU if missing_for_gpu() is None else NONE
    if driver == NONE and not parsed.without_driver and (code := with_stand_in()) is not None:
        return code
    device = None
    if driver == GPU:
        import torch

        device = torch.cuda.get_device_name()
    path = results.write("launch-time", report(measure(driver), driver), device)
    print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
