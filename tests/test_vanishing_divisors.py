"""Sums whose divisor is above zero over the reals, and may be zero in f32 before the last piece: they follow no running
divisor then, but wait for it."""

from __future__ import annotations

import numpy as np
import pytest

from roads import array, compiled
from treadle.runtime.backend import has_host_compiler

W, N, L = array("f32", q=None, x=None), array("f32", q=None), array("i32", q=None)
V, OUT = array("f32", x=None, e=32), array("f32", q=None, e=32)
SHARES = f"""
func.func @f(%X: {W}, %V: {V}, %K: {N}, %L: {L} {{diagram.up_to = "x"}}) -> {OUT}
    attributes {{sizes = #diagram.sizes<q = 9, x = 96>}} {{
  %S = diagram.where %X if "x < L[q]" with (L = %L : {L}) : {W}
  %m = diagram.reduce max %S over [x] : {W} -> {N}
  %E = diagram.map (%s = %S : {W}, %a = %m : {N}, %k = %K : {N}) -> {W} {{
    %two = arith.constant 2.0 : f32
    %w = arith.maximumf %a, %k : f32
    %d = arith.subf %s, %w : f32
    %g = arith.mulf %d, %two : f32
    %p = math.exp %g : f32
    diagram.yield %p : f32
  }}
  %sum = diagram.reduce add %E over [x] : {W} -> {N}
  %P = diagram.map (%e = %E : {W}, %l = %sum : {N}, %a = %m : {N}, %k = %K : {N}) -> {W} {{
    %two = arith.constant 2.0 : f32
    %w = arith.maximumf %a, %k : f32
    %d = arith.subf %k, %w : f32
    %g = arith.mulf %d, %two : f32
    %sink = math.exp %g : f32
    %all = arith.addf %l, %sink : f32
    %share = arith.divf %e, %all : f32
    diagram.yield %share : f32
  }}
  %O = diagram.contract %P, %V over [x] accumulate f32 : {W}, {V} -> {OUT}
  func.return %O : {OUT}
}}
"""
"""A softmax with a sink: powers are told from a whole maximum, and those of the first keys may be zero."""


@pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_powers_that_vanish_before_the_last_piece(machine: str) -> None:
    road, dice = compiled(SHARES, machine=machine), np.random.default_rng(0)
    scores = dice.standard_normal((9, 400)).astype(np.float32)
    scores[:, 200:210] += 100
    lengths = np.array([400, 399, 210, 201, 200, 1, 384, 96, 0], np.int32)
    sinks = np.linspace(-100, 200, 9).astype(np.float32)
    given = scores, dice.standard_normal((400, 32)).astype(np.float32), sinks, lengths
    (output,) = road.run(given)
    assert np.isfinite(output).all()
    (verdict,) = road.verdicts(given)
    assert not verdict.wrong, verdict
