"""Kernels on torch tensors that lie on a GPU: no copies, PyTorch's allocator, in PyTorch's current stream.

The first call with tensors of a geometry goes through the host function; what it did is kept, and later ones only fill
in addresses (`runtime/torch_replay.py`). Another stream than the default one takes cuda-bindings; without that, each
waits for the other: right, not fast."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.formats import NUMBER_FORMATS
from treadle.runtime.cuda_driver import is_installed
from treadle.runtime.formats import DTYPES
from treadle.runtime.gpu import DeviceArray
from treadle.runtime.replay import Plan, Tracer
from treadle.runtime.torch_geometry import geometry
from treadle.runtime.torch_replay import TORCH_NAMES, Replay

NAMES = {f"torch.{each.dtype}": name for name, each in NUMBER_FORMATS.items()}
NAMES["torch.bool"] = "i8"  # bytes that are 1 or 0


class TorchBackend:
    """A `GpuBackend` whose arrays are torch tensors of one device."""

    name = "gpu"

    def __init__(self, kernels: Any, device: Any):
        self.kernels = kernels
        self.device = device

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        return device_array(_empty(tuple(shape), dtype, self.device))

    def upload(self, array: DeviceArray) -> DeviceArray:
        return array

    def download(self, array: DeviceArray) -> Any:
        tensor: Any = array.allocation
        if tuple(tensor.shape) == array.shape and tensor.data_ptr() == array.pointer:
            return tensor
        itemsize = array.dtype.itemsize
        first = tensor.storage_offset() + (array.pointer - tensor.data_ptr()) // itemsize
        return tensor.as_strided(array.shape, [stride // itemsize for stride in array.strides], first)

    def view(self, array: DeviceArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        return self.kernels.view(array, offset, shape, strides)

    def copy(self, array: DeviceArray) -> DeviceArray:
        return device_array(self.download(array).contiguous())

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
        cluster: int = 1,
    ) -> None:
        import torch

        stream = torch.cuda.current_stream(self.device)
        waits = stream.cuda_stream and not is_installed()
        if waits:
            stream.synchronize()
        in_stream = 0 if waits else stream.cuda_stream
        self.kernels.launch(kernel, grid, block, shared_bytes, arguments, cluster, in_stream)
        if waits:
            self.kernels.synchronise()


def device_array(tensor: Any) -> DeviceArray:
    """A tensor as kernels take it; strides become bytes (TreadleError for a format that no kernel takes)."""
    if str(tensor.dtype) not in NAMES:
        raise TreadleError(f"a tensor has elements of {tensor.dtype}: kernels take {', '.join(NAMES)}")
    dtype = DTYPES[NAMES[str(tensor.dtype)]]
    strides = tuple(stride * dtype.itemsize for stride in tensor.stride())
    return DeviceArray(tensor.data_ptr(), tuple(tensor.shape), strides, dtype, tensor)


def call_on_gpu(kernel: Any, arguments: Sequence[Any], backend: str) -> Any:
    """The result, or a tuple of them, made where the tensors are (TreadleError if they are in several places, or the
    GPU refuses)."""
    if backend not in ("auto", "gpu"):
        raise TreadleError(f"the tensors lie on a GPU, and the backend is '{backend}': move them to the CPU first")
    try:
        if kernel.replays is not None and (known := kernel.replays.again(arguments)) is not None:
            return known
        key = geometry(arguments)[0]
    except TypeError:  # no number and no tensor: refused below
        key = None
    device = _device_of(arguments)
    kernels = kernel.backend("gpu", False)
    if kernels.device != (device.index or 0):
        raise TreadleError(
            f"the tensors lie on {device}, and kernels are loaded on cuda:{kernels.device}: move them there, or choose "
            "the device with CUDA_VISIBLE_DEVICES or CUDA_DEVICE"
        )
    results, plan = traced(kernel.module, TorchBackend(kernels, device), [_given(each) for each in arguments])
    if key is not None and plan is not None and is_installed():
        kernel.keep(key, Replay(plan, kernels.functions.prepared, device, _stream_of(device)))
    return results[0] if len(results) == 1 else results


def traced(module: Any, backend: Any, given: Sequence[Any]) -> tuple[tuple[Any, ...], Plan | None]:
    """Results of the host function, and what it did."""
    from treadle.runtime.host import execute

    tracer = Tracer(backend, given)
    results = execute(module, given, tracer)
    return results, tracer.plan()


def _device_of(arguments: Sequence[Any]) -> Any:
    """The one device of all tensors (TreadleError)."""
    devices = {argument.device for argument in arguments if hasattr(argument, "data_ptr")}
    if len(devices) > 1:
        raise TreadleError(f"the tensors lie on several devices ({', '.join(sorted(map(str, devices)))}): use one")
    if any(isinstance(argument, np.ndarray) for argument in arguments):
        raise TreadleError("an argument is a numpy array, and others are tensors on a GPU: move all to one place")
    return devices.pop()


def _given(argument: Any) -> Any:
    return device_array(argument) if hasattr(argument, "data_ptr") else argument


def _stream_of(device: Any) -> Callable[[], int]:
    """The current stream of PyTorch, as the driver knows it. What its own compiler calls costs a tenth of the public
    function; where a version has it no more, that serves."""
    import torch

    index = device.index or 0
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # pyright: ignore[reportPrivateUsage]
    if raw is not None:
        return partial(raw, index)
    return lambda: torch.cuda.current_stream(device).cuda_stream


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any], device: Any) -> Any:
    import torch

    return torch.empty(shape, dtype=getattr(torch, TORCH_NAMES[dtype]), device=device)


__all__ = ["TorchBackend", "call_on_gpu", "device_array", "traced"]
