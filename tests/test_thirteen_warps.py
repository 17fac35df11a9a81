"""Attention with heads of 128 on an A100 in 13 warps an SM, as its authors find it (theory, section 5): the model finds
the configuration, ptxas and the rule of occupancy confirm it, and the kernel computes what it should.

The register file is split in four, and a warp takes its registers from one quarter: 13 warps need at most 128
registers a thread. The accumulators of the output take 64 of them, so the 32 of Q's fragments may not stay."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, attention
from treadle.compiler.cost import Estimate, choose, estimate, plan_of, sketch_of, timing
from treadle.compiler.cost.choice.candidates import candidates
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.nvcc import compile_cubin

A100 = load_machine("a100")
SIZES = {"b": 4, "h": 16, "q": 4096, "x": 4096, "d": 128, "e": 128}
ROWS = 13 * 16
SHARED_OF_SM = 164 * 1024


def algorithm() -> ModuleOp:
    return parse_module(attention(128, 128, "f16", scale="0.08838834764831845", batch=("b", "h")))


def lowered() -> tuple[ModuleOp, Estimate, str]:
    """With 208 rows a group; the rest is for the model to choose. And where the schedule leaves left operands."""
    specs = list(pipeline(Options(machine="a100")))
    choosing = [spec.name for spec in specs].index(CHOOSING_PASS)
    specs[choosing] = ArgSpec("hierarchy-choose-sizes", {"group": (f"q={ROWS}",)})
    module = algorithm()
    run_passes(module, specs[: choosing + 1])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    found = estimate(plan_of(kernel), A100, SIZES)
    assert found is not None
    assert kernel.schedule is not None
    left = kernel.schedule.left.data
    run_passes(module, specs[choosing + 1 :])
    return module, found, left


def test_the_model_finds_them():
    module = algorithm()
    specs = list(pipeline(Options(machine="a100")))
    run_passes(module, specs[: [spec.name for spec in specs].index(CHOOSING_PASS)])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    sketch = sketch_of(kernel, kernel.schedule)
    found = candidates(sketch, SIZES, {})
    times = timing(sketch.plan(found.tiles, found.warps, rereads=found.rereads), A100, SIZES)
    resident = times.blocks_per_sm * times.footprint.warps
    of_thirteen = (found.tiles["q"] == ROWS) & (resident == 13) & (times.footprint.spilled == 0)
    assert np.any(of_thirteen)
    # Nobody keeps Q in registers there, and no other block has more rows with that many warps or fewer.
    assert np.all(found.rereads[of_thirteen])
    fits = (times.blocks_per_sm > 0) & (times.footprint.spilled == 0) & (times.footprint.warps <= 13)
    one_tile = found.tiles["q"] == 16 * found.warps["q"]
    assert found.tiles["q"][fits & one_tile].max() == ROWS
    choice = choose(sketch, A100, SIZES, {"q": ROWS})
    assert choice.candidate.rereads
    assert "left operands that all steps share stay in shared memory" in choice.reason


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_ptxas_and_the_occupancy_rule_confirm_them():
    module, found, left = lowered()
    assert left == "shared"
    assert (found.footprint.warps, found.blocks_per_sm) == (13, 1)
    for each in compile_cubin(print_cuda(module), "sm_80").resources:
        assert each.registers <= 128, each
        assert each.spilled_bytes == 0, each
        shared = found.footprint.shared_bytes + each.shared_bytes
        assert shared + A100.limits.shared_reserved <= SHARED_OF_SM
        assert A100.blocks_on_sm(13, each.registers, shared) == 1
        # The rule by hand: four quarters of 16,384 registers, given to a warp in units of 256.
        of_warp = -(-each.registers * 32 // 256) * 256
        assert 4 * (16384 // of_warp) >= 13


def test_they_compute_what_they_should():
    module, _, _ = lowered()
    road = Road(algorithm(), module, print_cuda(module))
    road.check({"b": 1, "h": 1, "q": 215, "x": 70})
