"""Products of products, multiplied in another order and in chunks (`diagram-reassociate`)."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec
from xdsl.utils.exceptions import PassFailedException

from roads import Road, compiled
from treadle.compiler.errors import Refusal
from treadle.compiler.pipeline import Options, make_pass, pipeline, print_cuda, run_passes
from treadle.compiler.source import make_context, parse_module
from treadle.dialects.diagram import ContractOp
from treadle.dialects.hierarchy.schedule import StepAttr, derivation_of
from treadle.passes._functions import functions
from treadle.runtime.inputs import axis_sizes, make_inputs
from treadle.runtime.interpreter import entry_function, run_function

PASS = "diagram-reassociate"


def program(q: str = "?", x: str = "?", condition: str = "", scale: bool = False, format: str = "f16") -> str:
    """`sum_x (Q K) V`, under a condition, and the sum of `Q K` itself where it is scaled."""
    where = f'%L = diagram.where %S if "{condition}" : !S' if condition else ""
    kept = "%L" if condition else "%S"
    scaled = f"""
  %T = diagram.map (%s = {kept} : !S) -> !S {{
    %c = arith.constant 0.125 : f32
    %o = arith.mulf %s, %c : f32
    diagram.yield %o : f32
  }}
  %n = diagram.reduce add %T over [x] : !S -> !n
"""
    return f"""
!Q = tensor<2x{q}x16x{format}, #diagram.array<[h, q, d]>>
!K = tensor<2x{x}x16x{format}, #diagram.array<[h, x, d]>>
!V = tensor<2x{x}x32x{format}, #diagram.array<[h, x, e]>>
!S = tensor<2x{q}x{x}xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<2x{q}x{x}x{format}, #diagram.array<[h, q, x]>>
!n = tensor<2x{q}xf32, #diagram.array<[h, q]>>
!O = tensor<2x{q}x32xf32, #diagram.array<[h, q, e]>>
func.func @f(%Q: !Q, %K: !K, %V: !V) -> {"(!O, !n)" if scale else "!O"} {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  {where}{scaled if scale else ""}
  %S16 = diagram.cast {"%T" if scale else kept} : !S -> !S16
  %O = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  func.return %O{", %n : !O, !n" if scale else " : !O"}
}}"""


def rewritten(text: str, sums: tuple[str, ...] = ("O",), chunk: int | None = 16) -> ModuleOp:
    module = parse_module(text, "program")
    options: dict[str, tuple[str | int, ...]] = {"sums": sums} | ({} if chunk is None else {"chunk": (chunk,)})
    make_pass(ArgSpec(PASS, options)).apply(make_context(), module)
    module.verify()
    return module


def road(text: str, chunk: int | None = 16) -> Road:
    """The program with its sum in another order, whether that is faster or not."""
    algorithm, module = parse_module(text, "program"), parse_module(text, "program")
    options = {"sums": ("O",)} | ({} if chunk is None else {"chunk": (chunk,)})
    specs = [ArgSpec(PASS, options) if spec.name == PASS else spec for spec in pipeline(Options(machine="a100"))]
    run_passes(module, specs)
    return Road(algorithm, module, print_cuda(module))


def same(text: str, module: ModuleOp, **sizes: int) -> None:
    """Whether two programs compute the same in float64, in which no rounding is seen."""
    plain = parse_module(text, "program")
    function = entry_function(plain)
    inputs = make_inputs(function, axis_sizes(function, sizes), 0)
    wanted, found = (run_function(each, inputs).results for each in (plain, module))
    for one, other in zip(wanted, found, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-9 * max(1, np.abs(one).max(initial=0)))


CONDITIONS = ("x <= q", "x < q", "x >= q", "q < x")
LENGTHS = [(48, 48), (50, 50), (1, 1), (16, 16), (17, 90), (90, 17), (0, 5), (5, 0)]


def test_associativity():
    text = program()
    module = rewritten(text, chunk=None)
    assert "[h, q, x]" not in str(module)
    same(text, module, q=23, x=40)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("q", "x"), LENGTHS)
def test_chunks_of_any_length(condition: str, q: int, x: int):
    text = program(condition=condition)
    same(text, rewritten(text), q=q, x=x)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("q", "x"), [(48, 48), (50, 33)])
def test_chunks_of_known_length(condition: str, q: int, x: int):
    text = program(str(q), str(x), condition, scale=True)
    same(text, rewritten(text))


@pytest.mark.parametrize(("q", "x"), [("?", "?"), ("64", "64"), ("50", "50"), ("?", "50")])
def test_chunks_in_the_emulator(q: str, x: str):
    made = road(program(q, x, "x <= q", scale=True))
    for size in (64, 50, 17, 1) if "?" in (q, x) else (int(q),):
        made.check({axis: size for axis, length in (("q", q), ("x", x)) if length == "?"})


def test_associativity_in_the_emulator():
    road(program(scale=True), None).check({"q": 70, "x": 33})


def test_sums_along_either_axis_of_one_product():
    """The gradients of both factors: one sums over later rows, the other over earlier columns."""
    plain = parse_module(program(condition="x <= q"), "program")
    make_pass(ArgSpec("diagram-differentiate", {})).apply(make_context(), plain)
    text = str(plain)
    module = rewritten(text, ("dQ", "dK", "dV"))
    assert all(" in chunks of 16" in step.texts()[1] for step in steps(module))
    same(text, module, q=37, x=50)


def steps(module: ModuleOp) -> list[StepAttr]:
    (function,) = functions(module)
    return [step for step in derivation_of(function.attributes) if PASS in step.texts()[0]]


@pytest.mark.parametrize("condition", ["q - x <= 4 and x <= q", "x <= q + 1", "2 * x <= q"])
def test_other_conditions_are_refused(condition: str):
    with pytest.raises(Refusal, match="does not compare a position along the sum with one of a row"):
        rewritten(program(condition=condition))


def test_an_axis_of_two_meanings_is_refused():
    text = program().replace("[h, x, e]", "[h, x, d]").replace("[h, q, e]", "[h, q, d]").replace("x32x", "x16x")
    with pytest.raises(Refusal, match="'d' is another axis in %V: give it a name of its own"):
        rewritten(text)


def test_what_is_no_product_stays():
    """A power stands between the products."""
    text = program().replace("%S16 = diagram.cast %S", POWER + "%S16 = diagram.cast %P")
    with pytest.raises(PassFailedException, match="%O is no sum of a product"):
        rewritten(text)
    module = parse_module(text, "program")
    make_pass(ArgSpec(PASS, {})).apply(make_context(), module)
    assert module.is_structurally_equivalent(parse_module(text, "program"))


POWER = """%P = diagram.map (%s = %S : !S) -> !S {
    %p = math.exp %s : f32
    diagram.yield %p : f32
  }
  """


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("length", "rewrite"), [(256, f"decline {PASS}"), (16384, PASS)])
def test_the_cost_model_chooses(machine: str, length: int, rewrite: str):
    module = parse_module(program(str(length), str(length), "x <= q"), "program")
    for name, options in (("set-machine", {"name": (machine,)}), (PASS, {})):
        make_pass(ArgSpec(name, options)).apply(make_context(), module)
    (step,) = steps(module)
    assert step.texts()[0] == rewrite


def test_no_f16_where_sums_are_large():
    """The state of a long sum is beyond the largest number of f16, which its products and its result are not."""
    made = road(program("64", "64", "x <= q"))
    q, k, v = (np.full(shape, number, np.float16) for shape, number in SHAPES)
    (result,) = made.run((q, k, v))
    wanted = 16 * float(q[0, 0, 0]) * 300 * 300 * np.arange(1, 65)
    np.testing.assert_allclose(result[0, :, 0], wanted, rtol=2e-3)


SHAPES = (((2, 64, 16), 2.0**-10), ((2, 64, 16), 300), ((2, 64, 32), 300))
"""Of queries, keys and values, and the number that each is made of: states are 1,440,000 a chunk."""


@pytest.mark.parametrize(("format", "multiply"), [("f16", "as tf32"), ("bf16", "as tf32"), ("f32", "")])
def test_formats_of_states(format: str, multiply: str):
    """Nothing is rounded where the program rounds nothing."""
    module = rewritten(program(format=format))
    products = [op for op in module.walk() if isinstance(op, ContractOp)]
    assert {str(op.result.type.get_element_type()) for op in products} == {"f32"}
    assert products[-1].is_tf32 == bool(multiply)


NORMALISED = """
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, e]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!n = tensor<?x?xf32, #diagram.array<[h, q]>>
!O = tensor<?x?x64xf32, #diagram.array<[h, q, e]>>
func.func @f(%Q: !Q, %K: !K, %V: !V) -> !O attributes {sizes = #diagram.sizes<h = 8, q = 16384, x = 16384>} {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %L = diagram.where %S if "x <= q" : !S
  %n = diagram.reduce add %L over [x] : !S -> !n
  %L16 = diagram.cast %L : !S -> !S16
  %A = diagram.contract %L16, %V over [x] accumulate f32 : !S16, !V -> !O
  %O = diagram.map (%a = %A : !O, %s = %n : !n) -> !O {
    %r = arith.mulf %s, %s : f32
    %c = arith.constant 1.0 : f32
    %m = arith.addf %r, %c : f32
    %t = arith.divf %a, %m : f32
    diagram.yield %t : f32
  }
  func.return %O : !O
}"""
"""Divided by what sums of rows are made of."""


def test_sums_of_rows_share_kernels_with_products():
    """Of keys there are two kinds of states: times values, and added up."""
    made = compiled(NORMALISED)
    (function,) = functions(made.module)
    texts = [step.texts()[1] for step in derivation_of(function.attributes)]
    assert "%K, %n_state with %A_state" in texts
    assert len(made.kernels) == 4
    for size in (130, 1):
        made.check({"h": 1, "q": size, "x": size})
