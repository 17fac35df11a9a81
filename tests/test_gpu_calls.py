"""Calls that are done again, on a device: what the first one did for arrays of a geometry, with other numbers, at other
addresses, in other streams and in graphs. The same without a device: `test_replay.py`, `test_driver.py`."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle
from treadle.compiler.machines import load_machine
from treadle.runtime.gpu import arch_for, driver, missing_for_gpu

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = pytest.mark.skipif(missing_for_gpu() is not None, reason=f"{missing_for_gpu()}")
needs_torch_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="this PyTorch has no CUDA")


@pytest.fixture(scope="module", params=["a100", "h100"])
def product(request: pytest.FixtureRequest) -> treadle.Kernel:
    capability = driver().Context.get_device().compute_capability()
    if arch_for(load_machine(request.param).arch, capability) is None:
        pytest.skip(f"kernels for {request.param} do not run here")
    return treadle.compile(EXAMPLES / "matmul.mlir", machine=request.param)


def drawn(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda").half()


def close(made: Any, a: Any, b: Any) -> None:
    torch.testing.assert_close(made.float(), a.float() @ b.float(), atol=2e-2 * a.shape[1] ** 0.5, rtol=2e-2)


def test_arrays_of_numpy_again(product: treadle.Kernel) -> None:
    for seed in range(3):
        dice = np.random.default_rng(seed)
        a, b = (dice.standard_normal((128, 128)).astype(np.float16) for _ in range(2))
        wanted = a.astype(np.float32) @ b.astype(np.float32)
        np.testing.assert_allclose(product.run(a, b, backend="gpu"), wanted, atol=0.2, rtol=2e-2)
    assert product.host_replays


@needs_torch_cuda
def test_tensors_at_other_addresses(product: treadle.Kernel) -> None:
    """More than one launch keeps maps for, and results that live at the same time."""
    pairs = [(drawn(128, 128), drawn(128, 128)) for _ in range(70)]
    made = [product.run(a, b) for a, b in pairs]
    assert product.at_once(pairs[0]) is not None
    for result, (a, b) in zip(made, pairs, strict=True):
        close(result, a, b)


@needs_torch_cuda
def test_tensors_that_are_not_like_those_before(product: treadle.Kernel) -> None:
    a, b, room = drawn(128, 128), drawn(128, 128), drawn(128 * 128 + 1)
    for _ in range(3):
        close(product.run(a, b), a, b)
        shifted = room[1:].view(128, 128)
        close(product.run(shifted, b), shifted, b)
        close(product.run(a[:100], b), a[:100], b)
        close(product.run(a, b.t()), a, b.t())
        with torch.inference_mode():
            close(product.run(a, b), a, b)
    with pytest.raises(treadle.TreadleError, match="requires a gradient"):
        product.run(a.clone().requires_grad_(), b)
    with pytest.raises(treadle.TreadleError):
        product.run(a.float(), b)


@needs_torch_cuda
def test_streams_and_threads(product: treadle.Kernel) -> None:
    pairs = [(drawn(256, 128), drawn(128, 256)) for _ in range(4)]
    product.run(*pairs[0])
    torch.cuda.synchronize()
    made: dict[int, Any] = {}

    def many(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(50):
                made[number] = product.run(*pairs[number])
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=many, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (a, b) in enumerate(pairs):
        close(made[number], a, b)


@needs_torch_cuda
def test_graphs(product: treadle.Kernel) -> None:
    a, b = drawn(128, 128), drawn(128, 128)
    for _ in range(2):
        product.run(a, b)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = product.run(a, b)
    a.copy_(drawn(128, 128))
    graph.replay()
    torch.cuda.synchronize()
    close(made, a, b)
