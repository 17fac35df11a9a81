"""Sums of powers times polynomials of what moves, as entropies and KL divergences, run in one stream with the maximum.
As exact as the plain form, also far from zero and where the first pieces are nothing like the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import treadle.language as tl
from roads import Road, compiled
from treadle import kernel
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp, StreamOp
from treadle.language.array import Array

ROWS = "t v, t v -> t"
FIXED = ("d", "e")


def kl(A: Array, B: Array) -> Array:
    p, q = tl.log_softmax(A, over="v"), tl.log_softmax(B, over="v")
    return tl.sum(tl.exp(p) * (p - q), over="v")


def warm_kl(A: Array, B: Array) -> Array:
    """At a temperature, which moves past the maxima."""
    p, q = tl.log_softmax(A * 0.5, over="v"), tl.log_softmax(B * 0.5, over="v")
    return 4.0 * tl.sum(tl.exp(p) * (p - q), over="v")


def entropy(A: Array, B: Array) -> Array:
    p = tl.log_softmax(A + 0.0 * B, over="v")
    return -tl.sum(tl.exp(p) * p, over="v")


def of_shares(A: Array, B: Array) -> Array:
    p = tl.softmax(A + 0.0 * B, over="v")
    return -tl.sum(p * tl.log(p), over="v")


def soft_targets(A: Array, B: Array) -> Array:
    return -tl.sum(tl.softmax(B, over="v") * tl.log_softmax(A, over="v"), over="v")


def below_maximum(A: Array, B: Array) -> Array:
    return tl.sum(tl.softmax(A, over="v") * (A - tl.max(A, over="v")) * (1.0 + 0.0 * B), over="v")


def by_log_sum_exp(A: Array, B: Array) -> Array:
    """No polynomial: shares that are written as powers alone."""
    return tl.sum(tl.exp(A - tl.logsumexp(A, over="v")) * B, over="v")


def of_tested_shares(A: Array, B: Array) -> Array:
    p = tl.softmax(A + 0.0 * B, over="v")
    return -tl.sum(tl.where(p.equals(0.0), 0.0, p * tl.log(p)), over="v")


def distillation(A: Array, B: Array) -> Array:
    """As PyTorch's `kl_div` has it: terms of shares that are zero are, and none where a share is none."""
    p, q = tl.softmax(A * 0.5, over="v"), tl.log_softmax(B * 0.5, over="v")
    terms = tl.where(p.equals(0.0), 0.0, p * tl.log(p))
    return tl.sum(tl.where(p.equals(p), terms, float("nan")) - p * q, over="v")


def _log_shares(scores: np.ndarray) -> torch.Tensor:
    return torch.log_softmax(torch.tensor(scores, dtype=torch.float64), -1)


def _kl_of(a: np.ndarray, b: np.ndarray) -> torch.Tensor:
    p, q = _log_shares(a), _log_shares(b)
    return (p.exp() * (p - q)).sum(-1)


def _divergence_of(a: np.ndarray, b: np.ndarray) -> torch.Tensor:
    p, q = _log_shares(a).exp(), _log_shares(b)
    return (torch.special.xlogy(p, p) - p * q).sum(-1)


def _entropy_of(a: np.ndarray, b: np.ndarray) -> torch.Tensor:
    p = _log_shares(a)
    return -(p.exp() * p).sum(-1)


def _below_maximum_of(a: np.ndarray, b: np.ndarray) -> torch.Tensor:
    scores = torch.tensor(a, dtype=torch.float64)
    return (_log_shares(a).exp() * (scores - scores.amax(-1, keepdim=True))).sum(-1)


PROGRAMS: dict[Callable[..., Array], Callable[[np.ndarray, np.ndarray], torch.Tensor]] = {
    kl: _kl_of,
    warm_kl: lambda a, b: 4 * _kl_of(a / 2, b / 2),
    distillation: lambda a, b: _divergence_of(a / 2, b / 2),
    entropy: _entropy_of,
    of_shares: _entropy_of,
    of_tested_shares: lambda a, b: torch.special.entr(_log_shares(a + 0 * b).exp()).sum(-1),
    soft_targets: lambda a, b: -(_log_shares(b).exp() * _log_shares(a)).sum(-1),
    below_maximum: _below_maximum_of,
    by_log_sum_exp: lambda a, b: (_log_shares(a).exp() * torch.tensor(b)).sum(-1),
}
"""Each with what PyTorch says in f64."""


def road(program: Callable[..., Array], machine: str = "a100") -> Road:
    traced = kernel(ROWS)(program).trace(["f32", "f32"], {"t": 6, "v": 3000})
    return compiled(str(traced), machine=machine)


def streams(text: str) -> int:
    module = parse_module(text)
    run_pipeline(module, Options(), last="hierarchy-expand-streams")
    return sum(isinstance(op, StreamOp) for op in module.walk())


every = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)


@every
def test_one_stream(program: Callable[..., Array]) -> None:
    assert streams(str(kernel(ROWS)(program).trace(["f32", "f32"], {"t": 6, "v": 3000}))) == 1


def test_the_example() -> None:
    module = load_module("examples/kl_divergence.mlir")
    run_pipeline(module, Options(), last="hierarchy-expand-streams")
    assert sum(isinstance(op, StreamOp) for op in module.walk()) == 1


@every
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [{"t": 3, "v": 1}, {"t": 5, "v": 77}, {"t": 2, "v": 5000}, {"t": 3, "v": 0}])
def test_at_every_level(program: Callable[..., Array], machine: str, sizes: dict[str, int]) -> None:
    road(program, machine).check(sizes)


def _rising(dice: np.random.Generator) -> np.ndarray:
    """Rows whose maximum moves in every piece, by much at first."""
    return (dice.standard_normal((6, 5000)) + np.geomspace(1, 40, 5000)).astype(np.float32)


def _far(dice: np.random.Generator) -> np.ndarray:
    return (dice.standard_normal((6, 5000)) * 3 + 20000).astype(np.float32)


def _late(dice: np.random.Generator) -> np.ndarray:
    """Rows whose first pieces are nothing, as far as shares go."""
    data = dice.standard_normal((6, 5000)).astype(np.float32)
    data[:, :2048] -= 5000
    return data


@every
@pytest.mark.parametrize("made", [_rising, _far, _late], ids=lambda made: made.__name__[1:])
def test_beside_pytorch(program: Callable[..., Array], made: Callable[[np.random.Generator], np.ndarray]) -> None:
    a, b = (made(np.random.default_rng(seed)) for seed in (1, 2))
    (got,) = road(program).run([a, b])
    lost = np.abs(a).max() * 2.0**-22 if program is by_log_sum_exp else 2e-5  # what f32 knows of scores near 20000
    np.testing.assert_allclose(got, PROGRAMS[program](a, b).numpy(), rtol=3e-5, atol=lost)


@every
def test_rows_with_infinities(program: Callable[..., Array]) -> None:
    """No number where the formula has none, and no other row is touched."""
    dice = np.random.default_rng(3)
    a, b = (dice.standard_normal((6, 3000)).astype(np.float32) for _ in range(2))
    a[0, :1500], a[1], a[2, 7] = -np.inf, -np.inf, np.inf
    b[3, 11], b[4, :1024] = np.inf, -np.inf
    (got,) = road(program).run([a, b])
    with np.errstate(invalid="ignore"):
        wanted = PROGRAMS[program](a, b).numpy()
    np.testing.assert_allclose(got[5:], wanted[5:], rtol=3e-5, atol=2e-5)
    assert not np.isfinite(got[~np.isfinite(wanted)]).any()


def test_scores_of_a_product_are_made_once() -> None:
    """The entropy of a layer over a vocabulary: each score is made once, and none is saved."""

    def head(X: Array, W: Array) -> Array:
        p = tl.log_softmax(tl.contract(X, W, over="d"), over="v")
        return -tl.sum(tl.exp(p) * p, over="v")

    traced = kernel("t d, v d -> t")(head).trace(["f16", "f16"], {"t": 4096, "d": 64, "v": 4096}, ("d", "v"))
    module = parse_module(str(traced))
    run_pipeline(module, Options(), last="hierarchy-expand-streams")
    saved = [output.type for op in module.walk() if isinstance(op, KernelOp) for output in op.outputs]
    assert not any("v" in axes_of(type) for type in saved)
    assert streams(str(traced)) == 1
    compiled(str(traced)).check({"t": 37})


def test_shares_of_attention_as_powers() -> None:
    """`exp(S - logsumexp(S)) V` is the kernel of attention."""

    def powers(Q: Array, K: Array, V: Array) -> Array:
        S = tl.contract(Q, K, over="d")
        return tl.contract(tl.exp(S - tl.logsumexp(S, over="x")), V, over="x")

    sizes = {"q": 32768, "d": 64, "x": 4096, "e": 64}
    text = str(kernel("q d, x d, x e -> q e")(powers).trace(["f16"] * 3, sizes, FIXED))
    assert streams(text) == 1
    compiled(text, machine="h100").check({"q": 65, "x": 200})


def test_a_distance_from_another_maximum_counts() -> None:
    """What is added to an element is no distance from its own maximum: while that is neutral, such summands count, so
    they are made again. (Rows of `C` begin with -inf throughout the first pieces.)"""

    def far(A: Array, C: Array) -> Array:
        return tl.sum(tl.exp(A - tl.max(A, over="v")) * (A + 0.5 * tl.max(C, over="v")), over="v")

    dice = np.random.default_rng(4)
    a, c = (dice.standard_normal((6, 5000)).astype(np.float32) for _ in range(2))
    c[:, :4000] = -np.inf
    (got,) = road(far).run([a, c])
    exact = a.astype(np.float64)
    wanted = (np.exp(exact - exact.max(1, keepdims=True)) * (exact + 0.5 * c.max(1, keepdims=True))).sum(1)
    np.testing.assert_allclose(got, wanted, rtol=3e-5)


def test_rows_that_the_program_leaves_out_whole() -> None:
    """Where it asks for scores of -inf itself, a row of nothing else sums up to zero."""

    def masked(A: Array, B: Array) -> Array:
        p = tl.softmax(A, over="v")
        return tl.sum(tl.where(A.equals(float("-inf")), 0.0, p * tl.log(p)), over="v") + 0.0 * tl.sum(B, over="v")

    a = np.random.default_rng(8).standard_normal((6, 3000)).astype(np.float32)
    a[0], a[1, :2000] = -np.inf, -np.inf
    (got,) = road(masked).run([a, np.zeros_like(a)])
    assert got[0] == 0
    np.testing.assert_allclose(got[1:], -torch.special.entr(_log_shares(a[1:]).exp()).sum(-1).numpy(), rtol=3e-5)


@pytest.mark.parametrize("far", [60.0, 200.0])
def test_shares_that_vanish_are_asked_where_they_divide(far: float) -> None:
    """Of elements whose shares are too small for f32 the program says zero, which nothing else may say of them."""

    def parted(A: Array, B: Array) -> Array:
        p = tl.softmax(A, over="v")
        return tl.sum(tl.where(p.equals(0.0), 0.0, B * p / (p + p)), over="v")

    dice = np.random.default_rng(9)
    a, b = (dice.standard_normal((6, 3000)).astype(np.float32) for _ in range(2))
    a[:, ::2] -= far
    (got,) = road(parted).run([a, b])
    counted = b if far < 80 else b[:, 1::2]
    np.testing.assert_allclose(got, counted.astype(np.float64).sum(1) / 2, rtol=1e-4, atol=1e-3)


def test_infinite_weights() -> None:
    """They make a sum infinite, and not no number, as long as none is at the maximum."""

    def weighted(A: Array, B: Array) -> Array:
        return tl.sum(tl.softmax(A, over="v") * (A - tl.max(A, over="v")) * B, over="v")

    dice = np.random.default_rng(7)
    a, b = (dice.standard_normal((6, 5000)).astype(np.float32) for _ in range(2))
    b[0, 3], b[1, 4000] = np.inf, -np.inf
    (got,) = road(weighted).run([a, b])
    wanted = (_log_shares(a).exp().numpy() * (a - a.max(1, keepdims=True)) * b).sum(1)
    np.testing.assert_allclose(got, wanted, rtol=3e-5, atol=2e-5)


def test_elements_without_a_share() -> None:
    """Scores of -inf have shares of zero, which count as nothing where the program says so; whole rows have none."""
    dice = np.random.default_rng(5)
    a, b = (dice.standard_normal((6, 5000)).astype(np.float32) for _ in range(2))
    a[0, ::2], a[1, :4500], a[2] = -np.inf, -np.inf, -np.inf
    (got,) = road(distillation).run([a, b])
    np.testing.assert_allclose(got, _divergence_of(a / 2, b / 2).numpy(), rtol=3e-5, atol=2e-5)


def test_a_mean_over_rows() -> None:
    """A sum over rows and classes is one over classes first: a share is known when its row is."""

    def mean(A: Array, B: Array) -> Array:
        p, q = tl.log_softmax(A, over="v"), tl.log_softmax(B, over="v")
        return tl.sum(tl.exp(p) * (p - q), over="t v")

    text = str(kernel("t v, t v ->")(mean).trace(["f32", "f32"], {"t": 512, "v": 3000}))
    assert streams(text) == 2  # of the classes, and of the rows
    compiled(text).check({"t": 37, "v": 1500})


def test_what_else_is_left_out_stays_in_a_further_stream() -> None:
    """Of a row whose elements are all left out the sum is zero, whatever its scores are, which no quotient is."""

    def some(A: Array, B: Array) -> Array:
        return tl.sum(tl.where(B > 0.0, tl.softmax(A, over="v"), 0.0), over="v")

    traced = kernel(ROWS)(some).trace(["f32", "f32"], {"t": 6, "v": 3000})
    dice = np.random.default_rng(6)
    a, b = (dice.standard_normal((6, 3000)).astype(np.float32) for _ in range(2))
    a[0, 3], b[0] = np.inf, -1.0
    (got,) = compiled(str(traced)).run([a, b])
    assert got[0] == 0
    shares = _log_shares(a[1:]).exp().numpy()
    np.testing.assert_allclose(got[1:], np.where(b[1:] > 0, shares, 0).sum(1), rtol=3e-5)
