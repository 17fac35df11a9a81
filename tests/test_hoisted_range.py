"""Factors that leave a sum together: none may take the summands out of the range of f32 that they were scaled for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from roads import compiled
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import parse_module

SIZES = [1.0, 1e25, 1e-25, 1e35, 1e-35]


def norm(a: Any) -> Any:
    """A norm that is scaled to be safe."""
    peak = tl.max(abs(a), over="x")
    share = a / peak
    return peak * tl.sqrt(tl.sum(share * share, over="x"))


def variance(a: Any) -> Any:
    share = (a - tl.mean(a, over="x")) / tl.max(abs(a), over="x")
    return tl.mean(share * share, over="x")


def product(a: Any, b: Any) -> Any:
    return tl.contract(a / tl.max(abs(a), over="x"), b / tl.max(abs(b), over="x"), over="x")


def reciprocals(a: Any) -> Any:
    share = a * (1.0 / tl.max(abs(a), over="x"))
    return tl.sum(share * share, over="x")


def shares(a: Any) -> Any:
    return a / np.abs(a).max(axis=1, keepdims=True)


CASES: dict[str, tuple[str, Callable[..., Any], Callable[..., Any]]] = {
    "norm": ("i x -> i", norm, lambda a: np.sqrt((a * a).sum(1))),
    "variance": ("i x -> i", variance, lambda a: ((shares(a) - shares(a).mean(1, keepdims=True)) ** 2).mean(1)),
    "product": ("i x, j x -> i j", product, lambda a, b: shares(a) @ shares(b).T),
    "reciprocals": ("i x -> i", reciprocals, lambda a: (shares(a) ** 2).sum(1)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_scaled_keeps_its_range(name: str, size: float) -> None:
    axes, function, expected = CASES[name]
    dice = np.random.default_rng(0)
    inputs = [(dice.standard_normal((3 + i, 300)) * size).astype(np.float32) for i in range(axes.count(","), -1, -1)]
    found = treadle.kernel(axes)(function)(*inputs, backend="emulator")
    exact = expected(*(each.astype(np.float64) for each in inputs))
    np.testing.assert_allclose(found, exact, rtol=3e-6, atol=3e-6 * np.abs(exact).max())


def hoisted(format: str) -> str:
    """The sum over x of `(a / m) (a / m)` or of `(a / l) (b / k)`, with what the pass says of it."""
    a, r = f"tensor<?x?x{format}, #diagram.array<[i, x]>>", f"tensor<?x{format}, #diagram.array<[i]>>"
    wide, row = a.replace(format, "f32"), r.replace(format, "f32")
    text = f"""
    func.func @f(%a: {a}, %b: {a}) -> {row} {{
      %A = diagram.cast %a : {a} -> {wide}
      %B = diagram.cast %b : {a} -> {wide}
      %m = diagram.reduce max %A over [x] : {wide} -> {row}
      %n = diagram.reduce max %B over [x] : {wide} -> {row}
      %p = diagram.map (%s = %A : {wide}, %d = %m : {row}) -> {wide} {{
        %0 = arith.divf %s, %d : f32
        diagram.yield %0 : f32
      }}
      %q = diagram.map (%s = %B : {wide}, %d = %n : {row}) -> {wide} {{
        %0 = arith.divf %s, %d : f32
        diagram.yield %0 : f32
      }}
      %y = diagram.contract %p, %q over [x] accumulate f32 : {wide}, {wide} -> {row}
      func.return %y : {row}
    }}"""
    if format == "f32":
        text = text.replace(
            f"diagram.cast %a : {a} -> {wide}", f"diagram.map (%s = %a : {a}) -> {a} {{ diagram.yield %s : f32 }}"
        )
        text = text.replace(
            f"diagram.cast %b : {a} -> {wide}", f"diagram.map (%s = %b : {a}) -> {a} {{ diagram.yield %s : f32 }}"
        )
    module = parse_module(text)
    passes = list(pipeline(Options()))
    run_passes(module, passes[: [spec.name for spec in passes].index("diagram-hoist-factors") + 1])
    return str(module)


def test_numbers_of_sixteen_bits_let_all_factors_go() -> None:
    """Products of f16 are in the range of f32 whatever they are."""
    found = hoisted("f16")
    assert "stays in the sum" not in found
    assert "%m, %n past the sum %y over [x]" in found


@pytest.mark.parametrize("format", ["f32", "bf16"])
def test_of_two_factors_one_leaves(format: str) -> None:
    found = hoisted(format)
    assert "%m stays in the sum %y" in found
    assert "%n past the sum %y over [x]" in found


def test_powers_let_the_divisors_of_both_go() -> None:
    """Two softmaxes that are multiplied: powers are at most 1, and their sums at least."""
    s, r = "tensor<?x?xf32, #diagram.array<[i, x]>>", "tensor<?xf32, #diagram.array<[i]>>"
    rows = ""
    for name in "ab":
        rows += f"""
      %m{name} = diagram.reduce max %{name} over [x] : {s} -> {r}
      %e{name} = diagram.map (%s = %{name} : {s}, %m = %m{name} : {r}) -> {s} {{
        %0 = arith.subf %s, %m : f32
        %1 = math.exp %0 : f32
        diagram.yield %1 : f32
      }}
      %l{name} = diagram.reduce add %e{name} over [x] : {s} -> {r}
      %p{name} = diagram.map (%s = %e{name} : {s}, %l = %l{name} : {r}) -> {s} {{
        %0 = arith.divf %s, %l : f32
        diagram.yield %0 : f32
      }}"""
    text = f"""
    func.func @f(%a: {s}, %b: {s}) -> {r} attributes {{sizes = #diagram.sizes<i = 5, x = 70>}} {{{rows}
      %y = diagram.contract %pa, %pb over [x] accumulate f32 : {s}, {s} -> {r}
      func.return %y : {r}
    }}"""
    road = compiled(text)
    assert "%la, %lb past the sum" in str(road.module)
    road.check({"i": 5, "x": 70})
