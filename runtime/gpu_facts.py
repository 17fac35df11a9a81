"""What the driver says of itself and of its devices, asked without PyCUDA."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from treadle.runtime.gpu import device_count

RELEASE = Path("/sys/module/nvidia/version")
"""Where Linux tells the release of the driver's kernel module."""

# CUdevice_attribute of the driver's API: compute capability.
_MAJOR, _MINOR = 75, 76


@dataclass(frozen=True)
class Driver:
    """The driver: the version of CUDA that it is made for, as (13, 0); its release, as 580.65.06, or "" if unknown."""

    cuda: tuple[int, int]
    release: str


@dataclass(frozen=True)
class Gpu:
    """A device: its name, compute capability, and memory in bytes."""

    name: str
    capability: tuple[int, int]
    memory: int


def driver_facts() -> Driver | None:
    """None without a driver."""
    library = _library()
    number = ctypes.c_int()
    if library is None or library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    release = ""
    with suppress(OSError):
        release = RELEASE.read_text(encoding="ascii").strip()
    return Driver((number.value // 1000, number.value % 1000 // 10), release)


def gpus() -> tuple[Gpu, ...]:
    """Every device that the driver finds."""
    library = _library()
    count, _ = device_count()
    return tuple(_gpu(library, ordinal) for ordinal in range(count)) if library is not None else ()


def _gpu(library: ctypes.CDLL, ordinal: int) -> Gpu:
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    library.cuDeviceGet(ctypes.byref(device), ordinal)
    name = ctypes.create_string_buffer(256)
    library.cuDeviceGetName(name, len(name), device)
    library.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    capability = _attribute(library, device, _MAJOR), _attribute(library, device, _MINOR)
    return Gpu(name.value.decode(errors="replace"), capability, memory.value)


def _attribute(library: ctypes.CDLL, device: ctypes.c_int, number: int) -> int:
    value = ctypes.c_int()
    library.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value


def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
