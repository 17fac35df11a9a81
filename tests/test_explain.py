"""Explanations: the numbers of the cost model, as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import explain
from treadle.compiler.machines import load_machine
from treadle.compiler.source import load_module
from treadle.passes.hierarchy_choose_sizes import HierarchyChooseSizesPass

HERE = Path(__file__).parent
A100 = load_machine("a100")


def explicit(name: str = "matmul") -> ModuleOp:
    return load_module(HERE / "explicit" / f"{name}.mlir")


def test_numbers_of_an_explicit_product():
    (kernel,) = explain(explicit(), A100).kernels
    device, shared, register = kernel.levels
    assert (device.name, shared.name, register.name) == ("device", "shared", "register")
    a, b, c = 64, 16, 32
    assert shared.transfer_values == a * b * c // 16 + a * b * c // 32
    assert register.transfer_values == a * c
    assert register.transfer_bytes == 4 * a * c
    assert device.transfer_values == shared.transfer_values + register.transfer_values
    assert device.memory_values == a * b + b * c + a * c
    assert (shared.memory_bytes, register.memory_bytes) == (2 * 8 * (32 + 16), 4 * 32 * 16)
    assert shared.capacity_bytes == A100.limits.shared_per_block
    assert kernel.blocks == 4
    assert (kernel.group, kernel.stream, kernel.warps) == ({"a": 32, "c": 16}, [{"b": 8}], {"a": 2})
    assert kernel.time_us is not None
    assert kernel.time_us > 0


def test_sizes_can_be_given():
    (kernel,) = explain(explicit(), A100, {"a": 33}).kernels
    assert kernel.sizes == {"a": 33, "b": 16, "c": 32}
    assert kernel.blocks == 4


def test_size_that_nobody_gives():
    module = explicit()
    del next(iter(module.ops)).attributes["sizes"]
    with pytest.raises(TreadleError, match="give one, as in --size a=1000"):
        explain(module, A100)


def test_json():
    data = json.loads(explain(explicit(), A100).to_json())
    (kernel,) = data["kernels"]
    assert data["machine"] == "a100"
    assert data["time_us"] == kernel["time_us"]
    assert kernel["sizes"] == {"a": 64, "b": 16, "c": 32}
    assert kernel["levels"][0]["transfer_expr"] == "a*b*ceil(c/16) + b*c*ceil(a/32) + a*c"
    assert {"name", "transfer_values", "transfer_expr", "memory_bytes"} <= kernel["levels"][1].keys()
    assert isinstance(kernel["bottleneck"], str)


def test_text_says_sizes_why_and_that_time_is_an_estimate():
    module = load_module(HERE / "decorated" / "attention.mlir")
    HierarchyChooseSizesPass().apply(Context(), module)
    text = str(explain(module, A100))
    assert "kernel @attention   b = 2, h = 3, q = 200, d = 64, x = 333, e = 64" in text
    assert "why: b = 1, h = 1, q = " in text
    assert "time (estimate): " in text
    assert "H in values" in text
    assert "b*h*(q*d + x*(d + e)*ceil(q/" in text


def test_a_kernel_that_does_not_fit():
    tiny = replace(A100, limits=replace(A100.limits, shared_per_block=1))
    explanation = explain(explicit(), tiny)
    assert (explanation.kernels[0].time_us, explanation.kernels[0].bottleneck) == (None, "does not fit")
    assert "does not fit the machine" in str(explanation)
    assert explanation.time_us is None
