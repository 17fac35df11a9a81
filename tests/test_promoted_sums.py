"""Sums of 8-bit products: what tensor cores keep of them, in the emulator and in bounds, and what promoting them to f32
gives and takes."""

from __future__ import annotations

from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road, array, main_entry, matmul
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.memory import footprint
from treadle.compiler.cost.reading.plans import plan_of
from treadle.compiler.derivation.record import Recorder
from treadle.compiler.gates import report_kernels
from treadle.compiler.gates.code import codes_of_cubin
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.sums import UNIT_OF_TENSOR_CORES, growth, parts_of, promoted_growth
from treadle.dialects.cuda.tiles import is_shared
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.dialects.hierarchy import KernelOp
from treadle.runtime.coarse import EMULATED, coarse_sums
from treadle.runtime.formats import DTYPES
from treadle.runtime.nvcc import compile_cubin, find_nvcc
from treadle.runtime.verify import verify

PASS = "hierarchy-promote-sums"
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")


def specs(last: str = "", every: int | None = None, machine: str = "h100") -> list[ArgSpec]:
    """The pipeline, promoting sums of so many products whether needed or not: 0 never, None as it decides."""
    options: dict[str, tuple[str | int, ...]] = {} if every is None else {"every": (every,)}
    asked = ArgSpec(PASS, options | ({"axis": ("k",)} if every else {}))
    every_pass = [asked if spec.name == PASS else spec for spec in pipeline(Options(machine))]
    names = [spec.name for spec in every_pass]
    return every_pass[: names.index(last) + 1 if last else None]


def made(text: str, every: int | None = None, machine: str = "h100") -> Road:
    algorithm = parse_module(text)
    module = algorithm.clone()
    run_passes(module, specs(every=every, machine=machine))
    return Road(algorithm, module, print_cuda(module))


@lru_cache
def product(every: int | None) -> Road:
    return made(matmul("mk", "nk", "f8E4M3FN"), every)


def rounded_product(result: str, k: int | None, left: str = "f8E4M3FN", right: str = "f8E4M3FN") -> str:
    """A product of 4096 x k x 4096 whose sums are rounded."""
    types = [array(left, m=4096, k=k), array(right, n=4096, k=k), array("f32", m=4096, n=4096)]
    a, b, c, out = *types, array(result, m=4096, n=4096)
    return f"""
func.func @product(%A: {a}, %B: {b}) -> {out} {{
  %C = diagram.contract %A, %B over [k] accumulate f32 : {a}, {b} -> {c}
  %R = diagram.cast %C : {c} -> {out}
  func.return %R : {out}
}}
"""


def positive(m: int, k: int, format: str = "f8E4M3FN", seed: int = 0) -> NDArray[Any]:
    """Numbers around 1: their sums grow, and so does what is cut off."""
    return np.random.default_rng(seed).uniform(0.5, 1.5, (m, k)).astype(DTYPES[format])


def as_tensor_cores(a: NDArray[Any], b: NDArray[Any], every: int) -> NDArray[np.float32]:
    """A B^T as tensor cores add it up, and f32 the sums of `every` products: of each step of 32 products, and what was
    there before, 14 bits from the largest on are kept, and 14 of the sum."""
    left, right = a.astype(np.float64), b.astype(np.float64)
    total = np.zeros((a.shape[0], b.shape[0]), np.float32)
    part = np.zeros_like(total, np.float64)
    for step in range(0, a.shape[1], 32):
        if step % every == 0:
            part = np.zeros_like(part)
        terms = np.concatenate([left[:, None, step : step + 32] * right[None, :, step : step + 32], part[..., None]], 2)
        last = 2.0 ** (np.floor(np.log2(np.abs(terms).max(2, keepdims=True))) - 13)
        sums = (np.trunc(terms / last) * last).sum(2)
        place = 2.0 ** (np.floor(np.log2(np.where(sums == 0, 1, np.abs(sums)))) - 13)
        part = np.trunc(sums / place) * place
        if (step + 32) % every == 0 or step + 32 == a.shape[1]:
            total = total + part.astype(np.float32)
    return total


@pytest.mark.parametrize("every", [0, 64, 128])
@pytest.mark.parametrize("is_positive", [True, False])
def test_the_emulator_cuts_off_what_tensor_cores_do(every: int, is_positive: bool) -> None:
    a, b = positive(64, 384), positive(32, 384, seed=1)
    if not is_positive:  # and of all magnitudes
        scales = np.random.default_rng(2).choice([-64, -8, -0.125, 0.015625, 0.0, 1, 16], a.shape)
        a = (a.astype(np.float32) * scales).astype(a.dtype)
    road = product(every)
    (found,) = road.run([a, b])
    assert road.backend().variants[-1].endswith("_specialised")
    expected = as_tensor_cores(a, b, every or 384)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    assert not np.array_equal(expected, exact.astype(np.float32)), "nothing was cut off"
    np.testing.assert_array_equal(found, expected)


def test_infinities_are_those_of_the_formula() -> None:
    a, b = np.ones((64, 128), DTYPES["f8E5M2"]), np.ones((32, 128), DTYPES["f8E5M2"])
    a[3, 5], a[4, 7] = np.inf, np.nan
    (found,) = made(matmul("mk", "nk", "f8E5M2"), 128).run([a, b])
    assert (found[3] == np.inf).all()
    assert np.isnan(found[4]).all()
    assert (np.delete(found, [3, 4], 0) == 128).all()


def test_a_long_sum_keeps_the_digits_that_promoting_promises() -> None:
    """16384 products: promoted, each is right to the 2 % that 128 of them may lose; else most are beyond that, and
    their own bound says nothing."""
    a, b = positive(24, 16384), positive(16, 16384, seed=1)
    promoted, plain = product(None), product(0)
    (found,), (lost,) = (road.run([a, b], checks=False) for road in (promoted, plain))
    every = coarse_sums(promoted.text, promoted.backend(False).variants, EMULATED)
    assert every == 128
    assert coarse_sums(plain.text, plain.backend(False).variants, EMULATED) == inf
    sums = a.astype(np.float64) @ b.astype(np.float64).T
    (verdict,) = verify(promoted.algorithm, [a, b], [found], "emulator", coarse=every)
    assert verdict.ok, verdict
    assert verdict.tolerance < 0.033 * sums.max()  # 128 units of 2^-13 for the sums, and the slack of two
    (verdict,) = verify(plain.algorithm, [a, b], [lost], "emulator", coarse=every)
    assert verdict.wrong > 0.9 * verdict.elements, verdict
    (verdict,) = verify(plain.algorithm, [a, b], [lost], "emulator", coarse=inf)
    assert not verdict.wrong, verdict
    assert verdict.tolerance > sums.max()  # the worst case is more than the sums are


@pytest.mark.parametrize(("left", "right"), [(one, other) for one in EIGHT_BIT for other in EIGHT_BIT])
def test_promoted_products_of_both_formats(left: str, right: str) -> None:
    """Sizes that fill no tile, and a last piece that fills no step."""
    types = array(left, m=None, k=None), array(right, n=None, k=None), array("f32", m=None, n=None)
    a, b, c = types
    road = made(f"""
func.func @product(%A: {a}, %B: {b}) -> {c} {{
  %C = diagram.contract %A, %B over [k] accumulate f32 : {a}, {b} -> {c}
  func.return %C : {c}
}}
""")
    assert any(isinstance(op, cuda.PromotedProductOp) for op in road.module.walk())
    road.check({"m": 150, "n": 272, "k": 400})


def test_bounds_grow_with_what_is_promoted() -> None:
    assert promoted_growth(128, inf) == promoted_growth(128, 128) == growth(128, UNIT_OF_TENSOR_CORES)
    assert promoted_growth(16384, inf) > 1 > 0.02 > promoted_growth(16384, 128) > growth(128, UNIT_OF_TENSOR_CORES)
    assert promoted_growth(16384, 64) < promoted_growth(16384, 128)
    assert promoted_growth(inf, inf) == inf


@pytest.mark.parametrize("columns", range(8, 257, 8))
def test_parts_cover_the_columns(columns: int) -> None:
    parts = list(parts_of(columns))
    assert [start for start, _ in parts] == [sum(width for _, width in parts[:i]) for i in range(len(parts))]
    assert sum(width for _, width in parts) == columns
    assert all(width % 8 == 0 and 0 < width <= 128 for _, width in parts)


# -- the decision ----------------------------------------------------------------------------------------------------


def schedules(text: str, machine: str = "h100") -> tuple[dict[str, int], str]:
    """What the pass leaves in the schedule of the one kernel, and the module."""
    module = parse_module(text)
    run_passes(module, specs(PASS, machine=machine))
    (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
    assert kernel.schedule is not None
    return kernel.schedule.promote.as_dict(), str(module)


@pytest.mark.parametrize(
    ("result", "k", "promotes"),
    [
        ("f16", 4096, True),
        ("bf16", 256, True),
        ("f16", None, True),
        ("f16", 128, False),  # no more than are added up anyway
        ("f8E4M3FN", 384, False),  # 4.8 % of the sum, and rounding to 1/16
        ("f8E4M3FN", 512, True),
        ("f8E5M2", 512, False),
        ("f8E5M2", 2048, True),
    ],
)
def test_sums_are_promoted_where_rounding_hides_less_than_is_lost(result: str, k: int | None, promotes: bool) -> None:
    found, _ = schedules(rounded_product(result, k))
    assert found == ({"k": 128} if promotes else {})


def test_attention_keeps_its_product_beside_the_next_step() -> None:
    """The model's gate on instructions a score is that of kernels which do not promote sums."""
    text = array("f8E4M3FN", q=None, d=64), array("f8E4M3FN", x=None, d=64), array("f8E4M3FN", e=64, x=None)
    q, k, v = text
    s, near, o = array("f32", q=None, x=None), array("f8E4M3FN", q=None, x=None), array("f32", q=None, e=64)
    found, module = schedules(f"""
func.func @attention(%Q: {q}, %K: {k}, %V: {v}) -> {o} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : {q}, {k} -> {s}
  %P = diagram.apply @softmax(%S) over [x] : ({s}) -> {s}
  %P8 = diagram.cast %P : {s} -> {near}
  %O = diagram.contract %P8, %V over [x] accumulate f32 : {near}, {v} -> {o}
  func.return %O : {o}
}}
""")
    assert found == {}
    assert "decline hierarchy-promote-sums" in module
    assert "is repaired in each; tensor cores keep 14 bits of a sum, however long it is" in module


def test_attention_promotes_its_repaired_sums_if_asked() -> None:
    algorithm = parse_module((Path(__file__).parents[1] / "examples" / "attention_f8.mlir").read_text(encoding="utf-8"))
    module = algorithm.clone()
    asked = ArgSpec(PASS, {"axis": ("x",), "every": (64,)})
    run_passes(module, [asked if spec.name == PASS else spec for spec in pipeline(Options("h100"))])
    road = Road(algorithm, module, print_cuda(module))
    promoted = [op for op in module.walk() if isinstance(op, cuda.PromotedProductOp)]
    assert {op.axis for op in promoted} == {"x"}
    assert all(not is_shared(op.lhs.type) for op in promoted), "shares stay in registers"
    road.check({"b": 1, "h": 1, "q": 130, "x": 272})


def test_a_derivation_says_what_was_promoted() -> None:
    """And a replay promotes the same, asked for."""
    module = parse_module(rounded_product("f16", 4096))
    recorder = Recorder({})
    run_passes(module, specs(PASS), recorder)
    assert f"{PASS}{{axis=k every=128}}" in recorder.text("derivation")


# -- costs -----------------------------------------------------------------------------------------------------------


def lowered(text: str, every: int | None) -> tuple[ModuleOp, Plan, Plan]:
    """A program with its sizes chosen; what the model reads off it, and off its explicit form."""
    module = parse_module(text)
    *decorate, expand = specs(LAST_HIERARCHY_PASS, every)
    run_passes(module, decorate)
    plans: list[Plan] = []
    for passes in ([], [expand]):
        if passes:
            run_passes(module, passes)
        (kernel,) = [op for op in module.walk() if isinstance(op, KernelOp)]
        plans.append(plan_of(kernel))
    return module, plans[0], plans[1]


def per_step(plan: Plan, kind: str) -> float:
    return sum(float(issue.count) for issue in plan.issues if issue.kind == kind and issue.streams)


def test_both_forms_cost_the_same() -> None:
    module, decorated, explicit = lowered(rounded_product("f16", 4096), None)
    kinds = {issue.kind for issue in decorated.issues}
    assert "promote" in kinds
    for kind in kinds:
        assert per_step(decorated, kind) == per_step(explicit, kind), kind
    machine = machine_of(module)
    assert footprint(decorated, machine) == footprint(explicit, machine)


def test_promoting_takes_registers_and_additions() -> None:
    module, plain, _ = lowered(rounded_product("f16", 4096), 0)
    _, promoted, _ = lowered(rounded_product("f16", 4096), None)
    machine = machine_of(module)
    columns = next(int(pieces.size) for pieces in promoted.groups if pieces.axis == "n")
    assert per_step(plain, "promote") == 0
    assert per_step(promoted, "promote") == columns / 2  # an addition for each accumulator of a thread, once in 128
    fewer = int(footprint(promoted, machine).registers_per_thread) - int(footprint(plain, machine).registers_per_thread)
    assert fewer == 64, "what is on its way of 128 columns"


@needs_nvcc
def test_machine_code_adds_as_often_as_the_model_says() -> None:
    """4096^3 on an H100: nothing is spilled, no product is serialised (C75xx), no addition is missing."""
    text = rounded_product("f16", 4096)
    module = parse_module(text)
    run_passes(module, specs())
    cubin = compile_cubin(main_entry(print_cuda(module)), "sm_90a")
    found, *_ = report_kernels(module, cubin.resources, codes_of_cubin(cubin.path))
    _, plan, _ = lowered(text, None)
    assert found.kernel.endswith("_specialised")
    assert found.resources is not None
    assert found.resources.spilled_bytes == 0
    assert found.resources.product_notes == 0
    if found.loop is None:
        pytest.skip("there is no disassembler")
    assert found.loop.opcodes["float FADD"] == per_step(plan, "promote")
    assert found.step is not None
    assert found.loop.products == found.step.products
