"""Printed kernels as machine code: they compile without a warning, use tensor cores, and spill nothing. On a GPU they
run; without one that is skipped, for nothing stands in for it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from roads import Road, attention, compiled, matmul
from tools import find_cuobjdump
from treadle.dialects.cuda import kernel_names
from treadle.runtime.gpu import missing_for_gpu
from treadle.runtime.host import execute
from treadle.runtime.nvcc import Cubin, compile_cubin, find_nvcc
from treadle.runtime.verify import verify

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.mlir"))
EVERY_DAY = ("softmax",)
MACHINES = {"a100": "sm_80", "h100": "sm_90a"}
WIDTHS = (16, 40, 64, 96, 128)

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")
needs_gpu = pytest.mark.skipif(missing_for_gpu() is not None, reason=f"no GPU to run on: {missing_for_gpu()}")


def built(text: str, machine: str) -> Cubin:
    road = compiled(text, machine=machine)
    return compile_cubin(road.text, MACHINES[machine], ["-Werror=all-warnings"])


STANDS_IN = re.compile(r"_(strided|aligned_\d+):")
"""A variant for arrays that are not aligned, in the tiles that were chosen for those that are: it may lack some
registers. `--report` tells how many bytes each variant spills."""


def spills(cubin: Cubin) -> list[str]:
    """Kernels for aligned arrays that spill."""
    spilling = [str(kernel) for kernel in cubin.resources if kernel.spilled_bytes]
    return [told for told in spilling if not STANDS_IN.search(told)]


def instructions(cubin: Cubin) -> Sequence[str]:
    tool = find_cuobjdump()
    if tool is None:
        pytest.skip("cuobjdump is not installed")
    dump = subprocess.run([tool, "-sass", str(cubin.path)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?\w+ )?([A-Z0-9_.]+)", dump)


@needs_nvcc
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[] if path.stem in EVERY_DAY else [pytest.mark.full]) for path in EXAMPLES],
)
def test_examples_compile(path: Path, machine: str) -> None:
    cubin = built(path.read_text(), machine)
    assert cubin.resources
    assert not spills(cubin)


@needs_nvcc
@pytest.mark.parametrize("machine", [pytest.param("a100", marks=pytest.mark.full), "h100"])
@pytest.mark.parametrize("format", ["f16", pytest.param("bf16", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    "width", [pytest.param(width, marks=[pytest.mark.full] if width != 40 else []) for width in WIDTHS]
)
def test_attention_runs_on_tensor_cores_and_spills_nothing(width: int, format: str, machine: str) -> None:
    cubin = built(attention(width, width, format, batch=("b", "h")), machine)
    assert not spills(cubin)
    found = instructions(cubin)
    for wanted in ("HMMA.16816", "LDSM") if machine == "a100" else ("HGMMA", "UTMALDG"):
        assert any(code.startswith(wanted) for code in found)
    assert any(code.startswith("LDGSTS") for code in found)
    assert not any(re.match("LDL|STL", code) for code in found)


@needs_nvcc
@pytest.mark.parametrize(
    ("width", "machine"),
    [
        (64, "a100"),
        (128, "h100"),
        *(pytest.param(*each, marks=pytest.mark.full) for each in ((64, "h100"), (128, "a100"))),
    ],
)
def test_pages_are_copied_asynchronously_and_spill_nothing(width: int, machine: str) -> None:
    text = (EXAMPLES[0].parent / "attention_paged.mlir").read_text()
    cubin = built(re.sub(r"x64(xf\d\d)", rf"x{width}\1", text), machine)
    assert not spills(cubin)
    found = instructions(cubin)
    assert any(code.startswith("LDGSTS.E.BYPASS.128") for code in found)
    assert not any(re.match("LDL|STL", code) for code in found)


@needs_nvcc
@pytest.mark.parametrize(
    ("format", "tf32", "wanted"),
    [
        pytest.param("f16", False, "HMMA.16816", marks=pytest.mark.full),
        pytest.param("f32", True, "HMMA.1688", marks=pytest.mark.full),
        ("f32", False, "FFMA"),
    ],
)
def test_a_product_runs_where_its_formats_say(format: str, tf32: bool, wanted: str) -> None:
    """f32 is multiplied in f32 unless the IR says tf32."""
    found = instructions(built(matmul("mk", "kn", format, tf32=tf32), "a100"))
    assert any(code.startswith(wanted) for code in found)
    assert any(code.startswith("HMMA") for code in found) == wanted.startswith("HMMA")


def check_on_gpu(road: Road, sizes: dict[str, int]) -> None:
    from treadle.runtime.gpu import GpuBackend

    inputs = road.inputs(sizes)
    arrays = [given if isinstance(given, np.ndarray) else given.item() for given in inputs]
    outputs = execute(road.module, arrays, GpuBackend(road.text, kernel_names(road.module), "sm_80"))
    for verdict in verify(road.algorithm, inputs, outputs, "gpu", sizes=sizes):
        assert verdict.ok, verdict


@needs_gpu
@pytest.mark.parametrize("width", WIDTHS)
def test_attention_on_a_gpu(width: int) -> None:
    road = compiled(attention(width, width, "f16"))
    for q, x in ((1, 1), (65, 127), (200, 333)):
        check_on_gpu(road, {"q": q, "x": x})


@needs_gpu
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_on_a_gpu(path: Path) -> None:
    road = compiled(path.read_text())
    check_on_gpu(road, {axis: 65 + 7 * i for i, axis in enumerate(road.symbolic)})
