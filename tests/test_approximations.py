"""Shorter forms of quotients and of `tanh`: their errors, and infinities, NaN, zeros and subnormals."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from roads import Road, array, compiled
from treadle.dialects.cuda import kernel_names
from treadle.passes.diagram_allow_approximations import MOST_GAIN
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.host import execute
from treadle.runtime.nvcc import find_nvcc
from treadle.runtime.ptx.backend import PtxBackend

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")

EXAMPLE = Path(__file__).parents[1] / "examples" / "attention_soft_cap.mlir"
Singles = NDArray[np.float32]
ROWS = array("f32", i=None)
ONE = "%one = arith.constant 1.0 : f32"
DIVISOR = f"{ONE}\n%n = arith.negf %b : f32\n%e = math.exp %n : f32\n%d = arith.addf %one, %e : f32"
BODIES = {
    "sigmoid": f"{DIVISOR}\n%y = arith.divf %one, %d : f32",
    "gate": f"{DIVISOR}\n%y = arith.divf %a, %d : f32",
    "one plus tanh": f"{ONE}\n%t = math.tanh %b : f32\n%y = arith.addf %one, %t : f32",
    "gate by tanh": f"{ONE}\n%t = math.tanh %b : f32\n%g = arith.addf %t, %one : f32\n%y = arith.mulf %a, %g : f32",
    "power of a cap": "%c = arith.constant 30.0 : f32\n%t = math.tanh %b : f32\n%m = arith.mulf %c, %t : f32\n"
    "%y = math.exp %m : f32",
    "quotient by a size": "%l = arith.constant 1.0e-6 : f32\n%s = arith.mulf %b, %b : f32\n"
    "%d = arith.addf %s, %l : f32\n%y = arith.divf %a, %d : f32",
}
"""Of two numbers, a and b."""
RARE = (0.0, 1e-45, 1e-40, 2.0**-126, 1e-20, 1e-6, 0.3, 1.0, 7.5, 43.6, 44.4, 87.2, 87.6, 88.5, 88.8, 200.0, 1e4)
SPECIAL = np.array([*RARE, 1e19, 2.0**126, 1.5 * 2.0**126, 3.4e38, np.inf, np.nan], np.float32)


def program() -> str:
    """A result for each body."""
    maps, names = [], [f"%y{i}" for i in range(len(BODIES))]
    for name, body in zip(names, BODIES.values(), strict=True):
        inputs = f"(%a = %A : {ROWS}, %b = %B : {ROWS})"
        maps.append(f"{name} = diagram.map {inputs} -> {ROWS} {{\n{body}\ndiagram.yield %y : f32\n}}")
    types = ", ".join([ROWS] * len(names))
    lines = "\n".join(maps)
    return (
        f"func.func @f(%A: {ROWS}, %B: {ROWS}) -> ({types}) {{\n{lines}\nfunc.return {', '.join(names)} : {types}\n}}"
    )


@cache
def road() -> Road:
    return compiled(program(), machine="a100")


def pairs() -> tuple[Singles, Singles]:
    both = np.concatenate([SPECIAL, -SPECIAL])
    a, b = np.meshgrid(both, both)
    return a.reshape(-1), b.reshape(-1)


def formulas(a: Singles, b: Singles) -> dict[str, NDArray[np.float64]]:
    """In float64, of which only powers and squares are rounded to f32, so that they overflow as there."""
    with np.errstate(all="ignore"):
        power = np.exp(-b.astype(np.float64)).astype(np.float32).astype(np.float64)
        square, wide = (b * b + np.float32(1e-6)).astype(np.float64), a.astype(np.float64)
        above = 2 / (1 + np.exp(-2 * b.astype(np.float64)).astype(np.float32).astype(np.float64))
        return {
            "sigmoid": 1 / (1 + power),
            "gate": wide / (1 + power),
            "one plus tanh": above,
            "gate by tanh": wide * above,
            "power of a cap": np.exp(30 * np.tanh(b.astype(np.float64))),
            "quotient by a size": wide / square,
        }


def check(outputs: tuple[Singles, ...]) -> None:
    a, b = pairs()
    with np.errstate(all="ignore"):
        for (name, wanted), found in zip(formulas(a, b).items(), outputs, strict=True):
            single = wanted.astype(np.float32)
            finite = np.isfinite(single)
            assert np.array_equal(np.isnan(found), np.isnan(single)), name
            assert np.array_equal(found[np.isinf(single)], single[np.isinf(single)]), name
            # `ex2` and its argument; what is below the least normal number may be zero, and a multiple of that where a
            # share of something large is.
            share = 60 * 2.0**-21 if name == "power of a cap" else 2.0**-21 + 2.0**-22 * np.minimum(2 * np.abs(b), 256)
            least = 2.0**-125 * np.maximum(np.abs(np.where(np.isfinite(a), a, 1)), 1) if "tanh" in name else 2.0**-126
            off = np.abs(found.astype(np.float64) - wanted)
            assert (off <= share * np.abs(wanted) + least)[finite].all(), (name, a[finite & (off > least)][:5])


@needs_compiler
def test_special_values_in_the_emulator() -> None:
    assert "rcp_approx(" in road().text
    assert "tanhf(" not in road().text
    check(road().run(pairs()))


@needs_nvcc
def test_special_values_in_ptx() -> None:
    check(execute(road().module, pairs(), PtxBackend(road().text, kernel_names(road().module), "sm_80")))


@pytest.mark.parametrize("lean", [-1, 0, 1])
@pytest.mark.parametrize("cap", [1.0, 30.0, 50.0, 64.0])
def test_the_error_of_a_cap(cap: float, lean: int) -> None:
    """2^-21 of the cap, where powers and reciprocals are as far off as the PTX ISA allows, to one side."""
    x = np.concatenate([np.linspace(-12, 12, 400_001), np.geomspace(1e-30, 100, 50_001)]).astype(np.float32)
    exponent = x * np.float32(-2 * 1.4426950408889634)
    power = (np.exp2(exponent.astype(np.float64)) * (1 + lean * 2.0**-22)).astype(np.float32)
    share = (1 / (1 + power).astype(np.float64)).astype(np.float32)
    share = share + np.float32(-lean) * np.spacing(share)
    capped = (share.astype(np.float64) * 2 * cap - cap).astype(np.float32)
    off = np.abs(capped - cap * np.tanh(x.astype(np.float64))).max()
    assert off <= cap * 2.0**-21
    assert 2 * cap <= MOST_GAIN


def capped(cap: str, machine: str) -> Road:
    return compiled(EXAMPLE.read_text(encoding="utf-8").replace("constant 30.0", f"constant {cap}"), machine=machine)


@pytest.mark.parametrize(("cap", "is_exact"), [("50.0", False), ("64.0", False), ("65.0", True)])
def test_caps_of_scores(cap: str, is_exact: bool) -> None:
    """Up to 64, of which powers are off by 2^-14 at most."""
    assert ("tanhf(" in capped(cap, "a100").text) == is_exact


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_capped_scores_of_any_size(machine: str) -> None:
    """That the cap hardly changes, and that it cuts off."""
    made = capped("50.0", machine)
    query, *others = made.inputs({"b": 1, "h": 2, "q": 70, "x": 133})
    for factor in (0.01, 1, 2000):
        for verdict in made.verdicts((np.multiply(query, np.float16(factor)), *others)):
            assert verdict.ok, verdict
