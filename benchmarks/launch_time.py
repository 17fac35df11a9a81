"""What Python takes to start a kernel on tensors of a GPU that it has met before: microseconds a call of `Kernel.run`.

    python benchmarks/launch_time.py

On a GPU calls are timed until the queue is full, never waiting for a result. Without one, all but the driver itself is
timed: geometry, results, arguments, on tensors of the CPU; what the driver's launch costs is not in that."""

from __future__ import annotations

import argparse
import ctypes
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import results

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CASES = {
    ("attention", "a100"): {"b": 1, "h": 1, "q": 64, "x": 64},
    ("attention", "h100"): {"b": 1, "h": 1, "q": 128, "x": 128},
    ("matmul", "a100"): {"m": 64, "n": 64, "k": 64},
    ("matmul", "h100"): {"m": 128, "n": 128, "k": 64},
    ("softmax", "a100"): {"row": 8, "x": 64},
}
"""Programs, and sizes at which a kernel takes less time than starting it."""
GOAL_US = 10.0
CALLS, RUNS = 200, 25


def tensors_for(kernel: Any, sizes: dict[str, int], device: str) -> list[Any]:
    import torch

    dtypes = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i32": torch.int32}
    shapes = [[size or sizes[axis] for axis, size in each.axes.items()] for each in kernel.arguments]
    return [
        torch.zeros(shape, dtype=dtypes[each.format], device=device)
        for shape, each in zip(shapes, kernel.arguments, strict=True)
    ]


def microseconds(call: Callable[[], Any], wait: Callable[[], Any], clock: Callable[[], float]) -> results.Sample:
    """Of one call, in runs of many."""
    found: list[float] = []
    for _ in range(RUNS):
        wait()
        begin = clock()
        for _ in range(CALLS):
            call()
        found.append((clock() - begin) / CALLS)
    wait()
    return results.Sample(tuple(found))


def on_gpu(kernel: Any, sizes: dict[str, int]) -> tuple[results.Sample, results.Sample]:
    """The first call, which compiles and loads, and later ones."""
    import torch

    given = tensors_for(kernel, sizes, "cuda")
    begin = perf_counter()
    kernel.run(*given)
    first = results.Sample((perf_counter() - begin,))
    return first, microseconds(lambda: kernel.run(*given), torch.cuda.synchronize, perf_counter)


def without_driver(kernel: Any, sizes: dict[str, int]) -> tuple[results.Sample, results.Sample]:
    """The same on tensors of the CPU; a launch does nothing."""
    import torch

    from treadle.runtime.cuda_driver import Prepared
    from treadle.runtime.torch_gpu import Replay, TorchBackend, device_array, geometry, traced

    given = tensors_for(kernel, sizes, "cpu")
    begin = process_time()
    _, plan = traced(kernel.module, nothing_done(TorchBackend), [device_array(each) for each in given])
    first = results.Sample((process_time() - begin,))
    assert plan is not None
    encoded = ctypes.create_string_buffer(128).raw

    def prepare(launch: Any) -> Prepared:
        return Prepared(lambda pointer, stream: None, launch.arguments, lambda map, address: encoded)

    kernel.keep(geometry(given)[0], Replay(plan, prepare, torch.device("cpu"), lambda: 0))
    return first, microseconds(lambda: kernel.run(*given), lambda: None, process_time)


def nothing_done(base: type) -> Any:
    """A device that allocates and launches nothing, and on which every tensor map is made."""
    import torch

    class Nothing(base):
        has_tensor_maps = True

        def launch(self, *arguments: Any) -> None: ...

        def tensor_map(self, *arguments: Any) -> Any:
            return object()

    return Nothing(None, torch.device("cpu"))


def measure(gpu: bool) -> list[dict[str, Any]]:
    import treadle

    found: list[dict[str, Any]] = []
    for (name, machine), sizes in CASES.items():
        if gpu and not runs_here(machine):
            continue
        kernel = treadle.compile(EXAMPLES / f"{name}.mlir", machine=machine)
        first, later = (on_gpu if gpu else without_driver)(kernel, sizes)
        us = {"median": later.median, "least": min(later.seconds), "most": max(later.seconds)}
        us = {key: round(value * 1e6, 2) for key, value in us.items()} | {"runs": len(later.seconds)}
        found.append({"what": name, "machine": machine, "first_us": round(first.median * 1e6), "later_us": us})
    return found


def runs_here(machine: str) -> bool:
    import torch

    from treadle.compiler.machines import load_machine
    from treadle.runtime.gpu import arch_for

    return arch_for(load_machine(machine).arch, torch.cuda.get_device_capability()) is not None


def report(found: Sequence[dict[str, Any]], gpu: bool) -> dict[str, Any]:
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
    worst = max(each["later_us"]["median"] for each in found)
    print(f"later calls, {'with' if gpu else 'WITHOUT'} the driver's launch: {results.goal(worst, GOAL_US)}")
    load = round(os.getloadavg()[0], 1)
    return {
        "unit": "microseconds",
        "driver": "called" if gpu else "not called",
        "goal": GOAL_US,
        "load": load,
        "cases": found,
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    from treadle.runtime.gpu import missing_for_gpu

    gpu = missing_for_gpu() is None
    device = None
    if gpu:
        import torch

        device = torch.cuda.get_device_name()
    path = results.write("launch-time", report(measure(gpu), gpu), device)
    print(f"written to {path}")


if __name__ == "__main__":
    main()
