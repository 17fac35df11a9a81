"""What makes a tensor map legal (CUDA driver API, cuTensorMapEncodeTiled; PTX ISA 5.5.8): of each rule the last array
that it takes and the first that it refuses; and what launches ask before they choose a kernel with tensor copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle.runtime.arguments import why_not_mappable
from treadle.runtime.gpu import DeviceArray
from treadle.runtime.tensor_maps import MAX_SIZE, MAX_STRIDE, NoTensorMap, tensor_map, why_no_map

HALF = np.dtype(np.float16)
LEGAL: dict[str, Any] = {
    "shape": (4, 100, 64),
    "strides": (12800, 128, 2),
    "itemsize": 2,
    "address": 4096,
    "box": (1, 64, 64),
    "swizzle": 128,
}

# What is legal still, what is not any more, and what is said.
EDGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "five dimensions": (
        {"shape": (2,) * 4 + (64,), "strides": (1024, 512, 256, 128, 2), "box": (1,) * 4 + (64,)},
        {"shape": (2,) * 5 + (64,), "strides": (2048, 1024, 512, 256, 128, 2), "box": (1,) * 5 + (64,)},
        "1 to 5 dimensions, the array 6",
    ),
    "a dimension at least": ({}, {"shape": (), "strides": (), "box": ()}, "1 to 5 dimensions, the array 0"),
    "a side for each dimension": ({}, {"box": (64, 64)}, "a box of 2 dimensions does not fit an array of 3"),
    "elements": ({"shape": (1, 1, 64)}, {"shape": (4, 0, 64)}, "sizes of a tensor map are 1 to 2^32"),
    "sizes": (
        {"shape": (4, MAX_SIZE, 64)},
        {"shape": (4, MAX_SIZE + 1, 64)},
        "sizes of a tensor map are 1 to 2^32",
    ),
    "sides": ({"box": (1, 256, 64)}, {"box": (1, 257, 64)}, "sides of a box are 1 to 256"),
    "no side": ({}, {"box": (1, 0, 64)}, "sides of a box are 1 to 256"),
    "swizzles": ({"swizzle": 32, "box": (1, 64, 16)}, {"swizzle": 16, "box": (1, 64, 8)}, "spans 32, 64 or 128"),
    "rows of 16 bytes": (
        {"swizzle": 0, "box": (1, 64, 40)},
        {"swizzle": 0, "box": (1, 64, 36)},
        "a multiple of 16 bytes, here 72",
    ),
    "rows of the swizzle": ({}, {"box": (1, 64, 128)}, "the 128 bytes of its swizzle, here 256"),
    "the address": ({"address": 4112}, {"address": 4104}, "8 past a multiple of 16 bytes"),
    "neighbours": (
        {"shape": (4, 100, 1), "strides": (12800, 128, 4)},
        {"strides": (12800, 128, 4)},
        "neighbours along the last axis lie 4 bytes apart, not 2",
    ),
    "strides of 16 bytes": ({"strides": (12800, 144, 2)}, {"strides": (12800, 136, 2)}, "here one is 136"),
    "strides forward": ({"strides": (12800, 16, 2)}, {"strides": (12800, -128, 2)}, "here one is -128"),
    "strides at all": ({"strides": (16, 128, 2)}, {"strides": (0, 128, 2)}, "here one is 0"),
    "far strides": (
        {"strides": (MAX_STRIDE - 16, 128, 2)},
        {"strides": (MAX_STRIDE, 128, 2)},
        f"here one is {MAX_STRIDE}",
    ),
}


@pytest.mark.parametrize("rule", EDGES)
def test_the_edge_of_each_rule(rule: str) -> None:
    legal, illegal, said = EDGES[rule]
    assert why_no_map(**(LEGAL | legal)) is None
    assert said in str(why_no_map(**(LEGAL | illegal)))


def test_what_the_driver_documents() -> None:
    assert (MAX_SIZE, MAX_STRIDE) == (2**32, 2**40)


@pytest.mark.parametrize("strides", [(12800, 136, 2), (-12800, 0, 2)])
def test_the_stride_of_one_element_is_never_used(strides: tuple[int, ...]) -> None:
    """But the driver asks that it keeps the rules."""
    map = tensor_map((1, 1, 64), strides, HALF, 4096, (1, 64, 64), 128)
    assert map.strides == (16, 16)
    assert (map.sizes, map.box) == ((64, 1, 1), (64, 64, 1))


@pytest.mark.parametrize("size", [3, 64, 100])
def test_an_array_of_one_dimension_is_one_row(size: int) -> None:
    map = tensor_map((size,), (2,), HALF, 4096, (64,), 128)
    assert (map.sizes, map.strides, map.box) == ((size, 1), (16,), (64, 1))


def test_sides_and_strides_are_told_innermost_first() -> None:
    map = tensor_map((4, 100, 64), (12800, 128, 2), HALF, 4096, (1, 32, 64), 128)
    assert (map.rank, map.sizes, map.strides, map.box) == (3, (64, 100, 4), (128, 12800), (64, 32, 1))
    assert map.box_bytes == 4096
    with pytest.raises(NoTensorMap, match="8 past a multiple of 16"):
        tensor_map((4, 100, 64), (12800, 128, 2), HALF, 4104, (1, 32, 64), 128)


@pytest.mark.parametrize(
    ("shape", "strides", "shift", "fits"),
    [
        ((10, 64), (128, 2), 0, True),
        ((10, 64), (128, 2), 16, True),
        ((10, 64), (128, 2), 8, False),
        ((10, 64), (136, 2), 0, False),
        ((10, 64), (144, 2), 0, True),
        ((10, 64), (0, 2), 0, False),
        ((10, 64), (-128, 2), 0, False),
        ((10, 16), (128, 4), 0, False),
        ((1, 64), (136, 2), 0, True),
        ((0, 64), (128, 2), 0, False),
        ((2**31, 64), (128, 2), 0, False),
    ],
)
def test_what_launches_ask(shape: tuple[int, ...], strides: tuple[int, ...], shift: int, fits: bool) -> None:
    array = DeviceArray(4096 + shift, shape, strides, HALF, None)
    assert (why_not_mappable(array) is None) == fits
