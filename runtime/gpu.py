"""Runs compiled kernels on an NVIDIA GPU through PyCUDA, in the context that PyTorch shares; where PyCUDA is not
installed, through cuda-bindings.

Either is imported when the first kernel is loaded, never before; whether there is a device is asked of the
driver itself. Packing of arguments and copying of strided arrays need no device and are tested without."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.cuda_driver import DriverFailure, EncodedMap, Functions, encode, is_installed
from treadle.runtime.extents import byte_bounds
from treadle.runtime.nvcc import compile_cubin, find_nvcc, release_of
from treadle.runtime.parameters import Scalar
from treadle.runtime.tensor_maps import tensor_map

ALIGNMENT = 256
"""Bytes to which the driver aligns an allocation."""

DEFAULT_SHARED_BYTES = 48 * 1024
"""Shared memory that a kernel may use without asking."""


class GpuUnavailable(Exception):
    """There is no GPU here, or what it takes to use it is missing."""


class GpuFailure(Exception):
    """The GPU refused a launch, or a kernel went wrong on it."""


@dataclass(frozen=True)
class DeviceArray:
    """An array in the memory of the GPU. `strides` are in bytes, as numpy's; `allocation` keeps the
    memory alive."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    allocation: object
    low: int = 0
    """Bytes of the allocation before the array's first element in memory."""


@dataclass(frozen=True)
class Extent:
    """The memory that a strided array spans: `nbytes` from `address`, its first element `offset` in."""

    address: int
    nbytes: int
    offset: int


def missing_for_gpu() -> str | None:
    """Why kernels cannot run on a GPU here, and what would help; None if they can."""
    count, reason = device_count()
    if count == 0:
        return reason
    if not has_pycuda() and not is_installed():
        return "a GPU is here, but neither PyCUDA nor cuda-bindings is: pip install 'treadle[gpu]'"
    if find_nvcc() is None:
        return "a GPU is here, but nvcc is not: pip install 'treadle[nvcc]', or install the CUDA toolkit"
    return None


def has_pycuda() -> bool:
    return find_spec("pycuda") is not None


@cache
def device_count() -> tuple[int, str]:
    """How many devices the driver finds, and why none, asked without importing PyCUDA."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0, "no GPU: there is no NVIDIA driver (libcuda.so.1)"
    count = ctypes.c_int(0)
    if (status := library.cuInit(0)) != 0:
        return 0, f"no GPU: the NVIDIA driver does not start (cuInit gives {status})"
    if library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        return 0, "no GPU: the NVIDIA driver finds no device"
    return count.value, ""


def arch_for(arch: str, capability: tuple[int, int]) -> str | None:
    """What to compile for, so that a kernel made for `arch` runs on a device of that capability: machine code
    runs only within its generation, but the CUDA C of an older one compiles for a newer device; with the
    suffix `a` it is for exactly that device. None if it cannot run there."""
    major, minor = capability
    made_for = int(arch.removeprefix("sm_").rstrip("af"))
    if arch.endswith("a"):
        return arch if made_for == 10 * major + minor else None
    return f"sm_{major}{minor}" if made_for <= 10 * major + minor else None


def pack_arguments(arguments: Sequence[object]) -> bytes:
    """Arguments as the driver takes them: in order, each at a multiple of its own size."""
    buffer = bytearray()
    for i, argument in enumerate(arguments):
        value = ctypes.c_uint64(argument.pointer) if isinstance(argument, DeviceArray) else argument
        if not isinstance(value, Scalar):
            raise TypeError(f"argument {i} is a {type(argument).__name__}: expected an array or a ctypes scalar")
        size = ctypes.sizeof(value)
        buffer += bytes(-len(buffer) % size)
        buffer += bytes(value)
    return bytes(buffer)


def extent_of(array: NDArray[Any]) -> Extent:
    """The bytes that an array's elements span, whatever its strides. The offset of a view within the
    memory that numpy allocated is kept, modulo the alignment, so that what is misaligned stays so."""
    if array.size == 0:
        return Extent(array.ctypes.data, 0, 0)
    low, high = byte_bounds(array)
    return Extent(low, high - low, array.ctypes.data - low)


def misalignment_of(array: NDArray[Any]) -> int:
    """How far the array's extent begins past an aligned address of the array that owns its memory."""
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return (extent_of(array).address - extent_of(owner).address) % ALIGNMENT


class GpuBackend:
    """The kernels of one printed file, compiled and loaded; and memory for their arguments.

    The same methods as `treadle.runtime.backend.Backend` names."""

    name = "gpu"

    def __init__(self, source: str, kernels: Sequence[str], arch: str):
        if (missing := missing_for_gpu()) is not None:
            raise GpuUnavailable(missing)
        self._driver = driver()
        device = self._driver.Context.get_device()
        self.device = next(i for i in range(self._driver.Device.count()) if self._driver.Device(i) == device)
        self.capability: tuple[int, int] = device.compute_capability()
        target = arch_for(arch, self.capability)
        if target is None:
            here = "sm_{}{}".format(*self.capability)
            raise GpuUnavailable(
                f"the kernel is made for {arch}, and {device.name()} is {here}: give another --machine or --arch"
            )
        cubin = compile_cubin(source, target)
        self.functions = Functions(cubin.image)
        self.variants: list[str] = []
        """What was launched, by the names that the printed file gives the variants of its kernels."""
        self._functions: dict[str, Any] = {}
        try:
            if has_pycuda():
                self._module = self._driver.module_from_buffer(cubin.image)
                self._functions = {kernel: self._module.get_function(kernel) for kernel in kernels}
            else:
                self.functions.load()
        except (self._driver.Error, DriverFailure) as error:
            raise GpuFailure(f"the driver does not load the kernels: {error}{self._why_too_old()}") from error

    def _why_too_old(self) -> str:
        """That the driver is older than the toolkit, where it is: a driver loads machine code of its own major version
        of CUDA and of older ones (CUDA compatibility guide)."""
        major, minor = divmod(self._driver.get_driver_version() // 10, 100)
        toolkit = release_of(find_nvcc() or "")
        if not toolkit or int(toolkit.split(".")[0]) <= major:
            return ""
        return (
            f"; it is of CUDA {major}.{minor}, and nvcc of CUDA {toolkit}: update the driver, or set CUDACXX to an "
            f"nvcc of CUDA {major}"
        )

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> DeviceArray:
        """An array without contents, rows contiguous."""
        strides: list[int] = []
        step = dtype.itemsize
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        allocation = self.memory(prod(shape) * dtype.itemsize)
        return DeviceArray(int(allocation), tuple(shape), tuple(strides), dtype, allocation)

    def view(self, array: DeviceArray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> DeviceArray:
        """The same memory, begun elsewhere."""
        return replace(array, pointer=array.pointer + offset, shape=shape, strides=strides, low=array.low + offset)

    def upload(self, array: NDArray[Any]) -> DeviceArray:
        """A copy on the device with the same strides and the same misalignment."""
        extent, shift = extent_of(array), misalignment_of(array)
        allocation = self.memory(extent.nbytes + shift)
        base = int(allocation) + shift
        if extent.nbytes:
            self.copy_in(base, bytes_at(extent))
        return DeviceArray(base + extent.offset, array.shape, array.strides, array.dtype, allocation, low=extent.offset)

    def download(self, array: DeviceArray) -> NDArray[Any]:
        """A copy on the host (GpuFailure if a kernel before it went wrong)."""
        result = np.ndarray(array.shape, array.dtype, np.zeros(_span(array), np.uint8), array.low, array.strides)
        if result.size:
            self.copy_out(bytes_at(extent_of(result)), array.pointer - array.low)
        return result

    def copy_in(self, address: int, array: NDArray[Any]) -> None:
        """An array whose rows have no gaps, to the device."""
        self._driver.memcpy_htod(address, array)

    def copy_out(self, array: NDArray[Any], address: int) -> None:
        """Into such an array, from the device (GpuFailure if a kernel before it went wrong)."""
        self._guard(lambda: self._driver.memcpy_dtoh(array, address))

    @property
    def has_tensor_maps(self) -> bool:
        return is_installed()

    def tensor_map(self, array: DeviceArray, box: Sequence[int], swizzle: int) -> EncodedMap:
        made = tensor_map(array.shape, array.strides, array.dtype, array.pointer, box, swizzle)
        try:
            return encode(made, array.pointer, array)
        except DriverFailure as error:
            raise GpuFailure(f"no tensor map of an array of {list(array.shape)} elements: {error}") from error

    def launch(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[DeviceArray | Scalar | EncodedMap],
        cluster: int = 1,
        stream: int = 0,
    ) -> None:
        """Start a kernel; an empty grid, which the driver would refuse, has nothing to do. A stream other than the
        default one, which is PyTorch's, say, takes cuda-bindings, as all launches do without PyCUDA."""
        if 0 in grid:
            return
        self.variants.append(kernel)
        if (
            not self._functions
            or stream
            or cluster > 1
            or any(isinstance(argument, EncodedMap) for argument in arguments)
        ):
            return self.again(kernel, grid, block, shared_bytes, arguments, cluster, stream)()
        function = self._functions[kernel]
        if shared_bytes > DEFAULT_SHARED_BYTES:
            attribute = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._guard(lambda: function.set_attribute(attribute, shared_bytes))
        # PyCUDA passes a structure by value as it is: the packed arguments are one.
        packed = np.void(pack_arguments(arguments))
        self._guard(lambda: function(packed, grid=grid, block=block, shared=shared_bytes))

    def again(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[DeviceArray | Scalar | EncodedMap],
        cluster: int = 1,
        stream: int = 0,
    ) -> Callable[[], None]:
        """The launch, to be done as often as one likes: all but the driver's part is done once (cuda-bindings)."""
        given = [ctypes.c_uint64(each.pointer) if isinstance(each, DeviceArray) else each for each in arguments]
        start: Callable[[], None] | None = None

        def launch(arrays: object = arguments) -> None:  # which live as long as the launch can be done
            nonlocal start
            try:
                start = start or self.functions.repeatable(kernel, grid, block, shared_bytes, given, cluster, stream)
                start()
            except DriverFailure as error:
                raise GpuFailure(f"@{kernel} cannot be launched: {error}") from error

        return launch

    def synchronise(self) -> None:
        self._guard(self._driver.Context.synchronize)

    def memory(self, nbytes: int) -> Any:
        """So much memory of the device, but never none (GpuFailure where there is no more)."""
        try:
            return self._driver.mem_alloc(max(1, nbytes))
        except self._driver.MemoryError as error:
            raise GpuFailure(f"the GPU has no {nbytes:,} bytes left: use smaller sizes") from error

    def _guard(self, act: Any) -> None:
        try:
            act()
        except self._driver.Error as error:
            raise GpuFailure(f"the GPU reports: {error}") from error


def driver() -> Any:
    """PyCUDA's driver, or what stands in for it; the primary context is current."""
    if not has_pycuda():
        stand_in = import_module("treadle.runtime.bindings_driver")
        stand_in.retain_primary_context()
        return stand_in
    import_module("pycuda.autoprimaryctx")
    return import_module("pycuda.driver")


def bytes_at(extent: Extent) -> NDArray[np.uint8]:
    """The extent as bytes of its own memory, not a copy."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * extent.nbytes).from_address(extent.address))


def _span(array: DeviceArray) -> int:
    """Bytes from the lowest to the end of the highest element."""
    if 0 in array.shape:
        return 1
    reach = sum((size - 1) * abs(stride) for size, stride in zip(array.shape, array.strides, strict=True))
    return reach + array.dtype.itemsize
