"""Boxes of a tensor: which bytes of global memory and of shared memory a tensor copy moves, without any machine.

PTX ISA 5.5.3 to 5.5.7, tiled mode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treadle.runtime.ptx.hopper.swizzles import swizzled
from treadle.runtime.ptx.hopper.tensor_map_images import MapFault, MapImage

UNIT = 16
ALIGNMENT = 128
"""Of the address in shared memory (PTX ISA 5.5.7, and 9.7.9.27.1.2)."""

Read = Callable[[NDArray[np.int64], int], NDArray[np.uint8]]
"""So many bytes from each of these addresses on, (addresses, bytes)."""

Write = Callable[[NDArray[np.int64], NDArray[np.uint8]], None]


def load(image: MapImage, at: Sequence[int], read: Read) -> NDArray[np.uint8]:
    """The box at these coordinates, innermost first, (rows, bytes of a row); zeros where it is outside."""
    addresses, inside, (begin, end) = _rows(image, at)
    data = np.zeros((len(addresses), image.row_bytes), np.uint8)
    if inside.any() and begin < end:
        data[inside, begin:end] = read(addresses[inside] + begin, end - begin)
    return data


def store(image: MapImage, at: Sequence[int], data: NDArray[np.uint8], write: Write) -> None:
    """Write a box, (rows, bytes of a row), where it is inside of the tensor."""
    addresses, inside, (begin, end) = _rows(image, at)
    if inside.any() and begin < end:
        write(addresses[inside] + begin, data[inside, begin:end])


def units(image: MapImage, address: int) -> NDArray[np.int64]:
    """Where in shared memory each 16 bytes of a box lie, in units of 16 bytes, if it begins at this address: row after
    row, and swizzled (MapFault)."""
    if address % ALIGNMENT:
        raise MapFault(f"a box at {address:#x} of shared memory: no multiple of {ALIGNMENT}")
    if image.span and image.row_bytes != image.span:
        raise MapFault(f"rows of {image.row_bytes} bytes under a swizzle of {image.span}: where they lie nobody says")
    return swizzled(np.arange(address, address + image.box_bytes, UNIT), image.span) // UNIT


def _rows(image: MapImage, at: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.bool_], tuple[int, int]]:
    """Of each row of a box: its address, as if the tensor went on for ever, and whether it is inside; and the bytes of
    a row that are."""
    if len(at) != image.rank:
        raise MapFault(f"{len(at)} coordinates in a tensor of rank {image.rank}")
    addresses: NDArray[Any] = np.full(1, image.address + at[0] * image.element_bytes, np.int64)
    inside: NDArray[Any] = np.ones(1, bool)
    dimensions = zip(image.box[1:], image.sizes[1:], at[1:], image.strides, strict=True)
    for side, size, first, stride in dimensions:
        index = np.arange(first, first + side)
        addresses = (index[:, None] * stride + addresses[None, :]).ravel()
        inside = (((index >= 0) & (index < size))[:, None] & inside[None, :]).ravel()
    begin = min(max(-at[0], 0), image.box[0])
    end = max(min(image.sizes[0] - at[0], image.box[0]), 0)
    return addresses, inside, (begin * image.element_bytes, end * image.element_bytes)
