"""Launches kernels through the real cuda-bindings on the driver of `libcuda.cpp`, and asks of it what it refuses."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.bench.gpu import Recorder
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import load_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.cuda_driver import encode
from treadle.runtime.gpu import GpuBackend, GpuFailure, driver
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function
from treadle.runtime.tensor_maps import tensor_map

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, sizes: dict[str, int], cluster: str = "") -> Any:
    """The launches of an example, each done a second time as the benchmarks repeat it."""
    algorithm = load_module(EXAMPLES / f"{name}.mlir")
    module = algorithm.clone()
    specs = list(pipeline(Options(machine="h100")))
    if cluster:
        at = [each.name for each in specs].index("cuda-cluster")
        specs[at] = ArgSpec("cuda-cluster", {"size": (2,), "along": (cluster,)})
    run_passes(module, tuple(specs))
    backend: Any = Recorder(print_cuda(module), kernel_names(module), "sm_90a")
    function = entry_function(algorithm)
    inputs: Any = make_inputs(function, axis_sizes(function, sizes), 0)
    execute(module, inputs, backend)
    begin, end = driver().Event(), driver().Event()
    begin.record()
    for launch in backend.launches:
        launch()
    end.record()
    end.synchronize()
    assert begin.time_till(end) > 0
    backend.synchronise()
    return backend


def refused(act: Callable[[], object]) -> None:
    try:
        act()
    except GpuFailure as error:
        print(f"refused: {error}")
    else:
        raise AssertionError("the driver took it")


def main() -> None:
    print("rows")
    run("softmax", {"row": 20, "x": 100})
    print("product in clusters")
    backend: GpuBackend = run("matmul", {"m": 256, "n": 512, "k": 64}, "n")
    print("refused")
    kernel = next(name for name in backend.variants if name.endswith("_clusters"))
    room = backend.allocate((256, 512), np.dtype(np.float16))
    scalars = [ctypes.c_int64(256)] * 3
    map = backend.tensor_map(room, (64, 64), 128)
    given = [*scalars, map, map, *scalars]
    refused(lambda: backend.launch(kernel, (4, 1, 1), (256, 1, 1), 232449, given, 2))
    refused(lambda: backend.launch(kernel, (4, 1, 1), (512, 1, 1), 229376, given, 2))
    refused(lambda: backend.launch(kernel, (4, 1, 1), (256, 1, 1), 229376, given, 4))
    refused(lambda: backend.launch(kernel, (4, 1, 1), (256, 1, 1), 229376, [ctypes.c_int64(1)] * 8, 2))
    refused(lambda: backend.tensor_map(backend.view(room, 0, (257, 512), (1024, 2)), (64, 64), 128))
    print("eight bits in four dimensions")
    bytes = backend.allocate((2, 32, 4, 64), np.dtype(ml_dtypes.float8_e4m3fn))
    encode(tensor_map(bytes.shape, bytes.strides, bytes.dtype, bytes.pointer, (1, 4, 2, 64), 64), bytes.pointer, bytes)


if __name__ == "__main__":
    sys.exit(main())
