"""Tensor maps as this machine encodes them: 128 bytes, made of the very arguments that the driver would be asked with.

A device's own encoding is opaque (PTX ISA 5.5.8); which arguments are legal, the CUDA driver API says
(cuTensorMapEncodeTiled)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from treadle.runtime.ptx.errors import PtxFault

BYTES = 128
ALIGNMENT = 64
"""Of the object (PTX ISA 5.5.8, tensor-map)."""

_MAGIC = b"map "
_IMAGE = struct.Struct("<4sHHHHQ5Q4Q5H")
_ELEMENT_BYTES = {"UINT8": 1, "FLOAT16": 2, "BFLOAT16": 2, "FLOAT32": 4, "INT32": 4}
_SWIZZLES = {"NONE": 0, "32B": 32, "64B": 64, "128B": 128}


class MapFault(PtxFault):
    """The driver would refuse these arguments, or these bytes are no tensor map."""


@dataclass(frozen=True)
class MapImage:
    """What a map says, innermost dimension first: of the tensor its address, sizes in elements and strides in bytes
    (of all dimensions but the innermost), and of its boxes the sides in elements and the swizzle."""

    address: int
    element_bytes: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    span: int

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def row_bytes(self) -> int:
        """Of a box, in shared memory."""
        return self.box[0] * self.element_bytes

    @property
    def box_bytes(self) -> int:
        return prod(self.box) * self.element_bytes

    def packed(self) -> bytes:
        sizes, strides, box = (
            each + (0,) * (room - len(each)) for each, room in ((self.sizes, 5), (self.strides, 4), (self.box, 5))
        )
        head = (_MAGIC, self.rank, self.element_bytes, self.span, 0, self.address)
        return _IMAGE.pack(*head, *sizes, *strides, *box).ljust(BYTES, b"\0")


def encode(arguments: Mapping[str, Any]) -> bytes:
    """The image of a map, from the arguments of cuTensorMapEncodeTiled by name as `cuda_driver.arguments_of` gives
    them: without interleaving, zeros outside (MapFault)."""
    image = MapImage(
        arguments["address"],
        _of(_ELEMENT_BYTES, "CU_TENSOR_MAP_DATA_TYPE_", arguments["data_type"]),
        tuple(arguments["sizes"]),
        tuple(arguments["strides"]),
        tuple(arguments["box"]),
        _of(_SWIZZLES, "CU_TENSOR_MAP_SWIZZLE_", arguments["swizzle"]),
    )
    if arguments["rank"] != image.rank:
        raise MapFault(f"rank {arguments['rank']} with {image.rank} sizes")
    if set(arguments["element_strides"]) != {1}:
        raise MapFault("elements of a box are neighbours: element strides other than 1 are not known here")
    if problem := _problem(image):
        raise MapFault(problem)
    return image.packed()


def decode(image: bytes) -> MapImage:
    """What a map in memory says (MapFault)."""
    magic, rank, element_bytes, span, _, address, *numbers = _IMAGE.unpack(image[: _IMAGE.size])
    if len(image) != BYTES or magic != _MAGIC:
        raise MapFault("no tensor map lies there")
    sizes, strides, box = tuple(numbers[:5]), tuple(numbers[5:9]), tuple(numbers[9:])
    return MapImage(address, element_bytes, sizes[:rank], strides[: rank - 1], box[:rank], span)


def _of(table: Mapping[str, int], prefix: str, name: str) -> int:
    if (key := name.removeprefix(prefix)) not in table or key == name:
        raise MapFault(f"tensor maps with {name} are not known here")
    return table[key]


def _problem(image: MapImage) -> str:
    """The first rule of the driver API that a map breaks; "" if it breaks none."""
    if not 1 <= image.rank <= 5 or len(image.strides) != image.rank - 1 or len(image.box) != image.rank:
        return f"rank {image.rank} with {len(image.strides)} strides and a box of {len(image.box)} sides"
    if image.address % 16:
        return f"the address {image.address:#x} is no multiple of 16"
    if not all(0 < size <= 2**32 for size in image.sizes):
        return f"sizes are 1 to 2^32, not {image.sizes}"
    if not all(stride % 16 == 0 and 0 <= stride < 2**40 for stride in image.strides):
        return f"strides are multiples of 16 below 2^40, not {image.strides}"
    if not all(0 < side <= 256 for side in image.box):
        return f"sides of a box are 1 to 256, not {image.box}"
    if image.row_bytes % 16:
        return f"rows of a box are multiples of 16 bytes, not {image.row_bytes}"
    if image.span and image.row_bytes > image.span:
        return f"rows of {image.row_bytes} bytes are wider than a swizzle of {image.span}"
    return ""
