"""Places a launch's arrays as a GPU's allocator would, and knows their extents.

The kernel works on copies. Each allocation starts at a multiple of 256 bytes, so that sectors and
alignment come out as on a device whatever numpy's allocator does, and lies far from the next one, so
that an overrun hits no neighbour. Views of one allocation stay views of one allocation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from treadle.runtime.emulator.native import Region
from treadle.runtime.extents import byte_bounds
from treadle.runtime.tensor_maps import tensor_map

_ALIGNMENT = 256
_GAP = 1 << 20


@dataclass(frozen=True)
class Array:
    """An array argument: any numpy view. A kernel may write only to a writable one."""

    data: NDArray[Any]
    writable: bool
    inside: NDArray[Any] | None = None
    """The array whose memory a kernel may touch, if the view leaves it (a read with zeros around)."""

    @property
    def held(self) -> NDArray[Any]:
        """What there is of it."""
        return self.data if self.inside is None else self.inside


@dataclass(frozen=True)
class MappedArray:
    """An argument that is the tensor map of an array: boxes of so many elements, outermost first."""

    array: Array
    box: tuple[int, ...]
    swizzle: int

    def record(self, address: int) -> bytes:
        """The map for the array at an address (NoTensorMap)."""
        data = self.array.data
        return tensor_map(data.shape, data.strides, data.dtype, address, self.box, self.swizzle).record(address)


@dataclass
class PlacedArray:
    """An argument, the addresses in the arena of its first element and of the first that there is, and the records of
    its writers."""

    array: Array
    pointer: int
    begin: int
    low: int
    high: int
    owners: NDArray[np.uint64] | None
    granule: int

    def region(self, argument: int) -> Region:
        owners = self.owners.ctypes.data if self.owners is not None else None
        writable = int(self.array.writable)
        return Region(self.low, self.high, owners, self.granule, argument, writable)

    def unwritten(self) -> int:
        """How many elements no thread has written."""
        return int(np.count_nonzero(self._owners_of_elements() == 0))

    def stray(self) -> int:
        """How many granules were written that belong to no element of a strided view."""
        assert self.owners is not None
        elements = self._owners_of_elements()
        inside = np.zeros_like(self.owners)
        as_strided(inside, elements.shape, elements.strides)[...] = elements
        return int(np.count_nonzero(self.owners)) - int(np.count_nonzero(inside))

    def _owners_of_elements(self) -> NDArray[np.uint64]:
        """The owners' records, one an element (of its first granule), in the view's shape."""
        assert self.owners is not None
        data = self.array.data
        start = (self.pointer - self.low) // self.granule
        strides = tuple(stride // self.granule * 8 for stride in data.strides)
        return as_strided(self.owners[start:], data.shape, strides)


class Arena:
    """The memory of one launch: copies of the arrays in, and of the writable ones back out."""

    def __init__(self, arrays: Mapping[int, Array], *, owners: bool) -> None:
        allocations = list(_allocations(arrays))
        total = sum(high - low + 2 * _ALIGNMENT + _GAP for low, high, _ in allocations) + _GAP
        self._memory = np.empty(total, np.uint8)
        self.placed: dict[int, PlacedArray] = {}
        at = self._memory.ctypes.data + _GAP // 2
        for low, high, members in allocations:
            at += (allocation_offset(arrays[members[0]].held, low) - at) % _ALIGNMENT
            for index in members:
                self.placed[index] = _place(arrays[index], at - low, owners)
            at += high - low + _GAP
        for placed in self.placed.values():
            self._view(placed)[...] = placed.array.held

    def copy_back(self) -> None:
        """Gives the caller's writable arrays what the kernel made of them."""
        for placed in self.placed.values():
            if placed.array.writable:
                placed.array.data[...] = self._view(placed)

    def _view(self, placed: PlacedArray) -> NDArray[Any]:
        data = placed.array.held
        start = placed.begin - self._memory.ctypes.data
        return np.ndarray(data.shape, data.dtype, self._memory, start, data.strides)


def _allocations(arrays: Mapping[int, Array]) -> Iterator[tuple[int, int, list[int]]]:
    """Extents of the caller's memory, and the arrays in each; overlapping ones are one extent."""
    extents = sorted((*_extent(array.held), index) for index, array in arrays.items())
    group: tuple[int, int, list[int]] | None = None
    for low, high, index in extents:
        if group is not None and low < group[1]:
            group = (group[0], max(group[1], high), [*group[2], index])
            continue
        if group is not None:
            yield group
        group = (low, high, [index])
    if group is not None:
        yield group


def leaves(view: NDArray[Any], data: NDArray[Any]) -> bool:
    """Whether a view has elements outside of the array that it is one of."""
    (low, high), (begin, end) = _extent(view), _extent(data)
    return bool(view.size) and not begin <= low <= high <= end


def _extent(data: NDArray[Any]) -> tuple[int, int]:
    return byte_bounds(data) if data.size else (data.ctypes.data, data.ctypes.data)


def allocation_offset(data: NDArray[Any], address: int) -> int:
    """Where an address lies within the array that owns the memory: a view's misalignment is real. That array is placed
    at a multiple of 256 bytes."""
    return address - _extent(_owner(data))[0]


def _owner(data: NDArray[Any]) -> NDArray[Any]:
    """The array that owns the memory of another, a view of a view of it perhaps."""
    base: Any = data.base
    if isinstance(base, np.ndarray | _Memory):
        return _owner(cast("NDArray[Any]", base) if isinstance(base, np.ndarray) else base.base)
    return data


@dataclass(frozen=True)
class _Memory:
    """What numpy makes a read-only array of: memory that another array keeps alive."""

    base: NDArray[Any]
    __array_interface__: dict[str, Any]


def view_at(data: NDArray[Any], offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> NDArray[Any]:
    """The memory of an array, read-only, begun so many bytes after its first element (before it, where strides are
    negative)."""
    # By address: numpy's own views begin within the array. As integers: its interface names no 8-bit floats.
    place = (data.ctypes.data + offset, True)
    interface = {"version": 3, "data": place, "shape": shape, "strides": strides, "typestr": f"<u{data.itemsize}"}
    return np.asarray(_Memory(data, interface)).view(data.dtype)


def _place(array: Array, shift: int, owners: bool) -> PlacedArray:
    data = array.held
    low, high = _extent(data)
    whole = all(stride % data.itemsize == 0 for stride in data.strides)
    granule = data.itemsize if whole else 1
    records = np.zeros((high - low) // granule, np.uint64) if owners and array.writable else None
    pointer, begin = array.data.ctypes.data + shift, data.ctypes.data + shift
    return PlacedArray(array, pointer, begin, low + shift, high + shift, records, granule)
