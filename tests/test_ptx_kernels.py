"""Whole kernels, as nvcc makes them for an A100, in the PTX machine against the float64 reference."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from test_examples import EXAMPLES, odd_sizes, road

import treadle
from roads import Road, attention, compiled, matmul
from treadle.compiler.errors import TreadleError
from treadle.compiler.main import main
from treadle.compiler.sizes import default_sizes
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import BackendUnavailable, choose_backend
from treadle.runtime.host import execute
from treadle.runtime.interpreter import entry_function
from treadle.runtime.nvcc import compile_ptx, find_nvcc
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.ptx.errors import PtxFault
from treadle.runtime.verify import verify

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")


def check(made: Road, sizes: dict[str, int], seed: int = 0, text: str | None = None) -> PtxBackend:
    """Run at these sizes and compare; `seed` is of the inputs and of the machine."""
    inputs = made.inputs(sizes, seed)
    plain = [given if isinstance(given, np.ndarray) else np.asarray(given).item() for given in inputs]
    backend = PtxBackend(text or made.text, kernel_names(made.module), "sm_80", seed=seed)
    for verdict in verify(made.algorithm, inputs, execute(made.module, plain, backend), "ptx", sizes=sizes):
        assert verdict.ok, f"{sizes}: {verdict}"
    return backend


@needs_nvcc
@pytest.mark.sample(3, each=False)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_at_odd_sizes(name: str):
    check(road(name), odd_sizes(name, 0), seed=1)


@needs_nvcc
@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_at_its_own_sizes(name: str):
    check(road(name), default_sizes(entry_function(road(name).algorithm)))


@needs_nvcc
@pytest.mark.sample(1, each=False)
@pytest.mark.parametrize(
    "text",
    [
        *(matmul("mk", "kn", format) for format in ("f16", "bf16", "f32", "f8E4M3FN", "f8E5M2")),
        matmul("km", "nk", "f16"),
        matmul("mk", "kn", "f32", tf32=True),
        *(attention(64, 48, format) for format in ("bf16", "f32")),
        attention(40, 24, "f16", batch=["b", "h"]),
    ],
)
def test_formats(text: str):
    made = compiled(text)
    check(made, dict(zip(made.symbolic, (33, 70, 50, 3), strict=False)), seed=2)


@needs_nvcc
def test_functions_whose_code_rounds_towards_zero_or_divides_approximately():
    """nvcc makes `add.rz` of log1p, asinh and acosh, and `div.approx` of sinh and cosh."""
    names = ("log1p", "asinh", "acosh", "sinh", "cosh")
    type = "tensor<?xf32, #diagram.array<[i]>>"
    maps = "".join(
        f"  %{name} = diagram.map (%x = %X : {type}) -> {type} {{\n"
        f"    %y = math.{name} %x : f32\n    diagram.yield %y : f32\n  }}\n"
        for name in names
    )
    types, results = ", ".join([type] * len(names)), ", ".join(f"%{name}" for name in names)
    kernel = treadle.compile(
        f"func.func @f(%X: {type}) -> ({types}) {{\n{maps}  func.return {results} : {types}\n}}", machine="a100"
    )
    assert {"add.rz.f32", "div.approx.ftz.f32"} <= set(re.findall(r"[\w.]+", compile_ptx(kernel.cuda, "sm_80")))
    numbers = np.geomspace(1, 80, 150).astype(np.float32)
    verdicts = kernel.verify(numbers, backend="ptx")
    assert len(verdicts) == len(names)
    assert all(verdict.ok for verdict in verdicts), verdicts


@needs_nvcc
def test_entries_by_alignment():
    """Rows that begin at multiples of 16 bytes, of 4, and anywhere: each takes an entry of its own."""
    kernel = treadle.compile("examples/matmul.mlir", machine="a100")
    rng = np.random.default_rng(0)
    for columns, first in ((48, 0), (46, 0), (47, 1)):
        A = np.ones((33, columns + first), np.float16)[:, first:]
        A[:] = rng.standard_normal(A.shape)
        B = rng.standard_normal((columns, 48)).astype(np.float16)
        assert all(verdict.ok for verdict in kernel.verify(A, B, backend="ptx"))
    variants = kernel.backend("ptx", True).variants
    assert len(set(variants)) == 3
    np.testing.assert_array_equal(kernel.run(A, B, backend="ptx"), kernel.run(A, B, backend="ptx"))


@needs_nvcc
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("cp.async.wait_group %0", "cp.async.wait_group 8"), ("__syncthreads()", "__syncwarp()")],
)
def test_a_wait_that_is_missing_shows(right: str, wrong: str):
    made = road("matmul")
    assert right in made.text
    with pytest.raises((AssertionError, PtxFault)):
        check(made, {"m": 64, "k": 700, "n": 64}, text=made.text.replace(right, wrong), seed=1)


@needs_nvcc
def test_from_the_command_line(capsys: pytest.CaptureFixture[str]):
    assert main(["run", "examples/softmax.mlir", "--machine", "a100", "--backend", "ptx", "--size", "x=77"]) == 0
    assert capsys.readouterr().out.startswith("verified (ptx): P max error")


def test_without_nvcc(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.runtime.nvcc.find_nvcc", lambda: None)
    with pytest.raises(BackendUnavailable, match="there is no nvcc: pip install"):
        choose_backend("ptx")
    kernel: Any = treadle.compile("examples/matmul.mlir", machine="a100")
    with pytest.raises(TreadleError, match='backend="emulator" needs none'):
        kernel.run(np.ones((2, 2), np.float16), np.ones((2, 2), np.float16), backend="ptx")
