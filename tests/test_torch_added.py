# pyright: standard
"""What is added up where an index says, as it is written for PyTorch: `index_add`, `scatter_add`, gradients of rows
that an index chose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from treadle.torch.backend import make_backend
from treadle.torch.options import Options

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
    torch.use_deterministic_algorithms(False)


def compiled(function: Function, *tensors: Any, backend: str = "emulator", **how: Any) -> tuple[Any, list[Any]]:
    """The results by kernels, and what became of the graphs."""
    reports: list[Any] = []
    options = Options.of({"machine": "h100", "cpu_work": 1e12, "backend": backend, **how})
    made = torch.compile(function, backend=make_backend(options, reports.append))(*tensors)
    return made, reports


def same(function: Function, *tensors: Any, kernels: int, **how: Any) -> None:
    """That nothing stays with PyTorch, that there are so many kernels, and that their results are PyTorch's."""
    made, (report,) = compiled(function, *tensors)
    assert not report.left
    assert sum(each.kernel.estimate.kernels for each in report.taken) == kernels
    expected = function(*tensors)
    assert (made.dtype, made.shape, made.stride()) == (expected.dtype, expected.shape, expected.stride())
    torch.testing.assert_close(made, expected, **how)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_index_add(dim: int) -> None:
    """To zeros two kernels, of which the second adds; to a tensor one more."""
    index = torch.randint(0, 7, (50,))
    shape = [5, 7, 7] if dim else [7, 5, 3]
    x, source = torch.randn(shape), torch.randn([50 if i == dim % 3 else each for i, each in enumerate(shape)])
    same(lambda i, s: torch.zeros(shape).index_add(dim, i, s * 2), index, source, kernels=2)
    same(lambda x, i, s: x.index_add(dim, i, s.exp(), alpha=3), x, index, source, kernels=3, atol=1e-4, rtol=1e-5)


def test_in_the_formats_of_pytorch() -> None:
    """Sums of 16 bits are in f32, and rounded once; those of integers wrap as PyTorch's."""
    index, source = torch.randint(0, 7, (40,)), torch.randn(40, 16)
    wide = torch.zeros(7, 16).index_add(0, index, source.bfloat16().float() + 1)
    made, (report,) = compiled(
        lambda i, s: torch.zeros(7, 16, dtype=s.dtype).index_add(0, i, s + 1), index, source.bfloat16()
    )
    assert not report.left
    assert made.dtype == torch.bfloat16
    torch.testing.assert_close(made.float(), wide, atol=0.1, rtol=2**-7)
    whole = torch.randint(-(2**31), 2**31 - 1, (40, 16), dtype=torch.int32)
    same(lambda i, s: torch.zeros(7, 16, dtype=s.dtype).index_add(0, i, s * 3), index, whole, kernels=2)


def test_scatter_add_of_an_index_of_full_shape() -> None:
    x, source = torch.randn(9, 12), torch.randn(9, 30)
    index = torch.randint(0, 12, (9, 30))
    same(lambda x, i, s: x.scatter_add(1, i, s.tanh()), x, index, source, kernels=3)


def test_scatter_add_of_an_index_that_is_repeated() -> None:
    """As a mixture of experts gives tokens what these made: the index is read once for each row."""
    x, source, index = torch.zeros(9, 16), torch.randn(30, 16), torch.randint(0, 9, (30,))
    same(lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 16), s * 0.5), x, index, source, kernels=3)


def test_the_gradient_of_an_embedding() -> None:
    """With what comes after it in one graph; rows that nobody reads get zeros, and so does the padding."""

    class Model(nn.Module):
        def __init__(self, padding: int | None) -> None:
            super().__init__()
            self.words, self.norm = nn.Embedding(50, 32, padding_idx=padding), nn.RMSNorm(32)

        def forward(self, words: Tensor) -> Tensor:
            return self.norm(self.words(words)).square().sum()

    words = torch.randint(0, 40, (4, 9))
    words[0, :3] = 3
    for padding in (None, 3):
        model = Model(padding)
        model(words).backward()
        expected = [each.grad.clone() for each in model.parameters()]
        model.zero_grad()
        loss, reports = compiled(model, words, training=True)
        loss.backward()
        for found, other in zip(model.parameters(), expected, strict=True):
            torch.testing.assert_close(found.grad, other, atol=1e-4, rtol=1e-4)
        taken = " ".join(str(report.taken) for report in reports)
        assert "index_put" in taken
        torch._dynamo.reset()


def test_an_index_out_of_range_is_no_wrong_number() -> None:
    x, source = torch.zeros(9, 16), torch.randn(30, 16)
    for wrong in (9, -1):
        index = torch.zeros(30, dtype=torch.int64)
        index[7] = wrong
        with pytest.raises((IndexError, RuntimeError)):
            compiled(lambda x, i, s: x.scatter_add(0, i[:, None].expand(-1, 16), s * 0.5), x, index, source)


def test_what_stays_with_pytorch() -> None:
    """Writes of which the last stays, several indices, and all that adds where sums are to be the same each time."""
    x, source, index = torch.randn(9, 16), torch.randn(30, 16), torch.randint(0, 9, (30,))

    def left(function: Function, *tensors: Tensor) -> str:
        made, (report,) = compiled(function, *tensors)
        torch.testing.assert_close(made, function(*tensors))
        return " ".join(str(each) for each in report.left)

    assert "index_put" in left(lambda x, i, s: x.index_put([i], s[:1] * 2), x, index, source)
    assert "index_put" in left(
        lambda x, i, j, s: x.index_put([i, j], s[:, 0] * 2, accumulate=True), x, index, index, source
    )
    torch.use_deterministic_algorithms(True)
    assert "index_put" in left(lambda x, i, s: x.index_add(0, i, s * 2), x, index, source)


def test_any_size_by_one_program() -> None:
    def function(x: Tensor, index: Tensor, source: Tensor) -> Tensor:
        return x + torch.zeros_like(x).index_add(0, index, F.silu(source))

    reports: list[Any] = []
    options = Options.of({"machine": "h100", "cpu_work": 1e12, "backend": "emulator"})
    made = torch.compile(function, backend=make_backend(options, reports.append), dynamic=True)
    for rows, count in ((9, 30), (14, 21), (6, 50)):
        x, source, index = torch.randn(rows, 16), torch.randn(count, 16), torch.randint(0, rows, (count,))
        torch.testing.assert_close(made(x, index, source), function(x, index, source))
    assert len(reports) == 1
    assert not reports[0].left
