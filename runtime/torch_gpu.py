"""Kernels on torch tensors that lie on a GPU: no copies, PyTorch's allocator, in order with PyTorch's current stream.

PyCUDA launches into the default stream, which is PyTorch's own unless a program says otherwise; with another one,
each waits for the other: right, not fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.runtime.formats import DTYPES
from treadle.runtime.gpu import DeviceArray

NAMES = {f"torch.{each.dtype}": name for name, each in NUMBER_FORMATS.items()}


class TorchBackend:
    """A `GpuBackend` whose arrays are torch tensors of one device."""

    name = "gpu"

    def __init__(self, kernels: Any, device: Any):
        self.kernels = kernels
        self.device = device

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        import torch

        formats = {DTYPES[format]: name for name, format in NAMES.items()}
        made = torch.empty(
            tuple(shape), dtype=getattr(torch, formats[dtype].removeprefix("torch.")), device=self.device
        )
        return device_array(made)

    def upload(self, array: DeviceArray) -> DeviceArray:
        return array

    def download(self, array: DeviceArray) -> Any:
        return array.allocation

    def view(self, array: DeviceArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        return self.kernels.view(array, offset, shape, strides)

    @property
    def has_tensor_maps(self) -> bool:
        return self.kernels.has_tensor_maps

    def tensor_map(self, array: DeviceArray, box: Sequence[int], swizzle: int) -> Any:
        return self.kernels.tensor_map(array, box, swizzle)

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
    ) -> None:
        import torch

        stream = torch.cuda.current_stream(self.device)
        if stream.cuda_stream:
            stream.synchronize()
        self.kernels.launch(kernel, grid, block, shared_bytes, arguments)
        if stream.cuda_stream:
            self.kernels.synchronise()


def device_array(tensor: Any) -> DeviceArray:
    """A tensor as kernels take it; strides become bytes (TreadleError for a format that no kernel takes)."""
    if str(tensor.dtype) not in NAMES:
        raise TreadleError(f"a tensor has elements of {tensor.dtype}: kernels take {', '.join(NAMES)}")
    dtype = DTYPES[NAMES[str(tensor.dtype)]]
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
    return DeviceArray(tensor.data_ptr(), tuple(tensor.shape), strides, dtype, tensor)


def call_on_gpu(kernel: Any, arguments: Sequence[Any], backend: str) -> tuple[Any, ...]:
    """Run where the tensors are (TreadleError if they are in several places)."""
    from treadle.runtime.host import execute

    if backend not in ("auto", "gpu"):
        raise TreadleError(f"the tensors lie on a GPU, and the backend is '{backend}': move them to the CPU first")
    devices = {argument.device for argument in arguments if hasattr(argument, "device")}
    if len(devices) > 1:
        raise TreadleError(f"the tensors lie on several devices ({', '.join(sorted(map(str, devices)))}): use one")
    (device,) = devices
    runner: Any = TorchBackend(kernel.backend("gpu", False), device)
    given: list[Any] = [device_array(each) if hasattr(each, "device") else each for each in arguments]
    return execute(kernel.module, given, runner)
