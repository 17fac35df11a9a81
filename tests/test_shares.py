"""Shares of powers that a later stream, or another kernel, makes for itself: `exp(a) / b = exp(a - log b)`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from xdsl.dialects.builtin import ModuleOp

from roads import Road, compiled
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import MapOp
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.expressions.magnitudes import magnitude
from treadle.passes.expressions.scalars import Leaf
from treadle.passes.expressions.shares import LAW
from treadle.runtime.backend import has_host_compiler

EXAMPLES = Path(__file__).parents[1] / "examples"
needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")

SOFTMAX = """
!X = tensor<?x{width}xf32, #diagram.array<[row, x]>>
!r = tensor<?xf32, #diagram.array<[row]>>
func.func @rows(%X: !X) -> {results} attributes {{sizes = #diagram.sizes<row = 3{size}>}} {{
  %m = diagram.reduce max %X over [x] : !X -> !r
  %E = diagram.map (%x = %X : !X, %t = %{below} : {below_type}) -> !X {{
    %d = arith.subf %x, %t : f32
    %e = math.exp %d : f32
    diagram.yield %e : f32
  }}
  %l = diagram.reduce add %E over [x] : !X -> !r
  %P = diagram.map (%e = %E : !X, %t = %l : !r) -> !X {{
    %p = arith.divf {quotient} : f32
    diagram.yield %p : f32
  }}
  {more}func.return {returned}
}}
"""


def program(
    width: str = "?",
    below: str = "m",
    quotient: str = "%e, %t",
    more: str = "",
    returned: str = "%P : !X",
    results: str = "!X",
) -> str:
    return SOFTMAX.format(
        width=width,
        size=", x = 3000" if width == "?" else "",
        below=below,
        below_type={"m": "!r", "X": "!X"}[below],
        quotient=quotient,
        more=more,
        returned=returned,
        results=results,
    )


def lowered(text: str, last: str | None = None) -> ModuleOp:
    module = parse_module(text, "rows.mlir")
    run_pipeline(module, Options(), last=last)
    return module


def uses_law(text: str) -> bool:
    return LAW in str(lowered(text))


def test_a_later_stream_takes_the_logarithm_of_what_it_would_divide_by() -> None:
    text = print_cuda(lowered(program()))
    assert "divide(" not in text
    assert text.count("logf(") == 1
    assert re.search(r"exp2_approx\(fmaf\(.* - m\w*, 1\.442695f, l\w* \* -1\.442695f\)\)", text)


TWICE = """%F = diagram.map (%e = %E : !X, %p = %P : !X) -> !X {
    %f = arith.addf %e, %p : f32
    diagram.yield %f : f32
  }
  """


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(program(width="64"), id="held-whole"),
        pytest.param(program(quotient="%t, %e"), id="the-power-divides"),
        pytest.param(program(more=TWICE, returned="%P, %F : !X, !X", results="(!X, !X)"), id="the-power-is-used-too"),
        pytest.param(program(more="", returned="%P, %E : !X, !X", results="(!X, !X)"), id="the-power-is-a-result"),
        # exp(x - x) is a power of no known bound to the compiler, which does not cancel: its sum may overflow.
        pytest.param(program(below="X"), id="no-bound"),
    ],
)
def test_elsewhere_it_is_divided(text: str) -> None:
    assert not uses_law(text)


def test_a_share_is_at_most_one() -> None:
    """What is proved of quotients is proved of powers that stand for them."""
    module = lowered(program(), last="streaming")
    shares = [op for op in module.walk() if isinstance(op, MapOp) and op.result.name_hint == "P"]
    assert [magnitude(Leaf(op.result)) for op in shares] == [1.0]


UNREAD = """
!X = tensor<?x?xf32, #diagram.array<[row, x]>>
!r = tensor<?xf32, #diagram.array<[row]>>
func.func @f(%X: !X) -> !X {
  %W = diagram.where %X if "x <= row" : !X
  %E = diagram.map (%x = %READ : !X, %w = %W : !X) -> !X {
    %e = math.exp %x : f32
    diagram.yield %e : f32
  }
  %l = diagram.reduce add %E over [x] : !X -> !r
  %L = diagram.map (%l_ = %l : !r) -> !r {
    %b = math.log %l_ : f32
    diagram.yield %b : f32
  }
  %N = diagram.map (%x = %READ : !X, %b = %L : !r) -> !X {
    %d = arith.subf %x, %b : f32
    %p = math.exp %d : f32
    diagram.yield %p : f32
  }
  func.return %N : !X
}
"""


@pytest.mark.parametrize(("read", "bound"), [("W", 1.0), ("X", np.inf)])
def test_what_counts_in_no_sum_is_no_share_of_it(read: str, bound: float) -> None:
    """An element that the sum leaves out, for a condition on what its powers do not read, may be beyond it."""
    module = parse_module(UNREAD.replace("READ", read))
    (share,) = (op for op in module.walk() if isinstance(op, MapOp) and op.result.name_hint == "N")
    assert magnitude(Leaf(share.result)) == bound


LOGARITHM = """%L = diagram.map (%t = %l : !r) -> !r {
    %b = math.log %t : f32
    diagram.yield %b : f32
  }
  """


def test_a_logarithm_that_comes_later_is_made_before_the_shares() -> None:
    """It is one of the results, and moved before what reads it now."""
    module = lowered(program(more=LOGARITHM, returned="%P, %L : !X, !r", results="(!X, !r)"), last="streaming")
    (kernel,) = (op for op in module.walk() if isinstance(op, KernelOp))
    ops = list(kernel.body.block.ops)
    assert all(ops.index(each.owner) < ops.index(op) for op in ops for each in op.operands if each.owner in ops)
    assert str(module).count("math.log") == 1


@pytest.fixture(scope="module", params=["a100", "h100"])
def road(request: pytest.FixtureRequest) -> Road:
    return compiled(program(), machine=request.param)


@needs_compiler
@pytest.mark.parametrize("sizes", [{"row": 1, "x": 1}, {"row": 5, "x": 1025}, {"row": 3, "x": 2500}])
def test_rows_are_those_of_the_formula(road: Road, sizes: dict[str, int]) -> None:
    road.check(sizes, seed=4)


@needs_compiler
def test_rare_numbers_are_pytorchs(road: Road) -> None:
    """Infinities, equal maxima, far apart and huge: what the division gave, and NaN where it did."""
    x = np.zeros((7, 1500), np.float32)
    x[0] = np.float32(-np.inf)
    x[1, :700] = np.float32(-np.inf)
    x[2, 11] = np.float32(np.inf)
    x[3, 3] = np.float32(np.nan)
    x[4] = np.float32(1e30)
    x[5, :2] = np.float32(3e38)
    x[6] = np.linspace(-200, 200, 1500, dtype=np.float32)
    (found,) = road.run((x,))
    wanted = torch.softmax(torch.from_numpy(x).double(), 1).numpy()
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-30)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_gradients_of_attention_divide_no_score(machine: str) -> None:
    module = load_module(EXAMPLES / "attention_backward.mlir")
    run_pipeline(module, Options(machine=machine))
    text = print_cuda(module)
    assert "divide(" not in text
    assert "logf(" in text


def test_shares_that_are_compared_stay_quotients() -> None:
    """Others may have made what they are compared with of quotients, with other last digits."""
    more = """%top = diagram.fill 0.25 : f32 -> !X
  %is = diagram.map (%p = %P : !X, %t = %top : !X) -> !X {
    %above = arith.cmpf ogt, %p, %t : f32
    %y = arith.select %above, %p, %t : f32
    diagram.yield %y : f32
  }
  """
    assert uses_law(program())
    assert not uses_law(program(more=more, returned="%is : !X"))
