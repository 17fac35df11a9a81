"""Rows that data choose, and zeros around an array, whose axes become one, or several: what is regrouped is memory, in
which a view of that kind is not."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
import treadle.language as tl

A = np.random.default_rng(0).standard_normal((33, 7, 5)).astype(np.float32)
CHOSEN = np.random.default_rng(1).integers(0, 33, 33).astype(np.int32)
MACHINES = ("a100", "h100")

COLLAPSED = """
!A = tensor<33x7x5xf32, #diagram.array<[i, j, l]>>
!n = tensor<33xi32, #diagram.array<[k]>>
!B = tensor<33x7x5xf32, #diagram.array<[k, j, l]>>
!C = tensor<33x35xf32, #diagram.array<[k, jl]>>
!s = tensor<33xf32, #diagram.array<[k]>>
func.func @regrouped(%A: !A, %n: !n) -> (!C, !s) {
  %B = diagram.read %A at "n[k], j, l" padded with (n = %n : !n) : !A -> !B
  %C = diagram.collapse %B [j, l] as jl : !B -> !C
  %s = diagram.reduce add %C over [jl] : !C -> !s
  func.return %C, %s : !C, !s
}
"""
SHIFTED = """
!A = tensor<33x7x5xf32, #diagram.array<[i, j, l]>>
!C = tensor<33x35xf32, #diagram.array<[i, jl]>>
!s = tensor<33xf32, #diagram.array<[i]>>
func.func @regrouped(%A: !A) -> (!C, !s) {
  %B = diagram.read %A at "i - 1, j, l" padded : !A -> !A
  %C = diagram.collapse %B [j, l] as jl : !A -> !C
  %s = diagram.reduce add %C over [jl] : !C -> !s
  func.return %C, %s : !C, !s
}
"""


@pytest.mark.parametrize("machine", MACHINES)
def test_chosen_rows_that_are_merged(machine: str) -> None:
    """A reduction over both axes makes them one, and the array that is returned is taken apart again."""

    @treadle.kernel("i j, k -> k j, ", machine=machine)
    def both(A: tl.Array, n: tl.Array) -> tuple[tl.Array, tl.Array]:
        B = tl.read(A, "n[k], j", n=n)
        return B, tl.sum(B * B, over=("k", "j"))

    B, squares = both(A[:, :, 0], CHOSEN[:20])
    np.testing.assert_array_equal(B, A[CHOSEN[:20], :, 0])
    np.testing.assert_allclose(squares, (B * B).sum(), rtol=1e-5)


@pytest.mark.parametrize("machine", MACHINES)
def test_chosen_rows_that_a_program_collapses(machine: str) -> None:
    """With as many rows chosen as there are, the array itself has the shape of what is chosen."""
    C, sums = treadle.compile(COLLAPSED, machine=machine).run(A, CHOSEN)
    np.testing.assert_array_equal(C, A[CHOSEN].reshape(33, 35))
    np.testing.assert_allclose(sums, C.sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("machine", MACHINES)
def test_zeros_around_that_a_program_collapses(machine: str) -> None:
    C, sums = treadle.compile(SHIFTED, machine=machine).run(A)
    np.testing.assert_array_equal(C, np.concatenate([np.zeros((1, 35), np.float32), A.reshape(33, 35)[:-1]]))
    np.testing.assert_allclose(sums, C.sum(1), rtol=1e-4, atol=1e-5)
