"""What is read of an array that is computed is computed of what is read (`diagram-bubble-up-reads`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError

PASS = "diagram-bubble-up-reads"
MACHINES = ["a100", "h100"]


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


def read_before(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == PASS]


def kernels_of(kernel: treadle.Kernel) -> int:
    return sum(step.rewrite == "fusion" and " into @" in step.subject for step in kernel.derivation)


def verify(kernel: treadle.Kernel, *given: Any) -> None:
    for verdict in kernel.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)


def gated(X: Any, W: Any, b: Any) -> Any:
    P = tl.contract(X, W, over="i") + b
    return tl.silu(tl.read(P, "t, 0, j")) * tl.read(P, "t, 1, j")


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rows", [0, 1, 37, 130])
def test_halves_of_a_product_share_a_kernel(rows: int, machine: str) -> None:
    X, W, b = arrays((rows, 72), (2, 24, 72), (2, 24))
    function = treadle.kernel("t i, s j i, s j -> t j", static=("s", "j"), machine=machine)(gated)
    kernel = function.compiled(X, W, b)
    if rows > 1:
        assert read_before(kernel) == ["%P at 't, 0, j'", "%P at 't, 1, j'"]
        assert kernels_of(kernel) == 1
    verify(kernel, X, W, b)
    x, w, c = (each.astype(np.float64) for each in (X, W, b))
    P = np.einsum("ti,sji->tsj", x, w) + c
    wanted = P[:, 0] / (1 + np.exp(-P[:, 0])) * P[:, 1]
    np.testing.assert_allclose(function(X, W, b, backend="emulator"), wanted, rtol=5e-3, atol=5e-3)


def test_no_more_work_than_two_products() -> None:
    """As fast as where the program multiplies by two matrices."""
    given = arrays((64, 4096), (2, 4096, 4096), (2, 4096))
    kernel = treadle.kernel("t i, s j i, s j -> t j", static="s", machine="h100")(gated).compiled(*given)

    def apart(X: Any, W: Any, V: Any, b: Any, c: Any) -> Any:
        return tl.silu(tl.contract(X, W, over="i") + b) * (tl.contract(X, V, over="i") + c)

    X, W, b = given
    other = treadle.kernel("t i, j i, j i, j, j -> t j", machine="h100")(apart).compiled(X, *W, *b)
    assert kernel.estimate.time_us == pytest.approx(other.estimate.time_us, rel=0.03)


@pytest.mark.parametrize("machine", MACHINES)
def test_what_nobody_reads_is_not_made(machine: str) -> None:
    """The first row of each of a batch, of norms: with a mean, a variance, and a product behind."""

    def first(X: Any, g: Any, W: Any) -> Any:
        rows = (X - tl.mean(X, over="d")) * tl.rsqrt(tl.var(X, over="d") + 1e-5) * g
        return tl.contract(tl.read(rows, "b, 0, d"), W, over="d")

    X, g, W = arrays((5, 197, 64), (64,), (64, 24))
    kernel = treadle.kernel("b s d, d, d o -> b o", static=("s", "d"), machine=machine)(first).compiled(X, g, W)
    assert read_before(kernel) == ["%rows at 'b, 0, d'"]
    verify(kernel, X, g, W)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_condition_is_asked_where_it_is_read(machine: str) -> None:
    def last(Q: Any, K: Any, V: Any) -> Any:
        S = tl.keep(tl.contract(Q, K, over="d") * 0.125, "x <= 2 * q + 1")
        return tl.read(tl.contract(tl.softmax(S, over="x"), V, over="x"), "b, 7, e")

    Q, K, V = arrays((3, 9, 64), (3, 29, 64), (3, 29, 32))
    function = treadle.kernel("b q d, b x d, b x e -> b e", static=("q", "x"), machine=machine)(last)
    kernel = function.compiled(Q, K, V)
    assert kernels_of(kernel) == 1
    verify(kernel, Q, K, V)
    q, k, v = (each.astype(np.float64) for each in (Q, K, V))
    S = np.einsum("bd,bxd->bx", q[:, 7], k[:, :16]) * 0.125
    P = np.exp(S - S.max(-1, keepdims=True))
    wanted = np.einsum("bx,bxe->be", P / P.sum(-1, keepdims=True), v[:, :16])
    np.testing.assert_allclose(function(Q, K, V, backend="emulator"), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("machine", MACHINES)
def test_positions_diagonals_and_reads_backwards(machine: str) -> None:
    def mixed(X: Any, W: Any) -> Any:
        P = tl.contract(X, W, over="i")
        return tl.read(P, "m, m") + tl.read(P, "m, 15 - m") + tl.read(P, "m, 3") * 2.0

    X, W = arrays((16, 32), (16, 32))
    function = treadle.kernel("m i, j i -> m", static=("m", "j"), machine=machine)(mixed)
    kernel = function.compiled(X, W)
    assert len(read_before(kernel)) == 3
    verify(kernel, X, W)
    P = X.astype(np.float64) @ W.T.astype(np.float64)
    wanted = P.diagonal() + P[:, ::-1].diagonal() + 2 * P[:, 3]
    np.testing.assert_allclose(function(X, W, backend="emulator"), wanted, rtol=2e-3, atol=2e-2)


HEADER = """
!X = tensor<?x16xf32, #diagram.array<[t, i]>>
!W = tensor<24x16xf32, #diagram.array<[j, i]>>
!P = tensor<?x24xf32, #diagram.array<[t, j]>>
!t = tensor<?xf32, #diagram.array<[t]>>
"""

REFUSED = {
    "a sum has the name of an axis that is read": """
func.func @f(%X: !X, %W: !W) -> !X {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %R = diagram.read %P at "t, i" : !P -> !X
  func.return %R : !X
}""",
    "zeros around": """
func.func @f(%X: !X, %W: !W) -> !P {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %R = diagram.read %P at "t, j - 1" padded : !P -> !P
  func.return %R : !P
}""",
    "absent elements": """
func.func @f(%X: !X, %W: !W) -> !t {
  %S = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %P = diagram.where %S if "j <= t" : !P
  %R = diagram.read %P at "t, 3" : !P -> !t
  func.return %R : !t
}""",
    "it is compared with the largest": """
func.func @f(%X: !X, %W: !W) -> !t {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %R = diagram.read %P at "t, 3" : !P -> !t
  %m = diagram.reduce max %P over [j] : !P -> !t
  %y = diagram.map (%a = %R : !t, %b = %m : !t) -> !t {
    %is = arith.cmpf oeq, %a, %b : f32
    %one = arith.constant 1.0 : f32
    %none = arith.constant 0.0 : f32
    %c = arith.select %is, %one, %none : f32
    diagram.yield %c : f32
  }
  func.return %y : !t
}""",
    "it says how long an axis is": """
!M = tensor<?x?xf32, #diagram.array<[m, n]>>
!w = tensor<?xf32, #diagram.array<[r]>>
!U = tensor<?x?x?xf32, #diagram.array<[u, r, n]>>
func.func @f(%X: !M, %w: !w) -> !U {
  %P = diagram.map (%a = %X : !M) -> !M {
    %b = arith.negf %a : f32
    diagram.yield %b : f32
  }
  %R = diagram.read %P at "u + r, n" : !M -> !U
  func.return %R : !U
}""",
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_law_allows_is_refused(case: str) -> None:
    with pytest.raises(TreadleError, match="%P is no array that is computed, read at other positions"):
        treadle.compile(HEADER + REFUSED[case], machine="a100", passes=[f"{PASS}{{arrays=P}}"])


def test_a_derivation_says_which() -> None:
    X, W, b = arrays((37, 72), (2, 24, 72), (2, 24))
    function = treadle.kernel("t i, s j i, s j -> t j", static=("s", "j"), machine="a100")(gated)
    text = str(function.trace(["f16"] * 3, {"t": 37, "i": 72, "s": 2, "j": 24}, ["s", "j"]))
    kernel = treadle.compile(text, machine="a100", passes=[f"{PASS}{{arrays=none}}"])
    assert not read_before(kernel)
    assert kernels_of(kernel) == 2
    verify(kernel, X, W, b)


NESTED = """
!X = tensor<?x4x16xf32, #diagram.array<[t, s, i]>>
!W = tensor<16x16xf32, #diagram.array<[i, j]>>
!P = tensor<?x4x16xf32, #diagram.array<[t, s, j]>>
!a = tensor<?x16xf32, #diagram.array<[t, j]>>
!R = tensor<?x16xf32, #diagram.array<[t, i]>>
func.func @f(%X: !X, %W: !W) -> !R {
  %P = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !P
  %a = diagram.read %P at "t, 2, j" : !P -> !a
  %B = diagram.map (%x = %a : !a) -> !a {
    %y = math.sin %x : f32
    diagram.yield %y : f32
  }
  %R = diagram.read %B at "t, i" : !a -> !R
  func.return %R : !R
}"""


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_read_twice_may_be_read_less_once_it_is_computed(machine: str) -> None:
    """`j` may be called `i` while it is read, but not in the product that sums over `i`."""
    kernel = treadle.compile(NESTED, machine=machine, passes=[f"{PASS}{{arrays=P,B}}"])
    assert read_before(kernel) == ["%P at 't, 2, j'"]
    X, W = (each.astype(np.float32) for each in arrays((5, 4, 16), (16, 16)))
    verify(kernel, X, W)
    wanted = np.sin(X[:, 2].astype(np.float64) @ W)
    np.testing.assert_allclose(kernel.run(X, W, backend="emulator"), wanted, rtol=1e-5, atol=1e-5)


UNNAMED = """
!X = tensor<?x4x16xf16, #diagram.array<[t, s, i]>>
!Y = tensor<?x4x16xf32, #diagram.array<[t, s, i]>>
!Z = tensor<?x16xf32, #diagram.array<[t, i]>>
func.func @f(%0: !X) -> !Z attributes {sizes = #diagram.sizes<t = 4096>} {
  %1 = diagram.cast %0 : !X -> !Y
  %2 = diagram.read %1 at "t, 3, i" : !Y -> !Z
  %3 = diagram.map (%a = %2 : !Z) -> !Z {
    %y = math.sin %a : f32
    diagram.yield %y : f32
  }
  func.return %3 : !Z
}"""


def test_an_array_without_a_name_gets_one_that_a_derivation_can_say() -> None:
    assert read_before(treadle.compile(UNNAMED, machine="a100")) == ["%array at 't, 3, i'"]
    asked = treadle.compile(UNNAMED, machine="a100", passes=[f"{PASS}{{arrays=array}}"])
    assert read_before(asked) == ["%array at 't, 3, i'"]
