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
    X, W = arrays((32, 1, 512), (512, 768))
    kernel = treadle.kernel("b t i, i o -> b t o", machine=machine)(linear).compiled(X, W)
    plain = treadle.kernel("t i, i o -> t o", machine=machine)(linear).compiled(X[:, 0], W)
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
    kernel = treadle.kernel("b h q d, b x d -> b h q d", machine=machine)(halves).compiled(Q, K)
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
    text = (EXAMPLES / "attention_gqa.mlir").read_text(encoding="utf-8")
    causal = text.replace(
        "%T = diagram.map (%s = %S", '%W = diagram.where %S if "x <= q" : !S\n  %T = diagram.map (%s = %W'
    )
    with pytest.raises(TreadleError, match="asks for positions along 'q'"):
        run_passes(parse_module(causal), [ArgSpec(PASS, {"axes": ("g", "q")})])
