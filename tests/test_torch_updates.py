# pyright: standard
"""What a step of training updates beside its gradients: statistics of a batch, and states of optimisers."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from treadle.torch import explain


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()


def compiled_for(function: Any, **options: Any) -> Any:
    chosen = {"machine": "h100", "backend": "emulator", **options}
    return torch.compile(function, backend="treadle", options=chosen)


class Normed(nn.Module):
    def __init__(self, **options: Any):
        super().__init__()
        self.norm = nn.BatchNorm2d(6, momentum=0.3, **options)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.norm(x * 2 + 1))


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}, {"dtype": torch.bfloat16}])
def test_statistics_of_a_batch_move(options: dict[str, Any]) -> None:
    plain, dtype = Normed(**options).train(), options.get("dtype", torch.float32)
    module, x = deepcopy(plain), torch.randn(3, 6, 5, 7).to(dtype)
    close: dict[str, Any] = {"atol": 2e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": 1e-5, "rtol": 1e-5}
    with torch.no_grad():
        assert [each.operation for each in explain(deepcopy(plain), (x,)).left if "norm" in each.operation] == []
        torch.testing.assert_close(compiled_for(module)(x), plain(x), **close)
    for each, expected in zip(module.buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(each, expected, **close)


def test_a_batch_norm_is_trained() -> None:
    plain, x = Normed().train(), torch.randn(3, 6, 5, 7, requires_grad=True)
    module, weight = deepcopy(plain), torch.randn(3, 6, 5, 7)
    found, expected = (
        torch.autograd.grad((each(x) * weight).sum(), [x, *each.parameters()])
        for each in (compiled_for(module, training=True), plain)
    )
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_adam_in_place_is_one_kernel(dtype: torch.dtype) -> None:
    """PyTorch writes `addcmul_` with a multiply-add of its own."""

    def step(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.999).addcmul_(g, g, value=0.001)
        p.addcdiv_(m, v.sqrt().add_(1e-8), value=-0.01)
        return p

    given = [each.to(dtype) for each in (*torch.randn(3, 5, 8), torch.rand(5, 8))]
    close: dict[str, Any] = {"atol": 1e-2, "rtol": 2e-2} if dtype == torch.bfloat16 else {"atol": 1e-6, "rtol": 1e-5}
    with torch.no_grad():
        report = explain(step, tuple(each.clone() for each in given))
        found, expected = ([each.clone() for each in given] for _ in range(2))
        compiled_for(step)(*found)
        step(*expected)
    torch.testing.assert_close(found, expected, **close)
    assert [each.kernel.estimate.kernels for each in report.taken] == [1]
    assert not report.left
