"""Sums under an order in chunks, and chunks of chunks (`diagram-reassociate`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_reassociate import CONDITIONS, LENGTHS, same
from test_reassociate import program as of_products
from test_reassociate_decays import EXPONENTS
from test_reassociate_decays import program as with_decays
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from roads import Road
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.pipeline import Options, make_pass, pipeline, print_cuda, run_passes
from treadle.compiler.source import make_context, parse_module
from treadle.dialects.diagram import ContractOp, MapOp, ReadOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes._functions import functions

EXAMPLES = Path(__file__).parents[1] / "examples"
PASS = "diagram-reassociate"

ALONE = """%W = diagram.map (%z = %a : !a) -> !W {
    diagram.yield %z : f32
  }
  %L = diagram.where %W if "CONDITION" : !W
  %c = diagram.reduce add %L over [x] : !W -> !c"""

SCALED = """%W = diagram.map (%z = %a : !a, %s = %r : !c) -> !W {
    %p = math.exp %z : f32
    %t = arith.mulf %p, %s : f32
    diagram.yield %t : f32
  }
  %L = diagram.where %W if "CONDITION" : !W
  %c = diagram.reduce add %L over [x] : !W -> !c"""
"""Of what maps make of the elements, which is no zero past the end, times a factor of each row."""

DECAYED = """%W = diagram.map (%z = %a : !a, %u = %r : !c, %w = %b : !a) -> !W {
    %d = arith.subf %u, %w : f32
    %p = math.exp %d : f32
    %t = arith.mulf %p, %z : f32
    diagram.yield %t : f32
  }
  %L = diagram.where %W if "CONDITION" : !W
  %c = diagram.reduce add %L over [x] : !W -> !c"""

PRODUCT = """%W = diagram.fill 1.0 : f32 -> !w
  %L = diagram.where %W if "CONDITION" : !w
  %c = diagram.contract %L, %a over [x] accumulate f32 : !w, !a -> !c"""

IN_F16 = """%W = diagram.fill 1.0 : f16 -> !w16
  %L = diagram.where %W if "CONDITION" : !w16
  %c = diagram.contract %L, %v over [x] accumulate f32 : !w16, !v -> !c"""

FORMS = {"alone": ALONE, "scaled": SCALED, "decayed": DECAYED, "product": PRODUCT, "in f16": IN_F16}


def program(form: str, condition: str = "x <= q", q: str = "?", x: str = "?") -> str:
    return f"""
!a = tensor<2x{x}xf32, #diagram.array<[h, x]>>
!v = tensor<2x{x}xf16, #diagram.array<[h, x]>>
!c = tensor<2x{q}xf32, #diagram.array<[h, q]>>
!w = tensor<{q}x{x}xf32, #diagram.array<[q, x]>>
!w16 = tensor<{q}x{x}xf16, #diagram.array<[q, x]>>
!W = tensor<2x{q}x{x}xf32, #diagram.array<[h, q, x]>>
func.func @f(%a: !a, %b: !a, %v: !v, %r: !c) -> !c {{
  {FORMS[form].replace("CONDITION", condition)}
  func.return %c : !c
}}"""


def rewritten(text: str, name: str, *chunk: int) -> ModuleOp:
    module = parse_module(text, "program")
    make_pass(ArgSpec(PASS, {"sums": (name,), "chunk": chunk})).apply(make_context(), module)
    module.verify()
    return module


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("q", "x"), LENGTHS)
@pytest.mark.sample(40)
def test_chunks_of_any_length(form: str, condition: str, q: int, x: int):
    text = program(form, condition)
    module = rewritten(text, "c", 16)
    assert not [op for op in module.walk() if isinstance(op, MapOp) and {"q", "x"} <= {*axes_of(op.result.type)}]
    same(text, module, q=q, x=x)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.sample(8)
def test_chunks_of_known_length(form: str, condition: str):
    text = program(form, condition, "50", "33")
    same(text, rewritten(text, "c", 16))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chunk", [(4, 3), (3, 2, 2)])
def test_chunks_of_chunks(form: str, chunk: tuple[int, ...]):
    """The states of chunks are such a sum again."""
    text = program(form)
    module = rewritten(text, "c", *chunk)
    reads = [op for op in module.walk() if isinstance(op, ReadOp) and axes_of(op.operand.type)[-1] == "x_chunk"]
    assert reads
    for q, x in ((50, 50), (17, 61), (61, 17), (1, 1)):
        same(text, module, q=q, x=x)


@pytest.mark.parametrize("text", [of_products(condition="x <= q"), with_decays(), with_decays(condition="q < x")])
@pytest.mark.parametrize("chunk", [(4, 3), (2, 2, 2)])
def test_states_of_products_in_chunks_of_chunks(text: str, chunk: tuple[int, ...]):
    module = rewritten(text, "O", *chunk)
    for q, x in ((50, 50), (17, 40), (40, 17), (3, 3)):
        same(text, module, q=q, x=x)


@pytest.mark.parametrize("form", ["product", "in f16", "alone"])
def test_sums_are_exact(form: str):
    """Nothing is multiplied as tf32 that the program does not."""
    products = [op for op in rewritten(program(form), "c", 16, 4).walk() if isinstance(op, ContractOp)]
    assert len(products) == 3
    assert not any(op.is_tf32 for op in products)


def road(text: str, name: str, *chunk: int) -> Road:
    algorithm, module = parse_module(text, "program"), parse_module(text, "program")
    asked = ArgSpec(PASS, {"sums": (name,), "chunk": chunk})
    run_passes(module, [asked if spec.name == PASS else spec for spec in pipeline(Options(machine="a100"))])
    return Road(algorithm, module, print_cuda(module))


def road_of(text: str, chunk: tuple[int, ...], parts: int) -> Road:
    """Products in chunks, or in another order alone, with states in so many parts."""
    algorithm, module = parse_module(text, "program"), parse_module(text, "program")
    asked = ArgSpec(PASS, {"sums": ("O",), "parts": (parts,), "chunk": chunk})
    run_passes(module, [asked if spec.name == PASS else spec for spec in pipeline(Options(machine="a100"))])
    return Road(algorithm, module, print_cuda(module))


CANCELLING = {
    "in chunks": (of_products("64", "64", "x <= q"), (16,)),
    "in chunks of chunks": (of_products("64", "64", "x <= q"), (8, 4)),
    "with decays": (with_decays("64", "64"), (16,)),
    "in another order": (of_products("64", "64"), ()),
}


@pytest.mark.parametrize("kind", CANCELLING)
@pytest.mark.parametrize("parts", [1, 2])
def test_sums_that_cancel_need_states_in_two_parts(kind: str, parts: int):
    """Of keys that are nearly alike in pairs, and queries that take their differences, products are small beside their
    terms. States are as large as these: rounded to tf32 they are not exact enough for the verdict, in two parts they
    are."""
    text, chunk = CANCELLING[kind]
    made, dice = road_of(text, chunk, parts), np.random.default_rng(0)
    inputs = list(made.inputs({}))
    q, k = (np.asarray(given) for given in inputs[:2])
    pairs = np.repeat(dice.uniform(1, 2, 8), 2)
    inputs[0] = np.broadcast_to(np.where(np.arange(16) % 2, -1.0, 1.0), q.shape).astype(q.dtype)
    inputs[1] = (pairs * (1 + dice.standard_normal(k.shape) / 256)).astype(k.dtype)
    if kind == "with decays":
        inputs[3:5] = [np.full((2, 64), -0.01, np.float32) * np.arange(64, dtype=np.float32)] * 2
    (verdict,) = made.verdicts(inputs)
    assert verdict.ok == (parts == 2), str(verdict)
    assert ("WRONG" in str(verdict)) == (parts == 1)


@pytest.mark.parametrize(("form", "chunk"), [("alone", (16,)), ("decayed", (8, 4)), ("in f16", (16,))])
def test_sums_in_the_emulator(form: str, chunk: tuple[int, ...]):
    made = road(program(form), "c", *chunk)
    for size in (70, 1):
        made.check({"q": size, "x": size})


@pytest.mark.parametrize("text", [of_products("90", "90", "x <= q"), with_decays("90", "90")])
def test_products_in_chunks_of_chunks_in_the_emulator(text: str):
    road(text, "O", 16, 2).check({})


@pytest.mark.parametrize("kind", EXPONENTS)
def test_no_power_is_beyond_f32_in_chunks_of_chunks(kind: str, decays: Road):
    inputs = list(decays.inputs({}))
    inputs[3:5] = (np.stack([each, each]).astype(np.float32) for each in EXPONENTS[kind])
    (verdict,) = decays.verdicts(inputs)
    assert verdict.ok, str(verdict)
    assert np.isfinite(decays.run(inputs)[0]).all()


@pytest.fixture(scope="module")
def decays() -> Road:
    return road(with_decays("50", "50", format="f32"), "O", 8, 2)


def test_other_formats_are_refused():
    text = program("product").replace("accumulate f32", "accumulate f16")
    text = (
        text.replace("-> !c\n  func", "-> !o\n  func")
        .replace("-> !c {", "-> !o {")
        .replace("return %c : !c", "return %c : !o")
    )
    with pytest.raises(Refusal, match="%c is a sum in f16"):
        rewritten("!o = tensor<2x?xf16, #diagram.array<[h, q]>>" + text, "c", 16)


@pytest.mark.parametrize(("length", "step"), [("256", f"decline {PASS}"), ("16384", PASS)])
def test_the_cost_model_chooses(length: str, step: str):
    module = parse_module(program("alone", q=length, x=length), "program")
    for spec in (ArgSpec("set-machine", {"name": ("a100",)}), ArgSpec(PASS, {})):
        make_pass(spec).apply(make_context(), module)
    (function,) = functions(module)
    assert [each.texts()[0] for each in derivation_of(function.attributes)] == [step]


def test_sums_that_others_read_as_columns_are_timed_alone():
    """Scores have the sum of each of their columns: they take their time either way, and far more of it."""
    text = (EXAMPLES / "attention_forgetting.mlir").read_text(encoding="utf-8")
    module = parse_module(text.replace("h = 4, q = 333, x = 333", "h = 16, q = 4096, x = 4096"))
    for spec in (ArgSpec("set-machine", {"name": ("a100",)}), ArgSpec(PASS, {})):
        make_pass(spec).apply(make_context(), module)
    (function,) = functions(module)
    (told,) = [each.texts() for each in derivation_of(function.attributes)]
    assert told[:2] == (PASS, "%c_x under 'y <= x' in chunks of 32")


def summed(A: tl.Array) -> tl.Array:
    return tl.cumsum(A, over="x")


def both(A: tl.Array) -> tl.Array:
    return tl.cumsum(A, over="h x")


@pytest.mark.parametrize("axes", ["h x", "x c"])
def test_cumulative_sums_of_the_language(axes: str):
    kernel = treadle.kernel(f"{axes} -> {axes}")(summed)
    given = np.random.default_rng(0).standard_normal((5, 40) if axes == "h x" else (40, 5)).astype(np.float32)
    along = axes.split().index("x")
    np.testing.assert_allclose(kernel(given), given.cumsum(along), rtol=0, atol=1e-5)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_elements_of_16_bits_are_read_where_they_lie(machine: str):
    """No kernel only converts them, for another one to read twice as many bytes."""
    kernel = treadle.kernel("h x -> h x", machine=machine, result="f32")(summed)
    sizes = {"h": 8, "x": 16384}
    half, whole = (treadle.compile(kernel.trace([each], sizes), machine=machine) for each in ("f16", "f32"))
    assert half.estimate.kernels == whole.estimate.kernels
    assert half.estimate.device_bytes < whole.estimate.device_bytes
    given = np.random.default_rng(0).standard_normal((3, 75)).astype(np.float16)
    np.testing.assert_allclose(half.run(given), given.astype(float).cumsum(1), rtol=0, atol=1e-5)


def test_cumulative_sums_of_integers():
    kernel = treadle.kernel("x -> x")(summed)
    given = np.arange(-5, 30, dtype=np.int32)
    np.testing.assert_array_equal(kernel(given), given.cumsum())


def test_a_cumulative_sum_is_along_one_axis():
    with pytest.raises(TreadleError, match="a cumulative sum is along one axis, not 'h x'"):
        treadle.kernel("h x -> h x")(both).trace(["f32"], {"h": 2, "x": 3}, {})
