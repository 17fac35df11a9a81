"""Products and sums that are rounded once: where, and that results are as exact as before."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from roads import Road
from treadle.compiler.pipeline import Options, pipeline, print_cuda, run_passes
from treadle.compiler.source import parse_module
from treadle.runtime.backend import has_host_compiler

needs_compiler = pytest.mark.skipif(not has_host_compiler(), reason="no C++ compiler is installed")
EXAMPLES = Path(__file__).parents[1] / "examples"


def made(text: str, machine: str) -> tuple[ModuleOp, ModuleOp, str]:
    """An algorithm, its kernels, and these printed."""
    module = parse_module(text)
    algorithm = module.clone()
    run_passes(module, pipeline(Options(machine=machine)))
    return algorithm, module, print_cuda(module)


def kernels(text: str, machine: str) -> str:
    """What is printed of them, without what they call."""
    return made(text, machine)[2].split("extern shared")[-1].split("template <int ALIGNED>", 1)[-1]


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.mlir").read_text(encoding="utf-8")


ONE_PASS = """
!X = tensor<?x512xf32, #diagram.array<[row, x]>>
!m = tensor<?xf32, #diagram.array<[row]>>
func.func @spread(%X: !X) -> !m attributes {sizes = #diagram.sizes<row = 9>} {
  %Y = diagram.map (%x = %X : !X) -> !X {
    %y = arith.mulf %x, %x : f32
    diagram.yield %y : f32
  }
  %a = diagram.reduce add %X over [x] : !X -> !m
  %b = diagram.reduce add %Y over [x] : !X -> !m
  %V = diagram.map (%s = %a : !m, %t = %b : !m) -> !m {
    %n = arith.constant 512.0 : f32
    %c = arith.mulf %s, %s : f32
    %d = arith.mulf %t, %n : f32
    %v = arith.subf %d, %c : f32
    diagram.yield %v : f32
  }
  func.return %V : !m
}
"""
"""A spread that two sums tell, both of the same numbers: of equal numbers it is zero."""


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["attention_bias", "attention_alibi"])
def test_a_score_with_a_bias_takes_two(name: str, machine: str) -> None:
    """One for the scale and the bias, one for the power; no difference of scores is left."""
    printed = kernels(example(name), machine)
    assert re.search(r"S\w*\[x8\]\[q8\]\[x1\] = fmaf\(S\w*\[x8\]\[q8\]\[x1\], 0\.125f, ", printed)
    assert "exp2_approx(fmaf(" in printed
    assert not re.search(r"exp2_approx\(\(S\w*\[x8\]\[q8\]\[x1\] - ", printed)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["attention_lse", "attention_sink"])
def test_a_power_of_what_others_read_takes_one(name: str, machine: str) -> None:
    """The maximum, times the scale, is a summand of the logarithm, or has a sink below it: powers know the maximum."""
    printed = kernels(example(name), machine)
    assert "exp2_approx(fmaf(" in printed
    assert not re.search(r"exp2_approx\(+S\w*\[x8\]\[q8\]\[x1\] (\*|-) ", printed)


SCALED_FIRST = (
    example("attention_causal")
    .replace('%W = diagram.where %S if "x <= q" : !S', "")
    .replace("(%s = %W : !S)", "(%s = %S : !S)")
    .replace("%P = diagram", '%W = diagram.where %T if "x <= q" : !S\n  %P = diagram')
    .replace("@softmax(%T)", "@softmax(%W)")
)
"""As most people write it."""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_scores_that_are_scaled_before_they_are_masked(machine: str) -> None:
    """The scale is that of the powers, as of scores that are masked first."""
    one, other = (kernels(text, machine) for text in (SCALED_FIRST, example("attention_causal")))
    assert one.count("fmaf(") == other.count("fmaf(") > 0
    assert "0.125f" not in one
    assert "0.125f" not in other


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("scale", ["0.3", "1.7"])
def test_scales_that_are_rounded(machine: str, scale: str) -> None:
    text = example("attention_lse").replace("arith.constant 0.125", f"arith.constant {scale}")
    algorithm, module, printed = made(text, machine)
    road = Road(algorithm, module, printed)
    for factor in (1, 40):
        query, *others = road.inputs({"b": 1, "h": 2, "q": 70, "x": 133})
        for verdict in road.verdicts((np.multiply(query, np.float16(factor)), *others)):
            assert verdict.ok, verdict


def test_what_comes_from_the_same_numbers_is_rounded_twice() -> None:
    """Two sums are two states of one stream, and a stream reads all that it reads."""
    assert "fmaf" not in kernels(ONE_PASS, "a100")


@needs_compiler
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("bias", ["1.0e+00", "-3.0e+02", "4.0e+04"])
def test_biases_of_any_size(machine: str, bias: str) -> None:
    """Of the size of the scores, and so large that scores hardly count."""
    text = example("attention_bias")
    text = text.replace(
        "%bias = arith.extf %b : f16 to f32",
        f"%e = arith.extf %b : f16 to f32\n %far = arith.constant {bias} : f32\n %bias = arith.mulf %e, %far : f32",
    )
    Road(*made(text, machine)).check({"b": 1, "h": 2, "q": 70, "x": 133})
