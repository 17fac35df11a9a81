# pyright: standard
"""Masks that compare positions with integers of 64 bits that are given, as the length of a cache of a fixed size: they
are conditions of kernels, and right for all numbers that 64 bits hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

BATCH, ROWS, SIZE, WIDTH = 2, 3, 20, 8

Mask = Callable[[Any, Any, Any], Any]
"""Of positions of rows and of keys, and of what is given."""

MOST, LEAST = 2**63 - 1, -(2**63)

NUMBERS = (
    0,
    5,
    SIZE - 1,
    SIZE,
    -1,
    -SIZE,
    2**30,
    2**31 - 1,
    2**31,
    2**32 + 5,
    -(2**32) + 5,
    2**62,
    MOST - SIZE,
    LEAST + SIZE,
)
"""Those whose low 32 bits say something else among them."""

TOLD: dict[str, Mask] = {
    "causal": lambda q, k, n: k <= q + n,
    "the other way round": lambda q, k, n: n + q >= k,
    "a window": lambda q, k, n: (k <= q + n) & (k > n + q - 4),
    "from the length": lambda q, k, n: n - k > q,
    "one of them": lambda q, k, n: (k == n)[None],
    "all but one": lambda q, k, n: k - 1 != n + q,
    "keys alone": lambda q, k, n: (k < n).expand(ROWS, SIZE),
    "a choice of two": lambda q, k, n: (k < 2) | (k < n + q),
    "not": lambda q, k, n: ~(k > q + n),
}


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(22)
    yield
    torch._dynamo.reset()


def attention(mask: Mask) -> Callable[..., Any]:
    def function(x: torch.Tensor, keys: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        q, k = torch.arange(x.shape[-2])[:, None], torch.arange(keys.shape[-2])
        return F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask(q, k, given))

    return function


def compiled(function: Callable[..., Any], report: Report, **options: Any) -> Callable[..., Any]:
    made = Options.of({"backend": "interpreter", **options})
    return torch.compile(function, backend=make_backend(made, report.graphs.append))


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(BATCH, 2, ROWS, WIDTH), torch.randn(BATCH, 2, SIZE, WIDTH)


def check(function: Callable[..., Any], *given: torch.Tensor) -> None:
    """For one number after another."""
    report = Report()
    made = compiled(function, report)
    with torch.no_grad():
        for number in NUMBERS:
            lengths = [torch.full_like(each, number) for each in given]
            wanted = function(*(x := inputs()), *lengths)
            torch.testing.assert_close(made(*x, *lengths), wanted, atol=1e-5, rtol=1e-5, msg=str(number))


def text(report: Report) -> str:
    return "\n".join(each.kernel.diagram for each in report.taken)


@pytest.mark.parametrize("name", TOLD)
def test_a_number(name: str) -> None:
    check(attention(TOLD[name]), torch.tensor(0))


@pytest.mark.parametrize("name", TOLD)
def test_a_number_is_part_of_a_condition(name: str) -> None:
    report = Report()
    with torch.no_grad():
        compiled(attention(TOLD[name]), report)(*inputs(), torch.tensor(5))
    assert "where" in text(report)
    assert {str(each.operation) for each in report.left} <= {"clamp.default", "_to_copy.default"}, report


def test_a_number_for_each_of_a_batch() -> None:
    check(attention(lambda q, k, n: k <= q + n[:, None, None, None]), torch.zeros(BATCH, dtype=torch.int64))


def test_a_number_for_each_row() -> None:
    check(attention(lambda q, k, n: k <= n[:, None]), torch.zeros(ROWS, dtype=torch.int64))


@pytest.mark.parametrize(
    "mask",
    [
        lambda q, k, n: k + 2**30 <= n + q,
        lambda q, k, n: k <= n + q * 2,
        lambda q, k, n: k + n <= q + n,
        lambda q, k, n: k <= q + 2 * n,
        lambda q, k, n: k - q < n + n,
    ],
)
def test_what_32_bits_may_not_hold_stays(mask: Mask) -> None:
    check(attention(mask), torch.tensor(0))


def test_two_numbers() -> None:
    """Whose difference nothing bounds."""
    report = Report()

    def function(x: Any, keys: Any, first: Any, last: Any) -> Any:
        return attention(lambda q, k, n: (k >= first + q) & (k < last) & (first <= last))(x, keys, first)

    made = compiled(function, report)
    with torch.no_grad():
        for ends in ((2, 9), (9, 2), (0, SIZE), (2**40, 2**41), (-(2**40), 2**40), (2**41, 2**40)):
            first, last = map(torch.tensor, ends)
            x = inputs()
            torch.testing.assert_close(made(*x, first, last), function(*x, first, last), atol=1e-5, rtol=1e-5)


def test_masks_that_are_given_whole_are_read_by_pytorch() -> None:
    """Of integers for each element, converting would take longer than comparing."""
    report = Report()
    ids = torch.randint(0, 3, (ROWS, SIZE))
    function = attention(lambda q, k, n: n == 1)
    x = inputs()
    with torch.no_grad():
        torch.testing.assert_close(compiled(function, report)(*x, ids), function(*x, ids), atol=1e-5, rtol=1e-5)
    assert "eq.Scalar" in {each.operation for each in report.left}


def test_keys_behind_the_length_are_not_visited() -> None:
    """A step is multiplied whole, so that a NaN that it visits would show; where the loop ends is what was given."""
    report = Report()
    x, keys = torch.randn(1, 2, 64, 64).half(), torch.randn(1, 2, 512, 64).half()
    keys[:, :, 320:] = float("nan")
    function, length = attention((lambda q, k, n: (k < n)[None])), torch.tensor(70)
    made = compiled(function, report, backend="emulator", machine="h100", cpu_work=1e9)
    with torch.no_grad():
        wanted = function(x, keys[:, :, :320], length)
        torch.testing.assert_close(made(x, keys, length), wanted, atol=1e-2, rtol=1e-2)
    assert [each.kernel.estimate.kernels for each in report.taken] == [1]
