"""Sums that others follow by a power: where such a sum may fall, no repair is told from how far it moved."""

from __future__ import annotations

import numpy as np
import pytest

import treadle

COUNT = 1300

OF_SHARES = """
!A = tensor<?x?xf32, #diagram.array<[q, x]>>
!H = tensor<?x?xf16, #diagram.array<[q, x]>>
!V = tensor<?x32xf16, #diagram.array<[x, v]>>
!O = tensor<?x32xf32, #diagram.array<[q, v]>>
!r = tensor<?xf32, #diagram.array<[q]>>
func.func @f(%A: !A, %B: !A, %V: !V) -> RESULT attributes {sizes = #diagram.sizes<q = 512, x = 4096>} {
  %m = diagram.reduce max %A over [x] : !A -> !r
  %e = diagram.map (%a = %A : !A, %n = %m : !r) -> !A {
    %d = arith.subf %a, %n : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  %l = diagram.reduce add %e over [x] : !A -> !r
  %w = diagram.map (%b = %B : !A, %s = %l : !r) -> !A {
    %c = math.absf %b : f32
    %d = arith.addf %c, %s : f32
    %n = arith.negf %d : f32
    %p = math.exp %n : f32
    diagram.yield %p : f32
  }
SUM
  func.return %o : RESULT
}
"""
SUMS = {
    "rounded and multiplied": (
        "  %H = diagram.cast %w : !A -> !H\n  %o = diagram.contract %H, %V over [x] accumulate f32 : !H, !V -> !O",
        "!O",
    ),
    "in f32": ("  %o = diagram.reduce add %w over [x] : !A -> !r", "!r"),
}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sum", SUMS)
def test_the_sum_of_shares_falls_where_their_maximum_moves(sum: str, machine: str) -> None:
    """From a thousand to one, with the last key: e to a thousand is infinite, and nothing times that is no number."""
    written, result = SUMS[sum]
    kernel = treadle.compile(OF_SHARES.replace("SUM", written).replace("RESULT", result), machine=machine)
    scores = np.zeros((4, COUNT), np.float32)
    scores[:, -1] = 50.0
    random = np.random.default_rng(2)
    others, values = random.standard_normal(scores.shape, np.float32), random.standard_normal((COUNT, 32))
    verdicts = kernel.verify(scores, others, values.astype(np.float16), backend="emulator")
    assert all(verdict.ok for verdict in verdicts), verdicts
