"""Products with more columns than a warp has registers for: warps across those of the rows share them, and what lacks
these columns each of them makes for itself."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.machines import load_machine
from treadle.dialects.cuda.layout import Mode, accumulator, accumulator_axes, row_operand
from treadle.dialects.cuda.warpgroups import result_axes, warpgroups_across
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.nvcc import compile_cubin, find_nvcc

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")

LATENT = (Path(__file__).parents[1] / "examples" / "attention_latent.mlir").read_text(encoding="utf-8")
MANY, LONG = "b = 64, h = 128, x = 4096", "b = 8, h = 128, x = 8192"


def latent(sizes: str = MANY, width: int = 512) -> str:
    """Latent attention for these sizes, with latent keys so wide."""
    text = re.sub(r"sizes<[^>]*>", f"sizes<{sizes}>", LATENT)
    return text.replace("x512x", f"x{width}x")


@cache
def kernel(text: str, machine: str = "h100", *passes: str) -> treadle.Kernel:
    return treadle.compile(text, machine=machine, passes=passes)


@cache
def road(text: str, machine: str = "h100") -> Road:
    return compiled(text, machine=machine)


def warps(found: treadle.Kernel) -> list[str]:
    return re.findall(r"warps = \[([^]]*)\]", found.hierarchy)


@pytest.mark.parametrize(("sizes", "kernels"), [(MANY, 1), (LONG, 2)])
def test_keys_that_are_values_are_read_once(sizes: str, kernels: int) -> None:
    """By one kernel, or by one that has a part of them, behind which another one merges what is found."""
    found = kernel(latent(sizes))
    assert warps(found)[0] == "h = 4, c = 2"
    assert found.estimate.kernels == kernels
    b, x = (int(re.findall(rf"{axis} = (\d+)", sizes)[0]) for axis in "bx")
    parts = 2 * 8 * b * 128 * (512 + 2) * 4 if kernels == 2 else 0
    assert found.estimate.device_bytes < 1.1 * (2 * b * x * 576 + 2 * b * 128 * (576 + 512) + parts)


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("sizes", [{"b": 2, "h": 77, "x": 130}, {"b": 1, "h": 1, "x": 1}, {"b": 1, "h": 64, "x": 0}])
@needs_compiler
def test_results_are_right(machine: str, sizes: dict[str, int]) -> None:
    found = kernel(latent(), machine, *(() if machine == "h100" else ("fusion{whole-limit=512}",)))
    assert re.fullmatch(r"h = \d+, c = \d+", warps(found)[0])
    rng = np.random.default_rng(1)
    shapes = [(sizes["b"], sizes[axis], width) for axis, width in (("h", 512), ("h", 64), ("x", 512), ("x", 64))]
    arrays = [rng.standard_normal(shape).astype(np.float16) for shape in shapes]
    for verdict in found.verify(*arrays, backend="emulator"):
        assert verdict.ok, verdict


@pytest.mark.parametrize(("width", "warps_across"), [(384, 3), (384, 2), (256, None)])
@needs_compiler
def test_as_many_warpgroups_as_are_asked_for(width: int, warps_across: int | None) -> None:
    """Of columns that one can have, no others are there."""
    asked = (f'hierarchy-choose-sizes{{warps="h=4,c={warps_across}"}}',) if warps_across else ()
    found = kernel(latent(width=width), "h100", *asked)
    assert warps(found)[0] == (f"h = 4, c = {warps_across}" if warps_across else "h = 4")
    rng = np.random.default_rng(2)
    arrays = [rng.standard_normal((1, n, w)).astype(np.float16) for n in (64, 100) for w in (width, 64)]
    (verdict,) = found.verify(*arrays, backend="emulator")
    assert verdict.ok, verdict


def causal(C: tl.Array, Q: tl.Array) -> tuple[tl.Array, tl.Array]:
    scores = tl.keep(tl.contract(Q, C, over="c") * 0.05, "x <= q")
    top = tl.max(scores, over="x")
    powers = tl.exp(scores - top)
    total = tl.sum(powers, over="x")
    return tl.contract((powers / total).to("bf16"), C, over="x"), top + tl.log(total)


@needs_compiler
def test_what_lacks_the_columns_is_saved_once() -> None:
    """All warps across have the log-sum-exp of a row."""
    formats, sizes = ["bf16", "bf16"], {"x": 8192, "q": 8192, "c": 512}
    module = treadle.kernel("x c, q c -> q c, q", machine="h100")(causal).trace(formats, sizes, fixed=("c",))
    found = road(str(module))
    assert "h100"
    assert re.search(r"warps = \[q = 4, c = 2\]", kernel(str(module)).hierarchy)
    found.check({"x": 200, "q": 150})


def residual(Q: tl.Array, C: tl.Array) -> tl.Array:
    shares = tl.softmax(tl.contract(Q, C, over="c") * 0.05, over="x")
    return tl.contract(shares.to("f16"), C, over="x") + Q


@needs_compiler
def test_an_operand_that_is_read_again_meets_the_columns_of_its_warps() -> None:
    """What is added lies in a tile in rows, which warps read as their part of the sums."""
    sizes = {"b": 2, "h": 1024, "x": 64, "c": 512}
    traced = treadle.kernel("b h c, b x c -> b h c", machine="a100")(residual).trace(["f16"] * 2, sizes, fixed=("c",))
    found = kernel(str(traced), "a100", "fusion{whole-limit=512}")
    assert re.fullmatch(r"h = \d+, c = \d+", warps(found)[0])
    rng = np.random.default_rng(3)
    (verdict,) = found.verify(
        *(rng.standard_normal((1, n, 512)).astype(np.float16) for n in (70, 64)), backend="emulator"
    )
    assert verdict.ok, verdict


@needs_nvcc
@pytest.mark.parametrize("sizes", [MANY, LONG])
def test_nothing_spills_and_products_overlap(sizes: str) -> None:
    """ptxas prints no C75xx line, with which it says that it has products run one after another."""
    cubin = compile_cubin(kernel(latent(sizes)).cuda, load_machine("h100").arch)
    assert cubin.resources
    assert not {each.kernel: each.spilled_bytes for each in cubin.resources if each.spilled_bytes}
    assert "C75" not in cubin.log


def test_layouts_across_are_those_of_the_rows() -> None:
    """Warps across have other columns of an accumulator, or the same elements of what lacks them."""
    alone = accumulator("q", "e", 1, 32, (4, 1))
    shared, repeated = alone.across(Mode("e", 2, 256)), alone.across(Mode("", 2, 0))
    for layout, extent in ((shared, 512), (repeated, 256)):
        assert layout.along("q")[0] == alone
        assert accumulator_axes(layout) == result_axes(layout) == ("q", "e")
        assert (layout.extent("q"), layout.extent("e")) == (64, extent)
        assert warpgroups_across(layout) == 2
    assert shared.slice(["q"]) == repeated.slice(["q"])
    assert result_axes(alone.across(Mode("e", 2, 128))) is None  # columns that two would have
    operand = row_operand("q", "x", 1, 4, (Mode("", 2, 0), Mode("q", 4, 16)))
    assert operand.slice(["q"]) == repeated.slice(["q"])


def test_parts_that_begin_in_the_middle_of_a_box_are_refused() -> None:
    """320 columns are five boxes: two warpgroups would share one."""
    found = kernel(latent(width=320))
    assert all("c = 2" not in each or "h = 4" not in each for each in warps(found)[:1])
