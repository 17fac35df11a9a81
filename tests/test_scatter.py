"""Elements that are added up where data say (`diagram.scatter`), in every place that such sums can be in."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest
import torch
from differences import check, differentiated, run
from numpy.typing import NDArray

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import load_machine
from treadle.compiler.primitives import source
from treadle.compiler.source import parse_module
from treadle.runtime.emulator import Array, EmulationError, compile_source
from treadle.runtime.interpreter import run_function
from treadle.runtime.nvcc import find_nvcc

MACHINES = ["h100", "a100"]
SIZES = [(50, 24, 10), (0, 24, 10), (33, 7, 1), (1, 1, 3), (700, 5, 3), (40, 128, 60), (9, 16, 0)]
"""Of elements, columns and rows."""


def rows(begin: str = "", more: str = "", given: str = "%X") -> str:
    """Rows of an array added where a table says, times another one, so that a further kernel reads the sums."""
    return f"""
!X = tensor<?x?xf32, #diagram.array<[t, c]>>
!R = tensor<?x?xf32, #diagram.array<[r, c]>>
!T = tensor<?xi32, #diagram.array<[t]>>
func.func @rows(%X: !X, %table: !T, %W: !R) -> !R attributes {{sizes = #diagram.sizes<t = 60, c = 20, r = 9>}} {{
  {more}
  %S = diagram.scatter {given} at "table[t], c" {begin} with (table = %table : !T) : !X -> !R
  %Z = diagram.map (%s = %S : !R, %w = %W : !R) -> !R {{
    %z = arith.mulf %s, %w : f32
    diagram.yield %z : f32
  }}
  func.return %Z : !R
}}"""


def given(t: int, c: int, r: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Elements, entries of which some are no row, and what the sums are multiplied by."""
    random = np.random.default_rng(t + c + r)
    x, w = (random.standard_normal(shape).astype(np.float32) for shape in ((t, c), (r, c)))
    return x, random.integers(-2, r + 2, t).astype(np.int32), w


def sums(x: NDArray[Any], table: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """One element after another, those of no row to none."""
    found = np.zeros(shape, x.dtype if x.dtype.kind == "i" else np.float64)
    is_row = (table >= 0) & (table < len(found))
    np.add.at(found, table[is_row], x[is_row])
    return found


def verify(kernel: treadle.Kernel, *arrays: NDArray[Any], backend: str = "emulator") -> None:
    verdicts = kernel.verify(*arrays, backend=backend)
    assert verdicts
    assert all(each.ok for each in verdicts), verdicts


# -- the reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", SIZES)
def test_the_reference_adds_each_element_where_data_say(sizes: tuple[int, int, int]) -> None:
    x, table, w = given(*sizes)
    (found,) = run_function(parse_module(rows()), [x, table, w]).results
    np.testing.assert_allclose(found, sums(x, table, w.shape) * w, rtol=1e-12, atol=1e-12)


def test_what_sums_begin_with() -> None:
    x, table, w = given(50, 24, 10)
    (found,) = run_function(parse_module(rows("into %W")), [x, table, w]).results
    np.testing.assert_allclose(found, (sums(x, table, w.shape) + w) * w, rtol=1e-12, atol=1e-12)


def test_a_table_that_is_left_at_its_end() -> None:
    """An entry that is in no table has no place; so `0` of a padded read is none."""
    text = rows().replace('"table[t], c"', '"table[t + 3], c"')
    x, table, w = given(50, 24, 10)
    ahead = np.concatenate([table[3:], np.full(3, -1, np.int32)])
    (found,) = run_function(parse_module(text), [x, table, w]).results
    np.testing.assert_allclose(found, sums(x, ahead, w.shape) * w, rtol=1e-12, atol=1e-12)
    verify(treadle.compile(text, machine="h100"), x, table, w)


# -- kernels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_any_size(machine: str) -> None:
    """Each launch begins with zeros, so that one after another gives the same."""
    kernel = treadle.compile(rows(), machine=machine)
    assert kernel.estimate.kernels == 3
    for sizes in SIZES:
        arrays = given(*sizes)
        verify(kernel, *arrays)
        for _ in range(2):
            expected = sums(*arrays[:2], arrays[2].shape) * arrays[2]
            np.testing.assert_allclose(kernel.run(*arrays, backend="emulator"), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("backend", ["interpreter", "emulator"])
def test_infinities_and_nans_stay_in_their_rows(backend: str) -> None:
    x, table, w = given(50, 24, 10)
    table[:3] = 4, 5, -1
    x[0, 2], x[1, 3], x[2] = np.inf, np.nan, np.nan
    found = treadle.compile(rows(), machine="h100").run(x, table, w, backend=backend)
    wild = np.argwhere(~np.isfinite(found)).tolist()
    assert wild == [[4, 2], [5, 3]]
    assert np.isinf(found[4, 2])


def test_arrays_with_gaps() -> None:
    x, table, w = given(50, 24, 10)
    wide = np.zeros((50, 48), np.float32)
    wide[:, ::2] = x
    found = treadle.compile(rows(), machine="h100").run(wide[:, ::2], table, w, backend="emulator")
    np.testing.assert_allclose(found, sums(x, table, w.shape) * w, rtol=1e-4, atol=1e-4)


def test_who_makes_the_elements_adds_them() -> None:
    """The map is in the kernel that adds. Where more than the sums is made of them, that is saved, too."""
    more = """
  %Y = diagram.map (%x = %X : !X) -> !X {
    %y = math.sin %x : f32
    diagram.yield %y : f32
  }"""
    kernel = treadle.compile(rows(more=more, given="%Y"), machine="h100")
    assert kernel.estimate.kernels == 3
    verify(kernel, *given(50, 24, 10))
    both = rows(more=more, given="%Y").replace("-> !R attributes", "-> (!R, !X) attributes")
    both = both.replace("func.return %Z : !R", "func.return %Z, %Y : !R, !X")
    verify(treadle.compile(both, machine="h100"), *given(50, 24, 10))


def test_what_sums_begin_with_stays_as_it_is() -> None:
    x, table, w = given(50, 24, 10)
    before = w.copy()
    kernel = treadle.compile(rows("into %W"), machine="h100")
    np.testing.assert_allclose(
        kernel.run(x, table, w, backend="emulator"), (sums(x, table, w.shape) + w) * w, rtol=1e-4, atol=1e-4
    )
    np.testing.assert_array_equal(w, before)


def test_entries_and_elements_that_one_array_is_made_to() -> None:
    """Where each row goes is found by a kernel before; what sums begin with, by another one, of the same numbers."""

    @treadle.kernel("t e, t d -> e d", machine="h100")
    def routed(scores: tl.Array, x: tl.Array) -> tl.Array:
        values, places = tl.topk(scores, 1, over="e", axis="k")
        shares = tl.exp(values - tl.logsumexp(scores, over="e"))
        return tl.scatter(x * shares, "e d", at="places[t, k], d", places=places)

    random = np.random.default_rng(0)
    scores, x = (random.standard_normal(shape).astype(np.float32) for shape in ((50, 8), (50, 12)))
    shares = torch.from_numpy(scores).double().softmax(1).numpy()
    expected = np.zeros((8, 12))
    np.add.at(expected, scores.argmax(1), x * shares.max(1)[:, None])
    for backend in ("interpreter", "emulator"):
        np.testing.assert_allclose(routed(scores, x, backend=backend), expected, rtol=1e-5, atol=1e-5)


def test_zeros_are_there_before_anything_is_added() -> None:
    """Also where they are made of what the elements are made of: no kernel does both, in whatever order."""
    more = """
  %H = diagram.map (%x = %X : !X) -> !X {
    %y = math.sin %x : f32
    diagram.yield %y : f32
  }
  %A = diagram.map (%x = %H : !X) -> !X {
    %y = math.exp %x : f32
    diagram.yield %y : f32
  }
  %B = diagram.scatter %A at "table[t], c" with (table = %table : !T) : !X -> !R"""
    verify(treadle.compile(rows("into %B", more, "%H"), machine="h100"), *given(50, 24, 10))


PRODUCT = """
!X = tensor<?x?xf16, #diagram.array<[m, k]>>
!W = tensor<?x?xf16, #diagram.array<[k, n]>>
!Y = tensor<?x?xf32, #diagram.array<[m, n]>>
!R = tensor<?x?xf32, #diagram.array<[r, n]>>
!T = tensor<?xi32, #diagram.array<[m]>>
func.func @product(%X: !X, %W: !W, %token: !T, %B: !R) -> !R
    attributes {sizes = #diagram.sizes<m = 4096, k = 1024, n = 2048, r = 2048>} {
  %Y = diagram.contract %X, %W over [k] accumulate f32 : !X, !W -> !Y
  %S = diagram.scatter %Y at "token[m], n" with (token = %token : !T) : !Y -> !R
  %Z = diagram.map (%s = %S : !R, %b = %B : !R) -> !R {
    %z = arith.addf %s, %b : f32
    diagram.yield %z : f32
  }
  func.return %Z : !R
}"""


@pytest.mark.parametrize("machine", MACHINES)
def test_rows_of_a_product_are_added_by_its_kernel(machine: str) -> None:
    """Also by warps with roles, whose results else leave by tensor copies."""
    kernel = treadle.compile(PRODUCT, machine=machine)
    assert kernel.estimate.kernels == 3
    assert ("wgmma" in kernel.cuda) == (machine == "h100")
    random = np.random.default_rng(0)
    for m, k, n, r in ((300, 136, 264, 70), (37, 64, 72, 5)):
        x, w = (random.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
        begin = random.standard_normal((r, n)).astype(np.float32)
        verify(kernel, x, w, random.integers(-1, r + 1, m).astype(np.int32), begin)


def test_integers_are_counted_and_wrap() -> None:
    @treadle.kernel("t, t -> bin", machine="h100")
    def histogram(level: tl.Array, weight: tl.Array) -> tl.Array:
        return tl.scatter(weight, "bin=16", at="level[t]", level=level)

    random = np.random.default_rng(0)
    level = random.integers(-3, 20, 1000).astype(np.int32)
    weight = random.integers(-(2**31), 2**31, 1000).astype(np.int32)
    for backend in ("interpreter", "emulator"):
        found = histogram(level, weight, backend=backend)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, sums(weight, level, (16,)))


def test_places_with_remainders_and_several_entries() -> None:
    @treadle.kernel("b x, b m, b x -> p s", machine="h100")
    def pages(X: tl.Array, table: tl.Array, row: tl.Array) -> tl.Array:
        X = tl.keep(X, "row[b, x] < 9", row=row)
        return tl.scatter(X, "p=7 s=4", at="table[b, x // 4], x % 4", table=table)

    random = np.random.default_rng(0)
    x, table = random.standard_normal((3, 18)).astype(np.float32), random.integers(-1, 8, (3, 5)).astype(np.int32)
    row = random.integers(0, 12, (3, 18)).astype(np.int32)
    expected = np.zeros((7, 4))
    for b, k in np.ndindex(3, 18):
        if 0 <= table[b, k // 4] < 7 and row[b, k] < 9:
            expected[table[b, k // 4], k % 4] += x[b, k]
    for backend in ("interpreter", "emulator"):
        np.testing.assert_allclose(pages(x, table, row, backend=backend), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
@pytest.mark.parametrize("machine", MACHINES)
def test_instructions_of_ptx(machine: str) -> None:
    """`red`, of vectors from sm_90 on, as the PTX machine executes it; all other tests have C++ in its place."""
    kernel = treadle.compile(rows(), machine=machine)
    verify(kernel, *given(50, 24, 10), backend="ptx")


# -- the emulator ------------------------------------------------------------------------------------

ADDED = """
__global__ void add(float* sums, int reads) {
  add_global_if(vec<1>(sums + threadIdx.x % 2), pack<1>(sums + 4), threadIdx.x < 48);
  if (reads) store_global(sums + 2, load_global(sums + 1));
}
"""


def add(reads: int) -> NDArray[np.float32]:
    module = compile_source(source(["add_global_if", "vec", "pack", "load_global", "store_global"]) + ADDED, ["add"])
    data = np.array([1, 2, 0, 0, 3], np.float32)
    module.launch("add", (3, 1, 1), (64, 1, 1), 0, [Array(data, True), ctypes.c_int32(reads)])
    return data


def test_additions_of_many_threads_race_with_none() -> None:
    np.testing.assert_array_equal(add(0), [1 + 72 * 3, 2 + 72 * 3, 0, 0, 3])


def test_nobody_reads_what_others_add_to() -> None:
    with pytest.raises(EmulationError, match="an addition that only the next launch sees"):
        add(1)


# -- laws --------------------------------------------------------------------------------------------


def test_gradients_of_sums_are_reads() -> None:
    check(parse_module(rows()))
    check(parse_module(rows("into %W")))


def test_gradients_are_those_of_pytorch() -> None:
    """In float64, of what is added up and of what is read; and kernels of them."""
    x, table, w = given(50, 24, 10)
    table = np.clip(table, 0, 9)
    tensors = [torch.from_numpy(each.astype(np.float64)).requires_grad_() for each in (x, w)]
    sent = torch.zeros(10, 24, dtype=torch.float64).index_add(0, torch.from_numpy(table).long(), tensors[0])
    cotangent = np.random.default_rng(1).standard_normal((10, 24))
    expected = torch.autograd.grad(sent * tensors[1], tensors, torch.from_numpy(cotangent))
    module = parse_module(rows())
    (result,) = run(module, [x, table, w])
    gradient = differentiated(module)
    for found, other in zip(run(gradient, [x, table, w, result, cotangent]), expected, strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-6, atol=1e-6)
    arrays = (x, table, w, result.astype(np.float32), cotangent.astype(np.float32))
    verify(treadle.compile(treadle.differentiate(module), machine="h100"), *arrays)


# -- the model ---------------------------------------------------------------------------------------


def test_additions_at_one_address_come_one_after_another() -> None:
    """A million elements in 4 places take 250,000 clocks, in a million places no longer than memory does."""
    texts = (rows().replace("t = 60, c = 20, r = 9", f"t = 1000000, c = 1, r = {r}") for r in (4, 1_000_000))
    few, many = (treadle.compile(text, machine="h100").estimate.time_us for text in texts)
    assert few > 250_000 / load_machine("h100").clock * 1e6 > 3 * many


# -- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axes", "at", "why"),
    [
        ("r d", "n[t], d, t", "3 positions for the 2 axes"),
        ("r d", "n[t, d], d", "'n[t, d]' has 2 positions for the axes 't' of its array"),
        ("r d", "n[t] + m[t], d", "'m' is not given"),
        ("r d", "n[s], d", "'s' is no axis of the array (it has t, d)"),
        ("q d", "n[t], d", "'q', which no argument has: say its size, 'q=256'"),
        ("q=0 d", "n[t], d", "a size is a whole number above zero"),
        ("d=5 r", "n[t], d", "'d=5', which has 3 elements"),
    ],
)
def test_the_language_says_what_is_wrong(axes: str, at: str, why: str) -> None:
    function = treadle.kernel("t d, t, r -> r d")(lambda x, n, w: tl.scatter(x, axes, at=at, n=n) * w)
    arrays = np.zeros((4, 3), np.float32), np.zeros(4, np.int32), np.zeros(6, np.float32)
    with pytest.raises(TreadleError, match=re.escape(why)):
        function(*arrays)
