"""Where the elements of an array lie."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def byte_bounds(array: NDArray[Any]) -> tuple[int, int]:
    """The address of the first byte of an array that has elements, and the one past its last, whatever its strides.

    numpy's own function has another name in each of its major versions."""
    reaches = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    low = array.ctypes.data + sum(reach for reach in reaches if reach < 0)
    high = array.ctypes.data + sum(reach for reach in reaches if reach > 0)
    return low, high + array.itemsize
