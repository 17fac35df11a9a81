"""Arrays as users have them: views with any strides and offsets, broadcast, reversed, empty, of integers, of rank 0;
scalars at run time. Whatever does not fit a kernel is refused in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from roads import Road, array, attention, compiled, matmul
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import parse_module
from treadle.runtime.arguments import HostError
from treadle.runtime.emulator.backend import HostArray
from treadle.runtime.host import execute

DTYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16), "f32": np.dtype(np.float32)}
View = Callable[[tuple[int, ...], "np.dtype[Any]"], NDArray[Any]]


def filled(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def contiguous(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return filled(shape, dtype)


def shifted(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Begins one element into its memory, and so do all rows."""
    return filled((*shape[:-1], shape[-1] + 8), dtype)[..., 1 : 1 + shape[-1]]


def odd_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows an odd number of elements apart."""
    return filled((*shape[:-1], shape[-1] + 1 + shape[-1] % 2), dtype)[..., : shape[-1]]


def padded_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Rows further apart than they are long, each aligned."""
    return filled((*shape[:-1], -(-shape[-1] // 16) * 16 + 16), dtype)[..., : shape[-1]]


def broadcast(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """All rows are one row: strides of 0."""
    return np.broadcast_to(filled(shape[-1:], dtype), shape)


def reversed_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The last row first: negative strides."""
    return filled(shape, dtype)[::-1]


def every_other(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Every other row."""
    return filled((2 * shape[0], *shape[1:]), dtype)[::2]


def other_order(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The axes before the last lie in memory the other way round."""
    outer = tuple(reversed(range(len(shape) - 1)))
    return filled((*shape[-2::-1], shape[-1]), dtype).transpose(*outer, len(shape) - 1)


def columns(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The last axis and the one before have changed places in memory, as a transposed array has them."""
    return filled((*shape[:-2], shape[-1], shape[-2]), dtype).swapaxes(-1, -2)


def gaps(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Two strange elements after each."""
    return filled((*shape[:-1], 3 * shape[-1]), dtype)[..., ::3]


def backwards(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    return filled(shape, dtype)[..., ::-1]


def one_element(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """All elements of a row are one in memory."""
    return np.broadcast_to(filled((*shape[:-1], 1), dtype), shape)


VIEWS: tuple[View, ...] = (
    contiguous,
    shifted,
    odd_rows,
    padded_rows,
    broadcast,
    reversed_rows,
    every_other,
    other_order,
    columns,
    gaps,
    backwards,
    one_element,
)


@cache
def batched(d: int, format: str) -> Road:
    return compiled(attention(d, d, format, batch=("b",)))


@pytest.mark.sample(9)
@pytest.mark.parametrize("format", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("d", [40, 64])
@pytest.mark.parametrize("keys", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("queries", VIEWS, ids=lambda view: view.__name__)
def test_attention_of_views(queries: View, keys: View, d: int, format: str) -> None:
    dtype = DTYPES[format]
    inputs = (queries((2, 65, d), dtype), keys((2, 39, d), dtype), queries((2, 39, d), dtype))
    for verdict in batched(d, format).verdicts(inputs):
        assert verdict.ok, verdict


@pytest.mark.sample(7)
@pytest.mark.parametrize("format", ["f16", "f32"])
@pytest.mark.parametrize("right", VIEWS, ids=lambda view: view.__name__)
@pytest.mark.parametrize("left", VIEWS, ids=lambda view: view.__name__)
def test_product_of_views(left: View, right: View, format: str) -> None:
    dtype = DTYPES[format]
    for orders, (m, n, k) in product((("mk", "kn"), ("km", "nk")), ((33, 40, 72), (7, 9, 31))):
        sizes = {"m": m, "n": n, "k": k}
        lhs, rhs = (tuple(sizes[axis] for axis in axes) for axes in orders)
        for verdict in product_of(*orders, format).verdicts((left(lhs, dtype), right(rhs, dtype))):
            assert verdict.ok, verdict


@cache
def product_of(lhs: str, rhs: str, format: str) -> Road:
    return compiled(matmul(lhs, rhs, format))


@pytest.mark.parametrize("view", [columns, gaps, backwards, one_element], ids=lambda view: view.__name__)
def test_any_strides_give_what_a_copy_gives(view: View) -> None:
    """To the last digit: only the addresses differ."""
    a, b = view((33, 40), np.dtype(np.float16)), filled((40, 24), np.dtype(np.float16))
    road = product_of("mk", "kn", "f16")
    (strided,), (copied,) = road.run((a, b)), road.run((np.ascontiguousarray(a), b))
    assert np.array_equal(strided, copied)


def test_elements_across_their_alignment_are_refused() -> None:
    raw = np.zeros(2 * 32 * 32 + 1, np.uint8)[1:].view(np.float16).reshape(32, 32)
    with pytest.raises(HostError, match="argument 'B' begins in the middle of an element"):
        product_of("mk", "kn", "f16").run((np.ones((32, 32), np.float16), raw))


def test_gaps_along_an_axis_of_one_element_are_none() -> None:
    a = np.ones((8, 64), np.float16)[:, ::64]
    assert a.strides[-1] != a.itemsize
    for verdict in product_of("mk", "kn", "f16").verdicts((a, np.ones((1, 16), np.float16))):
        assert verdict.ok, verdict


@pytest.mark.parametrize("scale", [0.125, 0.0, -0.0, -0.5, 3.0])
def test_a_scale_known_only_at_run_time(scale: float) -> None:
    road = runtime_scale()
    q, k, v = (filled((n, 40), DTYPES["f16"]) for n in (33, 70, 70))
    for verdict in road.verdicts((q, k, v, np.float32(scale))):
        assert verdict.ok, verdict


@cache
def runtime_scale() -> Road:
    return compiled(attention(40, 40, "f16", "%scale"))


@pytest.mark.parametrize("scale", ["-0.25", "0.0", "-0.0"])
def test_a_scale_that_is_not_positive(scale: str) -> None:
    compiled(attention(24, 24, "bf16", scale)).check({"q": 17, "x": 45})


def test_empty_axes() -> None:
    """No keys: nothing is summed, which gives zeros. No queries, or no batch: nothing is computed."""
    road = batched(40, "f16")
    for b, q, x in ((2, 5, 0), (2, 0, 7), (0, 5, 7), (0, 0, 0), (1, 0, 0)):
        (out,) = road.run(road.inputs({"b": b, "q": q, "x": x}))
        assert out.shape == (b, q, 40)
        assert not out.astype(np.float32).any()


def test_an_empty_product_is_zero() -> None:
    (out,) = product_of("mk", "kn", "f32").run((np.ones((3, 0), np.float32), np.ones((0, 5), np.float32)))
    assert out.shape == (3, 5)
    assert not out.any()


class Recorder:
    """A backend that keeps what it is asked to launch, and runs nothing."""

    name = "recorder"

    def __init__(self) -> None:
        self.grids: list[tuple[int, int, int]] = []

    def allocate(self, shape: Sequence[int], dtype: np.dtype[Any]) -> HostArray:
        return HostArray(np.zeros(tuple(shape), dtype), writable=True)

    def upload(self, array: NDArray[Any]) -> HostArray:
        return HostArray(array, writable=False)

    def download(self, array: HostArray) -> NDArray[Any]:
        return array.data

    def launch(self, kernel: str, grid: tuple[int, int, int], *_: object) -> None:
        self.grids.append(grid)


def test_the_whole_grid_is_along_x() -> None:
    """The grid's y and z stop at 65,535 blocks; batch times heads does not."""
    road = compiled(attention(16, 16, "f16", batch=("b", "h")))
    shape = {"b": 70_000, "h": 3}
    recorder = Recorder()
    execute(road.module, road.inputs({**shape, "q": 1, "x": 1}), recorder)
    assert recorder.grids == [(210_000, 1, 1)]


def test_more_than_65535_blocks() -> None:
    """Each of so many blocks finds its own part of the batch."""
    road = compiled(matmul("bmk", "bkn", "f32", "bmn", m=1, n=1, k=1))
    a, b = (filled((66_000, 1, 1), DTYPES["f32"]) for _ in range(2))
    (out,) = road.run((a, b), checks=False)
    np.testing.assert_allclose(out, a * b, rtol=1e-6)


def test_rank_0_and_rank_1() -> None:
    v, s = array("f32", n=None), "tensor<f32, #diagram.array<[]>>"
    text = f"""
func.func @f(%X: {v}, %Y: {v}, %c: {s}) -> ({s}, {s}, {v}) {{
  %dot = diagram.contract %X, %Y over [n] accumulate f32 : {v}, {v} -> {s}
  %top = diagram.reduce max %X over [n] : {v} -> {s}
  %out = diagram.map (%x = %X : {v}, %t = %top : {s}, %k = %c : {s}) -> {v} {{
    %a = arith.subf %x, %t : f32
    %b = arith.mulf %a, %k : f32
    diagram.yield %b : f32
  }}
  func.return %dot, %top, %out : {s}, {s}, {v}
}}
"""
    road = compiled(text)
    for n in (1, 31, 33, 1000):
        road.check({"n": n})


def test_integers() -> None:
    v, s = array("i32", m=None, n=None), array("i32", m=None)
    text = f"""
func.func @f(%X: {v}) -> ({s}, {s}, {s}, {v}) {{
  %sum = diagram.reduce add %X over [n] : {v} -> {s}
  %top = diagram.reduce max %X over [n] : {v} -> {s}
  %low = diagram.reduce min %X over [n] : {v} -> {s}
  %out = diagram.map (%x = %X : {v}, %t = %top : {s}) -> {v} {{
    %a = arith.subi %x, %t : i32
    %b = arith.maxsi %a, %x : i32
    diagram.yield %b : i32
  }}
  func.return %sum, %top, %low, %out : {s}, {s}, {s}, {v}
}}
"""
    road = compiled(text)
    for m, n in product((1, 5, 33), (1, 31, 100)):
        road.check({"m": m, "n": n})
    extreme = np.array([[-(2**31), 2**31 - 1, 0], [-(2**31)] * 3, [2**31 - 1] * 3], np.int32)
    _, top, low, _ = road.run((extreme,))
    np.testing.assert_array_equal(top, extreme.max(1))
    np.testing.assert_array_equal(low, extreme.min(1))


def test_a_value_may_be_several_results_of_a_kernel() -> None:
    """Written by hand: what the front door makes has each value once."""
    module = parse_module("""
        !x = tensor<4x64xf32, #diagram.array<[i, x]>>
        !xd = tensor<4x64xf32, #diagram.array<[i, x], level = device>>
        !s = tensor<4xf32, #diagram.array<[i]>>
        !sr = tensor<4xf32, #diagram.array<[i], level = register>>
        func.func @f(%x: !x) -> (!s, !s) {
          %s, %t = hierarchy.kernel @f (%a = %x : !x as !xd) -> (!s, !s) {
            %m = diagram.reduce max %a over [x] : !xd -> !sr
            hierarchy.yield %m, %m : !sr, !sr
          }
          func.return %s, %t : !s, !s
        }""")
    algorithm = module.clone()
    run_pipeline(module, Options())
    Road(algorithm, module, print_cuda(module)).check({})
