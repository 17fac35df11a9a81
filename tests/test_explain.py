"""Explanations: the numbers of the cost model, as a table and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost import are_of_warpgroups, plan_of, sketch_of
from treadle.compiler.cost.kernel.issue import PRODUCT_FLOP
from treadle.compiler.cost.timing.overlap import unit_clocks
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import explain
from treadle.compiler.explain.text import explanation_text
from treadle.compiler.machines import load_machine
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import load_module
from treadle.dialects.hierarchy import KernelOp
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
    assert data["time_us"] == kernel["time_us"] + data["launch_us"]
    assert kernel["sizes"] == {"a": 64, "b": 16, "c": 32}
    assert kernel["levels"][0]["transfer_expr"] == "a*b*ceil(c/16) + b*c*ceil(a/32) + a*c"
    assert {"name", "transfer_values", "transfer_expr", "memory_bytes"} <= kernel["levels"][1].keys()
    assert isinstance(kernel["bottleneck"], str)
    assert data.keys() >= {"levels", "sizes", "time_us", "bottleneck"}
    assert {"name", "transfer_values", "transfer_expr", "memory_bytes"} <= data["levels"][0].keys()
    assert data["levels"][0]["transfer_values"] == kernel["levels"][0]["transfer_values"]


def test_text_says_sizes_why_and_that_time_is_an_estimate():
    module = load_module(HERE / "decorated" / "attention.mlir")
    HierarchyChooseSizesPass().apply(Context(), module)
    text = explanation_text(explain(module, A100))
    assert "kernel @attention   b = 2, h = 3, q = 200, d = 64, x = 333, e = 64" in text
    assert "why: b = 1, h = 1, q = " in text
    assert "time (estimate): " in text
    assert "H in values" in text
    assert "b*h*(q*d + x*(d + e)*ceil(q/" in text


def test_a_kernel_that_does_not_fit():
    tiny = replace(A100, limits=replace(A100.limits, shared_per_block=1))
    explanation = explain(explicit(), tiny)
    assert (explanation.kernels[0].time_us, explanation.kernels[0].bottleneck) == (None, "does not fit")
    assert "does not fit the machine" in explanation_text(explanation)
    assert explanation.time_us is None


# -- limits, the step, what would move it -----------------------------------------------------------------


LARGE = {"b": 4, "h": 16, "q": 4096, "x": 4096}


def chosen_attention() -> ModuleOp:
    module = load_module(HERE / "decorated" / "attention.mlir")
    HierarchyChooseSizesPass().apply(Context(), module)
    return module


def test_the_limit_is_the_roofline():
    (kernel,) = explain(chosen_attention(), A100, LARGE).kernels
    multiplied = 4 * 4 * 16 * 4096 * 4096 * 64
    assert kernel.flop == multiplied
    assert kernel.limits_us["tensor f16"] == pytest.approx(multiplied / A100.tensor_flops("f16") * 1e6)
    moved = 2 * 4 * 4 * 16 * 4096 * 64
    assert kernel.limits_us["device memory"] == pytest.approx(moved / A100.levels["device"].bandwidth * 1e6)
    assert kernel.limit_us == max(kernel.limits_us.values())
    assert kernel.time_us is not None
    assert kernel.share_of_limit == pytest.approx(kernel.limit_us / kernel.time_us)
    assert kernel.share_of_limit < 1


def test_what_no_query_sees_need_not_move():
    """A window of 128 keys beside a million."""
    module = load_module(HERE.parent / "examples" / "attention_window.mlir")
    run_pipeline(module, Options(), last=LAST_HIERARCHY_PASS)
    (kernel,) = explain(module, A100, {"q": 100, "x": 10**6}).kernels
    assert kernel.share_of_limit is not None
    assert kernel.share_of_limit < 1


@pytest.mark.parametrize(("q", "use"), [(256, 1.0), (257, 257 / 320), (1, 1 / 64)])
def test_tiles_that_are_not_full(q: int, use: float):
    module = load_module(HERE / "decorated" / "attention.mlir")
    HierarchyChooseSizesPass(group="q=64", stream="x=64").apply(Context(), module)
    (kernel,) = explain(module, A100, {**LARGE, "q": q}).kernels
    assert kernel.tile_use == pytest.approx(use)


def test_what_would_move_it():
    module = load_module(HERE / "decorated" / "attention.mlir")
    kernel = next(op for op in module.walk() if isinstance(op, KernelOp))
    assert kernel.schedule is not None
    sketch = sketch_of(kernel, kernel.schedule)
    HierarchyChooseSizesPass().apply(Context(), module)
    h100 = load_machine("h100")
    (cost,) = explain(module, h100, LARGE, {"attention": sketch}).kernels
    assert cost.time_us is not None
    assert cost.levers is not None
    assert any(lever.what == "16-bit numbers as f8" for lever in cost.levers)
    assert all(lever.time_us < 0.98 * cost.time_us for lever in cost.levers)
    assert [lever.time_us for lever in cost.levers] == sorted(lever.time_us for lever in cost.levers)
    assert "what would move it: " in explanation_text(explain(module, h100, LARGE, {"attention": sketch}))
    # Of what is expanded alone, nothing can be chosen again.
    assert "what would move it: " not in explanation_text(explain(module, h100, LARGE))
    (on_a100,) = explain(module, A100, LARGE, {"attention": sketch}).kernels
    assert on_a100.levers is not None
    assert not any("f8" in lever.what for lever in on_a100.levers)


def example(name: str) -> ModuleOp:
    module = load_module(HERE.parent / "examples" / f"{name}.mlir")
    run_pipeline(module, Options(), last=LAST_HIERARCHY_PASS)
    return module


def test_the_step_of_an_explicit_kernel():
    (kernel,) = explain(example("attention"), A100).kernels
    (step,) = kernel.steps
    assert [stage["unit"] for stage in step.stages].count("tensor") == 2
    demands = {unit: sum(s["clocks"] for s in step.stages if s["unit"] == unit) for unit in ("tensor", "scalar")}
    # No faster than the busiest unit allows, no slower than one stage after another.
    assert step.warps * max(demands.values()) <= step.clocks * 1.0001
    assert step.clocks <= step.warps * sum(demands.values()) * 1.0001
    assert step.use["tensor"] == pytest.approx(step.warps * demands["tensor"] / step.clocks)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_the_steps_of_each_stream_are_its_own(machine: str):
    """The first searches, with no product, in what copies brought; the second is a step of attention, and takes as long
    as that alone."""
    module = load_module(HERE.parent / "examples" / "attention_packed.mlir")
    run_pipeline(module, Options(machine=machine), last=LAST_HIERARCHY_PASS)
    explanation = explain(module, load_machine(machine))
    (kernel,) = explanation.kernels
    search, main = kernel.steps
    assert {stage["unit"] for stage in search.stages} == {"scalar", "shared"}
    clocks = [sum(s["clocks"] for s in search.stages if s["unit"] == unit) for unit in ("scalar", "shared")]
    assert search.warps * max(clocks) <= search.clocks * 1.0001
    assert search.clocks <= search.warps * sum(clocks) * 1.0001
    assert [stage["unit"] for stage in main.stages].count("tensor") == 2
    assert (search.stream, main.stream) == tuple(kernel.stream)
    assert kernel.step == main
    text = " ".join(explanation_text(explanation).split())
    for number, step in enumerate(kernel.steps, 1):
        assert f"a step of one warp of stream {number} (x = {step.stream['x']}; {step.number:.4g} a group)" in text
    (told,) = json.loads(explanation.to_json())["kernels"]
    assert [step["clocks"] for step in told["steps"]] == [step.clocks for step in kernel.steps]
    assert told["step"] == told["steps"][1]


def test_equal_streams_are_told_apart():
    """A log-softmax walks its row twice by equal pieces: the first adds up exponentials, the second only subtracts."""
    (kernel,) = explain(example("log_softmax"), A100).kernels
    first, second = kernel.steps
    assert first.stream == second.stream
    assert first.number == second.number
    assert 0 < second.clocks < first.clocks
    assert kernel.step == first


def test_costs_in_symbols():
    (kernel,) = explain(example("attention"), A100, expressions=True).kernels
    found = kernel.expressions
    assert found is not None
    assert found.exponent == "1"
    assert "ceiling(q/g_q)" in found.transfer_values["device"]
    assert set(found.memory_values) == {"device", "shared", "register", "chip"}


def test_registers_of_states_over_lanes_are_plain_numbers() -> None:
    """They come from powers of two, and JSON takes no others."""
    example = Path(__file__).resolve().parents[1] / "examples" / "moving_average.mlir"
    module = load_module(example)
    run_pipeline(module, Options(machine="a100"), last=LAST_HIERARCHY_PASS)
    (kernel,) = json.loads(explain(module, load_machine("a100")).to_json())["kernels"]
    assert 24 <= kernel["registers_per_thread"] < 60


@pytest.mark.parametrize("name", ["quantised_matmul", "softmax_matmul", "matmul"])
def test_a_step_multiplies_at_the_rate_of_the_warps_that_do_it(name: str) -> None:
    """On Hopper single warps reach a part of the rate, and of 8 bits that of f16; warpgroups all of it."""
    module = load_module(HERE.parent / "examples" / f"{name}.mlir")
    run_pipeline(module, Options(machine="h100"), last=LAST_HIERARCHY_PASS)
    machine = load_machine("h100")
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    plan = plan_of(kernel)
    grouped = bool(are_of_warpgroups(plan, machine))
    assert grouped == (name == "matmul")
    (format,) = {work.format for work in plan.work}
    rate = machine.rates.tensor[format] if grouped else 0.667 * machine.rates.tensor["f16"]
    products = [issue for issue in plan.issues if issue.kind.startswith("products")]
    found = unit_clocks(products, machine, grouped)[f"tensor {format}"]
    assert found == pytest.approx(4 * sum(issue.count for issue in products) * PRODUCT_FLOP[format] / rate)
    (told,) = explain(module, machine).kernels
    flop = sum(issue.count * prod(each.mean(told.sizes) for each in issue.streams) for issue in products)
    clocks = told.blocks / machine.sms * plan.warp_count * flop * PRODUCT_FLOP[format] / rate
    assert told.units_us[f"tensor {format}"] == pytest.approx(clocks / machine.clock * 1e6)
