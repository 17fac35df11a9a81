"""Gradients that are derived, as kernels: no scores between them, and the numbers of the reference at any size."""

from __future__ import annotations

from functools import lru_cache

import pytest
from differences import differentiated
from test_recompute import fused, saved

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import ReduceOp
from treadle.passes.expressions.decisions import decides
from treadle.runtime.backend import has_host_compiler

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")


@treadle.kernel("h q d, h x d, h x e, h -> h q e", static="d e")
def capped_window_with_sink(Q: tl.Array, K: tl.Array, V: tl.Array, sink: tl.Array) -> tl.Array:
    S = tl.keep(tl.contract(Q, K, over="d"), "x <= q and q - x < 16")
    S = tl.tanh(S * 0.01) * 20
    m = tl.maximum(tl.max(S, over="x"), sink)
    E = tl.exp(S - m)
    return tl.contract(E / (tl.sum(E, over="x") + tl.exp(sink - m)), V, over="x")


@treadle.kernel("h q d, h x d, h x e, h -> h q e", static="d e")
def learned_temperature(Q: tl.Array, K: tl.Array, V: tl.Array, t: tl.Array) -> tl.Array:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * t, over="x"), V, over="x")


@treadle.kernel("h g q d, h x d, h x e -> h g q e", static="d e")
def shared_keys(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.17, over="x"), V, over="x")


@treadle.kernel("h g q d, h x d, h x e -> h g q e", static="g d e")
def keys_shared_by_four(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.17, over="x"), V, over="x")


@treadle.kernel("q d, x d, x e -> q e", static="d e")
def shares_both_ways(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
    S = tl.contract(Q, K, over="d") * 0.17
    return tl.contract(tl.softmax(S, over="x") * tl.softmax(S, over="q"), V, over="x")


PROGRAMS = {
    "capped_window_with_sink": (capped_window_with_sink, ["f16", "f16", "f16", "f32"]),
    "learned_temperature": (learned_temperature, ["f16", "f16", "f16", "f32"]),
    "shared_keys": (shared_keys, ["f16"] * 3),
    "keys_shared_by_four": (keys_shared_by_four, ["f16"] * 3),
    "shares_both_ways": (shares_both_ways, ["f16"] * 3),
}
LONG = {"h": 16, "g": 4, "q": 4096, "x": 4096, "d": 32, "e": 32}


def gradient_of(name: str) -> str:
    program, formats = PROGRAMS[name]
    sizes = {axis: LONG[axis] for axis in program.signature.axes}
    return str(differentiated(program.trace(formats, sizes, program.static)))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_scores_leave_a_kernel(name: str, machine: str) -> None:
    kernels = fused(parse_module(gradient_of(name)), machine)
    assert saved(kernels)
    assert not [axes for axes in saved(kernels) if {"q", "x"} <= {*axes}]


@lru_cache(maxsize=1)
def road_of(name: str, machine: str) -> Road:
    return compiled(gradient_of(name), machine=machine)


@needs_compiler
@pytest.mark.sample(2)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(("q", "x"), [(70, 129), (1, 33), (33, 1)])
def test_gradients_run_at_any_size(name: str, machine: str, q: int, x: int) -> None:
    road = road_of(name, machine)
    every = {axis: {"h": 2, "g": 3, "q": q, "x": x}[axis] for axis in road.symbolic}
    for verdict in road.verdicts(road.inputs(every, 3), every):
        assert verdict.ok, verdict


@treadle.kernel("n d, k d -> k d, n", static="d")
def soft_clusters(X: tl.Array, C: tl.Array) -> tuple[tl.Array, tl.Array]:
    shares = tl.softmax(-(((X - C) ** 2).sum("d")), over="k")
    return tl.contract(shares, X, over="n") / shares.sum("n"), shares.max("k")


@treadle.kernel("n, n -> n")
def summed_up(a: tl.Array, b: tl.Array) -> tl.Array:
    return tl.cumsum(a * b, over="n")


SMALL = {"n": 33, "k": 10, "d": 16}


def checked(
    program: treadle.NamedKernel, format: str, defaults: dict[str, int], machine: str, *sizes: dict[str, int]
) -> None:
    """The kernels of a gradient against its reference."""
    formats = [format] * len(program.signature.inputs)
    road = compiled(str(differentiated(program.trace(formats, defaults, program.static))), machine=machine)
    for each in sizes:
        for verdict in road.verdicts(road.inputs(each, 3), each):
            assert verdict.ok, verdict


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_an_element_is_found_by_the_maximum_that_another_kernel_made(machine: str) -> None:
    """Kernels that are fed other axes made shares again, with other last digits, so that none was the largest."""
    checked(soft_clusters, "f32", SMALL, machine, {"n": 33, "k": 10}, {"n": 1, "k": 1})


def test_sums_that_decide_are_made_once() -> None:
    """The distances, whose nearest is looked for: other kernels do not make them again, nor shares in another form."""
    module = differentiated(soft_clusters.trace(["f32"] * 2, SMALL, "d"))
    run_pipeline(module, Options(machine="a100"), last="diagram-expand-laws")
    made = {op.results[0].name_hint: op.results[0] for op in module.walk() if isinstance(op, ReduceOp)}
    assert [decides(made[name]) for name in ("sum", "result1", "sum_b", "s")] == [True, True, False, False]
    module = differentiated(soft_clusters.trace(["f32"] * 2, SMALL, "d"))
    run_pipeline(module, Options(machine="a100"), last="streaming")
    assert "exp(a - log b)" not in str(module)
    assert "diagram-recompute" not in str(module)


@needs_compiler
@pytest.mark.parametrize("format", ["f32", "f16"])
def test_a_size_that_only_a_read_of_a_computed_array_tells(format: str) -> None:
    """The kernel that has the axis comes before the array that is read, which need not be made where an argument is
    like it."""
    checked(summed_up, format, {"n": 200}, "a100", {"n": 40}, {"n": 1})


@treadle.kernel("c a, d c -> d, c a")
def summed_over_its_own_axis(A: tl.Array, B: tl.Array) -> tuple[tl.Array, tl.Array]:
    return tl.contract(A, B, over="c a"), tl.keep(tl.tanh(A), "a >= c")


@needs_compiler
@pytest.mark.parametrize("format", ["f32", "f16", "f8E4M3FN"])
def test_a_factor_with_an_axis_that_only_it_is_summed_over(format: str) -> None:
    """What the gradient of the other factor is a product of has that axis alone."""
    checked(summed_over_its_own_axis, format, {"c": 37, "a": 21, "d": 50}, "a100", {"c": 9, "a": 3, "d": 2})
