"""Launches of which only addresses change: what is passed to the driver lies in memory that is made once, and a later
launch writes addresses into it.

Each argument is named by its own address (`kernelParams` of the CUDA driver API, cuLaunchKernel), for a tensor map must
lie at a multiple of 64, and of 128 in the headers of CUDA 13. Nothing here asks the driver for anything itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from struct import Struct
from typing import Any, TypeAlias, cast

from treadle.runtime.replay import Given, Mapped, Place
from treadle.runtime.tensor_maps import BYTES, UNIT, TensorMap, tensor_map

ALIGNMENT = 128
"""Bytes that the address of a tensor map is a multiple of."""

IMAGES = 64
"""For how many addresses a launch keeps each of its tensor maps: an allocator gives the same ones again."""

Start: TypeAlias = Callable[[int, int], None]
"""Launches: given the address of `kernelParams`, and a stream."""
Image: TypeAlias = Callable[[TensorMap, int], bytes]
"""Encodes the tensor map of what lies at an address."""


@dataclass(frozen=True)
class EncodedMap:
    """A tensor map as the driver encoded it; the array that it describes must live as long."""

    image: bytes
    array: object


@dataclass
class Parameters:
    """The arguments of a launch, each in memory of its own, and the array of their addresses."""

    holders: list[Any]
    addresses: Any

    @property
    def pointer(self) -> int:
        return ctypes.addressof(self.addresses)


def parameters(arguments: Sequence[Any]) -> Parameters:
    """Arguments for `kernelParams`: ctypes scalars, and encoded maps at aligned addresses."""
    held = [_held(each.image) if isinstance(each, EncodedMap) else (each, ctypes.addressof(each)) for each in arguments]
    return Parameters([holder for holder, _ in held], (ctypes.c_void_p * len(held))(*(place for _, place in held)))


def aligned() -> tuple[Any, int]:
    """Room for a tensor map, and where in it one may lie."""
    room = (ctypes.c_ubyte * (BYTES + ALIGNMENT))()
    begin = ctypes.addressof(room)
    return room, begin + -begin % ALIGNMENT


class Prepared:
    """A launch that is repeated, by one thread at a time: its parameters lie in one place, from which the driver copies
    them while it is asked."""

    def __init__(self, start: Start, arguments: Sequence[Given], image: Image):
        self._start = start
        pointers = [(i, each) for i, each in enumerate(arguments) if isinstance(each, Place)]
        # The addresses lie side by side, so that one call writes them all.
        self._slots = (ctypes.c_uint64 * max(1, len(pointers)))()
        self._write = partial(Struct(f"={len(pointers)}Q").pack_into, self._slots, 0)
        self._values = _values_of([each for _, each in pointers])
        slot = {i: ctypes.addressof(self._slots) + 8 * number for number, (i, _) in enumerate(pointers)}
        self._scalars = [each for each in arguments if not isinstance(each, Place | Mapped)]
        places = [
            slot[i] if isinstance(each, Place) else 0 if isinstance(each, Mapped) else ctypes.addressof(each)
            for i, each in enumerate(arguments)
        ]
        self._parameters = (ctypes.c_uint64 * len(places))(*places)  # pointers, which as such take longer to write
        self._pointer = ctypes.addressof(self._parameters)
        maps = [(i, _Map(each, image)) for i, each in enumerate(arguments) if isinstance(each, Mapped)]
        self._maps = [(i, map.array, map.offset, map) for i, map in maps]

    def again(self, addresses: Sequence[int], stream: int) -> None:
        """Launch on arrays that lie there (DriverFailure)."""
        self._write(*self._values(addresses))
        for i, array, offset, places in self._maps:
            self._parameters[i] = places[addresses[array] + offset]
        self._start(self._pointer, stream)


class _Map(dict[int, int]):
    """A tensor map among the parameters of a launch: where that of an address lies."""

    def __init__(self, mapped: Mapped, image: Image):
        super().__init__()
        self.array = mapped.place.array
        self.offset = mapped.place.offset
        self._rooms: dict[int, Any] = {}
        self._mapped = mapped
        self._encode = image
        self._map: TensorMap | None = None

    def __missing__(self, address: int) -> int:
        """Encode it (DriverFailure, NoTensorMap)."""
        if self._map is None or address % UNIT:  # of an address, the rules ask for no more
            self._map = _map_of(self._mapped, address)
        room, place = _held(self._encode(self._map, address))
        if len(self) == IMAGES:
            first = next(iter(self))
            del self[first], self._rooms[first]
        self[address], self._rooms[address] = place, room
        return place


def _values_of(pointers: Sequence[Place]) -> Callable[[Sequence[int]], Sequence[int]]:
    """The addresses to be passed, of those of all arrays."""
    pairs = [(each.array, each.offset) for each in pointers]
    if any(offset for _, offset in pairs):
        return lambda addresses: [addresses[array] + offset for array, offset in pairs]
    arrays = [array for array, _ in pairs]
    if len(arrays) > 1:
        return cast("Any", itemgetter(*arrays))
    first = arrays[0] if arrays else 0
    return cast("Any", itemgetter(slice(first, first + len(arrays))))  # of one alone, no sequence would be made


def _held(image: bytes) -> tuple[Any, int]:
    """Room that holds an encoded map, and where it lies."""
    room, place = aligned()
    ctypes.memmove(place, image, BYTES)
    return room, place


def _map_of(mapped: Mapped, address: int) -> TensorMap:
    return tensor_map(mapped.shape, mapped.strides, mapped.dtype, address, mapped.box, mapped.swizzle)
