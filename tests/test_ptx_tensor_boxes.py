"""Tensor maps and the boxes that tensor copies move, by the rules of the PTX ISA and the driver API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.runtime.cuda_driver import arguments_of
from treadle.runtime.ptx.hopper import tensor_boxes
from treadle.runtime.ptx.hopper.tensor_map_images import BYTES, MapFault, MapImage, decode, encode
from treadle.runtime.tensor_maps import tensor_map

BASE = 1 << 20


def _map(array: Any, box: tuple[int, ...], swizzle: int = 0) -> MapImage:
    made = tensor_map(array.shape, array.strides, array.dtype, BASE, box, swizzle)
    image = encode(arguments_of(made, BASE))
    assert len(image) == BYTES
    return decode(image)


def _reader(array: Any) -> tensor_boxes.Read:
    flat = array.reshape(-1).view(np.uint8)
    return lambda at, nbytes: flat[at[:, None] - BASE + np.arange(nbytes)]


def test_a_map_says_what_the_driver_was_asked() -> None:
    image = _map(np.zeros((3, 5, 24), np.float16), (1, 2, 16), 32)
    assert image == MapImage(BASE, 2, (24, 5, 3), (48, 240), (16, 2, 1), 32)


@pytest.mark.parametrize(
    "at",
    [(0, 0, 0), (8, 1, 2), (16, 3, 2), (-8, -1, 0), (-3, 4, -1), (24, 0, 0), (-16, 0, 0), (0, 5, 0), (0, -2, 0)],
)
def test_what_is_outside_is_zero(at: tuple[int, int, int]) -> None:
    array = np.arange(1, 1 + 3 * 5 * 24, dtype=np.float16).reshape(3, 5, 24)
    box = tensor_boxes.load(_map(array, (2, 2, 16)), at, _reader(array)).view(np.float16).reshape(2, 2, 16)
    for z, y, x in np.ndindex(2, 2, 16):
        place = (at[2] + z, at[1] + y, at[0] + x)
        inside = all(0 <= index < size for index, size in zip(place, array.shape, strict=True))
        assert box[z, y, x] == (array[place] if inside else 0), (z, y, x)


def test_a_store_leaves_what_is_outside() -> None:
    written = np.zeros(3 * 24, np.uint16)
    image = _map(np.zeros((3, 24), np.float16), (4, 16))
    calls: list[int] = []

    def write(at: Any, data: Any) -> None:
        calls.append(data.shape[1])
        written[(at[:, None] - BASE) // 2 + np.arange(data.shape[1] // 2)] = data.copy().view(np.uint16)

    tensor_boxes.store(image, (16, 1), np.full((4, 32), 1, np.uint8), write)
    expected = np.zeros((3, 24), np.uint16)
    expected[1:, 16:] = 0x0101
    assert np.array_equal(written.reshape(3, 24), expected)
    assert calls == [16]
    tensor_boxes.store(image, (24, 0), np.full((4, 32), 1, np.uint8), write)
    assert calls == [16], "nothing of it is inside"


def test_rows_of_a_box_follow_one_another_in_shared_memory() -> None:
    image = MapImage(0, 2, (64, 8), (128,), (64, 4), 0)
    assert np.array_equal(tensor_boxes.units(image, 0x400), 0x40 + np.arange(32))


def test_the_swizzle_follows_the_address() -> None:
    """Rows 2 and 3 of a pattern: the units of a line change places as the line's number says."""
    image = MapImage(0, 2, (64, 8), (128,), (64, 2), 128)
    lines = tensor_boxes.units(image, 0x100).reshape(2, 8) - 0x10
    assert lines.tolist() == [[2, 3, 0, 1, 6, 7, 4, 5], [8 + unit for unit in (3, 2, 1, 0, 7, 6, 5, 4)]]


@pytest.mark.parametrize(("address", "box"), [(0x440, (64, 2)), (0x400, (32, 2))])
def test_boxes_that_lie_nowhere(address: int, box: tuple[int, ...]) -> None:
    with pytest.raises(MapFault):
        tensor_boxes.units(MapImage(0, 2, (64, 8), (128,), box, 128), address)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"address": BASE + 8}, "multiple of 16"),
        ({"strides": [24]}, "multiples of 16"),
        ({"box": [512, 2]}, "256"),
        ({"box": [4, 2]}, "multiples of 16 bytes"),
        ({"box": [128, 2]}, "wider"),
        ({"sizes": [0, 8]}, "sizes"),
        ({"element_strides": [2, 1]}, "element strides"),
        ({"data_type": "CU_TENSOR_MAP_DATA_TYPE_FLOAT64"}, "FLOAT64"),
        ({"swizzle": "CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B"}, "ATOM"),
        ({"rank": 3}, "rank"),
    ],
)
def test_arguments_that_the_driver_refuses(change: dict[str, Any], message: str) -> None:
    good = arguments_of(tensor_map((8, 64), (128, 2), np.dtype(np.float16), BASE, (2, 64), 128), BASE)
    assert encode(good)
    with pytest.raises(MapFault, match=message):
        encode({**good, **change})


def test_other_bytes_are_no_map() -> None:
    with pytest.raises(MapFault):
        decode(bytes(BYTES))


def test_coordinates_are_as_many_as_dimensions() -> None:
    with pytest.raises(MapFault):
        tensor_boxes.load(MapImage(0, 2, (64, 8), (128,), (64, 2), 0), (0,), _reader(np.zeros(4)))
