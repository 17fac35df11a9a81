"""Axes that one operand of a product has alone are its rows together, where that saves time
(`diagram-merge-free-axes`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.pipeline import run_passes
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import run_function

EXAMPLES = Path(__file__).parents[1] / "examples"
PASS = "diagram-merge-free-axes"


def arrays(*shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(0)
    return [random.standard_normal(shape).astype(np.float16) for shape in shapes]


def linear(X: Any, W: Any) -> Any:
    return tl.contract(X, W, over="i")


def decided(kernel: treadle.Kernel) -> list[str]:
    return [step.subject for step in kernel.derivation if step.rewrite == PASS]


def verify(kernel: treadle.Kernel, *given: Any) -> None:
    for verdict in kernel.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_tokens_of_a_batch_are_rows_of_one_product(machine: str) -> None:
    """As fast as where the program has them as one axis."""
    X, W = arrays((8, 12, 512), (512, 768))
    kernel = treadle.kernel("b t i, i o -> b t o", machine=machine)(linear).compiled(X, W)
    plain = treadle.kernel("t i, i o -> t o", machine=machine)(linear).compiled(X.reshape(96, 512), W)
    assert decided(kernel) == ["[b, t] as b_t"]
    assert kernel.estimate.time_us == pytest.approx(plain.estimate.time_us, rel=0.01)
    verify(kernel, X, W)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [(7, 3), (1, 1), (33, 5), (0, 3), (5, 0)])
def test_any_sizes(sizes: tuple[int, int], machine: str) -> None:
    batch, tokens = sizes
    kernel = treadle.compile(SYMBOLIC, machine=machine)
    assert decided(kernel) == ["[b, t] as b_t"]
    verify(kernel, *arrays((batch, tokens, 512), (512, 768)))


SYMBOLIC = """
!X = tensor<?x?x512xf16, #diagram.array<[b, t, i]>>
!W = tensor<512x768xf16, #diagram.array<[i, o]>>
!Y = tensor<?x?x768xf32, #diagram.array<[b, t, o]>>
func.func @linear(%X: !X, %W: !W) -> !Y attributes {sizes = #diagram.sizes<b = 64, t = 1>} {
  %Y = diagram.contract %X, %W over [i] accumulate f32 : !X, !W -> !Y
  func.return %Y : !Y
}
"""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_queries_that_share_a_head_are_rows_of_one_tile(machine: str) -> None:
    """Of a step of generation: the keys and values of a head come once, and not once for each query."""
    text = (EXAMPLES / "attention_gqa.mlir").read_text(encoding="utf-8")
    sizes = {"b": 8, "h": 8, "g": 8, "q": 1, "x": 2048}
    stated = ", ".join(f"{axis} = {size}" for axis, size in sizes.items())
    kernel = treadle.compile(text.replace("b = 2, h = 2, g = 4, q = 50, x = 200", stated), machine=machine)
    assert decided(kernel) == ["[g, q] as g_q"]
    keys_and_values = 2 * 8 * 8 * 2048 * 64 * 2
    assert kernel.estimate.device_bytes < 1.2 * keys_and_values
    verify(kernel, *arrays((1, 2, 5, 1, 64), (1, 2, 77, 64), (1, 2, 77, 64)))


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("result", ["a n b", "n b a", "n a b"])
def test_a_result_may_have_other_axes_between_or_another_order(result: str, machine: str) -> None:
    """A conversion may say so: what it makes is no view of rows together."""
    kernel = treadle.kernel(f"k a b, n k -> {result}", machine=machine)(lambda X, W: tl.contract(X, W, over="k"))
    chosen = kernel.compiled(*arrays((1024, 64, 64), (4096, 1024)))
    assert result == "n a b" or decided(chosen) == []
    X, W = arrays((64, 5, 3), (7, 64))
    expected = np.einsum(f"kab,nk->{result.replace(' ', '')}", X.astype(float), W.astype(float))
    np.testing.assert_allclose(kernel(X, W), expected, rtol=1e-2, atol=1e-2)


def test_rows_with_gaps_are_right() -> None:
    """Every other token: no view has both axes as one."""
    X, W = arrays((8, 6, 512), (512, 768))
    kernel = treadle.compile(SYMBOLIC, machine="h100")
    verify(kernel, X[:, ::2], W)


def halves(Q: Any, K: Any) -> Any:
    """Queries and keys rotated by halves, and what they find under the name that values have."""
    Q = (Q + tl.read(Q, "b, h, q, d - 32") - tl.read(Q, "b, h, q, d + 32")).to("f16")
    values = tl.read(K, "b, x, e")
    found = tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.125, over="x"), values, over="x")
    return tl.read(found, "b, h, q, d")


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_a_read_that_leaves_them_as_they_are_leaves_them_one(machine: str) -> None:
    """As fast as where the program has them as one axis. `e` is as long as `d`, of which it is another name."""
    Q, K = arrays((2, 64, 1, 64), (2, 2051, 64))
    traced = treadle.kernel("b h q d, b x d -> b h q d")(halves)
    sizes = {"b": 2, "h": 64, "q": 1, "x": 2051, "d": 64}
    kernel = treadle.compile(str(traced.trace(["f16"] * 2, sizes, fixed="d")), machine=machine)
    assert decided(kernel) == ["[h, q] as h_q"]
    assert "b, h_q, d - 32" in kernel.hierarchy
    assert len([step for step in kernel.derivation if step.rewrite == "keep apart"]) == 0
    verify(kernel, Q, K)


@pytest.mark.parametrize("place", ["b, h, q + 1, d", "b, q, h, d", "b, h, q + h, d"])
def test_a_read_that_moves_one_of_them_keeps_them_apart(place: str) -> None:
    def read(Q: Any, K: Any) -> Any:
        return tl.max(tl.contract((Q + tl.read(Q, place)).to("f16"), K, over="d"), over="x")

    Q, K = arrays((2, 4, 4, 64), (2, 333, 64))
    kernel = treadle.kernel("b h q d, b x d -> b h q", machine="h100")(read).compiled(Q, K)
    assert decided(kernel) == []
    verify(kernel, Q, K)


def test_a_condition_on_one_of_them_keeps_them_apart() -> None:
    def causal(Q: Any, K: Any) -> Any:
        return tl.max(tl.keep(tl.contract(Q, K, over="d"), "x <= q"), over="x")

    Q, K = arrays((2, 8, 1, 64), (2, 4096, 64))
    kernel = treadle.kernel("b h q d, b x d -> b h q", machine="h100")(causal).compiled(Q, K)
    assert decided(kernel) == []
    verify(kernel, Q, K)


def test_results_in_another_order_keep_them_apart() -> None:
    X, W = arrays((32, 2, 512), (512, 768))
    kernel = treadle.kernel("b t i, i o -> t b o", machine="h100")(linear).compiled(X, W)
    assert decided(kernel) == []
    verify(kernel, X, W)


def test_a_bias_of_a_batch_keeps_its_axis_apart() -> None:
    def biased(X: Any, W: Any, c: Any) -> Any:
        return tl.contract(X, W, over="i") + c

    X, W, c = arrays((32, 1, 512), (512, 768), (32,))
    kernel = treadle.kernel("b t i, i o, b -> b t o", machine="h100")(biased).compiled(X, W, c)
    assert decided(kernel) == []
    verify(kernel, X, W, c)


def test_three_axes_are_one() -> None:
    module = parse_module(SYMBOLIC.replace("x?x", "x?x3x").replace("b, t,", "b, t, s,"))
    merged = module.clone()
    run_passes(merged, [ArgSpec(PASS, {"axes": ("b", "t", "s")})])
    assert "over [i] accumulate f32 : tensor<?x512xf16, #diagram.array<[b_t_s, i]>>" in str(merged)
    given = arrays((2, 5, 3, 512), (512, 768))
    wanted, got = (run_function(each, given).results[0] for each in (module, merged))
    np.testing.assert_allclose(wanted, got, rtol=1e-12)


@pytest.mark.parametrize(
    ("axes", "reason"),
    [
        (("b", "i"), "axis 'b' does not become one with another one: no product has it"),
        (("b", "z"), "axis 'b' does not become one with another one: no product has it"),
        (("o",), "axis 'o' does not become one with another one: no product has it"),
    ],
)
def test_what_is_asked_for_in_vain_is_refused(axes: tuple[str, ...], reason: str) -> None:
    with pytest.raises(TreadleError, match=reason):
        run_passes(parse_module(SYMBOLIC), [ArgSpec(PASS, {"axes": axes})])


def test_who_keeps_them_apart_is_told() -> None:
    """Of queries that are made in the kernel, which is no place for a view."""
    text = (EXAMPLES / "attention_gqa.mlir").read_text(encoding="utf-8")
    causal = text.replace(
        "%T = diagram.map (%s = %S", '%W = diagram.where %S if "x <= q" : !S\n  %T = diagram.map (%s = %W'
    )
    negated = "%N = diagram.map (%p = %Q : !Q) -> !Q {\n %n = arith.negf %p : f16\n diagram.yield %n : f16\n }\n"
    causal = causal.replace("%S = diagram.contract %Q,", f"{negated}  %S = diagram.contract %N,")
    with pytest.raises(TreadleError, match="asks for positions along 'q'"):
        run_passes(parse_module(causal), [ArgSpec(PASS, {"axes": ("g", "q")})])


def outer(A: Any, B: Any, W: Any) -> Any:
    """Of every pair of columns of two features, what a mean of their products becomes (AlphaFold 2, algorithm 10)."""
    return tl.contract(tl.contract(A, B, over="s").to("f16"), W, over="a b")


OUTER = "s i a, s j b, a b z -> i j z"


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_axes_that_a_later_product_tells_apart_are_one_in_the_first(machine: str) -> None:
    given = [np.zeros(shape, np.float16) for shape in ((512, 256, 32), (512, 256, 32), (32, 32, 128))]
    kernel = treadle.kernel(OUTER, machine=machine)(outer).compiled(*given)
    assert decided(kernel) == ["[i, a] of %product as i_a", "[j, b] of %product as j_b"]
    flat = treadle.kernel("s u, s v -> u v", machine=machine)(lambda A, B: tl.contract(A, B, over="s"))
    plain = flat.compiled(given[0].reshape(512, 8192), given[1].reshape(512, 8192))
    assert kernel.estimate.time_us < 2 * plain.estimate.time_us


def made_apart(axes: str, function: Any, signature: str, machine: str, **sizes: int) -> treadle.Kernel:
    traced = treadle.kernel(signature)(function).trace(["f16"] * (signature.count(",") + 1), sizes)
    return treadle.compile(str(traced), machine=machine, passes=[f"{PASS}{{axes={axes}}}"])


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [(5, 7, 16, 8), (1, 1, 1, 1), (3, 0, 8, 8), (9, 2, 3, 5)])
def test_one_in_one_product_at_any_sizes(sizes: tuple[int, int, int, int], machine: str) -> None:
    i, j, a, b = sizes
    kernel = made_apart("i,a,j,b", outer, OUTER, machine, s=70, i=6, j=7, a=16, b=8, z=11)
    A, B, W = arrays((70, i, a), (70, j, b), (a, b, 11))
    verify(kernel, A, B, W)
    verify(kernel, A[:, ::-1], B[:, :, ::-1], W)


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_one_of_two_groups_of_a_product(machine: str) -> None:
    kernel = made_apart("i,a", outer, OUTER, machine, s=70, i=6, j=7, a=16, b=8, z=11)
    assert decided(kernel) == ["[i, a] of %product as i_a"]
    verify(kernel, *arrays((70, 5, 16), (70, 7, 8), (16, 8, 11)))


def by_rows(X: Any, W: Any) -> Any:
    return tl.softmax(tl.contract(X, W, over="c"), over="k")


def by_positions(X: Any, W: Any) -> Any:
    return tl.max(tl.keep(tl.contract(X, W, over="c"), "v <= k"), over="v")


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("function", "result"), [(by_rows, "t k v"), (by_positions, "t k")])
def test_axes_of_which_one_is_reduced_or_asked_for(function: Any, result: str, machine: str) -> None:
    """The product is a kernel of its own then, whose rows fill their tiles."""
    kernel = made_apart("t,k", function, f"t k c, v c -> {result}", machine, t=37, k=3, c=40, v=29)
    assert decided(kernel) == ["[t, k] of %product as t_k"]
    verify(kernel, *arrays((37, 3, 40), (29, 40)))
    verify(kernel, *arrays((0, 3, 40), (29, 40)))


def test_more_than_an_axis_may_have_are_not_one() -> None:
    module = parse_module(HUGE)
    run_passes(module, [ArgSpec("set-machine", {"name": ("h100",)}), ArgSpec(PASS, {})])
    assert "diagram.collapse" not in str(module)
    with pytest.raises(TreadleError, match="'i' does not become one with another one"):
        run_passes(parse_module(HUGE), [ArgSpec(PASS, {"axes": ("i", "a")})])


HUGE = """
!A = tensor<2x65536x65536xf16, #diagram.array<[s, i, a]>>
!B = tensor<2x4xf16, #diagram.array<[s, j]>>
!P = tensor<65536x65536x4xf32, #diagram.array<[i, a, j]>>
!m = tensor<65536x4xf32, #diagram.array<[i, j]>>
func.func @huge(%A: !A, %B: !B) -> !m {
  %P = diagram.contract %A, %B over [s] accumulate f32 : !A, !B -> !P
  %m = diagram.reduce max %P over [a] : !P -> !m
  func.return %m : !m
}
"""


@pytest.mark.parametrize("machine", ["h100", "a100"])
@pytest.mark.parametrize("between", [lambda Y: Y, lambda Y: tl.maximum(Y, 0.0)], ids=["converted", "activated"])
def test_rows_that_the_program_makes_are_one_in_the_next_product(between: Any, machine: str) -> None:
    """Heads of few tokens that a projection makes: tiles of 64 rows would hold 4, or 24."""

    def heads(X: tl.Array, W: tl.Array, U: tl.Array) -> tl.Array:
        return tl.contract(between(tl.contract(X, W, over="d")).to("f16"), U, over="c").to("f16")

    kernel = treadle.kernel("t d, k d c, v c -> t k v")(heads)
    sizes = {"t": 24, "d": 512, "k": 4, "c": 512, "v": 8000}
    found = treadle.compile(str(kernel.trace(["f16"] * 3, sizes, fixed=("k", "d", "c"))), machine=machine)
    merged = [step for step in found.derivation if step.rewrite == PASS]
    assert ["t_k" in step.subject for step in merged] == [True]
    random = np.random.default_rng(0)
    given = [random.standard_normal(shape).astype(np.float16) for shape in ((37, 512), (4, 512, 512), (70, 512))]
    given[1] *= np.float16(512**-0.5)
    (verdict,) = found.verify(*given, backend="emulator")
    assert verdict.ok, verdict
