"""Where a program can run here, and what every place offers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.emulator.compiler import has_host_compiler

BACKENDS = ("auto", "gpu", "emulator", "ptx", "interpreter")


class Backend(Protocol):
    """The kernels of one printed file, and memory for their arguments. `host.execute` drives one. What an
    array of the device is, is the backend's own business."""

    name: str

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Any:
        """A device array without contents, rows contiguous."""
        ...

    def upload(self, array: NDArray[Any]) -> Any:
        """A device array with the contents, strides and alignment of `array`."""
        ...

    def download(self, array: Any) -> NDArray[Any]:
        """The contents of a device array, after all kernels before it."""
        ...

    @property
    def has_tensor_maps(self) -> bool:
        """Whether `tensor_map` can be asked; if not, kernels without them run."""
        ...

    def view(self, array: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Any:
        """The memory of an array, from so many bytes after its first element on, with other sizes and strides."""
        ...

    def tensor_map(self, array: Any, box: Sequence[int], swizzle: int) -> Any:
        """What a kernel's tensor map parameter takes: the array in boxes of so many elements along each axis, swizzled
        by so many bytes (NoTensorMap if there is no such map)."""
        ...

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
    ) -> Any:
        """Run a kernel on device arrays and ctypes scalars, in the order of its parameters. The blocks of a
        `cluster`, so many neighbours along x, run at the same time."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A backend that can do better when it knows beforehand what a run will launch."""

    def prepare(self, run: Callable[[Any], object]) -> None:
        """Called before a run, with a function that does the same on another backend."""
        ...


@runtime_checkable
class Copies(Protocol):
    """A backend that copies arrays of its device on the device."""

    def copy(self, array: Any) -> Any:
        """A device array with the same elements, rows contiguous."""
        ...


@dataclass(frozen=True)
class Choice:
    """The place to run, and why not a better one."""

    backend: str
    reason: str = ""


class BackendUnavailable(Exception):
    """The place that was asked for is not here; `instead` is one that does without what is missing."""

    def __init__(self, message: str, instead: str = ""):
        super().__init__(message)
        self.instead = instead


def choose_backend(wanted: str) -> Choice:
    """`auto`: a GPU if one can be used, else the emulator, else, without a C++ compiler, the
    interpreter. A place asked for by name is taken or refused (BackendUnavailable)."""
    if wanted not in BACKENDS:
        raise BackendUnavailable(f"there is no backend '{wanted}': use one of {', '.join(BACKENDS)}")
    if wanted == "interpreter":
        return Choice("interpreter")
    if wanted == "ptx":
        return _choose_ptx()
    if wanted in ("auto", "gpu"):
        from treadle.runtime.gpu import missing_for_gpu

        missing_gpu = missing_for_gpu()
        if missing_gpu is None:
            return Choice("gpu")
        if wanted == "gpu":
            raise BackendUnavailable(missing_gpu, "emulator")
    else:
        missing_gpu = ""
    if has_host_compiler():  # one that was chosen and does not work is an error, never a fallback
        return Choice("emulator", missing_gpu)
    if wanted == "emulator":
        raise BackendUnavailable("the emulator needs a C++ compiler: install g++ or clang++, or set CXX", "interpreter")
    return Choice("interpreter", f"{missing_gpu}; no C++ compiler for the emulator")


def _choose_ptx() -> Choice:
    from treadle.runtime.nvcc import find_nvcc

    if find_nvcc() is None:
        raise BackendUnavailable(
            "the PTX machine runs what nvcc makes, and there is no nvcc: pip install 'treadle[nvcc]', or install the "
            "CUDA toolkit",
            "emulator",
        )
    return Choice("ptx")


def make_backend(name: str, source: str, kernels: Sequence[str], arch: str, checks: bool) -> Any:
    """The kernels of a printed file, ready to be launched where `choose_backend` said; `checks` lets the emulator
    watch memory."""
    if name == "gpu":
        from treadle.runtime.gpu import GpuBackend

        return GpuBackend(source, kernels, arch)
    if name == "ptx":
        from treadle.runtime.ptx.backend import PtxBackend

        return PtxBackend(source, kernels, arch)
    from treadle.runtime.emulator.backend import EmulatorBackend

    return EmulatorBackend(source, kernels, checks=checks)
