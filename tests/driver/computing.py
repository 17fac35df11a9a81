"""Runs treadle's command line on the driver of `libcuda.cpp`, its kernels computed by the PTX machine from the
parameters and the memory that the driver was given: what nvcc makes of the text whose machine code is launched."""

from __future__ import annotations

import ctypes
import sys
import traceback
from typing import Any

import numpy as np

from treadle.compiler.main import main
from treadle.runtime import gpu
from treadle.runtime.nvcc import Cubin, compile_cubin, compile_ptx
from treadle.runtime.ptx.machine.machine import Machine
from treadle.runtime.ptx.machine.memory import Allocation, GlobalMemory
from treadle.runtime.ptx.machine.schedule import run
from treadle.runtime.ptx.text.module import Entry
from treadle.runtime.ptx.text.module_parser import parse_module


class Launch(ctypes.Structure):
    """As the driver gives it."""

    _fields_ = [
        ("name", ctypes.c_char_p),
        ("shape", ctypes.c_uint * 8),
        ("count", ctypes.c_uint),
        ("parameters", ctypes.POINTER(ctypes.c_void_p)),
        ("sizes", ctypes.POINTER(ctypes.c_uint)),
        ("allocations", ctypes.c_uint),
        ("extents", ctypes.POINTER(ctypes.c_uint64)),
    ]


ENTRIES: dict[str, Entry] = {}
"""Of all files that were compiled, by name."""


def compiled(source: str, arch: str) -> Cubin:
    ENTRIES.update(parse_module(compile_ptx(source, arch)).entries)
    return compile_cubin(source, arch)


def parameters(entry: Entry, launch: Launch) -> bytes:
    """Each as many bytes as the machine code says, where the PTX says."""
    last = entry.parameters[-1]
    made = bytearray(last.offset + last.nbytes)
    assert launch.count == len(entry.parameters)
    for i, each in enumerate(entry.parameters):
        assert launch.sizes[i] == each.nbytes
        made[each.offset : each.offset + each.nbytes] = ctypes.string_at(launch.parameters[i], each.nbytes)
    return bytes(made)


def allocations(launch: Launch) -> list[Allocation]:
    """The driver's memory itself."""
    pairs = [(launch.extents[2 * i], launch.extents[2 * i + 1]) for i in range(launch.allocations)]
    return [
        Allocation(address, np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)), writable=True)
        for address, nbytes in pairs
    ]


def compute(launch: Launch) -> None:
    entry, shape = ENTRIES[launch.name.decode()], list(launch.shape)
    memory = GlobalMemory(allocations(launch))
    grid, block, shared_bytes, cluster = tuple(shape[:3]), tuple(shape[3:6]), shape[6], shape[7]
    run(Machine(entry, memory, parameters(entry, launch), grid, block, shared_bytes, cluster=cluster))
    memory.copy_back()


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Launch))
def answered(launch: Any) -> int:
    try:
        compute(launch.contents)
    except Exception:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    gpu.compile_cubin = compiled  # type: ignore[assignment]
    ctypes.CDLL("libcuda.so.1").driver_run_with(answered)
    sys.exit(main(sys.argv[1:]))
