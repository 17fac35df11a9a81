"""What is made of all pairs of elements and reduced, as distances are: blocks have rows and columns, as of products."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_road_nvcc import built, needs_nvcc, spills
from xdsl.dialects.builtin import ModuleOp

import roads
import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import MapOp
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.kernels.outer import is_met_by_others, outer_axes


def max_plus(A: Any, B: Any) -> Any:
    return tl.max(A + B, over="k")


def min_plus(A: Any, B: Any) -> Any:
    return tl.min(A + B, over="k")


def distances(A: Any, B: Any) -> Any:
    return tl.sum(tl.abs(A - B), over="k")


def gaussian(A: Any, B: Any) -> Any:
    return tl.exp(-tl.sum((A - B) * (A - B), over="k"))


def additive(A: Any, B: Any, w: Any) -> Any:
    return tl.sum(w * tl.tanh(A + B), over="k")


def limited(A: Any, B: Any) -> Any:
    return tl.max(tl.keep(A + B, "k <= m"), over="k")


def program(function: Callable[..., Any], equation: str, format: str = "f32", **sizes: int) -> ModuleOp:
    count = equation.split("->")[0].count(",") + 1
    return treadle.kernel(equation)(function).trace([format] * count, sizes or {"m": 1024, "n": 1024, "k": 1024}, {})


def compiled(module: ModuleOp, machine: str, *passes: str) -> treadle.Kernel:
    return treadle.compile(str(module), machine=machine, passes=passes)


def tiles(kernel: treadle.Kernel) -> dict[str, int]:
    (schedule,) = (op.schedule for op in parse_module(kernel.hierarchy).walk() if isinstance(op, KernelOp))
    assert schedule is not None
    return {**schedule.group.as_dict(), **schedule.stream.as_dict()}


def verify(kernel: treadle.Kernel, *shapes: tuple[int, ...], dtype: Any = np.float32) -> None:
    random = np.random.default_rng(0)
    for verdict in kernel.verify(
        *(random.standard_normal(shape).astype(dtype) for shape in shapes), backend="emulator"
    ):
        assert verdict.ok, str(verdict)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("equation", ["m k, k n -> m n", "m k, n k -> m n", "k m, k n -> m n", "m k, n k -> n m"])
@pytest.mark.parametrize("function", [max_plus, distances])
def test_blocks_have_rows_and_columns(function: Callable[..., Any], equation: str, machine: str) -> None:
    """In which memory moves least: with one index of `n` each element of `A` comes again for each of them."""
    module = program(function, equation)
    kernel, single = compiled(module, machine), compiled(module, machine, 'hierarchy-choose-sizes{group="n=1"}')
    assert min(tiles(kernel)[axis] for axis in "mn") >= 8
    assert kernel.estimate.time_us < single.estimate.time_us / 2


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    ("function", "equation", "format", "shapes"),
    [
        (max_plus, "m k, k n -> m n", "f32", ((37, 45), (45, 130))),
        (min_plus, "k m, n k -> n m", "f16", ((45, 37), (130, 45))),
        (distances, "m k, n k -> m n", "f32", ((70, 33), (65, 33))),
        (distances, "b m k, b k n -> b m n", "f32", ((2, 37, 20), (2, 20, 70))),
        (gaussian, "m k, n k -> m n", "f32", ((33, 5), (129, 5))),
        (additive, "m k, n k, k -> m n", "f32", ((20, 33), (70, 33), (33,))),
        (limited, "m k, k n -> m n", "f32", ((37, 45), (45, 70))),
    ],
)
def test_any_sizes(
    function: Callable[..., Any], equation: str, format: str, shapes: tuple[tuple[int, ...], ...], machine: str
) -> None:
    """And one or no element along what is reduced."""
    sizes = {"m": 512, "n": 512, "k": 256} | ({"b": 4} if "b" in equation else {})
    kernel = compiled(program(function, equation, format, **sizes), machine)
    places = [operand.split().index("k") for operand in equation.split("->")[0].split(",")]
    short = [
        tuple((*shape[:i], size, *shape[i + 1 :]) for shape, i in zip(shapes, places, strict=True)) for size in (0, 1)
    ]
    for each in (shapes, *short):
        verify(kernel, *each, dtype=np.float16 if format == "f16" else np.float32)


def test_both_arrays_come_by_copies_ahead_of_their_turn() -> None:
    kernel = compiled(program(max_plus, "m k, k n -> m n"), "h100")
    ahead = [step.reason for step in kernel.derivation if step.rewrite == "pipelining"]
    assert ["2 stages of %A_shared, %B_shared" in str(each) for each in ahead] == [True]


def near(A: Any, B: Any) -> Any:
    shares = tl.exp(-0.05 * distances(A, B))
    return shares, tl.sum(shares, over="m")


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_pairs_of_which_all_are_added_up_are_a_kernel_of_their_own(machine: str) -> None:
    traced = treadle.kernel("m k, n k -> m n, n", static="k")(near)
    kernel = compiled(traced.trace(["f32"] * 2, {"m": 1024, "n": 1024, "k": 128}, {"k"}), machine)
    (why,) = (str(step.reason) for step in kernel.derivation if step.rewrite == "keep apart")
    assert "is made of pairs of elements: estimated " in why
    apart, one = (float(each) for each in re.findall(r"([\d.e+]+) us", why))
    assert apart < one / 4
    verify(kernel, (33, 128), (40, 128))


def nearest(X: Any, Y: Any) -> Any:
    return tl.min(tl.sum((X - Y) * (X - Y), over="d"), over="j")


def powers(X: Any, Y: Any, w: Any) -> Any:
    return tl.sum(w * tl.exp(-tl.sum((X - Y) * (X - Y), over="d")), over="j")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(
    ("function", "equation"), [(nearest, "i d, j d -> i"), (powers, "i d, j d, j -> i")], ids=["nearest", "powers"]
)
def test_coordinates_come_first_where_groups_hold_them(
    function: Callable[..., Any], equation: str, machine: str
) -> None:
    """Lanes lie along points then, not along a few coordinates."""
    arrays = equation.split("->")[0].count(",") + 1
    traced = treadle.kernel(equation, static="d")(function).trace(
        ["f32"] * arrays, {"i": 16384, "j": 16384, "d": 3}, {"d"}
    )
    kernel = compiled(traced, machine)
    turned = [step for step in kernel.derivation if step.rewrite == "hierarchy-transpose-arrays"]
    assert str(turned[0].subject).startswith("%X of ")
    faster, slower = (float(each) for each in re.findall(r"([\d.e+]+) us", str(turned[0].reason))[:2])
    assert faster < {"a100": 0.9, "h100": 0.7}[machine] * slower
    for i, j in ((37, 300), (300, 1), (1, 513)):
        verify(kernel, *((i, 3), (j, 3), (j,))[:arrays])


def test_an_array_of_which_no_pairs_are_reduced_stays() -> None:
    with pytest.raises(TreadleError, match="reduce pairs of them"):
        compiled(program(distances, "m k, n k -> m n"), "h100", "hierarchy-transpose-arrays{arrays=A}")


def squares(A: Any, B: Any) -> Any:
    return tl.sum((A - B) * (A - B), over="k")


def products(A: Any, B: Any) -> Any:
    return tl.sum((A - B) * (A + B), over="k")


@pytest.mark.parametrize(("function", "is_fused"), [(squares, True), (products, False)])
def test_a_square_and_its_sum_are_one_operation(function: Callable[..., Any], is_fused: bool) -> None:
    """Of two factors products may be meant to cancel. The time tells: a sign is none, either."""
    kernel, signs = (compiled(program(each, "m k, n k -> m n"), "h100") for each in (function, distances))
    assert ("= fmaf(" in kernel.cuda) is is_fused
    assert (kernel.estimate.time_us == pytest.approx(signs.estimate.time_us)) is is_fused
    verify(kernel, (33, 21), (40, 21))


@needs_nvcc
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("function", [max_plus, gaussian])
def test_nothing_spills(function: Callable[..., Any], machine: str) -> None:
    assert not spills(built(str(program(function, "m k, n k -> m n")), machine))


def maps(module: ModuleOp) -> list[MapOp]:
    return [op for op in module.walk() if isinstance(op, MapOp)]


@pytest.mark.parametrize(
    ("equation", "stream", "axes"),
    [
        ("m k, k n -> m n", "k", "mn"),
        ("m k, n k -> m n", "n", ""),
        ("b m k, b k n -> b m n", "k", "mn"),
        ("m k, k -> m", "k", ""),
        ("m k, m k -> m", "k", ""),
    ],
    ids=["pairs", "an axis of one", "of a batch", "a row and a line", "element by element"],
)
def test_axes_along_which_elements_meet(equation: str, stream: str, axes: str) -> None:
    module = program(max_plus, equation, **dict.fromkeys("bmnk", 64))
    assert outer_axes(maps(module), stream) == {*axes}
    assert all(is_met_by_others(value, stream) is bool(axes) for op in maps(module) for value in op.inputs)


def test_what_another_map_takes_is_held_and_so_no_pair() -> None:
    """Of integers, whose maps are not one."""
    first, *others = maps(program(distances, "m k, n k -> m n", "i8"))
    assert others
    assert not outer_axes([first, *others], "k")


@pytest.mark.parametrize("equation", ["m k, k n -> m n", "m k, n k -> m n", "k m, k n -> m n", "k m, n k -> n m"])
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("k", [4, 1024])
def test_lanes_meet_in_no_bank(equation: str, machine: str, k: int) -> None:
    """A lane has no neighbours of rows, and lanes lie along what is reduced only where nothing else is left."""
    road = roads.compiled(str(program(max_plus, equation, m=1024, n=1024, k=k)), machine=machine)
    road.run(road.inputs({"m": 128, "n": 256, "k": 64}))
    (report,) = (each for each in road.backend().reports if each.operations)
    loads = [each for each in report.operations if each.kind == "load_shared"]
    assert sum(each.requests for each in loads) > 0
    assert sum(each.conflicts for each in loads) == 0


def test_an_axis_of_one_element_is_none() -> None:
    module = treadle.kernel("m k, k n -> m n", static="n")(max_plus).trace(["f32"] * 2, {"n": 1}, {"n"})
    assert not outer_axes(maps(module), "k")
