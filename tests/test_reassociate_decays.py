"""Products of products with weights that are powers of differences, `exp(u[q] + v[x])` (`diagram-reassociate`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_reassociate import CONDITIONS, LENGTHS, rewritten, road, same

from roads import Road, compiled
from treadle.compiler.errors import Refusal
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes._functions import functions


def program(q: str = "?", x: str = "?", condition: str = "x <= q", weight: str = "", format: str = "f16") -> str:
    """`sum_x (Q K) exp(a[q] - b[x]) V`, under a condition."""
    kept = f'%L = diagram.where %T if "{condition}" : !S' if condition else ""
    return f"""
!Q = tensor<2x{q}x16x{format}, #diagram.array<[h, q, d]>>
!K = tensor<2x{x}x16x{format}, #diagram.array<[h, x, d]>>
!V = tensor<2x{x}x32x{format}, #diagram.array<[h, x, e]>>
!a = tensor<2x{q}xf32, #diagram.array<[h, q]>>
!b = tensor<2x{x}xf32, #diagram.array<[h, x]>>
!g = tensor<2xf32, #diagram.array<[h]>>
!q = tensor<{q}xi32, #diagram.array<[q]>>
!x = tensor<{x}xi32, #diagram.array<[x]>>
!S = tensor<2x{q}x{x}xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<2x{q}x{x}x{format}, #diagram.array<[h, q, x]>>
!O = tensor<2x{q}x32xf32, #diagram.array<[h, q, e]>>
func.func @f(%Q: !Q, %K: !K, %V: !V, %a: !a, %b: !b, %g: !g) -> !O {{
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  {weight or DECAYS}
  {kept}
  %S16 = diagram.cast {"%L" if condition else "%T"} : !S -> !S16
  %O = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  func.return %O : !O
}}"""


DECAYS = """%T = diagram.map (%s = %S : !S, %u = %a : !a, %v = %b : !b) -> !S {
    %d = arith.subf %u, %v : f32
    %p = math.exp %d : f32
    %o = arith.mulf %s, %p : f32
    diagram.yield %o : f32
  }"""

RETENTION = """%iq = diagram.index -> !q
  %ix = diagram.index -> !x
  %D = diagram.map (%i = %iq : !q, %j = %ix : !x, %l = %g : !g) -> !S {
    %d = arith.subi %i, %j : i32
    %n = arith.sitofp %d : i32 to f32
    %m = math.absf %l : f32
    %k = arith.negf %m : f32
    %e = arith.mulf %n, %k : f32
    %p = math.exp %e : f32
    diagram.yield %p : f32
  }
  %T = diagram.map (%s = %S : !S, %p = %D : !S) -> !S {
    %o = arith.mulf %s, %p : f32
    diagram.yield %o : f32
  }"""
"""`exp(-|g| (q - x))`, of positions."""

QUOTIENT = """%G = diagram.map (%u = %a : !a, %v = %b : !b) -> !S {
    %c = arith.constant 0.5 : f32
    %n = arith.negf %u : f32
    %d = arith.addf %n, %v : f32
    %e = arith.mulf %c, %d : f32
    diagram.yield %e : f32
  }
  %T = diagram.map (%s = %S : !S, %e = %G : !S, %u = %a : !a, %v = %b : !b) -> !S {
    %p = math.exp %e : f32
    %o = arith.divf %s, %p : f32
    %r = arith.mulf %o, %u : f32
    %t = arith.divf %r, %v : f32
    diagram.yield %t : f32
  }"""
"""Divided by a power of what another map makes, times factors of either axis."""

WEIGHTS = (DECAYS, RETENTION, QUOTIENT)


@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("q", "x"), LENGTHS)
@pytest.mark.sample(30)
def test_chunks_of_any_length(weight: str, condition: str, q: int, x: int):
    text = program(condition=condition, weight=weight)
    same(text, rewritten(text), q=q, x=x)


@pytest.mark.parametrize("weight", WEIGHTS)
def test_associativity(weight: str):
    text = program(condition="", weight=weight)
    module = rewritten(text, chunk=None)
    assert "[h, q, x]" not in str(module)
    same(text, module, q=23, x=40)


@pytest.mark.parametrize("weight", WEIGHTS[:2])
@pytest.mark.parametrize(("q", "x"), [("?", "?"), ("64", "64"), ("50", "50")])
def test_chunks_in_the_emulator(weight: str, q: str, x: str):
    made = road(program(q, x, weight=weight))
    for size in (64, 50, 17, 1) if "?" in (q, x) else (int(q),):
        made.check({"q": size, "x": size} if q == "?" else {})


def test_associativity_in_the_emulator():
    road(program(condition=""), None).check({"q": 70, "x": 33})


@pytest.fixture(scope="module")
def in_f32() -> Road:
    return road(program("50", "50", format="f32"))


INFINITE = np.where(np.arange(50) // 16 == 1, np.inf, 0.0) + np.where(np.arange(50) == 3, np.inf, 0.0)

EXPONENTS = {
    "decay": (-100.0 * np.arange(50), -100.0 * np.arange(50)),
    "slow": (-0.01 * np.arange(50) - 1e3, -0.01 * np.arange(50) - 1e3),
    "jump": (-1e4 * (np.arange(50) > 20), -1e4 * (np.arange(50) > 20)),
    "growth": (80 / 49 * np.arange(50), 80 / 49 * np.arange(50)),
    "up and down": (30 * np.sin(np.arange(50)) + 970, 1e3 + 0 * np.arange(50)),
    "nothing counts": (-0.1 * np.arange(50), INFINITE),
    "no row": (-INFINITE, -0.1 * np.arange(50)),
}
"""`a` and `b` of `exp(a[q] - b[x])` that are no powers of f32 apart, but together where `x <= q`."""


@pytest.mark.parametrize("kind", EXPONENTS)
def test_no_power_is_beyond_f32_that_the_program_does_not_have(in_f32: Road, kind: str):
    inputs = list(in_f32.inputs({}))
    inputs[3:5] = (np.stack([each, each]).astype(np.float32) for each in EXPONENTS[kind])
    (verdict,) = in_f32.verdicts(inputs)
    assert verdict.ok, str(verdict)
    assert np.isfinite(in_f32.run(inputs)[0]).all()


@pytest.mark.parametrize("exponent", ["arith.mulf %u, %v", "arith.maximumf %u, %v"])
def test_exponents_that_are_no_sums_are_refused(exponent: str):
    weight = DECAYS.replace("arith.subf %u, %v", exponent)
    with pytest.raises(Refusal, match="a factor of %S16 varies along 'q' as well as 'x'"):
        rewritten(program(weight=weight))


def test_formats_that_saturate_are_no_names_of_a_power():
    """A power beyond the largest number of f8 is that number."""
    weight = DECAYS.replace(
        "%o = arith.mulf %s, %p",
        "%r = arith.truncf %p : f32 to f8E4M3FN\n    %w = arith.extf %r : f8E4M3FN to f32\n    %o = arith.mulf %s, %w",
    )
    with pytest.raises(Refusal, match="a factor of %S16 varies along 'q' as well as 'x'"):
        rewritten(program(weight=weight))


SHARED = [("q", "x"), ("h, q", "x"), ("q", "h, x")]


@pytest.mark.parametrize(("queries", "keys"), SHARED)
def test_heads_that_share_queries_or_keys(queries: str, keys: str):
    """Each head has decays and values of its own."""
    text = shared(queries, keys)
    same(text, rewritten(text), q=50, x=33)


def shared(queries: str, keys: str, q: str = "?", x: str = "?") -> str:
    text, heads = program(q, x), {"Q": queries, "K": keys}
    for name, axes in heads.items():
        if "h" not in axes:
            text = text.replace(f"!{name} = tensor<2x", f"!{name} = tensor<").replace(f"[h, {axes}, d]", f"[{axes}, d]")
    if "h" in queries + keys:
        return text
    made = f"!s = tensor<{q}x{x}xf32, #diagram.array<[q, x]>>\n!S ="
    return text.replace("!S =", made).replace("!Q, !K -> !S", "!Q, !K -> !s").replace("%s = %S : !S", "%s = %S : !s")


@pytest.mark.parametrize(("queries", "keys"), SHARED)
def test_heads_that_share_queries_or_keys_in_the_emulator(queries: str, keys: str):
    road(shared(queries, keys)).check({"q": 50, "x": 50})


STATE_SPACE = Path(__file__).parents[1] / "examples" / "state_space.mlir"


def test_kernels_of_a_state_space():
    """The kernel of references would save as many numbers of f32 as there are values, if it weighed these; and one of
    both products of states would hold all states of a head."""
    module = load_module(str(STATE_SPACE))
    run_pipeline(module, Options(machine="a100", sizes={"h": 8, "q": 16384, "x": 16384}), last="fusion")
    (function,) = functions(module)
    texts = [step.texts()[1] for step in derivation_of(function.attributes) if step.texts()[0] == "fusion"]
    assert "%exponent_b, %X_b: %X again" in texts
    (states,) = [text for text in texts if "%A_states" in text and " into @" in text]
    assert "%A_before" not in states


@pytest.mark.full
def test_kernels_of_a_state_space_in_the_emulator():
    sizes = {"h": 2, "q": 4096, "x": 4096}
    compiled(STATE_SPACE.read_text(), sizes=sizes).check(sizes)
