"""Attention by three warpgroups, or two with long steps: what fits the registers of a thread is what ptxas 13.0 spills
nothing of, and what computes while others wait is faster."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.cost import Plan, footprint, plan_of, timing
from treadle.compiler.cost.kernel.warpgroups import computing, waited_in_scores
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import CHOOSING_PASS, LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.nvcc import compile_cubin

programs = benchmark("programs")
H100 = load_machine("h100")
LENGTHS = {"b": 4, "h": 16, "q": 4096, "x": 4096}

SPILLED = [
    ("attention", 64, 192, 128, 0),
    ("attention", 64, 192, 144, 96),
    ("attention", 64, 128, 240, 0),
    ("attention", 128, 192, 80, 0),
    ("attention", 128, 192, 96, 48),
    ("attention", 128, 128, 176, 0),
    ("attention", 128, 128, 192, 284),
    ("attention_soft_cap", 64, 192, 112, 0),
    ("attention_soft_cap", 64, 192, 128, 152),
    ("attention_soft_cap", 64, 128, 192, 0),
    ("attention_soft_cap", 64, 128, 208, 36),
    ("attention_f8", 64, 192, 160, 0),
]
"""Bytes that ptxas 13.0 spills of the entry that tensor copies feed, by the width of heads, rows and keys of a step."""


def sized(name: str, width: int, group: int, stream: int) -> tuple[ModuleOp, Plan]:
    specs = list(pipeline(Options(machine=H100.name)))
    names = [spec.name for spec in specs]
    given: dict[str, Any] = {"group": (f"q={group}",), "stream": (f"x={stream}",)}
    specs[names.index(CHOOSING_PASS)] = ArgSpec(CHOOSING_PASS, given)
    module = parse_module(programs.attention(width, LENGTHS, example=name))
    explicit = names.index(LAST_HIERARCHY_PASS) + 1
    run_passes(module, specs[:explicit])
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    plan = plan_of(kernel)
    run_passes(module, specs[explicit:])
    return module, plan


@pytest.mark.parametrize(("name", "width", "group", "stream", "spilled"), SPILLED)
def test_a_thread_lacks_registers_where_ptxas_spills(name: str, width: int, group: int, stream: int, spilled: int):
    _, plan = sized(name, width, group, stream)
    assert (footprint(plan, H100).spilled > 0) == (spilled > 0)


@pytest.mark.full
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(("name", "width", "group", "stream", "spilled"), SPILLED)
def test_ptxas_spills_as_much(name: str, width: int, group: int, stream: int, spilled: int):
    module, _ = sized(name, width, group, stream)
    found = compile_cubin(print_cuda(module), H100.arch).resources
    assert [each.spilled_bytes for each in found if each.kernel.endswith("_specialised")] == [spilled]


@pytest.mark.parametrize(("columns", "measured"), [(128, 145), (160, 196), (192, 288)])
def test_two_warpgroups_wait_within_scores(columns: int, measured: float):
    """Clocks of a step and warpgroup beside all that is issued and special functions, measured on an H100."""
    waited = waited_in_scores(2, columns)
    assert waited == pytest.approx(measured, rel=0.25)
    assert computing(1, 800, waited) == computing(2, 800, waited) == 800 + waited
    assert computing(3, 800, waited) == 800


@pytest.mark.parametrize(("group", "stream", "counted"), [(128, 192, 2_113_045), (192, 128, 1_725_472)])
def test_clocks_are_those_that_a_profiler_counted(group: int, stream: int, counted: int):
    """Heads of 64, of which Nsight Compute counted the clocks that a processor was active."""
    _, plan = sized("attention", 64, group, stream)
    found = timing(plan, H100, {**LENGTHS, "h": 32, "d": 64, "e": 64})
    assert found.time_us * H100.clock / 1e6 == pytest.approx(counted, rel=0.06)
