"""What Python takes to start a kernel on arrays of a geometry that it has met before: microseconds a call.

    python benchmarks/launch_time.py [--without-driver]

By every door: a compiled kernel and a function over named axes on tensors of a GPU, the same as an operator of PyTorch,
and a compiled kernel on arrays of numpy, which are copied there and back. On a GPU calls on tensors are timed until the
queue is full, never waiting for a result, and the driver's launch is timed alone, too: the goal is for the rest, which
is Python's and PyTorch's. Of that, what PyTorch takes at the least is timed beside it: allocating the results
(`torch.empty`), and an operator of as many tensors that does nothing. Without a GPU, the driver of `tests/driver`
answers at once: all is timed but what NVIDIA's does; tensors lie on the CPU, so the maps of tensor copies are not
encoded. Without that driver (it takes nvcc, a C++ compiler and cuda-bindings) launches end before cuda-bindings, and
numpy's arrays are not timed."""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
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

PARTS = {"driver_us": "driver alone", "empty_us": "torch.empty alone", "empty_operator_us": "empty operator alone"}
"""What is timed alone beside a case."""


@dataclass
class Case:
    """One thing that is called, the seconds of its first call, and on tensors its driver's part alone, where there is
    one, PyTorch's parts alone, by the key of their times, and what gives None where tensors are looked up one by
    one."""

    what: str
    machine: str
    first: float
    call: Call
    driver: Call | None = None
    parts: dict[str, Call] = field(default_factory=dict[str, Call])
    at_once: Call | None = None


class Clock:
    """Seconds of one call, in runs of many. A run of one thing is followed by one of the next, so that what else goes
    on in the machine for a while hits all."""

    def __init__(self, driver: str):
        import torch

        self.wait: Call = torch.cuda.synchronize if driver == GPU else lambda: None
        self.now = perf_counter if driver == GPU else process_time

    def __call__(self, calls: Sequence[Call]) -> list[results.Sample]:
        found: list[list[float]] = [[] for _ in calls]
        for _ in range(RUNS):
            for call, seconds in zip(calls, found, strict=True):
                seconds.append(self.run(call))
        self.wait()
        return [results.Sample(tuple(seconds)) for seconds in found]

    def run(self, call: Call) -> float:
        self.wait()
        begin = self.now()
        for _ in range(CALLS):
            call()
        return (self.now() - begin) / CALLS

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

    from treadle.runtime.torch_geometry import geometry
    from treadle.runtime.torch_replay import Replay

    replay = Replay(plan_of(kernel, given), preparing(kernel, driver), torch.device("cpu"), lambda: 0)
    kernel.keep(geometry(given)[0], replay)


def allocating(kernel: Any, given: Sequence[Any]) -> Callable[[], list[Any]]:
    """Memory of all that a call makes, by PyTorch's public function."""
    import torch

    from treadle.runtime.torch_replay import TORCH_NAMES

    device, empty = given[0].device, torch.empty
    rooms = [(shape, getattr(torch, TORCH_NAMES[dtype])) for shape, dtype in plan_of(kernel, given).allocations]
    return lambda: [empty(shape, dtype=dtype, device=device) for shape, dtype in rooms]


def empty_operator(given: Sequence[Any]) -> Call:
    """An operator of PyTorch that takes as many tensors, and makes and launches nothing: it gives what it has."""
    import torch

    namespace, result = "timed_empty", torch.empty_like(given[0])
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"nothing({', '.join(f'Tensor t{number}' for number in range(len(given)))}) -> Tensor")
    library.impl("nothing", lambda *tensors: result, given[0].device.type.upper())
    call = getattr(torch.ops, namespace).nothing.default
    return lambda held=library: call(*given)  # PyTorch forgets it with its library


def driver_alone(kernel: Any, given: Sequence[Any], driver: str) -> Call | None:
    """Nothing but what the driver is asked, again and again for one result."""
    if driver == NONE:
        return None
    plan = plan_of(kernel, given)
    made = allocating(kernel, given)()
    addresses = [each.data_ptr() for each in (*given, *made)]
    prepared = [preparing(kernel, driver)(launch) for launch in plan.launches]
    for each in prepared:
        each.again(addresses, 0)
    starts = [(each._start, each._pointer) for each in prepared]

    def launch(held: Any = (given, made, prepared)) -> None:  # memory that is read and written meanwhile
        for start, pointer in starts:
            start(pointer, 0)

    return launch


def plan_of(kernel: Any, given: Sequence[Any]) -> Any:
    from treadle.runtime.torch_gpu import TorchBackend, device_array, traced

    _, plan = traced(kernel.module, nothing_done(TorchBackend, given[0].device), [device_array(each) for each in given])
    assert plan is not None
    return plan


def preparing(kernel: Any, driver: str) -> Callable[[Any], Any]:
    """What makes a launch ready to be done again. Tensors of the CPU have no maps that a driver would encode."""
    from treadle.runtime.prepared import Prepared

    functions = kernel.backend("gpu", False).functions if driver != NONE else None
    if driver == GPU:
        return functions.prepared
    encoded = ctypes.create_string_buffer(128).raw

    def prepare(launch: Any) -> Prepared:
        start = functions._start(launch) if functions else lambda pointer, stream: None
        return Prepared(start, launch.arguments, lambda map, address: encoded)

    return prepare


def nothing_done(base: type, device: Any) -> Any:
    """A device that launches nothing, and on which every tensor map is made."""

    class Nothing(base):
        has_tensor_maps = True

        def launch(self, *arguments: Any) -> None: ...

        def tensor_map(self, *arguments: Any) -> Any:
            return object()

    return Nothing(None, device)


def measure(driver: str) -> list[dict[str, Any]]:
    clock = Clock(driver)
    cases = [*of_kernels(clock, driver)]
    if driver != GPU or runs_here(FUNCTION_MACHINE):
        cases += of_functions(clock, driver)
    later = clock([each.call for each in cases])
    alone = [*dict.fromkeys(part for each in cases for part in alone_of(each).values())]
    samples = dict(zip(alone, clock(alone), strict=True))
    return [
        row(each, sample, {key: samples[part] for key, part in alone_of(each).items()})
        for each, sample in zip(cases, later, strict=True)
    ]


def alone_of(case: Case) -> dict[str, Call]:
    """Its parts that are timed alone."""
    return {**({"driver_us": case.driver} if case.driver is not None else {}), **case.parts}


def of_kernels(clock: Clock, driver: str) -> Iterator[Case]:
    for (name, machine), sizes in CASES.items():
        if driver == GPU and not runs_here(machine):
            continue
        kernel = kernel_of(name, machine)
        given = tensors_for(kernel, sizes, "cuda" if driver == GPU else "cpu")
        arrays = [each.cpu().numpy() for each in given]
        yield on_tensors(f"{name} on tensors", machine, clock, kernel, given, driver)
        if driver != NONE:
            call = partial(kernel.run, *arrays, backend="gpu")
            yield Case(f"{name} on arrays of numpy", machine, clock.once(call), call)


def on_tensors(
    what: str, machine: str, clock: Clock, kernel: Any, given: Sequence[Any], driver: str, call: Any = None
) -> Case:
    call = partial(call or kernel.run, *given)
    first = clock.once(call if driver == GPU else lambda: known(kernel, given, driver))
    parts = {"empty_us": allocating(kernel, given)}
    return Case(what, machine, first, call, driver_alone(kernel, given, driver), parts, partial(kernel.at_once, given))


def of_functions(clock: Clock, driver: str) -> Iterator[Case]:
    """A function over named axes, called, and as an operator of PyTorch: the object that registering gives, and what
    PyTorch finds by name, as graphs do."""
    import torch

    from treadle.torch import operator

    attention, machine = function(), FUNCTION_MACHINE
    given = halves("cuda" if driver == GPU else "cpu")
    kernel = attention.compiled(*given)
    yield on_tensors("attention as a function", machine, clock, kernel, given, driver, attention)
    made, empty = operator("timed::attention", attention), empty_operator(given)
    for what, call in (("an operator", made), ("an operator of torch.ops", torch.ops.timed.attention.default)):
        case = on_tensors(f"attention as {what}", machine, clock, kernel, given, driver, call)
        case.parts["empty_operator_us"] = empty
        yield case


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


def row(case: Case, later: results.Sample, alone: dict[str, results.Sample]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "what": case.what,
        "machine": case.machine,
        "first_us": round(case.first * 1e6),
        "later_us": in_us(later),
    }
    made |= {key: in_us(sample) for key, sample in alone.items()}
    if case.at_once is not None:
        made["at_once"] = case.at_once() is not None
    return made


def in_us(sample: results.Sample) -> dict[str, Any]:
    us = {"median": sample.median, "least": min(sample.seconds), "most": max(sample.seconds)}
    return {key: round(value * 1e6, 2) for key, value in us.items()} | {"runs": len(sample.seconds)}


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
            *(f"{each[key]['median']:.1f} us" if key in each else "" for key in PARTS),
        ]
        for each in found
    ]
    print(results.table(["a call", "first", "later: least", "median", *PARTS.values()], rows))
    worst = max(python_us(each, driver) for each in found if "numpy" not in each["what"])
    print(f"Python in later calls on tensors, at most: {worst:.1f} us; {results.goal(worst, GOAL_US)}; driver {driver}")
    load = round(os.getloadavg()[0], 1)
    return {"unit": "microseconds", "driver": driver, "goal": GOAL_US, "load": load, "cases": found}


def python_us(case: dict[str, Any], driver: str) -> float:
    """What is not the driver's; where that answers at once, only calling it takes time."""
    return case["later_us"]["median"] - (case["driver_us"]["median"] if driver == GPU else 0.0)


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
