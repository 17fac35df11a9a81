"""Gradients of products whose rows are sorted by what they meet: that of the rows is such a product, that
of the matrices sums over rows that copies bring (`diagram-merge-depths`, `diagram-repeat-operands`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_sorted_rows import factors, of_ranges, ranges

import treadle
from treadle.compiler.cost.reading.fed import Parted
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import WhereOp
from treadle.dialects.hierarchy.bounded import bounds_of

DEPTHS, REPEAT = "diagram-merge-depths", "diagram-repeat-operands"


def text(k: int, n: int, i: int, t: int = 150) -> str:
    return f"""
!X = tensor<?x{k}xf16, #diagram.array<[t, k]>>
!W = tensor<{i}x{k}x{n}xf16, #diagram.array<[i, k, n]>>
!e = tensor<{i}xi32, #diagram.array<[i]>>
!P = tensor<{i}x?x{n}xf32, #diagram.array<[i, t, n]>>
!Y = tensor<?x{n}xf32, #diagram.array<[t, n]>>
!Z = tensor<?x{n}xf16, #diagram.array<[t, n]>>
func.func @rows(%X: !X, %W: !W, %first: !e, %end: !e) -> !Z attributes {{sizes = #diagram.sizes<t = {t}>}} {{
  %P = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !P
  %Q = diagram.where %P if "first[i] <= t and t < end[i]" with (first = %first : !e, end = %end : !e) : !P
  %Y = diagram.reduce add %Q over [i] : !P -> !Y
  %Z = diagram.cast %Y : !Y -> !Z
  func.return %Z : !Z
}}
"""


def gradient(k: int, n: int, i: int, of: str, t: int = 150) -> str:
    return str(treadle.differentiate(text(k, n, i, t), [of]))


@cache
def kernel_of(of: str, machine: str, k: int, n: int, i: int, passes: tuple[str, ...]) -> treadle.Kernel:
    return treadle.compile(gradient(k, n, i, of), machine=machine, passes=list(passes))


def cotangents(t: int, n: int) -> NDArray[Any]:
    return np.random.default_rng(2).standard_normal((t, n)).astype(np.float16)


def is_near(found: NDArray[Any], wanted: NDArray[Any]) -> bool:
    """Rounded to f16, at most."""
    return bool(np.abs(found.astype(float) - wanted).max(initial=0) <= 2.0**-9 * max(np.abs(wanted).max(initial=0), 1))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("k", "n", "i"), [(72, 128, 4), (33, 96, 2)])
def test_gradients_of_rows(k: int, n: int, i: int, machine: str) -> None:
    """Rows in no range have zeros, bit for bit."""
    kernel = kernel_of("X", machine, k, n, i, (f"{DEPTHS}{{axes=i,n}}",))
    assert any(step.rewrite == DEPTHS and step.subject.endswith("as [i_n, n_within]") for step in kernel.derivation)
    for t in (150, 1):
        X, W = factors(t, k, n, i)
        dZ = cotangents(t, n)
        for name, (first, end) in ranges(t, i).items():
            there = of_ranges(first, end, t)
            wanted = np.einsum("it,tn,ikn->tk", there.astype(float), dZ.astype(float), W.astype(float))
            found = kernel.run(X, W, first, end, np.zeros_like(dZ), dZ, backend="emulator", checks=True)
            assert is_near(found, wanted), name
            assert (found[~there.any(0)] == 0).all(), name


FORCED = 'hierarchy-choose-sizes{group="i=1,k=64,n=128" stream="t=64" warps="n=8"}'
OF_WEIGHTS = [
    ("h100", 128, 136, 4, (f"{REPEAT}{{axes=i,t}}", FORCED)),
    ("h100", 40, 72, 2, (f"{REPEAT}{{axes=i,t}}",)),
    ("a100", 128, 136, 4, (f"{REPEAT}{{axes=i,t}}",)),
]


@pytest.mark.parametrize(("machine", "k", "n", "i", "passes"), OF_WEIGHTS)
def test_gradients_of_matrices(machine: str, k: int, n: int, i: int, passes: tuple[str, ...]) -> None:
    """By copies that bring zeros for rows of other ranges: what rows in none hold is not even read."""
    kernel = kernel_of("W", machine, k, n, i, passes)
    tests = [op for op in parse_module(kernel.hierarchy, "rows").walk() if isinstance(op, WhereOp)]
    assert tests
    assert all(bounds_of(op) is not None for op in tests)
    assert ("kernel_specialised" in kernel.cuda) == (machine == "h100")
    for t in (333, 1):
        X, W = factors(t, k, n, i)
        dZ = cotangents(t, n)
        for name, (first, end) in ranges(t, i).items():
            there = of_ranges(first, end, t)
            wanted = np.einsum("it,tk,tn->ikn", there.astype(float), X.astype(float), dZ.astype(float))
            found = kernel.run(X, W, first, end, np.zeros_like(dZ), dZ, backend="emulator", checks=True)
            assert is_near(found, wanted), name


def test_rows_that_are_no_numbers_stay_where_no_range_is() -> None:
    """Neither of the operands is read there, also within the pieces in which a range begins and ends."""
    machine, k, n, i, passes = OF_WEIGHTS[0]
    kernel = kernel_of("W", machine, k, n, i, passes)
    t = 333
    X, W = factors(t, k, n, i)
    dZ = cotangents(t, n)
    first, end = (np.array(each, np.int32) for each in ([10, 110, 200, 260], [90, 150, 200, 300]))
    there = of_ranges(first, end, t)
    wanted = np.einsum("it,tk,tn->ikn", there.astype(float), X.astype(float), dZ.astype(float))
    X[~there.any(0)] = np.nan
    dZ[~there.any(0)] = np.nan
    found = kernel.run(X, W, first, end, np.zeros_like(dZ), dZ, backend="emulator", checks=True)
    assert is_near(found, wanted)


@pytest.mark.parametrize(
    ("of", "machine", "at_most"), [("X", "h100", 1.4), ("X", "a100", 4.0), ("W", "h100", 1.6), ("W", "a100", 4.0)]
)
def test_gradients_take_as_long_as_the_product(of: str, machine: str, at_most: float) -> None:
    kernel = treadle.compile(gradient(4096, 14336, 8, of, 8192), machine=machine)
    assert kernel.estimate.time_us is not None
    assert kernel.estimate.time_us < at_most * 1000


@pytest.mark.parametrize(("size", "parts", "step"), [(1000, 8, 16), (1000, 1, 64), (5, 8, 16), (1024, 8, 128)])
def test_how_many_pieces_a_range_is_fed(size: int, parts: int, step: int) -> None:
    """About as many as ranges of equal lengths have that begin anywhere, and no more than there are."""
    fed = Parted("i").fed(size, parts, step)
    length = -(-size // parts)
    met = [(begin + length - 1) // step - begin // step + 1 for begin in range(step)]
    assert fed <= -(-size // step)
    assert fed == -(-size // step) or abs(fed - sum(met) / len(met)) < 1


def test_what_reads_again_has_a_gradient() -> None:
    """All that was read of an element is added up."""
    program = """
!X = tensor<?x?xf32, #diagram.array<[t, n]>>
!A = tensor<?x3x?xf32, #diagram.array<[t, i, n]>>
!V = tensor<3xf32, #diagram.array<[i]>>
func.func @f(%X: !X, %V: !V) -> !A {
  %A = diagram.read %X at "t, n" padded : !X -> !A
  %B = diagram.map (%a = %A : !A, %v = %V : !V) -> !A {
    %0 = arith.mulf %a, %v : f32
    diagram.yield %0 : f32
  }
  func.return %B : !A
}
"""
    random = np.random.default_rng(0)
    X, V, dA = (random.standard_normal(shape).astype(np.float32) for shape in ((5, 7), (3,), (5, 3, 7)))
    found = treadle.compile(program, machine="a100").run(X, V, backend="emulator", checks=True)
    np.testing.assert_allclose(found, X[:, None] * V[:, None], rtol=1e-6)
    back = treadle.compile(str(treadle.differentiate(program, ["X"])), machine="a100")
    np.testing.assert_allclose(
        back.run(X, V, found, dA, backend="emulator", checks=True), np.einsum("tin,i->tn", dA, V), rtol=1e-4, atol=1e-5
    )


def test_no_such_rows() -> None:
    with pytest.raises(TreadleError, match="no condition keeps a range of rows of an operand that lacks an axis"):
        treadle.compile(text(64, 64, 2), machine="h100", passes=[f"{REPEAT}{{axes=k}}"])
