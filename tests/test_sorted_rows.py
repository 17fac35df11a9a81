"""Products whose rows are sorted by what they are multiplied with: each block of rows meets the weights that it has
rows for, and copies bring zeros in the place of all others (`diagram-merge-depths`, `hierarchy.bounded`)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import treadle
from treadle.compiler.cost.kernel.plan import Pieces
from treadle.compiler.cost.reading.fed import Fed, Routed
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import WhereOp
from treadle.dialects.hierarchy.bounded import bounds_of

PASS = "diagram-merge-depths"
MERGED = f"{PASS}{{axes=i,k}}"


def text(k: int = 128, n: int = 72, i: int = 4, condition: str = "first[i] <= t and t < end[i]", t: int = 150) -> str:
    return f"""
!X = tensor<?x{k}xf16, #diagram.array<[t, k]>>
!W = tensor<{i}x{k}x{n}xf16, #diagram.array<[i, k, n]>>
!e = tensor<{i}xi32, #diagram.array<[i]>>
!P = tensor<{i}x?x{n}xf32, #diagram.array<[i, t, n]>>
!Y = tensor<?x{n}xf32, #diagram.array<[t, n]>>
func.func @rows(%X: !X, %W: !W, %first: !e, %end: !e) -> !Y attributes {{sizes = #diagram.sizes<t = {t}>}} {{
  %P = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !P
  %Q = diagram.where %P if "{condition}" with (first = %first : !e, end = %end : !e) : !P
  %Y = diagram.reduce add %Q over [i] : !P -> !Y
  func.return %Y : !Y
}}
"""


def told(k: int, n: int, i: int) -> str:
    """The same as the pass writes it, with ranges that are arguments: one kernel, which a size is chosen for."""
    pieces = k // 64
    return f"""
!X = tensor<?x{k}xf16, #diagram.array<[t, k]>>
!Xp = tensor<?x{pieces}x64xf16, #diagram.array<[t, k_piece, k_within]>>
!Xd = tensor<?x{i * pieces}x64xf16, #diagram.array<[t, i_k, k_within]>>
!W = tensor<{i}x{k}x{n}xf16, #diagram.array<[i, k, n]>>
!Wp = tensor<{i}x{pieces}x64x{n}xf16, #diagram.array<[i, k_piece, k_within, n]>>
!Wd = tensor<{i * pieces}x64x{n}xf16, #diagram.array<[i_k, k_within, n]>>
!e = tensor<{i}xi32, #diagram.array<[i]>>
!ed = tensor<{i * pieces}xi32, #diagram.array<[i_k]>>
!r = tensor<?xi32, #diagram.array<[t]>>
!Y = tensor<?x{n}xf32, #diagram.array<[t, n]>>
!Z = tensor<?x{n}xf16, #diagram.array<[t, n]>>
func.func @rows(%X: !X, %W: !W, %first: !e, %end: !e, %lo: !r, %hi: !r) -> !Z
    attributes {{sizes = #diagram.sizes<t = 333>}} {{
  %Xp = diagram.expand %X k as [k_piece, k_within] : !X -> !Xp
  %Xd = diagram.read %Xp at "t, i_k % {pieces}, k_within" padded : !Xp -> !Xd
  %Wp = diagram.expand %W k as [k_piece, k_within] : !W -> !Wp
  %Wd = diagram.read %Wp at "i_k // {pieces}, i_k % {pieces}, k_within, n" padded : !Wp -> !Wd
  %f = diagram.read %first at "i_k // {pieces}" padded : !e -> !ed
  %g = diagram.read %end at "i_k // {pieces}" padded : !e -> !ed
  %Xk = diagram.where %Xd if "f[i_k] <= t and t < g[i_k]"
      within "{pieces} * lo[t] <= i_k and i_k + 1 <= {pieces} * hi[t]"
      with (f = %f : !ed, g = %g : !ed, lo = %lo : !r, hi = %hi : !r) : !Xd
  %Y = diagram.contract %Xk, %Wd over [i_k, k_within] accumulate f32 : !Xd, !Wd -> !Y
  %Z = diagram.cast %Y : !Y -> !Z
  func.return %Z : !Z
}}
"""


def factors(t: int, k: int, n: int, i: int) -> list[NDArray[Any]]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float16) for shape in ((t, k), (i, k, n))]


def ranges(t: int, i: int) -> dict[str, tuple[NDArray[Any], NDArray[Any]]]:
    """Of rows for each index, by what is special about them."""
    cuts = np.sort(np.random.default_rng(1).integers(0, t + 1, i - 1))
    ends = np.r_[0, cuts, t]
    found: dict[str, Any] = {
        "sorted": (ends[:-1], ends[1:]),
        "backwards": (ends[:-1][::-1], ends[1:][::-1]),
        "none": (np.zeros(i), np.zeros(i)),
        "all of each": (np.zeros(i), np.full(i, t)),
        "overlapping": (ends[:-1] - 30, ends[1:] + 17),
        "with gaps": (ends[:-1] + 5, ends[1:] - 9),
        "one row": (np.full(i, t - 1), np.full(i, t)),
        "only the last": (np.r_[np.full(i - 1, t), 0], np.full(i, t)),
    }
    return {name: tuple(each.astype(np.int32) for each in both) for name, both in found.items()}  # type: ignore


def of_ranges(first: NDArray[Any], end: NDArray[Any], t: int) -> NDArray[np.bool_]:
    rows = np.arange(t)
    return (first[:, None] <= rows) & (rows < end[:, None])


def expected(X: NDArray[Any], W: NDArray[Any], there: NDArray[np.bool_]) -> NDArray[np.float64]:
    return np.einsum("it,tk,ikn->tn", there.astype(float), X.astype(float), W.astype(float))


def is_right(found: NDArray[Any], wanted: NDArray[Any], k: int) -> bool:
    """Results that are rounded to f16, at most; what is in no range is zero, bit for bit."""
    assert (found[(wanted == 0).all(1)] == 0).all()
    return bool(np.abs(found.astype(float) - wanted).max(initial=0) <= 2.0**-9 * max(np.abs(wanted).max(initial=0), 1))


@cache
def merged(machine: str, k: int, n: int, i: int) -> treadle.Kernel:
    return treadle.compile(text(k, n, i), machine=machine, passes=[MERGED])


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("k", "n", "i"), [(128, 72, 4), (64, 40, 3), (96, 97, 2)])
def test_any_ranges(k: int, n: int, i: int, machine: str) -> None:
    kernel = merged(machine, k, n, i)
    assert [step.subject for step in kernel.derivation if step.rewrite == PASS][-1].endswith("as [i_k, k_within]")
    for t in (150, 1):
        X, W = factors(t, k, n, i)
        for name, (first, end) in ranges(t, i).items():
            found = kernel.run(X, W, first, end, backend="emulator", checks=True)
            assert is_right(found, expected(X, W, of_ranges(first, end, t)), k), name


@pytest.mark.parametrize(
    ("machine", "sizes"),
    [("h100", 'group="t=128,n=64" warps="t=8"'), ("h100", 'group="t=64,n=64"'), ("a100", 'group="t=64,n=64"')],
)
def test_one_kernel_whose_copies_bring_zeros(machine: str, sizes: str) -> None:
    """With roles, by tensor copies and by lanes, and without: rows that are not aligned come otherwise."""
    t, k, n, i = 333, 192, 136, 4
    kernel = treadle.compile(told(k, n, i), machine=machine, passes=[f"hierarchy-choose-sizes{{{sizes}}}"])
    assert ("rows_kernel_specialised" in kernel.cuda) == (machine == "h100")
    X, W = factors(t, k, n, i)
    gaps = np.zeros((t, k + 3), np.float16)[:, 1 : k + 1]
    gaps[:] = X
    for name, (first, end) in ranges(t, i).items():
        there = of_ranges(first, end, t)
        lo = np.where(there.any(0), there.argmax(0), 0).astype(np.int32)
        hi = np.where(there.any(0), i - there[::-1].argmax(0), 0).astype(np.int32)
        for given in (X, gaps) if name in ("sorted", "overlapping") else (X,):
            found = kernel.run(given, W, first, end, lo, hi, backend="emulator", checks=True)
            assert is_right(found, expected(X, W, there), k), name


def test_weights_that_are_no_numbers_stay_where_no_row_meets_them() -> None:
    """Of those whose range is nowhere near: zeros are multiplied in blocks in which a range ends."""
    t, k, n, i = 600, 192, 136, 4
    passes = ['hierarchy-choose-sizes{group="t=128,n=64" warps="t=8"}']
    kernel = treadle.compile(told(k, n, i), machine="h100", passes=passes)
    X, W = factors(t, k, n, i)
    W[3] = np.nan
    first, end = (np.array(each, np.int32) for each in ([0, 128, 256, 600], [128, 256, 600, 600]))
    there = of_ranges(first, end, t)
    lo, hi = there.argmax(0).astype(np.int32), (i - there[::-1].argmax(0)).astype(np.int32)
    found = kernel.run(X, W, first, end, lo, hi, backend="emulator", checks=True)
    assert is_right(found, expected(X, np.nan_to_num(W), there), k)


@pytest.mark.parametrize(("machine", "at_most"), [("h100", 1.6), ("a100", 4.2)])
def test_a_block_meets_few_weights(machine: str, at_most: float) -> None:
    """Where each row meets one of 8, it takes little longer than a product of all rows with one of them."""
    kernel = treadle.compile(text(4096, 14336, 8, t=8192), machine=machine)
    time = kernel.estimate.time_us
    assert time is not None
    assert time < at_most * 1000


@pytest.mark.parametrize(
    ("condition", "is_bounded"),
    [
        ("first[i] <= t and t < end[i]", True),
        ("first[i] + 1 <= t and t + 3 <= end[i]", True),
        ("first[i] <= 2 * t and t < end[i]", False),
        ("first[i] <= t or t < end[i]", False),
        ("first[i] <= t and t < end[i] + i", False),
    ],
)
def test_what_copies_test(condition: str, is_bounded: bool) -> None:
    asked = condition.replace("first[i]", "f[i_k]").replace("end[i]", "g[i_k]").replace("+ i", "+ i_k")
    program = told(192, 136, 4).replace("f[i_k] <= t and t < g[i_k]", asked)
    kernel = parse_module(treadle.compile(program, machine="h100").hierarchy, "rows")
    found = [op for op in kernel.walk() if isinstance(op, WhereOp)]
    assert any(bounds_of(op) is not None for op in found) == is_bounded


@pytest.mark.parametrize(("rows", "experts"), [(1000, 1), (1000, 8), (64, 8), (1000, 40)])
def test_how_many_blocks_groups_are_fed(rows: int, experts: int) -> None:
    """One each, and one more for each range that ends within a group, as counted where ranges end anywhere."""
    fed = Fed(Pieces("i_k", 1), (Pieces("t", 64),), (_unknown, _unknown), None, True, routed=Routed("t", 16))
    counted = fed.positions({"i_k": 16 * experts, "t": rows}, ("i_k",), "all")
    groups = -(-rows // 64)
    assert counted == 16 * (groups + experts - 1)
    ends = np.sort(np.random.default_rng(0).choice(np.arange(1, rows), experts - 1, replace=False))
    there = of_ranges(np.r_[0, ends], np.r_[ends, rows], rows)
    met = sum(int(there[:, begin : begin + 64].any(1).sum()) for begin in range(0, rows, 64))
    assert met <= groups + experts - 1


def _unknown(places: Any) -> None:
    return None


def experts(weights: str, halves: bool) -> treadle.Kernel:
    """Of 1024 tokens, whose weights lie in that order, and of which two halves may make a gate."""
    import treadle.language as tl

    def product(X: tl.Array, W: tl.Array, first: tl.Array, end: tl.Array) -> tl.Array:
        kept = tl.keep(tl.contract(X, W, over="k"), "first[i] <= t and t < end[i]", first=first, end=end)
        made = tl.sum(kept, over="i").to("f16")
        if not halves:
            return made
        return (tl.read(made, "t, 0, n") * tl.sigmoid(tl.read(made, "t, 1, n"))).to("f16")

    sizes = {"t": 1024, "i": 8, "k": 512, "n": 512, "c": 2}
    result = "t n" if halves or "c" not in weights else "t c n"
    traced = treadle.kernel(f"t k, {weights}, i, i -> {result}")(product)
    fixed = tuple(axis for axis in sizes if axis in "t k" or axis in weights)
    return treadle.compile(str(traced.trace(["f16", "f16", "i32", "i32"], sizes, fixed=fixed)), machine="h100")


@pytest.mark.parametrize(("weights", "halves"), [("i k n", False), ("i n k", False), ("i c n k", True)])
def test_whatever_way_weights_lie(weights: str, halves: bool) -> None:
    """Neither do columns and indices become one axis, along which all rows would be multiplied for all of them, nor is
    what is read of the product read of its factors."""
    steps = [step for step in experts(weights, halves).derivation if step.rewrite == PASS]
    assert any("i_k" in step.subject for step in steps), steps
