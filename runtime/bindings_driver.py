"""What is asked of `pycuda.driver` where PyCUDA is not installed, through NVIDIA's cuda-bindings: the same names, and
no more of them than the GPU backend and the benchmarks use. Kernels are launched by `cuda_driver.py`.

PyCUDA compiles itself when it is installed; cuda-bindings comes compiled, and PyTorch brings it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import Any

from numpy.typing import NDArray

_NAME_BYTES = 256


class Error(Exception):
    """The driver refused what it was asked, or a kernel went wrong before."""


class MemoryError(Error):
    """There is not so much memory left."""


@dataclass(frozen=True)
class Device:
    """A device, by its number."""

    ordinal: int

    @staticmethod
    def count() -> int:
        return _asked("cuDeviceGetCount")

    def compute_capability(self) -> tuple[int, int]:
        kinds = _bindings().CUdevice_attribute
        major = kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        device = _asked("cuDeviceGet", self.ordinal)
        return _asked("cuDeviceGetAttribute", major, device), _asked("cuDeviceGetAttribute", minor, device)

    def name(self) -> str:
        device = _asked("cuDeviceGet", self.ordinal)
        return _asked("cuDeviceGetName", _NAME_BYTES, device).split(b"\0")[0].decode(errors="replace")


class Context:
    """The primary context, which PyTorch uses, too."""

    @staticmethod
    def get_device() -> Device:
        return Device(int(_asked("cuCtxGetDevice")))

    @staticmethod
    def synchronize() -> None:
        _asked("cuCtxSynchronize")


class Allocation:
    """Memory of the device, given back with the object; as a number, its address."""

    def __init__(self, nbytes: int):
        self._pointer = _asked("cuMemAlloc", nbytes)

    def __int__(self) -> int:
        return int(self._pointer)

    def __del__(self) -> None:
        # Neither an allocation that failed nor the end of the process leaves anything to give back.
        if (pointer := getattr(self, "_pointer", None)) is not None and not sys.is_finalizing():
            _bindings().cuMemFree(pointer)


class Event:
    """A moment in the default stream."""

    def __init__(self) -> None:
        self._event = _asked("cuEventCreate", 0)

    def record(self) -> None:
        _asked("cuEventRecord", self._event, 0)

    def synchronize(self) -> None:
        _asked("cuEventSynchronize", self._event)

    def time_till(self, later: Event) -> float:
        """Milliseconds."""
        return _asked("cuEventElapsedTime", self._event, later._event)


def mem_alloc(nbytes: int) -> Allocation:
    return Allocation(nbytes)


def memcpy_htod(target: int, source: NDArray[Any]) -> None:
    _asked("cuMemcpyHtoD", target, source.ctypes.data, source.nbytes)


def memcpy_dtoh(target: NDArray[Any], source: int) -> None:
    _asked("cuMemcpyDtoH", target.ctypes.data, source, target.nbytes)


def get_driver_version() -> int:
    return _asked("cuDriverGetVersion")


@cache
def retain_primary_context() -> None:
    """Make it current, on the device that `$CUDA_DEVICE` names, as `pycuda.autoprimaryctx` does."""
    _asked("cuInit", 0)
    device = _asked("cuDeviceGet", int(os.environ.get("CUDA_DEVICE", "0")))
    _asked("cuCtxSetCurrent", _asked("cuDevicePrimaryCtxRetain", device))


def _asked(function: str, *arguments: Any) -> Any:
    """What a function of the driver gives, None if nothing (Error)."""
    status, *results = getattr(_bindings(), function)(*arguments)
    if int(status) != 0:
        kind = MemoryError if status.name == "CUDA_ERROR_OUT_OF_MEMORY" else Error
        raise kind(f"{function} failed: {status.name}")
    return results[0] if results else None


@cache
def _bindings() -> Any:
    from importlib import import_module

    return import_module("cuda.bindings.driver")
