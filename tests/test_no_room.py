"""What one kernel has no room for is several kernels, and what one axis is too short for stays several axes: no program
is refused for what passes chose."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.passes.axes.lengths import too_many

NO_ROOM = "no memory for one kernel"


def laws(kernel: treadle.Kernel) -> set[str]:
    return {step.law for step in kernel.derivation}


def test_a_product_that_is_scaled_for_each_index_and_then_reduced() -> None:
    """Groups would make a factor for each index of d, of which they hold all."""

    @treadle.kernel("d c, a c -> a", machine="h100", result="f32")
    def shares(W: tl.Array, X: tl.Array) -> tl.Array:
        return tl.logsumexp(tl.contract(X * W.to("f32"), W.to("f32"), over="c"), over="d")

    module = shares.trace(["f16", "f32"], {"d": 3, "c": 192, "a": 3}, ["d", "c"])
    kernel = treadle.compile(module, machine="h100")
    assert NO_ROOM in laws(kernel)
    random = np.random.default_rng(0)
    W = random.standard_normal((3, 192)).astype(np.float16)
    X = random.standard_normal((5, 192)).astype(np.float32)
    (verdict,) = kernel.verify(W, X, backend="emulator")
    assert verdict.ok, verdict
    scores = np.einsum("ac,dc,dc->ad", X.astype(float), W.astype(float), W.astype(float))
    most = scores.max(1)
    want = most + np.log(np.exp(scores - most[:, None]).sum(1))
    np.testing.assert_allclose(kernel.run(W, X, backend="emulator"), want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_sum_over_two_axes_of_which_a_group_would_hold_one(machine: str) -> None:
    """They lie otherwise in the second array, so they are not one axis; 32 of a, with all of b, are too much for a
    warp."""

    @treadle.kernel("b a, a b -> ", machine=machine, result="f32")
    def sums(X: tl.Array, Y: tl.Array) -> tl.Array:
        return tl.sum(X, over="a b") * tl.max(Y.to("f32"), over="a b")

    kernel = treadle.compile(sums.trace(["f32", "f16"], {"a": 100, "b": 256}, ["b"]), machine=machine)
    random = np.random.default_rng(1)
    X, Y = random.uniform(0, 1, (256, 90)).astype(np.float32), random.standard_normal((90, 256)).astype(np.float16)
    want = X.astype(float).sum() * Y.astype(float).max()
    np.testing.assert_allclose(kernel.run(X, Y, backend="emulator"), want, rtol=1e-4)


def test_the_gradient_of_a_largest_log_sum_exp() -> None:
    """Ten operations along an axis of 192, none of them a product."""

    @treadle.kernel("c a b -> ", machine="l40s", result="f32")
    def largest(X: tl.Array) -> tl.Array:
        return tl.sum(tl.max(tl.logsumexp(tl.silu(X.to("f32")), over="c"), over="a"), over="b")

    module = treadle.differentiate(largest.trace(["f16"], {"a": 256, "b": 200, "c": 192}, ["a", "b", "c"]))
    assert treadle.compile(module, machine="l40s").estimate.time_us


SCALED = """
!A = tensor<40x16x1xf16, #diagram.array<[m, k, l]>>
!B = tensor<16x1x8xf16, #diagram.array<[k, l, n]>>
!C = tensor<40x1x8xf32, #diagram.array<[m, l, n]>>
!D = tensor<40x8xf32, #diagram.array<[m, n]>>
func.func @f(%A: !A, %B: !B) -> (!C, !D) {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  %D = diagram.reduce add %C over [l] : !C -> !D
  func.return %C, %D : !C, !D
}
"""


@pytest.mark.parametrize("machine", ["l40s", "h100"])
def test_an_axis_of_one_element_is_not_streamed(machine: str) -> None:
    """A product would have columns along it, and along those that it has."""
    random = np.random.default_rng(2)
    A = random.standard_normal((40, 16, 1)).astype(np.float16)
    B = random.standard_normal((16, 1, 8)).astype(np.float16)
    kernel = treadle.compile(SCALED, machine=machine)
    verdicts = kernel.verify(A, B, backend="emulator")
    assert all(each.ok for each in verdicts), verdicts
    np.testing.assert_allclose(
        kernel.run(A, B, backend="emulator")[1], A[:, :, 0].astype(float) @ B[:, 0].astype(float), rtol=2e-3, atol=2e-3
    )


LONG = 65536


def total(X: tl.Array) -> tl.Array:
    return tl.sum(X.to("f32"), over="a b")


def over_both(X: tl.Array, Y: tl.Array) -> tl.Array:
    return tl.contract(X, Y, over="a b")


def over_depth(X: tl.Array, Y: tl.Array) -> tl.Array:
    return tl.contract(X, Y, over="k")


@pytest.mark.parametrize(
    ("signature", "function", "axes"),
    [
        ("a b -> ", total, []),
        ("a b -> ", total, ["b"]),
        ("a b n, a b m -> n m", over_both, []),
        ("a b k, k m -> a b m", over_depth, ["b"]),
        ("a b n, b a m -> n m", over_both, []),
    ],
)
def test_axes_that_are_longer_together_than_one_may_be(
    signature: str, function: Callable[..., tl.Array], axes: list[str]
) -> None:
    count = signature.count(",") + 1
    sizes = {axis: LONG if axis in "ab" else 2 for axis in signature if axis.isalpha()}
    module = treadle.kernel(signature, machine="h100")(function).trace(["f16"] * count, sizes, axes)
    assert treadle.compile(module, machine="h100").estimate.time_us


def test_how_long_axes_are_together() -> None:
    assert too_many([2**16, 2**15 - 1]) is None
    assert too_many([2**16, 2**15]) is not None
    assert too_many([2**30, 0, -1]) is None
