"""Values that have a scale for each token: the divisor of a softmax leaves the product beside such a factor, wherever
what is left of it fits the format that multiplies, and so attention is one stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle
import treadle.language as tl

FORMATS: dict[str, Any] = {
    "f8E4M3FN": ml_dtypes.float8_e4m3fn,
    "i8": np.int8,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
}
SIZES = {"h": 2, "q": 37, "x": 333, "d": 16, "e": 24}
AXES = {"Q": "hqd", "K": "hxd", "V": "hxe", "s": "hx"}


def attention(
    multiplied: str = "f16",
    condition: str | None = None,
    bounded: Callable[[Any], Any] = lambda scale: scale,
) -> Callable[..., Any]:
    def function(Q: Any, K: Any, V: Any, s: Any) -> Any:
        scores = tl.contract(Q, K, over="d") * 0.25
        if condition is not None:
            scores = tl.keep(scores, condition)
        shares = tl.softmax(scores, over="x") * bounded(s)
        return tl.contract(shares.to(multiplied), V.to(multiplied), over="x")

    return function


def inputs(values: str, scales: str, multiplied: str = "f16") -> list[Any]:
    dice = np.random.default_rng(0)
    numbers = {name: dice.standard_normal([SIZES[axis] for axis in AXES[name]]) for name in AXES}
    numbers["V"] *= 40 if values == "i8" else 1
    made = [numbers[name].astype(FORMATS[multiplied]) for name in "QK"]
    return [*made, numbers["V"].astype(FORMATS[values]), np.abs(numbers["s"]).astype(FORMATS[scales])]


def compiled(function: Callable[..., Any], given: list[Any], machine: str = "h100") -> treadle.Kernel:
    names = {dtype: name for name, dtype in FORMATS.items()}
    traced = treadle.kernel("h q d, h x d, h x e, h x -> h q e", machine=machine, static="d e", result="f32")(function)
    formats = [names[array.dtype.type] for array in given]
    return treadle.compile(str(traced.trace(formats, SIZES)), machine=machine, sizes=SIZES)


def exact(given: list[Any]) -> Any:
    Q, K, V, s = (array.astype(np.float64) for array in given)
    powers = np.exp(0.25 * Q @ K.transpose(0, 2, 1))
    return (powers / powers.sum(-1, keepdims=True) * s[:, None]) @ V


def is_one_stream(kernel: treadle.Kernel) -> bool:
    return not any(step.law == "recomputation" for step in kernel.derivation)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("values", ["f8E4M3FN", "i8", "f16"])
def test_scales_in_f16_are_one_stream(values: str, machine: str) -> None:
    given = inputs(values, "f16")
    kernel = compiled(attention(), given, machine)
    assert is_one_stream(kernel)
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, verdict


@pytest.mark.parametrize("values", ["i8", "bf16"])
def test_bf16_has_room_for_any_scale(values: str) -> None:
    given = inputs(values, "f32", "bf16")
    kernel = compiled(attention("bf16"), given)
    assert is_one_stream(kernel)
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, verdict


@pytest.mark.parametrize("condition", ["x <= q", "x + 5 <= q"])
def test_masked_tokens(condition: str) -> None:
    """Under the second condition the first five rows have no token; they are zero."""
    given = inputs("f8E4M3FN", "f16")
    kernel = compiled(attention(condition=condition), given)
    assert is_one_stream(kernel)
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, verdict
    if condition == "x + 5 <= q":
        assert not np.asarray(kernel.run(*given, backend="emulator"))[:, :5].any()


@pytest.mark.parametrize("size", [0.0, 1e-7, 1e-4, 3e4])
def test_scales_of_any_size(size: float) -> None:
    """Of all tokens but one; f16 holds what is rounded as well as what the program rounds."""
    given = inputs("i8", "f16")
    given[3] = np.full_like(given[3], size)
    given[3][0, 0], given[3][1, SIZES["x"] - 1] = 1, 6e4
    kernel = compiled(attention(), given)
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert not verdict.wrong
    expected = exact(given)
    np.testing.assert_allclose(
        kernel.run(*given, backend="emulator"), expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max()
    )


BOUNDS: dict[str, Callable[[Any], Any]] = {
    "rounded": lambda scale: scale.to("f16"),
    "clipped": lambda scale: tl.maximum(tl.minimum(scale, 500.0), -500.0),
    "of a size": lambda scale: tl.minimum(abs(scale), 500.0),
}


@pytest.mark.parametrize("name", BOUNDS)
def test_bounds_that_the_program_states(name: str) -> None:
    given = inputs("f8E4M3FN", "f32")
    given[3][0, 3], given[3][1, 5] = 1e4, -1e9
    given[3] = np.clip(given[3], -6e4, 6e4) if name == "rounded" else given[3]
    kernel = compiled(attention(bounded=BOUNDS[name]), given)
    assert is_one_stream(kernel)
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.ok, verdict


UNBOUNDED: dict[str, tuple[float, Callable[[Any], Any]]] = {
    "plain": (1e6, lambda scale: scale),
    "clipped above": (-1e6, lambda scale: tl.minimum(scale, 500.0)),
    "clipped below": (1e6, lambda scale: tl.maximum(scale, 500.0)),
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_without_a_bound_the_divisor_stays(name: str) -> None:
    """A scale of 1e6 is no more than 1e4 times a share that is below a hundredth: without the divisor f16 overflows."""
    size, bounded = UNBOUNDED[name]
    given = inputs("f8E4M3FN", "f32")
    given[0], given[3] = given[0] * np.float16(1e-3), np.full_like(given[3], size)
    kernel = compiled(attention(bounded=bounded), given)
    assert not is_one_stream(kernel)
    expected = exact(given)
    np.testing.assert_allclose(
        kernel.run(*given, backend="emulator"), expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max()
    )


def test_what_has_no_bound_is_named() -> None:
    kernel = compiled(attention(), inputs("f8E4M3FN", "f32"))
    (reason,) = [step.reason for step in kernel.derivation if "stays in the sum" in step.subject]
    assert "no bound is known of %s: rounded to f16, or clipped at both ends, it has one" in reason
