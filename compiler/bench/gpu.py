"""The GPU of this machine, as `predict.py` wants one."""

from __future__ import annotations

import ctypes
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from treadle.compiler.bench.counters import profile
from treadle.compiler.bench.rates import COPIED_BYTES, L2_BYTES, Launch, Rates, kernels, measured_rates, text
from treadle.compiler.machines import Machine
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.sizes import set_default_sizes
from treadle.compiler.source import load_module, only_function
from treadle.dialects.cuda import kernel_names
from treadle.runtime.gpu import GpuBackend, driver
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs

SAMPLES, LEAST_SECONDS = 15, 0.02


class Recorder(GpuBackend):
    """Remembers launches, so that they can be repeated without the host's part."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.launches: list[Callable[[], None]] = []

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
        stream: int = 0,
    ) -> None:
        given = (kernel, grid, block, shared_bytes, arguments, cluster, stream)
        super().launch(*given)
        if 0 not in grid:
            start = super().launch
            self.launches.append(self.again(*given) if self.has_tensor_maps else lambda: start(*given))


class Gpu:
    """Measures between CUDA events; medians of repeated runs."""

    def __init__(self) -> None:
        self._driver = driver()
        self.name: str = self._driver.Context.get_device().name()

    def rates(self, machine: Machine) -> Rates:
        backend = GpuBackend(text(machine), kernels(machine), machine.arch)
        floats = np.dtype(np.float32)
        source, target = (backend.allocate((COPIED_BYTES // 4,), floats) for _ in range(2))
        before: dict[str, tuple[Any, ...]] = {
            "copy": (source, target),
            "read_l2": (source, target, ctypes.c_int64(L2_BYTES // 16)),
        }

        def seconds(launch: Launch) -> float:
            arguments = (*before.get(launch.kernel, (target,)), ctypes.c_int64(launch.number))
            grid, block = (launch.blocks, 1, 1), (launch.threads, 1, 1)
            return self._median(lambda: backend.launch(launch.kernel, grid, block, 0, arguments))

        return measured_rates(machine, seconds)

    def seconds(self, file: Path, sizes: Mapping[str, int], machine: Machine) -> float:
        module = load_module(file)
        function = only_function(module, str(file))
        inputs = make_inputs(function, axis_sizes(function, sizes), 0)
        set_default_sizes(function, sizes)
        run_pipeline(module, Options(machine.name))
        backend: Any = Recorder(print_cuda(module), kernel_names(module), machine.arch)
        execute(module, [each if isinstance(each, np.ndarray) else each.item() for each in inputs], backend)
        return self._median(lambda: [launch() for launch in backend.launches])

    def moved(self, file: Path, sizes: Mapping[str, int], machine: Machine) -> Mapping[str, float] | None:
        given = [text for axis, size in sizes.items() for text in ("--size", f"{axis}={size}")]
        run = ["run", str(file), "--backend", "gpu", "--machine", machine.name, *given]
        return profile([sys.executable, "-m", "treadle.compiler.main", *run])

    def _median(self, call: Callable[[], object]) -> float:
        for _ in range(3):
            call()
        repeats = max(1, int(LEAST_SECONDS / max(self._timed(call, 3) / 3, 1e-9)))
        return statistics.median(self._timed(call, repeats) / repeats for _ in range(SAMPLES))

    def _timed(self, call: Callable[[], object], repeats: int) -> float:
        begin, end = self._driver.Event(), self._driver.Event()
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return begin.time_till(end) / 1e3
