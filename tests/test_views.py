"""`diagram.read` in the emulator: the operand's memory, begun elsewhere, whatever the strides and the format."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import DTypeLike

import treadle
from treadle.runtime.emulator.backend import EmulatorBackend

ROWS = """
!X = tensor<?x?x{format}, #diagram.array<[b, a]>>
!Z = tensor<?x?x{format}, #diagram.array<[t, a]>>
!F = tensor<?x?xf32, #diagram.array<[t, a]>>
func.func @f(%X: !X) -> !F {{
  %Y = diagram.read %X at "2 * t + 1, a" : !X -> !Z
  %Z = diagram.cast %Y : !Z -> !F
  func.return %Z : !F
}}
"""
STEPS = """
!X = tensor<?xf32, #diagram.array<[b]>>
!Z = tensor<32xf32, #diagram.array<[t]>>
func.func @f(%X: !X) -> !Z {
  %now = diagram.read %X at "t" : !X -> !Z
  %next = diagram.read %X at "t + 1" : !X -> !Z
  %Z = diagram.map (%a = %now : !Z, %b = %next : !Z) -> !Z {
    %z = arith.subf %b, %a : f32
    diagram.yield %z : f32
  }
  func.return %Z : !Z
}
"""


@pytest.mark.parametrize(
    ("format", "dtype"),
    [
        ("f32", np.float32),
        ("bf16", ml_dtypes.bfloat16),
        ("f8E4M3FN", ml_dtypes.float8_e4m3fn),
        ("f8E5M2", ml_dtypes.float8_e5m2),
    ],
)
@pytest.mark.parametrize("steps", [(1, 1), (-1, 1), (1, -1), (-1, -2)])
def test_a_read_takes_any_strides_and_formats(format: str, dtype: DTypeLike, steps: tuple[int, int]) -> None:
    kernel = treadle.compile(ROWS.format(format=format))
    whole = np.random.default_rng(5).standard_normal((20, 33)).astype(dtype)
    array = whole[:: steps[0], :: steps[1]]
    np.testing.assert_array_equal(kernel(array), array[1::2].astype(np.float32))


@pytest.mark.parametrize("step", [1, -1])
def test_two_reads_of_one_array_overlap(step: int) -> None:
    array = np.random.default_rng(6).standard_normal(33).astype(np.float32)[::step]
    np.testing.assert_array_equal(treadle.compile(STEPS)(array), np.diff(array))


@pytest.mark.parametrize("offset", [0, 4, 16, 20])
def test_a_view_lies_where_its_array_lies(offset: int) -> None:
    """The variant is chosen by the address: a GPU begins the array at a multiple of 256 bytes, not the view of it."""
    backend = EmulatorBackend("", [])
    for first in (np.zeros(40, np.float32), np.zeros(44, np.float32)[4:]):
        array = backend.upload(first)
        view = backend.view(array, offset, (8,), (4,))
        again = backend.view(view, 8, (2, 2), (8, 4))
        assert (view.pointer, again.pointer) == (array.pointer + offset, array.pointer + offset + 8)
        assert again.data.ctypes.data == first.ctypes.data + offset + 8


def test_a_view_keeps_the_memory_alive() -> None:
    backend = EmulatorBackend("", [])
    view = backend.view(backend.upload(np.arange(1 << 20, dtype=np.float32)), 4, (1 << 19,), (8,))
    np.testing.assert_array_equal(view.data, np.arange(1, 1 << 20, 2, dtype=np.float32))
    with pytest.raises(ValueError, match="read-only"):
        view.data[0] = 1
