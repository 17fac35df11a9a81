"""Products of products with decays along the axis that the first sums, `exp(a[q, d] - b[x, d])`, in chunks and in parts
of these (`diagram-reassociate`)."""

from __future__ import annotations

import numpy as np
import pytest
from test_reassociate import CONDITIONS, LENGTHS, rewritten, road, same
from test_reassociate_decays import EXPONENTS

import treadle
import treadle.language as tl
from roads import Road
from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ContractOp, MapOp
from treadle.dialects.diagram.array import axes_of, format_of


def program(q: str = "?", x: str = "?", condition: str = "x <= q", inner: str = "", format: str = "f16") -> str:
    """`sum_x (sum_d Q K exp(a[q, d] - b[x, d])) V`, under a condition."""
    text = f"""
!Q = tensor<2x{q}x16x{format}, #diagram.array<[h, q, d]>>
!K = tensor<2x{x}x16x{format}, #diagram.array<[h, x, d]>>
!V = tensor<2x{x}x32x{format}, #diagram.array<[h, x, e]>>
!a = tensor<2x{q}x16xf32, #diagram.array<[h, q, d]>>
!b = tensor<2x{x}x16xf32, #diagram.array<[h, x, d]>>
!g = tensor<2x16xf32, #diagram.array<[h, d]>>
!q = tensor<{q}xi32, #diagram.array<[q]>>
!x = tensor<{x}xi32, #diagram.array<[x]>>
!W = tensor<2x{q}x{x}x16xf32, #diagram.array<[h, q, x, d]>>
!S = tensor<2x{q}x{x}xf32, #diagram.array<[h, q, x]>>
!S16 = tensor<2x{q}x{x}x{format}, #diagram.array<[h, q, x]>>
!O = tensor<2x{q}x32xf32, #diagram.array<[h, q, e]>>
func.func @f(%Q: !Q, %K: !K, %V: !V, %a: !a, %b: !b, %g: !g) -> !O {{
  {inner or GATED}
  %L = diagram.where %S if "{condition}" : !S
  %S16 = diagram.cast %L : !S -> !S16
  %O = diagram.contract %S16, %V over [x] accumulate f32 : !S16, !V -> !O
  func.return %O : !O
}}"""
    return text if format == "f16" else text.replace(WIDE, "%w = arith.mulf %i, %j : f32")


WIDE = """%s = arith.extf %i : f16 to f32
    %t = arith.extf %j : f16 to f32
    %w = arith.mulf %s, %t : f32"""

GATED = f"""%W = diagram.map (%i = %Q : !Q, %j = %K : !K, %u = %a : !a, %v = %b : !b) -> !W {{
    {WIDE}
    %d = arith.subf %u, %v : f32
    %p = math.exp %d : f32
    %o = arith.mulf %w, %p : f32
    diagram.yield %o : f32
  }}
  %S = diagram.reduce add %W over [d] : !W -> !S"""

RATES = f"""%iq = diagram.index -> !q
  %ix = diagram.index -> !x
  %W = diagram.map (%i = %Q : !Q, %j = %K : !K, %l = %g : !g, %m = %iq : !q, %n = %ix : !x) -> !W {{
    {WIDE}
    %d = arith.subi %n, %m : i32
    %r = arith.sitofp %d : i32 to f32
    %a1 = math.absf %l : f32
    %e = arith.mulf %r, %a1 : f32
    %p = math.exp %e : f32
    %o = arith.mulf %w, %p : f32
    diagram.yield %o : f32
  }}
  %S = diagram.reduce add %W over [d] : !W -> !S"""
"""Of positions, with a rate for each d."""

PRODUCT = """%D = diagram.map (%j = %K : !K, %u = %a : !a, %v = %b : !b) -> !W {
    %t = arith.extf %j : f16 to f32
    %d = arith.subf %u, %v : f32
    %p = math.exp %d : f32
    %o = arith.mulf %t, %p : f32
    diagram.yield %o : f32
  }
  %Q32 = diagram.cast %Q : !Q -> !a
  %s = diagram.contract %Q32, %D over [d] accumulate f32 : !a, !W -> !S
  %S = diagram.map (%z = %s : !S, %y = %g0 : !g0) -> !S {
    %c = arith.constant 0.125 : f32
    %m = arith.mulf %z, %c : f32
    %n = arith.mulf %m, %y : f32
    diagram.yield %n : f32
  }"""
"""A product one factor of which a map makes, scaled, with a weight for each x."""


def gated_rows(condition: str) -> str:
    return program(condition=condition)


def rates(condition: str) -> str:
    return program(condition=condition, inner=RATES)


def scaled(condition: str) -> str:
    text = program(condition=condition, inner=PRODUCT).replace("%g: !g)", "%g: !g, %g0: !g0)")
    return text.replace("!q = ", "!g0 = tensor<?xf32, #diagram.array<[x]>>\n!q = ")


def added_up(condition: str) -> str:
    """Without values: the sums of rows of scores."""
    text = program(condition=condition).replace("O = tensor<2x?x32x", "O = tensor<2x?x").replace("[h, q, e]", "[h, q]")
    text = text.replace("%S16 = diagram.cast %L : !S -> !S16", "")
    return text.replace("contract %S16, %V over [x] accumulate f32 : !S16, !V", "reduce add %L over [x] : !S")


PROGRAMS = {"gated": gated_rows, "rates": rates, "product": scaled, "added up": added_up}


@pytest.mark.parametrize("kind", PROGRAMS)
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("q", "x"), LENGTHS)
@pytest.mark.parametrize("chunk", [16, 20, 32])
@pytest.mark.sample(30)
def test_chunks_of_any_length(kind: str, condition: str, q: int, x: int, chunk: int):
    """Chunks of 32 are in parts of 16, others in none."""
    text = PROGRAMS[kind](condition=condition)
    same(text, rewritten(text, chunk=chunk), q=q, x=x)


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize(("q", "x"), [("96", "96"), ("50", "90")])
def test_chunks_of_known_length(condition: str, q: str, x: str):
    text = program(q, x, condition)
    same(text, rewritten(text, chunk=32))


def test_pairs_are_made_in_parts_alone():
    """Nothing of the new program has two positions of a chunk, and d."""
    module = rewritten(program(), chunk=64)
    (found,) = [
        {"q_in_part", "x_in_part"} <= {*axes_of(op.result.type)}
        for op in module.walk()
        if isinstance(op, MapOp) and {"d"} < {*axes_of(op.result.type)} and len(_positions(op)) == 2
    ]
    assert found


def _positions(op: MapOp) -> set[str]:
    """Axes along positions, of a row and of what is summed."""
    return {*axes_of(op.result.type)} & {"q", "x", "q_in", "x_in", "q_in_part", "x_in_part"}


@pytest.mark.parametrize(("format", "multiply"), [("f16", True), ("f32", False)])
def test_formats_of_states(format: str, multiply: bool):
    """Nothing is rounded where the program rounds nothing, nor are sums over d, which it rounds itself."""
    module = rewritten(program(format=format), chunk=32)
    products = [op for op in module.walk() if isinstance(op, ContractOp)]
    wide = [op for op in products if str(format_of(op.lhs.type)) == "f32"]
    assert len(products) == 6
    assert len(wide) == (4 if multiply else 6)
    assert sum(op.is_tf32 for op in wide) == (3 if multiply else 0)


@pytest.mark.parametrize(("q", "x"), [("?", "?"), ("64", "64"), ("50", "50")])
def test_chunks_in_the_emulator(q: str, x: str):
    made = road(program(q, x), chunk=32)
    for size in (100, 50, 1) if q == "?" else (int(q),):
        made.check({"q": size, "x": size} if q == "?" else {})


@pytest.fixture(scope="module")
def in_f32() -> Road:
    return road(program("50", "50", format="f32"), chunk=32)


@pytest.mark.parametrize("kind", EXPONENTS)
def test_no_power_is_beyond_f32_that_the_program_does_not_have(in_f32: Road, kind: str):
    """Every second d has these exponents, the others none."""
    inputs = list(in_f32.inputs({}))
    for place, each in zip((3, 4), EXPONENTS[kind], strict=True):
        inputs[place] = np.where(np.arange(16) % 2 == 0, each[None, :, None], 0).repeat(2, 0).astype(np.float32)
    (verdict,) = in_f32.verdicts(inputs)
    assert verdict.ok, str(verdict)
    assert np.isfinite(in_f32.run(inputs)[0]).all()


def test_exponents_that_are_no_sums_stay():
    """No law takes the power apart, so the program has no sum of this kind."""
    text = program(inner=GATED.replace("arith.subf %u, %v", "arith.mulf %u, %v"))
    with pytest.raises(Exception, match="%O is no sum of a product"):
        rewritten(text)


NO_POWER = """%y = math.sin %d : f32
    %k = arith.mulf %w, %y : f32
    %o = arith.mulf %k, %p"""

REFUSED = {
    "'d' is another axis in %V: give it a name of its own": ("[h, x, e]", "[h, x, d]"),
    "does not compare a position along the sum with one of a row": ("x <= q", "x <= q and q - x <= 4"),
    "a factor of %S16 varies along 'q' as well as 'x'": ("%o = arith.mulf %w, %p", NO_POWER),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refusals(reason: str):
    old, new = REFUSED[reason]
    text = program().replace(old, new)
    if "x, d]" in new:
        text = text.replace("[h, q, e]", "[h, q, d]").replace("x32x", "x16x")
    with pytest.raises(Refusal, match=reason):
        rewritten(text)


def gated(Q: tl.Array, K: tl.Array, V: tl.Array, G: tl.Array) -> tl.Array:
    """Gates are given, of which the exponents are cumulative sums."""
    a = tl.cumsum(G, over="x")
    W = Q * K * tl.exp(tl.read(a, "h, q, d") - a)
    return tl.contract(tl.keep(tl.sum(W, over="d"), "x <= q").to("f16"), V, over="x")


@pytest.mark.parametrize("sums", [("product",), ("product", "a")])
def test_gates_whose_logarithms_the_program_adds_up(sums: tuple[str, ...]):
    kernel = treadle.kernel("h q d, h x d, h x e, h x d -> h q e")(gated)
    text = str(kernel.trace(["f16", "f16", "f16", "f32"], {"h": 2, "q": 50, "x": 50, "d": 16, "e": 32}, {}))
    module = rewritten(text, sums, 32)
    assert not [op for op in module.walk() if isinstance(op, MapOp) and {"q", "x", "d"} <= {*axes_of(op.result.type)}]
    same(text, module, h=2, q=50, x=50, d=16, e=32)


def test_the_language_in_the_emulator():
    """What a user writes, in chunks where that is faster, beside the definition in numpy."""
    rng = np.random.default_rng(0)
    Q, K, V = (rng.standard_normal((2, 70, 16)).astype(np.float16) for _ in range(3))
    G = -rng.random((2, 70, 16)).astype(np.float32)
    a = np.cumsum(G.astype(np.float64), 1)
    since = np.minimum(a[:, :, None] - a[:, None], 0)
    scores = np.tril(np.einsum("hqd,hxd,hqxd->hqx", Q.astype(float), K.astype(float), np.exp(since)))
    found = treadle.kernel("h q d, h x d, h x e, h x d -> h q e")(gated)(Q, K, V, G)
    np.testing.assert_allclose(found, scores @ V.astype(float), rtol=0, atol=4e-2)
