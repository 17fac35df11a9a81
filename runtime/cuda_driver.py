"""What PyCUDA lacks, through NVIDIA's cuda-bindings: tensor maps, and launches of kernels that take them.

A tensor map is a parameter of 128 bytes that must lie at a multiple of 64 in the kernel's parameters; PyCUDA packs
arguments itself, so such a launch names each argument's address instead (CUDA driver API, cuLaunchKernel). Both
libraries work in the primary context. cuda-bindings is imported when the first map is made.

The driver is asked for a map by address, too: it writes to a multiple of 64 only, and cuda-bindings gives it memory of
a Python object, which lies at any multiple of 16."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from treadle.runtime.clusters import why_no_cluster
from treadle.runtime.replay import Given, Launch, Mapped, Place
from treadle.runtime.tensor_maps import BYTES, TensorMap, tensor_map

ALIGNMENT = 128
"""Bytes that the address of a tensor map is a multiple of: 64 for the hardware, 128 in the headers of CUDA 13."""

FORMATS = {
    "float16": "CU_TENSOR_MAP_DATA_TYPE_FLOAT16",
    "bfloat16": "CU_TENSOR_MAP_DATA_TYPE_BFLOAT16",
    "float32": "CU_TENSOR_MAP_DATA_TYPE_FLOAT32",
    **dict.fromkeys(("float8_e4m3fn", "float8_e5m2", "int8", "uint8"), "CU_TENSOR_MAP_DATA_TYPE_UINT8"),
}


class DriverFailure(Exception):
    """The driver refused what it was asked."""


@dataclass(frozen=True)
class EncodedMap:
    """A tensor map as the driver encoded it; the array that it describes must live as long."""

    image: bytes
    array: object


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
    room, place = _aligned()
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


def _aligned() -> tuple[Any, int]:
    """Room for a tensor map, and where in it one may lie."""
    room = (ctypes.c_ubyte * (BYTES + ALIGNMENT))()
    begin = ctypes.addressof(room)
    return room, begin + -begin % ALIGNMENT


@dataclass
class Parameters:
    """The arguments of a launch, each in memory of its own, and the array of their addresses."""

    holders: list[Any]
    places: list[int]
    """Where each argument lies, in its holder."""
    addresses: Any

    @property
    def pointer(self) -> int:
        return ctypes.addressof(self.addresses)


def parameters(arguments: Sequence[Any]) -> Parameters:
    """Arguments for `kernelParams`: ctypes scalars, and encoded maps at aligned addresses."""
    holders: list[Any] = []
    places: list[int] = []
    for argument in arguments:
        if isinstance(argument, EncodedMap):
            holder, place = _aligned()
            ctypes.memmove(place, argument.image, BYTES)
            places.append(place)
        else:
            holder = argument
            places.append(ctypes.addressof(holder))
        holders.append(holder)
    return Parameters(holders, places, (ctypes.c_void_p * len(places))(*places))


IMAGES = 64
"""For how many addresses a launch keeps each of its tensor maps: an allocator gives the same ones again."""


class Prepared:
    """A launch of which only addresses change. Whoever starts it holds a lock: its parameters lie in one place, from
    which the driver copies them while it is asked."""

    def __init__(
        self,
        start: Callable[[int, int], None],
        arguments: Sequence[Given],
        image: Callable[[TensorMap, int], bytes] | None = None,
    ):
        """`start` launches: given the address of `kernelParams`, and a stream; `image` encodes the tensor map of what
        lies at an address, which without one the driver does."""
        self._start = start
        self._image = image or _image
        blank = [_blank(argument) for argument in arguments]
        self._parameters = parameters(blank)
        self._pointer = self._parameters.pointer
        self._pointers = [
            (holder, argument.array, argument.offset)
            for holder, argument in zip(blank, arguments, strict=True)
            if isinstance(argument, Place)
        ]
        self._maps = [
            _Map(place, argument, self._image)
            for place, argument in zip(self._parameters.places, arguments, strict=True)
            if isinstance(argument, Mapped)
        ]

    def __call__(self, addresses: Sequence[int], stream: int) -> None:
        """Launch on arrays that lie there (DriverFailure)."""
        for holder, array, offset in self._pointers:
            holder.value = addresses[array] + offset
        for map in self._maps:
            map.describe(addresses[map.array] + map.offset)
        self._start(self._pointer, stream)


class _Map:
    """A tensor map among the parameters of a launch."""

    def __init__(self, place: int, mapped: Mapped, image: Callable[[TensorMap, int], bytes]):
        self.array = mapped.place.array
        self.offset = mapped.place.offset
        self._place = place
        self._mapped = mapped
        self._encode = image
        self._described = 0
        self._images: dict[int, bytes] = {}

    def describe(self, address: int) -> None:
        """From now on, what lies there (DriverFailure)."""
        if self._described == address:
            return
        if (image := self._images.get(address)) is None:
            image = self._encode(_map_of(self._mapped, address), address)
            if len(self._images) == IMAGES:
                del self._images[next(iter(self._images))]
            self._images[address] = image
        ctypes.memmove(self._place, image, BYTES)
        self._described = address


def _blank(argument: Given) -> Any:
    match argument:
        case Place():
            return ctypes.c_uint64(0)
        case Mapped():
            return EncodedMap(bytes(BYTES), None)
        case scalar:
            return scalar


def _map_of(mapped: Mapped, address: int) -> TensorMap:
    return tensor_map(mapped.shape, mapped.strides, mapped.dtype, address, mapped.box, mapped.swizzle)


def launch_config(
    driver: Any, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, cluster: int
) -> Any:
    """What `cuLaunchKernelEx` takes: the shape of the launch, and as an attribute that of its clusters, which must be
    the one that the kernel was compiled for."""
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = block
    config.sharedMemBytes = shared_bytes
    config.hStream = 0
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
        return Prepared(self._start(launch), launch.arguments)

    def _start(self, launch: Launch) -> Callable[[int, int], None]:
        """What starts it, given the address of `kernelParams` and a stream."""
        if reason := why_no_cluster(launch.cluster, launch.grid[0]):
            raise DriverFailure(reason)
        key = launch.kernel, launch.shared_bytes
        if key not in self._ready:
            self._ready[key] = self._function(*key)
        function, driver, shape = self._ready[key], _driver(), (*launch.grid, *launch.block, launch.shared_bytes)
        if launch.cluster == 1:
            start = driver.cuLaunchKernel

            def start_blocks(pointer: int, stream: int) -> None:
                if (answer := start(function, *shape, stream, pointer, 0))[0]:
                    _checked(answer)

            return start_blocks
        config = launch_config(driver, launch.grid, launch.block, launch.shared_bytes, launch.cluster)

        def start_clusters(pointer: int, stream: int) -> None:
            config.hStream = stream
            if (answer := driver.cuLaunchKernelEx(config, function, pointer, 0))[0]:
                _checked(answer)

        return start_clusters

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


def _driver() -> Any:
    return import_module("cuda.bindings.driver")


def _checked(answer: tuple[Any, ...]) -> Any:
    """The result of a call to the driver, or None if it has none (DriverFailure)."""
    status, *results = answer
    if int(status) != 0:
        raise DriverFailure(f"the driver reports {status.name}")
    return results[0] if results else None
