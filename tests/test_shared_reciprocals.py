"""Neighbours that share a reciprocal: the errors, what infinities and NaN do, and where none is shared."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from roads import Road, array, compiled
from treadle.compiler.gates.step import step_of
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes, run_pipeline
from treadle.compiler.primitives import source
from treadle.compiler.sass import disassemble, main_loop
from treadle.compiler.source import parse_module
from treadle.dialects.cuda import kernel_names
from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram.sharing import SCALES
from treadle.passes._functions import functions, kernels
from treadle.passes.expressions.spoilt import spoils_its_row
from treadle.passes.kernels.sharing import ERRORS, Candidate, candidates
from treadle.runtime.backend import has_host_compiler
from treadle.runtime.emulator import Array, compile_source
from treadle.runtime.host import execute
from treadle.runtime.nvcc import compile_cubin, find_nvcc
from treadle.runtime.ptx.backend import PtxBackend
from treadle.runtime.verify import verify

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")

EXAMPLES = Path(__file__).parents[1] / "examples"
Singles = NDArray[np.float32]
MACHINES = ("h100", "a100")


def example(name: str) -> str:
    return (EXAMPLES / f"attention_{name}.mlir").read_text(encoding="utf-8")


@cache
def road(name: str, machine: str) -> Road:
    return compiled(example(name), machine=machine)


# -- the primitive ------------------------------------------------------------------------------------


def divided(count: int, number: float, divisors: Singles) -> Singles:
    """What the device primitive makes of groups of divisors, in the emulator."""
    text = (
        source(["divide_together"])
        + f"""
extern "C" __global__ void divide(const float* d, float* q) {{
  float group[{count}];
  for (int i = 0; i < {count}; ++i) group[i] = d[blockIdx.x * {count} + i];
  divide_together({number!r}f, group);
  for (int i = 0; i < {count}; ++i) q[blockIdx.x * {count} + i] = group[i];
}}
"""
    )
    quotients = np.zeros_like(divisors)
    module = compile_source(text, ["divide"])
    module.launch(
        "divide", (len(divisors) // count, 1, 1), (1, 1, 1), 0, [Array(divisors, False), Array(quotients, True)]
    )
    return quotients


def scaled_divisors(count: int) -> Singles:
    """Every exponent that a divisor of a group may have, beside every other, with random mantissas."""
    generator = np.random.default_rng(3)
    lowest = round(np.log2(SCALES[count]))
    exponents = generator.integers(lowest, 1, 4000 * count)
    mantissas = 1 + generator.integers(0, 2**23, len(exponents)) * 2.0**-23
    return np.ldexp(mantissas, exponents).astype(np.float32)


@needs_compiler
@pytest.mark.parametrize("count", SCALES)
def test_the_error_of_a_quotient(count: int) -> None:
    """Of any divisor that a group may have, beside any other: 2 ulp of two, 3 of four; clipped at 1."""
    divisors = scaled_divisors(count)
    found = divided(count, SCALES[count], divisors)
    wanted = SCALES[count] / np.minimum(divisors.astype(np.float64), 1)
    off = np.abs(found / wanted - 1).max()
    assert off <= {2: 2.0**-22, 4: 3 * 2.0**-23}[count]
    assert off > 2.0**-25


@needs_compiler
@pytest.mark.parametrize("count", SCALES)
def test_rare_divisors(count: int) -> None:
    """Infinities count as 1, the others as they do beside any number; a group with a NaN has one."""
    least = SCALES[count]
    rare = np.array([least, 1, 1.5, 2.0**100, np.inf], np.float32)
    groups = np.stack(np.meshgrid(*[rare] * count), -1).reshape(-1, count)
    found = divided(count, 1.0, groups.reshape(-1)).reshape(-1, count)
    assert np.array_equal(found, 1 / np.minimum(groups, 1))
    for some in range(1, 2**count):
        spoilt = groups.copy()
        spoilt[:, [each for each in range(count) if some >> each & 1]] = np.nan
        found = divided(count, 1.0, spoilt.reshape(-1)).reshape(-1, count)
        assert np.isnan(found).any(axis=1).all()


@pytest.mark.parametrize("lean", [-1, 0, 1])
@pytest.mark.parametrize("count", SCALES)
def test_the_error_of_a_cap(count: int, lean: int) -> None:
    """In 2^-21, where powers and reciprocals are as far off as the PTX ISA allows, to one side, beside any others."""
    x = np.concatenate([np.linspace(-12, 12, 400_000), np.geomspace(1e-30, 100, 50_000)]).astype(np.float32)
    exponent = x * np.float32(-2 * 1.4426950408889634)
    power = (np.exp2(exponent.astype(np.float64)) * (1 + lean * 2.0**-22)).astype(np.float32)
    scale = SCALES[count]
    divisor = np.minimum(power.astype(np.float64) * scale + scale, 1).astype(np.float32)
    order = np.random.default_rng(4).permutation(len(x)).reshape(-1, count)
    group = divisor[order]
    whole = group[:, 0] * group[:, 1]
    other = group[:, 2] * group[:, 3] if count == 4 else np.float32(1)
    inverse = (1 / (whole * other).astype(np.float64)).astype(np.float32)
    inverse = inverse + np.float32(-lean) * np.spacing(inverse)
    shared = group[:, 1] * (inverse * other)
    capped = shared.astype(np.float64) * 2 * scale - 1
    off = np.abs(capped - np.tanh(x[order[:, 0]].astype(np.float64))).max()
    assert off <= ERRORS[count] * 2.0**-21


# -- kernels ------------------------------------------------------------------------------------------


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["soft_cap", "sigmoid"])
def test_attention_of_any_size(name: str, machine: str) -> None:
    made = road(name, machine)
    assert "divide_together(" in made.text
    for x in (1, 37, 433):
        made.check({"b": 1, "h": 2, "q": 70, "x": x})


@needs_nvcc
def test_attention_in_ptx() -> None:
    made = road("soft_cap", "a100")
    inputs = made.inputs({"b": 1, "h": 1, "q": 16, "x": 150})
    plain = [given if isinstance(given, np.ndarray) else np.asarray(given).item() for given in inputs]
    outputs = execute(made.module, plain, PtxBackend(made.text, kernel_names(made.module), "sm_80"))
    for verdict in verify(made.algorithm, inputs, outputs, "ptx"):
        assert verdict.ok, verdict


@needs_nvcc
def test_instructions() -> None:
    """Of a sigmoid ptxas makes a power, and a reciprocal for two, as the model counts; where rows have any strides,
    addresses have quotients, too."""
    made = road("sigmoid", "a100")
    cubin = compile_cubin(made.text, "sm_80")
    tables = [table for each in disassemble(cubin.path) if (table := main_loop(each)) is not None]
    steps = [step for kernel in made.kernels if (step := step_of(kernel, 80)) is not None]
    assert tables
    assert {min(table.count("special") for table in tables)} == {1.5 * step.scores for step in steps}


def infinite_row(name: str, machine: str, zero_at: int | None) -> NDArray[np.float16]:
    """Of attention whose row 3 has an infinity in its query, that all keys multiply by a number above zero; but one,
    whose score is then NaN."""
    made = road(name, machine)
    query, key, *others = made.inputs({"b": 1, "h": 1, "q": 70, "x": 433})
    query, key = np.array(query), np.array(key)
    query[0, 0, 3, 5] = np.inf
    key[..., 5] = np.abs(key[..., 5]) + 1
    if zero_at is not None:
        key[0, 0, zero_at, 5] = 0
    (found,) = made.run((query, key, *others))
    return found[0, 0]


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", ["soft_cap", "sigmoid"])
def test_infinities_and_nan(name: str, machine: str) -> None:
    """An infinite score weighs what the formula says, beside absent elements, too, whose scores are NaN; a NaN makes
    its row NaN, and no other."""
    assert np.isfinite(infinite_row(name, machine, None)).all()
    for place in (0, 1, 6, 431, 432):
        found = infinite_row(name, machine, place)
        assert np.isnan(found[3]).all()
        assert np.isfinite(np.delete(found, 3, axis=0)).all()


@needs_compiler
@pytest.mark.parametrize("machine", MACHINES)
def test_a_masked_nan_stays_where_it_is(machine: str) -> None:
    """Whole pieces share reciprocals, and no piece does where a condition leaves elements out."""
    made = compiled(masked("x <= q"), machine=machine)
    assert "divide_together(" in made.text
    sizes = {"b": 1, "h": 1, "q": 400, "x": 400}
    query, key, value = map(np.array, made.inputs(sizes))
    made.check(sizes)
    query[0, 0, 300:303, 5] = np.inf
    key[..., 5] = np.abs(key[..., 5]) + 1
    key[0, 0, 301, 5] = 0  # times infinity: the score is NaN, and absent from row 300
    (found,) = made.run((query, key, value))
    assert np.isfinite(found[0, 0, 300]).all()
    assert np.isnan(found[0, 0, 302]).all()


def masked(condition: str, given: str = "") -> str:
    """Capped scores, where a condition holds."""
    capped = f'  %U = diagram.where %T if "{condition}"{given} : !S\n  %P = diagram.apply @softmax(%U)'
    return example("soft_cap").replace("  %P = diagram.apply @softmax(%T)", capped)


@needs_compiler
def test_a_nan_that_data_leave_out() -> None:
    """Where every piece is tested no neighbours share."""
    keys = array("i32", x=None)
    text = masked("s[x] == 1", f" with (s = %kept : {keys})").replace("%V: !V)", f"%V: !V, %kept: {keys})")
    made = compiled(text, machine="a100")
    query, key, value, kept = map(np.array, made.inputs({"b": 1, "h": 1, "q": 70, "x": 400}))
    kept[:] = 1
    kept[9] = 0
    query[0, 0, 3, 5] = np.inf
    key[..., 5] = np.abs(key[..., 5]) + 1
    key[0, 0, 9, 5] = 0  # times infinity: the score is NaN, and absent
    (found,) = made.run((query, key, value, kept))
    assert np.isfinite(found).all()


SCORES, ROWS, COLUMNS = array("f32", q=None, x=None), array("f32", q=None), array("f32", x=None)
SUM = f"%l = diagram.reduce add %P over [x] : {SCORES} -> {ROWS}"
LARGEST = f"%m = diagram.reduce max %P over [x] : {SCORES} -> {ROWS}"
ACROSS = f"%k = diagram.reduce add %P over [q] : {SCORES} -> {COLUMNS}"


def powers(made: str, results: dict[str, str]) -> str:
    """Powers of capped numbers, and what is made of them."""
    names, types = ", ".join(results), ", ".join(results.values())
    return f"""
func.func @f(%S: {SCORES}) -> ({types}) {{
  %P = diagram.map (%s = %S : {SCORES}) -> {SCORES} {{
    %t = math.tanh %s : f32
    %cap = arith.constant 8.0 : f32
    %c = arith.mulf %t, %cap : f32
    %p = math.exp %c : f32
    diagram.yield %p : f32
  }}
  {made}
  func.return {names} : {types}
}}"""


def found(text: str) -> list[Candidate]:
    """What may share a reciprocal, whether or not it takes less time then."""
    module = parse_module(text)
    specs = pipeline(Options(machine="h100"))
    names = [spec.name for spec in specs]
    run_passes(module, specs[: names.index("hierarchy-share-reciprocals")])
    return [each for function in functions(module) for kernel in kernels(function) for each in candidates(kernel)]


HALVES = array("f16", q=None, x=None)
WEIGHED = f"""%V = diagram.cast %P : {SCORES} -> {HALVES}
%A = diagram.contract %V, %V over [x] accumulate f32 : {HALVES}, {HALVES} -> {ROWS}"""
KEPT = f"""{SUM}
%k = diagram.map (%r = %l : {ROWS}) -> {ROWS} {{
  %zero = arith.constant 0.0 : f32
  %is = arith.cmpf une, %r, %zero : f32
  %k = arith.select %is, %r, %zero : f32
  diagram.yield %k : f32
}}"""
CHOSEN = f"""%C = diagram.map (%p = %P : {SCORES}) -> {SCORES} {{
  %one = arith.constant 1.0 : f32
  %is = arith.cmpf olt, %p, %one : f32
  %c = arith.select %is, %p, %one : f32
  diagram.yield %c : f32
}}
%l = diagram.reduce add %C over [x] : {SCORES} -> {ROWS}"""
BELOW = f"""{LARGEST}
%D = diagram.map (%p = %P : {SCORES}, %r = %m : {ROWS}) -> {SCORES} {{
  %d = arith.subf %p, %r : f32
  diagram.yield %d : f32
}}
%l = diagram.reduce add %D over [x] : {SCORES} -> {ROWS}"""


@pytest.mark.parametrize(
    ("made", "results", "axes"),
    [
        (SUM, {"%l": ROWS}, "x"),
        (ACROSS, {"%k": COLUMNS}, "q"),
        (f"{SUM}\n{ACROSS}", {"%l": ROWS, "%k": COLUMNS}, ""),
        (f"{SUM}\n{LARGEST}", {"%l": ROWS, "%m": ROWS}, ""),
        (BELOW, {"%l": ROWS}, "x"),
        (SUM, {"%l": ROWS, "%P": SCORES}, ""),
        (WEIGHED, {"%A": ROWS}, "x"),
        (CHOSEN, {"%l": ROWS}, ""),
        (KEPT, {"%k": ROWS}, "x"),
        (KEPT.replace("une", "one"), {"%k": ROWS}, ""),
    ],
)
def test_where_a_nan_spoils_its_row(made: str, results: dict[str, str], axes: str) -> None:
    """A maximum may pass a NaN over, as a choice does; what is saved as it is has neighbours without one, and so have
    other columns."""
    (function,) = functions(parse_module(powers(made, results)))
    (first, *_) = [each for each in function.body.block.ops if isinstance(each, MapOp)]
    assert [axis for axis in ("q", "x") if spoils_its_row(first.result, axis)] == list(axes)


@pytest.mark.parametrize(("cap", "most"), [("32.0", 4), ("33.0", 2), ("51.0", 2), ("52.0", 1)])
def test_caps_of_scores(cap: str, most: int) -> None:
    """Powers are off by 2^-14 at most."""
    allowed = found(example("soft_cap").replace("constant 30.0", f"constant {cap}"))
    assert [each.most for each in allowed] == ([most] if most > 1 else [])


@pytest.mark.parametrize(
    ("replaced", "by", "is_allowed"),
    [("xf16", "xf16", True), ("xf16", "xbf16", False), ("constant 1.0", "constant 0.75", False)],
)
def test_quotients(replaced: str, by: str, is_allowed: bool) -> None:
    """Not those that bf16 tells from 0 below 2^-62, nor where factors of their own would round them."""
    text = example("sigmoid")
    assert replaced in text
    assert bool(found(text.replace(replaced, by))) == is_allowed


def test_only_where_it_saves_time() -> None:
    """Of plain sums, device memory takes the time."""
    module = parse_module(powers(SUM, {"%l": ROWS}))
    run_pipeline(module, Options(machine="h100"))
    assert "decline hierarchy-share-reciprocals" in str(module)
    assert "divide_together(" not in print_cuda(module)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_nothing_is_shared_where_no_pass_writes_it_out(machine: str):
    """`diagram.shared` says how elements may be computed: without the pass that does it, each is computed by itself."""
    text = (Path(__file__).parents[1] / "examples" / "attention_soft_cap.mlir").read_text(encoding="utf-8")
    specs = [spec for spec in pipeline(Options(machine)) if spec.name != "diagram-expand-approximations"]
    module = parse_module(text)
    algorithm = module.clone()
    run_pipeline(module, Options(machine, passes=tuple(specs)))
    assert any("diagram.shared" in op.attributes for op in module.walk())
    road = Road(algorithm, module, print_cuda(module))
    road.check(dict.fromkeys(road.symbolic, 3) | {"q": 70, "x": 130})
