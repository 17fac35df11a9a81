"""What is judged where masks are written out, and inputs have infinities or NaNs: the formula multiplies these by zero,
and the kernel leaves them out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.conditions import with_conditions
from treadle.compiler.source import parse_module
from treadle.runtime.verify import verify


def causal(Q: Any, K: Any, V: Any) -> Any:
    S = tl.contract(Q, K, over="d") * 0.125
    S = tl.where(tl.index("x", S) <= tl.index("q", S), S, -np.inf)
    return tl.contract(tl.softmax(S, over="x"), V, over="x")


def inputs(length: int = 500) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal((length, 64)).astype(np.float16) for _ in range(3)]


@pytest.fixture(scope="module")
def kernel() -> treadle.Kernel:
    return treadle.kernel("q d, x d, x e -> q e", machine="h100")(causal).compiled(*inputs())


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_left_out_is_not_wrong(kernel: treadle.Kernel, value: float) -> None:
    """Rows that do not see it are numbers where its piece is not visited, and NaN in the formula: next to nothing is
    known of them, as of a condition that is stated."""
    given = inputs()
    given[2][490] = value
    (verdict,) = kernel.verify(*given, backend="emulator")
    assert verdict.unverifiable
    assert np.isfinite(np.array(kernel(*given, backend="emulator"))[:200]).all()


def test_finite_inputs_are_judged_by_the_formula(kernel: treadle.Kernel) -> None:
    (verdict,) = kernel.verify(*inputs(), backend="emulator")
    assert verdict.ok
    assert not verdict.is_of_conditions


def test_what_is_wrong_stays_wrong(kernel: treadle.Kernel) -> None:
    given = inputs()
    given[2][490] = np.nan
    result = np.array(kernel(*given, backend="emulator"))
    result[495] = 1  # which sees it
    module = parse_module(kernel.diagram)
    (verdict,) = verify(module, given, [result], "emulator", with_conditions=with_conditions)
    assert verdict.wrong
    assert not verdict.is_of_conditions


def test_a_program_without_masks_has_no_other_reading() -> None:
    given = inputs(20)
    plain = treadle.kernel("q d, x d -> q x")(lambda Q, K: tl.contract(Q, K, over="d")).compiled(*given[:2])
    assert with_conditions(parse_module(plain.diagram)) is None
