"""What PyCUDA lacks, through NVIDIA's cuda-bindings: tensor maps, and launches of kernels that take them.

A tensor map is a parameter of 128 bytes that must lie at a multiple of 64 in the kernel's parameters; PyCUDA packs
arguments itself, so such a launch names each argument's address instead (CUDA driver API, cuLaunchKernel). Both
libraries work in the primary context. cuda-bindings is imported when the first map is made.

The driver is asked for a map by address, too: it writes to a multiple of 64 only, and cuda-bindings gives it memory of
a Python object, which lies at any multiple of 16."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from treadle.runtime.clusters import why_no_cluster
from treadle.runtime.prepared import EncodedMap, Prepared, Start, aligned, parameters
from treadle.runtime.replay import Launch
from treadle.runtime.tensor_maps import BYTES, TensorMap

FORMATS = {
    "float16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "bfloat16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "float32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
    "int32": "CU_TENSOR_MAP_DATA_TYPE_INT32",
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8"), "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
}


class DriverFailure(Exception):
    """The driver refused what it was asked."""


def is_installed() -> bool:
    return find_spec("cuda") is not None and find_spec("cuda.bindings") is not None


def arguments_of(map: TensorMap, address: int) -> dict[str, Any]:
    """What `cuTensorMapEncodeTiled` is asked, as plain numbers, innermost dimension first; zeros outside, and lines of
    128 bytes brought to L2."""
    return {
        "data_type": FORMATS[map.format],
        "rank": map.rank,
        "address": address,
        "sizes": list(map.sizes),
        "strides": list(map.strides),
        "box": list(map.box),
        "element_strides": [1] * map.rank,
        "swizzle": f"CU_TENSOR_MAP_SWIZZLE_{f'{map.swizzle_bytes}B' if map.swizzle_bytes else 'NONE'}",
    }


def encode(map: TensorMap, address: int, array: object) -> EncodedMap:
    """The map of an array at an address of the device, encoded once for both (DriverFailure)."""
    return EncodedMap(_image(map, address), array)


@lru_cache(maxsize=1024)
def _image(map: TensorMap, address: int) -> bytes:
    driver, given, rank = _driver(), arguments_of(map, address), map.rank
    room, place = aligned()
    status = _encoder()(
        place,
        int(getattr(driver.CUtensorMapDataType, given["data_type"])),
        rank,
        given["address"],
        (ctypes.c_uint64 * rank)(*given["sizes"]),
        (ctypes.c_uint64 * (rank - 1))(*given["strides"]),
        (ctypes.c_uint32 * rank)(*given["box"]),
        (ctypes.c_uint32 * rank)(*given["element_strides"]),
        int(driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(getattr(driver.CUtensorMapSwizzle, given["swizzle"])),
        int(driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
        int(driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    _checked((driver.CUresult(status),))
    return bytes(room)[place - ctypes.addressof(room) :][:BYTES]


ENCODE_ARGUMENTS = (
    ctypes.c_void_p,
    ctypes.c_uint,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    *(ctypes.c_uint,) * 4,
)
"""Of cuTensorMapEncodeTiled: the map, type, rank, address, sizes, strides, box, element strides, four enumerators."""


@cache
def _encoder() -> Any:
    try:
        function = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled
    except AttributeError:
        raise DriverFailure("it is too old for tensor maps: update it to CUDA 12.0 or newer") from None
    function.argtypes = ENCODE_ARGUMENTS
    return function


def launch_config(
    driver: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, cluster: int
) -> Any:
    """What `cuLaunchKernelEx` takes: the shape of the launch, and as an attribute that of its clusters, if it has any,
    which must be the one that the kernel was compiled for."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = shared_bytes
    config.hStream = 0
    if cluster == 1:
        return config
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster, 1, 1
    config.attrs, config.numAttrs = [attribute], 1
    return config


class Functions:
    """The kernels of one cubin, for launches that name the addresses of their arguments."""

    def __init__(self, image: bytes):
        self._image = image
        self._module: Any = None
        self._ready: dict[tuple[str, int], Any] = {}
        # Functions, by name, that may use so much shared memory.

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
        """Start a kernel in a stream of the current context, the default one if it is 0, in clusters of so many blocks
        (DriverFailure)."""
        self.repeatable(kernel, grid, block, shared_bytes, arguments, cluster, stream)()

    def repeatable(
        self,
        kernel: str,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        arguments: Sequence[Any],
        cluster: int = 1,
        stream: int = 0,
    ) -> Callable[[], None]:
        """The same launch, as often as one likes."""
        given = parameters(arguments)
        start = self._start(Launch(kernel, grid, block, shared_bytes, (), cluster))
        return lambda: start(given.pointer, stream)

    def prepared(self, launch: Launch) -> Prepared:
        return Prepared(self._start(launch), launch.arguments, _image)

    def _start(self, launch: Launch) -> Start:
        """What starts it, given the address of `kernelParams` and a stream."""
        if reason := why_no_cluster(launch.cluster, launch.grid[0]):
            raise DriverFailure(reason)
        key = launch.kernel, launch.shared_bytes
        if key not in self._ready:
            self._ready[key] = self._function(*key)
        if (launcher := _launcher()) is not None:
            return _started_by(launcher, _config_of(launch), self._ready[key])
        return _started_by_bindings(launch, self._ready[key])

    def load(self) -> Any:
        """The module of the kernels, loaded once (DriverFailure)."""
        if self._module is None:
            self._module = _checked(_driver().cuModuleLoadData(self._image))
        return self._module

    def _function(self, kernel: str, shared_bytes: int) -> Any:
        driver = _driver()
        function = _checked(driver.cuModuleGetFunction(self.load(), kernel.encode()))
        dynamic = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, dynamic, shared_bytes))
        return function


@cache
def _launcher() -> Any:
    """`cuLaunchKernelEx` itself, which by its address costs half of what it costs by cuda-bindings; None where there is
    none, in drivers older than CUDA 11.8."""
    try:
        function = ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_void_p,) * 4
    return function


def _started_by(launcher: Any, config: Any, function: Any) -> Start:
    """By the driver's own function, which reads the configuration where cuda-bindings keeps it."""
    place, handle, known = int(config.getPtr()), int(function), 0

    def start(pointer: int, stream: int) -> None:
        nonlocal known
        if stream != known:
            config.hStream = known = stream
        if status := launcher(place, handle, pointer, None):
            _checked((_driver().CUresult(status),))

    return start


def _started_by_bindings(launch: Launch, function: Any) -> Start:
    driver = _driver()
    if launch.cluster == 1:
        shape = (*launch.grid, *launch.block, launch.shared_bytes)

        def start_blocks(pointer: int, stream: int) -> None:
            _checked(driver.cuLaunchKernel(function, *shape, stream, pointer, 0))

        return start_blocks
    config = _config_of(launch)

    def start_clusters(pointer: int, stream: int) -> None:
        config.hStream = stream
        _checked(driver.cuLaunchKernelEx(config, function, pointer, 0))

    return start_clusters


def _config_of(launch: Launch) -> Any:
    return launch_config(_driver(), launch.grid, launch.block, launch.shared_bytes, launch.cluster)


def _driver() -> Any:
    return import_module("cuda.bindings.driver")


def _checked(answer: tuple[Any, ...]) -> Any:
    """The result of a call to the driver, or None if it has none (DriverFailure)."""
    status, *results = answer
    if int(status) != 0:
        raise DriverFailure(f"the driver reports {status.name}")
    return results[0] if results else None
