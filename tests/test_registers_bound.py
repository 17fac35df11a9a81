"""Blocks of more than 8 warps, whose threads have fewer registers than there can be: in no entry does any spill."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from benchmarking import benchmark
from treadle.compiler.pipeline import CHOOSING_PASS, Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.nvcc import compile_cubin

programs = benchmark("programs")
SHORT, MIDDLE = {"b": 2, "h": 16, "q": 1024, "x": 1024}, {"b": 1, "h": 8, "q": 2048, "x": 2048}

CASES = [
    ("attention_bias", 128, SHORT),
    ("attention_bias", 64, MIDDLE),
    ("attention_causal", 96, MIDDLE),
    ("attention_lengths", 96, MIDDLE),
    ("attention_soft_cap", 128, MIDDLE),
]
"""Of each, an entry spilled 24 to 192 bytes with the sizes that were chosen, or as its copies were printed."""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize(
    ("name", "width", "sizes"),
    [pytest.param(*each, marks=[] if each[:2] in (("attention_bias", 64),) else [pytest.mark.full]) for each in CASES],
)
def test_no_entry_spills(name: str, width: int, sizes: Mapping[str, int]) -> None:
    module = parse_module(programs.attention(width, sizes, example=name))
    run_pipeline(module, Options(machine="a100"))
    found = compile_cubin(print_cuda(module), "sm_80").resources
    assert len(found) > 1
    assert not {each.kernel: each.spilled_bytes for each in found if each.spilled_bytes}


def sized(name: str, width: int, group: int, stream: int) -> ModuleOp:
    specs = list(pipeline(Options(machine="a100")))
    choosing = [spec.name for spec in specs].index(CHOOSING_PASS)
    given: dict[str, Any] = {"group": (f"q={group}",), "stream": (f"x={stream}",)}
    module = parse_module(programs.attention(width, SHORT, example=name))
    run_passes(module, [*specs[:choosing], ArgSpec(CHOOSING_PASS, given)])
    return module


@pytest.mark.parametrize(
    ("name", "width", "group", "stream", "lacks"),
    [
        ("attention", 64, 192, 64, False),  # 12 warps: 168 registers
        ("attention", 128, 192, 32, False),
        ("attention", 96, 192, 64, True),
        ("attention_bias", 128, 176, 32, True),
        ("attention_causal", 96, 192, 64, True),
        ("attention_causal", 128, 160, 32, True),
        ("attention_bias", 128, 64, 64, False),  # 4 warps: 255
    ],
)
def test_left_operands_stay_in_shared_memory_where_ptxas_would_spill(
    name: str, width: int, group: int, stream: int, lacks: bool
) -> None:
    """As ptxas 13.0 does at these sizes with them in registers, in the entry for whole sectors."""
    (kernel,) = (op for op in sized(name, width, group, stream).walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    assert (kernel.schedule.left.data == "shared") is lacks
