"""Reductions over two axes that are not one: a kernel is fed one index by index, and holds the other whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle

SIMPLICIAL = """
!Q = tensor<?x64xf16, #diagram.array<[q, d]>>
!K1 = tensor<?x64xf16, #diagram.array<[x, d]>>
!K2 = tensor<64x64xf16, #diagram.array<[y, d]>>
!V1 = tensor<?x64xf16, #diagram.array<[x, e]>>
!V2 = tensor<64x64xf16, #diagram.array<[y, e]>>
!T = tensor<?x?x64xf16, #diagram.array<[q, x, d]>>
!S = tensor<?x?x64xf32, #diagram.array<[q, x, y]>>
!P = tensor<?x?x64xf16, #diagram.array<[q, x, y]>>
!U = tensor<?x?x64xf32, #diagram.array<[q, x, e]>>
!r = tensor<?xf32, #diagram.array<[q]>>
!O = tensor<?x64xf32, #diagram.array<[q, e]>>
func.func @simplicial(%Q: !Q, %K1: !K1, %K2: !K2, %V1: !V1, %V2: !V2) -> !O
    attributes {sizes = #diagram.sizes<q = 4096, x = 512>} {
  %T = diagram.map (%a = %Q : !Q, %b = %K1 : !K1) -> !T {
    %c = arith.mulf %a, %b : f16
    diagram.yield %c : f16
  }
  %S = diagram.contract %T, %K2 over [d] accumulate f32 : !T, !K2 -> !S
  %m = diagram.reduce max %S over [x, y] : !S -> !r
  %E = diagram.map (%s = %S : !S, %b = %m : !r) -> !S {
    %t = arith.subf %s, %b : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x, y] : !S -> !r
  %P = diagram.cast %E : !S -> !P
  %U = diagram.contract %P, %V2 over [y] accumulate f32 : !P, !V2 -> !U
  %W = diagram.map (%u = %U : !U, %v = %V1 : !V1) -> !U {
    %w = arith.extf %v : f16 to f32
    %p = arith.mulf %u, %w : f32
    diagram.yield %p : f32
  }
  %A = diagram.reduce add %W over [x] : !U -> !O
  %O = diagram.map (%a = %A : !O, %b = %l : !r) -> !O {
    %t = arith.divf %a, %b : f32
    diagram.yield %t : f32
  }
  func.return %O : !O
}
"""
"""2-simplicial attention: scores of a query and pairs of keys, shares of all pairs, values that are products."""


def arrays(q: int, x: int, seed: int = 0) -> list[Any]:
    random = np.random.default_rng(seed)
    shapes = (q, 64), (x, 64), (64, 64), (x, 64), (64, 64)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


def test_no_scores_are_saved() -> None:
    kernel = treadle.compile(SIMPLICIAL, machine="a100")
    assert kernel.estimate.kernels == 1
    assert kernel.hierarchy.count("hierarchy.stream") == 1
    assert kernel.host.count("memref.alloc") == 1  # the result
    laws = {step.subject: step.law for step in kernel.derivation if step.rewrite == "streaming"}
    assert laws["%A of @simplicial along x"].startswith("cascade")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [(40, 7), (17, 1), (1, 33), (3, 0)])
def test_any_sizes(machine: str, sizes: tuple[int, int]) -> None:
    kernel = treadle.compile(SIMPLICIAL, machine=machine)
    for verdict in kernel.verify(*arrays(*sizes), backend="emulator"):
        assert verdict.ok, str(verdict)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("argument", [0, 1, 2, 3, 4])
def test_infinities_come_out_as_the_plain_form_says(argument: int, value: float) -> None:
    """The sum of shares is repaired by a maximum that may be infinite: rows of which it is are no numbers anyway. The
    tolerance is that of shares in f16, of values that are products of two."""
    kernel = treadle.compile(SIMPLICIAL, machine="a100")
    given = arrays(20, 5, seed=3)
    given[argument][2, 7] = value
    made, wanted = (np.asarray(kernel.run(*given, backend=place), float) for place in ("emulator", "interpreter"))
    np.testing.assert_allclose(made, wanted, rtol=2e-2, atol=2e-2)


def test_the_oracle_of_another() -> None:
    kernel = treadle.compile(SIMPLICIAL, machine="a100")
    given = arrays(9, 6)
    given[0] = (given[0] * 0.125).astype(np.float16)
    Q, K1, K2, V1, V2 = (each.astype(float) for each in given)
    scores = np.einsum("qd,xd,yd->qxy", Q, K1, K2)
    powers = np.exp(scores - scores.max((1, 2), keepdims=True))
    wanted = np.einsum("qxy,xe,ye->qe", powers, V1, V2) / powers.sum((1, 2))[:, None]
    np.testing.assert_allclose(np.asarray(kernel(*given, backend="emulator"), float), wanted, atol=2e-2)
