"""Reciprocals that any elements of a thread share where their divisors pass a test: the errors, what infinities, NaN
and numbers out of range do, and where none are shared."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from numpy.typing import NDArray

from roads import Road, array, compiled
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.primitives import source
from treadle.compiler.sass import disassemble
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.passes._functions import functions, kernels
from treadle.passes.kernels.sharing import Candidate, candidates
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import Array, compile_source
from treadle.runtime.host import execute
from treadle.runtime.interpreter.bounds.units import QUOTIENT
from treadle.runtime.nvcc import compile_cubin, find_nvcc
from treadle.runtime.ptx.backend import PtxBackend

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")

Singles = NDArray[np.float32]
Doubles = NDArray[np.float64]
LARGEST = 2.0**96
"""A sum of products that is beyond fails the test."""

# -- the primitive ------------------------------------------------------------------------------------


@cache
def division(shared: int, together: int, number: float) -> Any:
    """The device primitive, in the emulator, on groups of which a thread tests `together`."""
    text = (
        source(["divide_in_groups"])
        + f"""
extern "C" __global__ void divide(const float* d, float* q) {{
  float group[{together}], made[{together}];
  for (int i = 0; i < {together}; ++i) group[i] = d[blockIdx.x * {together} + i];
  const bool holds = divide_in_groups<{shared}>({number!r}f, group, made);
  for (int i = 0; i < {together}; ++i)
    q[blockIdx.x * {together} + i] = holds ? made[i] : {number!r}f * rcp_approx(group[i]);
}}
"""
    )
    return compile_source(text, ["divide"])


def divided(shared: int, together: int, number: float, divisors: Singles) -> Singles:
    quotients = np.zeros_like(divisors)
    given = [Array(divisors, False), Array(quotients, True)]
    division(shared, together, number).launch("divide", (len(divisors) // together, 1, 1), (1, 1, 1), 0, given)
    return quotients


@needs_compiler
@pytest.mark.parametrize(("shared", "together"), [(2, 2), (2, 6), (4, 4), (4, 16)])
@pytest.mark.parametrize("highest", [30, 127])
def test_the_error_of_a_quotient(shared: int, together: int, highest: int) -> None:
    """Of any divisor, beside any other: within what a quotient is allowed, less the rounding of what it multiplies."""
    generator = np.random.default_rng(5)
    exponents = generator.integers(-4, highest, 3000 * together)
    mantissas = 1 + generator.integers(0, 2**23, len(exponents)) * 2.0**-23
    divisors = np.ldexp(mantissas, np.minimum(exponents, 125)).astype(np.float32)
    off = np.abs(divided(shared, together, 0.25, divisors) / (0.25 / divisors.astype(np.float64)) - 1).max()
    assert 2.0**-25 < off <= QUOTIENT - 2.0**-24


@needs_compiler
@pytest.mark.parametrize("shared", [2, 4])
def test_rare_divisors(shared: int) -> None:
    """Each quotient is that of its own divisor, whatever the others are: NaN where it is, 0 of an infinity."""
    rare = np.array([2.0**-4, 0.25, 3, 2.0**26, 2.0**60, 2.0**126, np.inf, np.nan], np.float32)
    groups = np.stack(np.meshgrid(*[rare] * shared), -1).reshape(-1, shared)
    found = divided(shared, shared, 0.25, groups.reshape(-1)).reshape(-1, shared).astype(np.float64)
    wanted = 0.25 / groups.astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    known = ~np.isnan(wanted)
    assert (np.abs(found - wanted)[known] <= QUOTIENT * wanted[known] + 2.0**-150).all()


@needs_compiler
def test_the_border_of_the_test() -> None:
    """Products at the largest that passes, and at the next one."""
    for product in (LARGEST, LARGEST * (1 + 2.0**-23)):
        divisors = np.array([0.25, 0.25, 16, product], np.float32)
        found = divided(4, 4, 0.25, divisors)
        assert np.array_equal(found[:3], np.array([1, 1, 2.0**-6], np.float32))
        assert abs(found[3] * product / 0.25 - 1) <= QUOTIENT


# -- kernels ------------------------------------------------------------------------------------------

SIGMOID = """%one = arith.constant 1.0 : f32
%n = arith.negf %s : f32
%e = math.exp %n : f32
%d = arith.addf %one, %e : f32"""
GATES = {
    "silu": f"{SIGMOID}\n%y = arith.divf %s, %d : f32",
    "sigmoid": f"{SIGMOID}\n%y = arith.divf %one, %d : f32",
    "gate by tanh": "%one = arith.constant 1.0 : f32\n%t = math.tanh %s : f32\n%g = arith.addf %one, %t : f32\n"
    "%y = arith.mulf %s, %g : f32",
    "gate of another": f"{SIGMOID}\n%g = arith.divf %s, %d : f32\n%y = arith.mulf %g, %c : f32",
}
"""Of `s`, and of a number `c` of the row."""


def layer(gate: str, format: str = "f16", inner: str = "f16") -> str:
    """A product with a bias, and a gate; the product is zero where its left operand is."""
    rows, columns = array(inner, t=None, i=64), array(inner, o=None, i=64)
    sums, result = array("f32", t=None, o=None), array(format, t=None, o=None)
    bias, weight = array("f32", o=None), array("f32", t=None)
    cast = "" if format == "f32" else f"%Y = diagram.cast %G : {sums} -> {result}"
    return f"""
func.func @layer(%X: {rows}, %W: {columns}, %bias: {bias}, %weight: {weight}) -> {result} {{
  %Z = diagram.contract %X, %W over [i] accumulate f32 : {rows}, {columns} -> {sums}
  %G = diagram.map (%z = %Z : {sums}, %b = %bias : {bias}, %c = %weight : {weight}) -> {sums} {{
    %s = arith.addf %z, %b : f32
    {gate}
    diagram.yield %y : f32
  }}
  {cast}
  func.return {"%G" if format == "f32" else "%Y"} : {result}
}}"""


@cache
def road(gate: str, machine: str, format: str = "f16") -> Road:
    return compiled(layer(GATES[gate], format), machine=machine)


def formula(gate: str, s: Doubles, c: Doubles) -> Doubles:
    """In float64, of which only powers are rounded to f32, so that they overflow as there."""

    def powers(exponents: Doubles) -> Doubles:
        return np.exp(exponents).astype(np.float32).astype(np.float64)

    with np.errstate(all="ignore"):
        sigmoid = 1 / (1 + powers(-s))
        return {
            "silu": s / (1 + powers(-s)),
            "sigmoid": sigmoid,
            "gate by tanh": s * (2 / (1 + powers(-2 * s))),
            "gate of another": s / (1 + powers(-s)) * c,
        }[gate]


RARE = (0.0, 1e-45, 1e-30, 2.0**-126, 1e-6, 0.3, 1.0, 7.5, 17.1, 22.0, 43.6, 60.0, 80.0, 87.2, 88.5, 88.8, 200.0, 1e4)
SPECIAL = np.array([*RARE, 3e8, 1e19, 2.0**126, 3.4e38, np.inf, np.nan], np.float32)


def special_biases(columns: int) -> Singles:
    """Half of them numbers that pass the test beside each other, half of them any."""
    generator = np.random.default_rng(6)
    rare = generator.choice(np.concatenate([SPECIAL, -SPECIAL]), columns)
    usual = generator.normal(0, 3, columns).astype(np.float32)
    begins = np.arange(columns) // 16 % 2 == 0
    return np.where(begins & (generator.random(columns) < 0.5), rare, usual)


TOLERANCES = {"f16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-126)}
"""Of rounding: relative, and near zero."""


def check_special(road: Road, gate: str, format: str, run: Any = None) -> None:
    rows, columns = 70, 208
    bias = special_biases(columns)
    generator = np.random.default_rng(7)
    left = np.zeros((rows, 64), np.float16)
    right = generator.normal(0, 1, (columns, 64)).astype(np.float16)
    weight = np.where(np.arange(rows) % 5 == 4, np.float32(-3e4), np.float32(1.5))
    (found,) = (run or road.run)((left, right, bias, weight))
    found = np.asarray(found).view(bfloat16 if format == "bf16" else np.float16).astype(np.float64)
    s = np.broadcast_to(bias.astype(np.float64), (rows, columns))
    wanted = formula(gate, s, weight.astype(np.float64)[:, None])
    relative, near_zero = TOLERANCES[format]
    with np.errstate(over="ignore"):
        rounded = wanted.astype(np.float16 if format == "f16" else bfloat16).astype(np.float64)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    finite = np.isfinite(rounded)
    assert np.array_equal(found[~finite & ~np.isnan(wanted)], rounded[~finite & ~np.isnan(wanted)])
    allowed = np.abs(wanted[finite]) * (relative + 2.0**-17) + near_zero * 1.01
    assert (np.abs(found - wanted)[finite] <= allowed).all()


@needs_compiler
@pytest.mark.parametrize("format", TOLERANCES)
@pytest.mark.parametrize("gate", GATES)
def test_special_numbers(gate: str, format: str) -> None:
    """An element is what its own formula says, beside NaN, infinities and numbers that leave the range; results of
    bf16 that f16 has no numbers for are as exact as the others."""
    made = road(gate, "h100", format)
    assert "divide_in_groups<4>(" in made.text
    check_special(made, gate, format)


@needs_compiler
@pytest.mark.parametrize("gate", ["sigmoid", "gate by tanh"])
def test_special_numbers_without_warpgroups(gate: str) -> None:
    made = road(gate, "a100")
    assert "divide_in_groups<4>(" in made.text
    check_special(made, gate, "f16")


@needs_compiler
@pytest.mark.parametrize(("gate", "machine"), [("silu", "h100"), ("gate by tanh", "a100")])
def test_any_size(gate: str, machine: str) -> None:
    made = road(gate, machine)
    for t, o in ((3, 9), (37, 75), (130, 264)):
        made.check({"t": t, "o": o})


@needs_compiler
@pytest.mark.parametrize("gate", ["silu", "sigmoid"])
def test_a_gate_that_no_pass_wrote_out(gate: str) -> None:
    """`diagram-expand-approximations` may be left out: an element is then divided as it stands, or by the test."""
    algorithm = parse_module(layer(GATES[gate]))
    module, passes = algorithm.clone(), pipeline(Options("h100"))
    run_passes(module, [each for each in passes if each.name != "diagram-expand-approximations"])
    check_special(Road(algorithm, module, print_cuda(module)), gate, "f16")


@needs_nvcc
def test_a_gate_in_ptx() -> None:
    made = road("sigmoid", "a100", "bf16")
    assert "divide_in_groups<4>(" in made.text
    backend = PtxBackend(made.text, kernel_names(made.module), "sm_80")

    def run(given: Sequence[Any]) -> tuple[Any, ...]:
        return execute(made.module, given, backend)

    check_special(made, "sigmoid", "bf16", run)


@needs_nvcc
@pytest.mark.parametrize("gate", ["silu", "gate of another"])
def test_instructions(gate: str) -> None:
    """Behind the loop an element has a power and a quarter of a reciprocal; and one of its own where a test fails. What
    is beyond, a few, divides positions."""
    made = compiled(layer(GATES[gate]), machine="h100", sizes={"t": 4096, "o": 4096})
    for each in disassemble(compile_cubin(made.text, "sm_90a").path):
        if "by_lanes" in each.name:  # whose copies divide positions, too
            continue
        opcodes = [instruction.opcode for instruction in each.instructions]
        powers, reciprocals = opcodes.count("MUFU.EX2"), opcodes.count("MUFU.RCP")
        assert powers >= 16
        assert powers + powers // 4 <= reciprocals <= powers + powers // 4 + 8


# -- where none are shared ----------------------------------------------------------------------------


def found(text: str) -> list[Candidate]:
    module = parse_module(text)
    specs = pipeline(Options(machine="h100"))
    names = [spec.name for spec in specs]
    run_passes(module, specs[: names.index("hierarchy-share-reciprocals")])
    return [each for function in functions(module) for kernel in kernels(function) for each in candidates(kernel)]


SMALL = GATES["silu"].replace("%one = arith.constant 1.0", "%one = arith.constant 1.0e-8")
OF_ROWS = GATES["silu"].replace("arith.negf %s", "arith.negf %c")

LARGE = f"%big = arith.constant 1.0e10 : f32\n{GATES['sigmoid']}".replace("divf %one", "divf %big")


@pytest.mark.parametrize(
    ("text", "is_allowed"),
    [
        (layer(GATES["silu"]), True),
        (layer(GATES["silu"], "bf16", "bf16"), True),
        (layer(GATES["gate by tanh"]), True),
        (layer(GATES["silu"], "f32"), False),
        (layer(SMALL), False),
        (layer(OF_ROWS), False),
        (layer(LARGE), False),
    ],
)
def test_where_reciprocals_are_tested(text: str, is_allowed: bool) -> None:
    """Not of results in f32, which have the error; nor where products may be too small, or rows share a divisor."""
    assert [each.axis for each in found(text)] == ([None] if is_allowed else [])
