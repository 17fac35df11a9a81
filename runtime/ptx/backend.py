"""The PTX machine as a place to run a host function."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.cuda_driver import EncodedMap, arguments_of
from treadle.runtime.gpu import DeviceArray, Extent, extent_of, misalignment_of
from treadle.runtime.nvcc import compile_ptx
from treadle.runtime.ptx.hopper.tensor_map_images import encode
from treadle.runtime.ptx.machine.launch import launch
from treadle.runtime.ptx.machine.memory import Allocation, allocate
from treadle.runtime.ptx.text.module import Module
from treadle.runtime.ptx.text.module_parser import parse_module
from treadle.runtime.tensor_maps import tensor_map


class PtxBackend:
    """Runs the kernels of one printed file as the PTX that nvcc makes of it for an architecture (NvccUnavailable,
    NvccFailure, PtxUnknown)."""

    name = "ptx"

    def __init__(self, source: str, kernels: Sequence[str], arch: str, *, seed: int = 0):
        self.source = source
        self.kernels = tuple(kernels)
        self.seed = seed
        """0: in order, and what is asynchronous as late as it may be; another draws both."""
        self.variants: list[str] = []
        """What was launched, by the names that the printed file gives the variants of its kernels."""
        self.module: Module = parse_module(compile_ptx(source, arch))

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """An array whose elements nobody has written: each of its bytes is 0xFF, a NaN in all formats."""
        strides: list[int] = []
        step = dtype.itemsize
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        made = allocate(prod(shape) * dtype.itemsize, writable=True)
        return DeviceArray(made.address, tuple(shape), tuple(strides), dtype, made)

    def view(self, array: DeviceArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """The same memory, begun elsewhere."""
        return replace(array, pointer=array.pointer + offset, shape=shape, strides=strides, low=array.low + offset)

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """A copy with the same strides and the same misalignment, which kernels may only read."""
        extent, shift = extent_of(array), misalignment_of(array)
        made = allocate(extent.nbytes + shift, writable=False)
        if extent.nbytes:
            made.data[shift:] = _bytes_at(extent)
        first = made.address + shift + extent.offset
        return DeviceArray(first, array.shape, array.strides, array.dtype, made, low=shift + extent.offset)

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """A copy of its contents."""
        assert isinstance(array.allocation, Allocation)
        data = np.append(array.allocation.data, np.zeros(1, np.uint8))
        return np.ndarray(array.shape, array.dtype, data, array.low, array.strides)

    @property
    def has_tensor_maps(self) -> bool:
        return True

    def tensor_map(self, array: DeviceArray, box: Sequence[int], swizzle: int) -> EncodedMap:
        made = tensor_map(array.shape, array.strides, array.dtype, array.pointer, box, swizzle)
        return EncodedMap(encode(arguments_of(made, array.pointer)), array)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
    ) -> None:
        """Run a kernel to its end (PtxFault, PtxUnknown)."""
        if kernel not in self.module.entries:
            raise ValueError(f"no kernel {kernel!r} here; there are {sorted(self.module.entries)}")
        launch(self.module.entries[kernel], grid, block, shared_bytes, arguments, cluster=cluster, seed=self.seed)
        self.variants.append(kernel)


def _bytes_at(extent: Extent) -> NDArray[np.uint8]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * extent.nbytes).from_address(extent.address))
