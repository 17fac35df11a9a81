"""Products of products, multiplied in another order and in chunks (`diagram-reassociate`)."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from roads import Road
from treadle.compiler.pipeline import Options, make_pass, pipeline, print_cuda, run_passes
from treadle.compiler.source import make_context, parse_module
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


def rewritten(text: str, sums: str = "O", chunk: int | None = 16) -> ModuleOp:
    module = parse_module(text, "program")
    options = {"sums": (sums,)} | ({} if chunk is None else {"chunk": (chunk,)})
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
    same(text, rewritten(text, "O"))


@pytest.mark.parametrize(("q", "x"), [("?", "?"), ("64", "64"), ("50", "50"), ("?", "50")])
def test_chunks_in_the_emulator(q: str, x: str):
    made = road(program(q, x, "x <= q", scale=True))
    for size in (64, 50, 17, 1) if "?" in (q, x) else (int(q),):
        made.check({axis: size for axis, length in (("q", q), ("x", x)) if length == "?"})


def test_associativity_in_the_emulator():
    road(program(scale=True), None).check({"q": 70, "x": 33})
