"""Where modules of PyTorch and their inputs lie in the tests that take the fixture `device`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

DEVICES = ("cpu", "cuda")


def missing_for(device: str, machine: str = "a100") -> str | None:
    """Why tensors cannot lie there, or kernels made for that machine not run; None if they can."""
    if device == "cpu":
        return None
    try:
        import torch
    except ModuleNotFoundError:
        return "PyTorch is not installed"
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} was built without CUDA"
    if not torch.cuda.is_available():
        return f"PyTorch {torch.__version__} finds no GPU"
    from treadle.compiler.machines import load_machine
    from treadle.runtime.gpu import arch_for, missing_for_gpu

    if arch_for(load_machine(machine).arch, torch.cuda.get_device_capability()) is None:
        return f"kernels for {machine} do not run on {torch.cuda.get_device_name()}"
    return missing_for_gpu()


@contextmanager
def exact_products(device: str) -> Iterator[None]:
    """Eager PyTorch with products of f32 in f32, which is what tolerances are of: on a GPU cuDNN's convolutions would
    round their operands to tf32 (those of cuBLAS do only where they are told to)."""
    if device == "cpu":
        yield
        return
    from torch.backends import cudnn

    allowed = cudnn.allow_tf32
    cudnn.allow_tf32 = False
    try:
        yield
    finally:
        cudnn.allow_tf32 = allowed


@contextmanager
def skipped_without_transformers(device: str) -> Iterator[None]:
    """On a machine that is there for its GPU; the tests' own environment has it, and misses it if it is not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if device == "cpu" or error.name != "transformers":
            raise
        pytest.skip("transformers is not installed")
