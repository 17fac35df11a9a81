"""The GPU of this machine, as `predict.py` wants one."""

from __future__ import annotations

import ctypes
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from treadle.compiler.bench.counters import RUN, profile
from treadle.compiler.bench.predict import sizes_of
from treadle.compiler.bench.rates import (
    COPIED_BYTES,
    L2_BYTES,
    OF_HOST,
    Launch,
    Rates,
    clocks_of_host,
    kernels,
    measured_rates,
    text,
)
from treadle.compiler.machines import Machine, load_machine
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.sizes import set_default_sizes
from treadle.compiler.source import load_module, only_function
from treadle.dialects.cuda import kernel_names
from treadle.passes.hierarchy_choose_sizes import parse_pieces
from treadle.runtime.gpu import GpuBackend, driver, has_pycuda
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs

SAMPLES, LEAST_SECONDS = 15, 0.02
QUEUED = 256
"""Launches that the driver takes without waiting for the device, and more."""


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
            by_bindings = self.has_tensor_maps or not has_pycuda()
            self.launches.append(self.again(*given) if by_bindings else lambda: start(*given))


class Compiled:
    """A program whose kernels were made once, for some sizes, and run at any."""

    def __init__(self, file: Path, made_for: Mapping[str, int], machine: Machine):
        self.function = only_function(load_module(file), str(file))
        self.module = load_module(file)
        set_default_sizes(only_function(self.module, str(file)), made_for)
        run_pipeline(self.module, Options(machine.name))
        self.backend = Recorder(print_cuda(self.module), kernel_names(self.module), machine.arch)

    def launches(self, sizes: Mapping[str, int]) -> list[Callable[[], None]]:
        """Of one run at these sizes, which was done."""
        inputs = make_inputs(self.function, axis_sizes(self.function, sizes), 0)
        self.backend.launches = []
        backend: Any = self.backend
        execute(self.module, [each if isinstance(each, np.ndarray) else each.item() for each in inputs], backend)
        return self.backend.launches


class Gpu:
    """Measures between CUDA events; medians of repeated runs."""

    def __init__(self) -> None:
        self._driver = driver()
        self.name: str = self._driver.Context.get_device().name()
        self._compiled: dict[tuple[Path, str], Compiled] = {}
        self._moved: dict[Path, list[tuple[Mapping[str, int], Mapping[str, float]]]] = {}
        self._busy: Callable[[int], None] | None = None

    def rates(self, machine: Machine) -> Rates:
        start = self.keep_busy(machine)
        return measured_rates(machine, lambda launch: self.median(lambda: start(launch)))

    def keep_busy(self, machine: Machine) -> Callable[[Launch], None]:
        """From here on the device is kept busy while the host says what is timed; what launches a kernel of
        `rates.py`."""
        backend = GpuBackend(text(machine), kernels(machine), machine.arch)
        floats = np.dtype(np.float32)
        source, target = (backend.allocate((COPIED_BYTES // 4,), floats) for _ in range(2))
        before: dict[str, tuple[Any, ...]] = {
            "copy": (source, target),
            "read_l2": (source, target, ctypes.c_int64(L2_BYTES // 16)),
        }

        def start(launch: Launch) -> None:
            arguments = (*before.get(launch.kernel, (target,)), ctypes.c_int64(launch.number))
            backend.launch(launch.kernel, (launch.blocks, 1, 1), (launch.threads, 1, 1), 0, arguments)

        self._busy = lambda clocks: start(Launch(OF_HOST, 1, 1, clocks))
        return start

    def seconds(self, file: Path, made_for: Mapping[str, int], sizes: Mapping[str, int], machine: Machine) -> float:
        launches = self._program(file, made_for, machine).launches(sizes)
        return self.median(lambda: [launch() for launch in launches])

    def moved(
        self, file: Path, made_for: Mapping[str, int], sizes: Mapping[str, int], machine: Machine
    ) -> Mapping[str, float] | None:
        """One profiled process runs a program at all of its sizes: to begin one takes longer than they do."""
        if file not in self._moved:
            every = list(sizes_of(file))
            given = [",".join(f"{axis}={size}" for axis, size in each.items()) for each in (made_for, *every)]
            runs = profile([sys.executable, "-m", __name__, str(file), machine.name, *given])
            self._moved[file] = list(zip(every, runs, strict=False))
        return next((moved for known, moved in self._moved[file] if known == sizes), None)

    def _program(self, file: Path, made_for: Mapping[str, int], machine: Machine) -> Compiled:
        key = file, machine.name
        if key not in self._compiled:
            self._compiled = {key: Compiled(file, made_for, machine)}  # one at a time: each has arrays
        return self._compiled[key]

    def median(self, call: Callable[[], object]) -> float:
        """Seconds of a call."""
        for _ in range(3):
            call()
        once = max(self._timed(call, 3) / 3, 1e-9)
        repeats = max(1, min(QUEUED, int(LEAST_SECONDS / once)))
        return statistics.median(self._timed(call, repeats) / repeats for _ in range(SAMPLES))

    def _timed(self, call: Callable[[], object], repeats: int) -> float:
        """Of the device: it is kept busy until the host has said all that it is to do."""
        begin, end = self._driver.Event(), self._driver.Event()
        started = perf_counter()
        call()
        if self._busy is not None:
            self._busy(clocks_of_host(repeats * (perf_counter() - started)))
        begin.record()
        for _ in range(repeats):
            call()
        end.record()
        end.synchronize()
        return begin.time_till(end) / 1e3


def _profiled(file: str, machine: str, *given: str) -> None:
    """Run a program at some sizes, for the profiler."""
    made_for, *every = (parse_pieces("sizes", each) for each in given)
    compiled = Compiled(Path(file), made_for, load_machine(machine))
    for sizes in every:
        print(RUN, len(compiled.launches(sizes)), flush=True)


if __name__ == "__main__":
    _profiled(*sys.argv[1:])
