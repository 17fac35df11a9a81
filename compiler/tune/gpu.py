"""The GPU of this machine, as `search.py` wants one: the same numbers for every way to make the kernels."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.bench.gpu import Gpu, Recorder
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.machines import Machine
from treadle.compiler.pipeline import print_cuda
from treadle.dialects.cuda import kernel_names
from treadle.runtime.failures import refused_kernel, unable
from treadle.runtime.host import execute
from treadle.runtime.inputs import axis_sizes, make_inputs

APART = 0.02
"""Of the largest element: results of one program, its sums in another order, are nearer."""


class Runs:
    """Runs of one program on random numbers, whose results are compared with those of the first."""

    def __init__(self, gpu: Gpu, machine: Machine, function: FuncOp, sizes: Mapping[str, int]):
        self._gpu = gpu
        self._machine = machine
        inputs = make_inputs(function, axis_sizes(function, sizes), 0)
        self._inputs: list[Any] = [each if isinstance(each, np.ndarray) else each.item() for each in inputs]
        self._first: Sequence[Any] | None = None
        self._known: dict[str, float] = {}
        """By their code: of many kernels a pass changes nothing that is printed."""
        gpu.keep_busy(machine)

    def seconds(self, module: ModuleOp) -> float:
        cuda = print_cuda(module)
        if cuda not in self._known:
            with _told():
                self._known[cuda] = self._measured(module, cuda)
        return self._known[cuda]

    def _measured(self, module: ModuleOp, cuda: str) -> float:
        backend: Any = Recorder(cuda, kernel_names(module), self._machine.arch)
        try:
            results = execute(module, self._inputs, backend)
            self._first = self._first or results
            check_near(results, self._first)
            return self._gpu.median(lambda: [launch() for launch in backend.launches])
        finally:
            backend.launches.clear()  # which hold arrays of the device


@contextmanager
def _told() -> Generator[None]:
    """What goes wrong below the compiler, as the search expects it (TreadleError)."""
    try:
        yield
    except refused_kernel() as error:
        raise InternalError(f"nvcc refuses what treadle printed: {error}") from error
    except unable() as error:
        raise TreadleError(str(error)) from error


def check_near(results: Sequence[Any], first: Sequence[Any]) -> None:
    """That results are those of the first run, but for the order of sums (TreadleError)."""
    for number, (mine, theirs) in enumerate(zip(results, first, strict=True)):
        one, other = np.asarray(mine, np.float64), np.asarray(theirs, np.float64)
        finite = np.isfinite(one) & np.isfinite(other)
        off = float(np.max(np.abs(one[finite] - other[finite]), initial=0.0))
        most = APART * float(np.max(np.abs(other[finite]), initial=0.0))
        if off > most or not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            raise TreadleError(f"WRONG: result {number} differs from that of the first run, by {off:.3g} where finite")
