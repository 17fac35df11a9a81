"""Calls kernels on numpy's arrays again and again, on the driver of `libcuda.cpp`, whose kernels the PTX machine
computes: what the first call did is done again, for other numbers, other geometries and other places in memory."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import numpy as np
from computing import answered, compiled

import treadle
from treadle.runtime import gpu
from treadle.runtime.numpy_gpu import geometry

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DICE = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = np.float16) -> Any:
    return DICE.standard_normal(shape).astype(dtype)


def same(kernel: treadle.Kernel, *arrays: Any) -> None:
    wanted = kernel.run(*arrays, backend="interpreter")
    np.testing.assert_allclose(kernel.run(*arrays), wanted, atol=2e-2, rtol=2e-2)


def products(machine: str) -> None:
    kernel = treadle.compile(EXAMPLES / "matmul.mlir", machine=machine)
    for _ in range(3):
        same(kernel, drawn(64, 64), drawn(64, 64))
    assert len(kernel.host_replays) == 1
    room = drawn(64 * 64 + 1)
    for _ in range(2):  # rows that begin two bytes further, as the kernel is to see them
        same(kernel, room[1:].reshape(64, 64), drawn(64, 64))
    assert len(kernel.host_replays) == 2
    for _ in range(2):  # gaps, and rows from the last to the first
        same(kernel, drawn(64, 96)[:, :64], drawn(80, 64)[63::-1])
    assert len(kernel.host_replays) == 3
    for size in (40, 24):
        same(kernel, drawn(size, 64), drawn(64, 64))
    assert len(kernel.host_replays) == 5
    refused(kernel, drawn(64, 64), drawn(60, 64))
    refused(kernel, drawn(64, 64, dtype=np.float32), drawn(64, 64))
    refused(kernel, drawn(64, 64), np.zeros((64, 64), bool))


def refused(kernel: treadle.Kernel, *arrays: Any) -> None:
    try:
        kernel.run(*arrays)
    except treadle.TreadleError:
        return
    raise AssertionError("it was taken")


def main() -> None:
    gpu.compile_cubin = compiled  # type: ignore[assignment]
    ctypes.CDLL("libcuda.so.1").driver_run_with(answered)
    what, *machine = sys.argv[1:]
    if what == "products":
        return products(machine[-1])
    rows = treadle.compile(EXAMPLES / "softmax.mlir")
    for numbers in (drawn(3, 33, dtype=np.float32), drawn(3, 33, dtype=np.float32)):
        same(rows, numbers)
    assert geometry([np.zeros(3, bool)]) is None
    assert geometry([np.ma.masked_array(np.zeros(3))]) is None


if __name__ == "__main__":
    main()
