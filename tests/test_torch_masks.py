# pyright: standard
"""Masks as models make them: once, from positions and from a mask of keys that is looked up, and for all layers. Under
`torch.compile(backend="treadle")` each kernel asks for positions itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.options import Options

BATCH, LENGTH, WIDTH = 2, 9, 8


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(3)
    yield
    torch._dynamo.reset()


def check(function: Any, *given: Any, dynamic: bool = False) -> Report:
    report = Report()
    backend = make_backend(Options.of({"backend": "interpreter"}), report.graphs.append)
    with torch.no_grad():
        found, wanted = torch.compile(function, backend=backend, dynamic=dynamic)(*given), function(*given)
    for a, b in zip(tree_leaves(found), tree_leaves(wanted), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
        assert a.stride() == b.stride()
    return report


def conditions(report: Report) -> list[str]:
    """What programs say of the elements that count."""
    lines = [line for each in report.taken for line in each.kernel.diagram.splitlines()]
    return [line for line in lines if "where" in line and "<=" in line]


def inputs(batch: int = BATCH) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows, and which of the keys count: the first are padding."""
    counts = torch.ones(batch, LENGTH, dtype=torch.bool)
    counts[0, :3] = False
    return torch.randn(batch, 2, LENGTH, WIDTH), counts


def looked_up(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """Causal, and over keys that count, as `transformers` writes it."""
    batch, q, k = (torch.arange(size) for size in (x.shape[0], x.shape[-2], x.shape[-2]))
    q, k = (q + 0)[None, None, :, None], (k + 0)[None, None, None, :]
    every = torch.ones((), dtype=torch.bool)
    return every & (k <= q) & counts[batch[:, None, None, None], k]


def layers(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    mask = looked_up(x, counts)
    for _ in range(2):
        x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
    return x


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize("dynamic", [False, True])
def test_layers_under_one_mask(dynamic: bool, batch: int) -> None:
    report = check(layers, *inputs(batch), dynamic=dynamic)
    assert not report.left, report
    assert len(conditions(report)) == 2, [each.kernel.diagram for each in report.taken]


def test_layers_under_one_mask_are_trained() -> None:
    """With lengths that are symbols, in a trace of PyTorch's own."""
    report = Report()
    options = Options.of({"backend": "interpreter", "training": True})
    made = torch.compile(layers, backend=make_backend(options, report.graphs.append), dynamic=True)
    x, counts = inputs()
    x.requires_grad_()
    got, want = (torch.autograd.grad(function(x, counts).sin().sum(), x)[0] for function in (made, layers))
    torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)
    assert {each.kind for each in report.graphs if each.taken} == {"forward", "backward"}


def test_windows() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        q, k = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
        mask = (k <= q) & (q - k < 4)
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask[None, None])
        return x

    report = check(function, inputs()[0])
    assert not report.left, report
    assert len(conditions(report)) == 2


def test_a_mask_of_numbers_is_read() -> None:
    """What is computed of numbers is no condition, and computed once."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        mask = (torch.arange(LENGTH) <= torch.arange(LENGTH)[:, None]) & (w.cumprod(0) > 0)
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, x, x, attn_mask=mask)
        return x

    report = check(function, inputs()[0], torch.randn(LENGTH))
    assert sum("cumprod" in each.operation for each in report.left) == 1


ORDERS: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "one index": (lambda x: x[torch.arange(3)], (3, 4)),
    "its dimension is not the first": (lambda x: x[:, torch.arange(4)], (3, 4)),
    "two": (lambda x: x[torch.arange(3)[:, None], torch.arange(4)], (3, 4)),
    "two, in the other order": (lambda x: x[torch.arange(3), torch.arange(4)[:, None]], (3, 4)),
    "a diagonal": (lambda x: x[torch.arange(3), torch.arange(3)], (3, 3)),
    "with other dimensions": (lambda x: x[torch.arange(3)[:, None, None], torch.arange(4)[:, None]], (3, 4, 5)),
    "repeated": (lambda x: x[torch.arange(3)[:, None].expand(3, 2)], (3, 4)),
    "a part": (lambda x: x[torch.arange(2)], (3, 4)),
    "from the second on": (lambda x: x[torch.arange(2) + 1], (3, 4)),
    "every other": (lambda x: x[torch.arange(0, 3, 2)], (3, 4)),
    "of one element": (lambda x: x[torch.arange(1)[:, None], torch.arange(4)], (1, 4)),
    "a list": (lambda x: x[:, [1, 2]], (3, 4)),
    "a list of one": (lambda x: x[..., [-2], :], (2, 3, 4)),
    "a list that ends": (lambda x: x[:, [-2, -1]], (3, 4)),
    "a list around the end": (lambda x: x[:, [-1, 0]], (3, 4)),
    "columns": (lambda x: x.t()[torch.arange(4)], (3, 4)),
}


@pytest.mark.parametrize("name", ORDERS)
def test_an_index_that_is_all_positions(name: str) -> None:
    """Given away, its memory is its own; read by a kernel, it costs nothing."""
    function, shape = ORDERS[name]
    given = torch.randn(shape)
    check(function, given)
    report = check(lambda x: torch.softmax(function(x * 2), -1), given)
    assert report.taken


def test_what_is_given_away_is_not_the_argument() -> None:
    made = torch.compile(lambda x: x[torch.arange(3)[:, None], torch.arange(4)], backend="treadle")
    given = torch.randn(3, 4)
    with torch.no_grad():
        made(given).add_(1)
    assert not torch.equal(made(given), given + 1)


def test_parts_without_elements() -> None:
    """A cache before its first step."""

    def function(k: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> Any:
        keys, values = (torch.cat([torch.tensor([]), each.transpose(1, 2)], -2) for each in (k, v))
        return F.scaled_dot_product_attention(x, keys, values), keys, torch.cat([x[:, :, :0], x, x], 2)

    k, v = (torch.randn(BATCH, LENGTH, 2, WIDTH) for _ in range(2))
    report = check(function, k, v, inputs()[0])
    assert {each.reason for each in report.left} == {"one operation alone gains nothing"}, report


def test_what_is_written_into_a_tensor() -> None:
    """All of it, from another format and one row for all."""

    def function(x: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
        state = torch.tanh(x)
        state.copy_(row)
        return torch.softmax(state * 2, -1)

    report = check(function, torch.randn(5, 8), torch.randn(8).half())
    assert not report.left, report


LENGTHS = ((5, 9), (9, 9), (10, 12))
"""Different at first, so that they are two symbols, then equal by chance, then different within the same classes."""


@pytest.mark.parametrize(
    "function",
    [
        lambda x, table: torch.softmax(table[torch.arange(x.shape[0])], 0),
        lambda x, table: torch.softmax(torch.cat([table, x]), 0)[: x.shape[0]].sum(0),
    ],
    ids=["looked up", "cut off"],
)
def test_lengths_that_are_equal_by_chance(function: Callable[..., Any]) -> None:
    made = torch.compile(
        function, backend=make_backend(Options.of({"backend": "interpreter"}), lambda _: None), dynamic=True
    )
    with torch.no_grad():
        for first, second in LENGTHS:
            given = torch.randn(first, 8), torch.randn(second, 8)
            torch.testing.assert_close(made(*given), function(*given), atol=1e-5, rtol=1e-5)


def test_a_cache_that_grows() -> None:
    """How many keys there are, and how many the mask of keys has, are two symbols of one number."""

    def function(x: torch.Tensor, keys: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        keys = torch.cat([keys, x], 2)
        q, k = torch.arange(x.shape[2]) + (keys.shape[2] - x.shape[2]), torch.arange(keys.shape[2])
        mask = (k <= q[:, None]) & counts[torch.arange(x.shape[0])[:, None, None, None], k]
        for _ in range(2):
            x = F.scaled_dot_product_attention(x, keys, keys, attn_mask=mask)
        return x

    report = Report()
    made = torch.compile(
        function, backend=make_backend(Options.of({"backend": "interpreter"}), report.graphs.append), dynamic=True
    )
    counts = torch.arange(24) > torch.tensor([[2], [-1]])
    with torch.no_grad():
        for length, known in ((2, 5), (1, 7), (3, 12)):
            given = torch.randn(2, 2, length, 8), torch.randn(2, 2, known, 8), counts[:, : length + known]
            torch.testing.assert_close(made(*given), function(*given), atol=1e-5, rtol=1e-5)
            longer = *given[:2], counts[:, : length + known + 3]
            torch.testing.assert_close(made(*longer), function(*given), atol=1e-5, rtol=1e-5)
    assert {each.operation for each in report.left} == {"cat.default"}, report
    assert conditions(report)


def test_the_length_of_a_mask_is_no_width() -> None:
    """One set of kernels serves a mask of each length."""

    def function(x: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * counts.sum(-1, keepdim=True, dtype=torch.int32), -1)

    report = Report()
    made = torch.compile(function, backend=make_backend(Options.of({"backend": "interpreter"}), report.graphs.append))
    x, counts = torch.randn(2, 8), torch.rand(2, 16) > 0.5
    for length in (9, 10, 13, 16):
        given = counts[:, :length].clone()
        torch._dynamo.mark_dynamic(given, 1)
        torch.testing.assert_close(made(x, given), function(x, given))
    assert report.taken
    assert not report.anew, report


# -- masks that are written out ----------------------------------------------------------------------


def scores(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    places = torch.arange(x.shape[-2])
    return x @ x.transpose(-2, -1) * 0.3, places[:, None], places


def filled(x: torch.Tensor) -> torch.Tensor:
    s, q, k = scores(x)
    return torch.softmax(s.masked_fill(~(k <= q), -torch.inf), -1) @ x


def window(x: torch.Tensor) -> torch.Tensor:
    s, q, k = scores(x)
    return torch.softmax(torch.where((q - k >= 0) & (q - k < 5), s, -torch.inf), -1) @ x


def triangle(x: torch.Tensor) -> torch.Tensor:
    s, _, _ = scores(x)
    return torch.softmax(s.masked_fill(torch.tril(torch.ones(s.shape[-2:])) == 0, -torch.inf), -1) @ x


def added(x: torch.Tensor) -> torch.Tensor:
    s, _, _ = scores(x)
    return torch.softmax(s + torch.triu(torch.full(s.shape[-2:], -torch.inf), 1), -1) @ x


def twice(x: torch.Tensor) -> torch.Tensor:
    """One mask, in two layers."""
    _, q, k = scores(x)
    seen = k <= q
    for _ in range(2):
        s, _, _ = scores(x)
        x = torch.softmax(s.masked_fill(~seen, -torch.inf), -1) @ x
    return x


def least(x: torch.Tensor) -> torch.Tensor:
    s, q, k = scores(x)
    return torch.softmax(s.masked_fill(~(k <= q), torch.finfo(s.dtype).min), -1) @ x


def without_first(x: torch.Tensor) -> torch.Tensor:
    """The first row sees nothing, and is NaN."""
    s, q, k = scores(x)
    return torch.softmax(s.masked_fill(k >= q, -torch.inf), -1) @ x


def raised(report: Report) -> int:
    steps = [step for each in report.taken for step in each.kernel.derivation]
    return sum(step.rewrite == "diagram-raise-masks" for step in steps)


@pytest.mark.parametrize(
    ("function", "conditions"),
    [(filled, 1), (window, 1), (triangle, 1), (added, 1), (twice, 2), (least, 0), (without_first, 0)],
)
def test_a_mask_that_is_written_out_is_a_condition(function: Any, conditions: int) -> None:
    report = Report()
    backend = make_backend(Options.of({"backend": "interpreter"}), report.graphs.append)
    x = torch.randn(2, 2, LENGTH, WIDTH)
    with torch.no_grad():
        found, wanted = torch.compile(function, backend=backend)(x), function(x)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5, equal_nan=True)
    assert raised(report) == conditions
