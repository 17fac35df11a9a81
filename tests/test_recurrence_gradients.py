"""Gradients of recurrences, which are recurrences the other way, and recurrences in reverse by themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_recurrence import CELLS, DELTA, PLAIN, of_cells, of_delta
from test_renames import CRF, ELMAN, GRU, elman, of_crf, of_elman, of_gru

import oracles
import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import RecurrenceOp
from treadle.runtime.interpreter import run_function, run_with_bounds

ROOT = Path(__file__).parents[1]
REVERSE = ELMAN.replace("over t (", "over t reverse (")

Arrays = tuple[NDArray[Any], ...]


# -- the other way -----------------------------------------------------------------------------------


def backwards(x: NDArray[Any], w: NDArray[Any]) -> Arrays:
    made, last = elman(x[:, ::-1], w)
    return made[:, ::-1], last


@pytest.mark.parametrize("t", [0, 1, 6, 7, 8, 20])
@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_the_last_position_first(t: int, machine: str) -> None:
    """Also where fewer are there than are on their way, and with a length that is known."""
    arrays = of_elman(3, t, 24)
    expected = backwards(*arrays)
    for found, each in zip(run_function(parse_module(REVERSE.format(d=24)), [*arrays]).results, expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-9, atol=1e-9)
    for sizes in ({}, {"b": 3, "t": t}) if t else ({},):
        kernel = treadle.compile(REVERSE.format(d=24), machine=machine, sizes=sizes)
        for found, each in zip(kernel.run(*arrays, backend="emulator"), expected, strict=True):
            np.testing.assert_allclose(found, each, rtol=1e-5, atol=1e-5)


def test_what_comes_next_is_fetched_ahead_from_the_end() -> None:
    code = treadle.compile(REVERSE.format(d=24), machine="h100").cuda
    assert "8 stages" in code
    assert "the last first" in code


def test_both_ways_in_one_program() -> None:
    """As a bidirectional network has it."""

    @treadle.kernel("b t c, k c -> b t c", machine="h100", static="c k")
    def both(X: Any, W: Any) -> Any:
        def step(h: Any, x: Any, w: Any) -> Any:
            h = tl.tanh(x + tl.contract(tl.read(h, "b, k"), w, over="k"))
            return h, h

        made = [tl.recurrence(step, "t", "b c", [X, W], reverse=reverse)[1] for reverse in (False, True)]
        return made[0] + made[1]

    x, w = of_elman(2, 9, 16)
    expected = elman(x, w)[0] + backwards(x, w)[0]
    np.testing.assert_allclose(both(x, w, backend="emulator"), expected, rtol=1e-4, atol=1e-5)


def test_likely_bounds_the_other_way() -> None:
    arrays = of_elman(2, 12, 24)
    found = run_with_bounds(parse_module(REVERSE.format(d=24)), [*arrays], likely=True)[0]
    assert found.error[:, 11].max() < found.error[:, 0].max() < 1e-3


# -- gradients ---------------------------------------------------------------------------------------


def of_crf_in_torch(e: Any, between: Any, a: Any) -> tuple[Any, ...]:
    made = list[Any]()
    for t in range(e.shape[1]):
        a = torch.logsumexp(a[:, :, None] + between, 1) + e[:, t]
        made.append(a)
    return torch.logsumexp(a, -1), torch.stack(made, 1)


def of_cells_in_torch(x: Any, z: Any, h: Any, shift: Any) -> tuple[Any, ...]:
    n, made = torch.ones_like(h), list[Any]()
    for t in range(x.shape[1]):
        gate, before = torch.sigmoid(z[:, t] + h + shift), h
        h = (1 - gate) * h + gate * torch.tanh(x[:, t] / 2)
        n = torch.maximum(n * 0.75, gate)
        made.append(h / n + before)
    y = torch.stack(made, 1)
    return y, h, n, y.sum(-1)


CASES: dict[str, tuple[str, Arrays, Callable[..., tuple[Any, ...]]]] = {
    "delta_rule": (DELTA, of_delta(2, 5, 8), oracles.ORACLES["delta_rule"]),
    "cells": (CELLS, of_cells(3, 6, 9), of_cells_in_torch),
    "crf": (CRF, of_crf(3, 7), of_crf_in_torch),
    "gru": (GRU, of_gru(2, 5), oracles.ORACLES["gru"]),
}


def differentiated(name: str) -> tuple[Any, list[NDArray[Any]], list[NDArray[Any]]]:
    """The gradient, what it is given, and what PyTorch has for it in float64."""
    text, arrays, function = CASES[name]
    given = [torch.from_numpy(each.astype(np.float64)).requires_grad_() for each in arrays]
    results = function(*given)
    random = np.random.default_rng(7)
    cotangents = [random.standard_normal(each.shape) for each in results]
    expected = torch.autograd.grad(list(results), given, [torch.from_numpy(each) for each in cotangents])
    own = run_function(parse_module(text), [*arrays]).results
    return (
        treadle.differentiate(text),
        [*arrays, *own, *cotangents],
        [each.numpy() for each in expected],
    )


@pytest.mark.parametrize("name", CASES)
def test_the_reference_has_the_gradient_of_pytorch(name: str) -> None:
    gradient, given, expected = differentiated(name)
    assert any(op.is_reverse for op in gradient.walk() if isinstance(op, RecurrenceOp))
    for found, each in zip(run_function(gradient, given).results, expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-5, atol=1e-5 * np.abs(each).max())


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("name", CASES)
def test_kernels_of_gradients(name: str, machine: str) -> None:
    gradient, given, expected = differentiated(name)
    kernel = treadle.compile(str(gradient), machine=machine)
    formats = [each.dtype for each in CASES[name][1]]
    narrow = {"delta_rule": [np.float16, np.float32], "gru": [np.float16, np.float32]}.get(name, [])
    results = given[len(formats) :]
    count = len(results) // 2
    narrow = narrow or [np.float32] * count
    cast = [each.astype(format) for each, format in zip(results, narrow * 2, strict=True)]
    found = kernel.run(*given[: len(formats)], *cast, backend="emulator")
    for one, each in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, each, rtol=5e-3, atol=5e-3 * np.abs(each).max())


def test_a_gradient_of_a_state_that_is_not_returned() -> None:
    """Of the begin alone, through outputs alone."""
    gradient = treadle.differentiate(PLAIN, of=["S0"])
    random = np.random.default_rng(5)
    x, s, d = (random.standard_normal(shape) for shape in ((4, 6), (4,), (4,)))
    (found,) = run_function(gradient, [x, s, s * x.prod(1), d]).results
    np.testing.assert_allclose(found, d * x.prod(1), rtol=1e-6)


def test_a_gradient_of_a_gradient() -> None:
    """Which has a recurrence forwards of the one backwards."""
    first = treadle.differentiate(PLAIN, of=["S0"])
    second = treadle.differentiate(str(first), of=["dS"])
    random = np.random.default_rng(5)
    x, s, d, e = (random.standard_normal(shape) for shape in ((4, 6), (4,), (4,), (4,)))
    (found,) = run_function(second, [x, s, s * x.prod(1), d, d * x.prod(1), e]).results
    np.testing.assert_allclose(found, e * x.prod(1), rtol=1e-6)


def test_states_of_integers_have_none() -> None:
    text = (ROOT / "tests" / "programs" / "recurrent_paths.mlir").read_text(encoding="utf-8")
    with pytest.raises(TreadleError, match="no argument of floats"):
        treadle.differentiate(text)
