"""States that are taken from position to position by any function (`diagram.recurrence`), at every level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from xdsl.utils.exceptions import VerifyException

import oracles
import treadle
import treadle.language as tl
from treadle.compiler.cost.reading.plans import plan_of, sizes_of_kernel
from treadle.compiler.cost.timing.time import estimate
from treadle.compiler.errors import Refusal, TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.diagram import RecurrenceOp
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import unite_equal
from treadle.passes.convert_diagram_to_linalg import ConvertDiagramToLinalgPass
from treadle.runtime.interpreter import entry_function, run_function

ROOT = Path(__file__).parents[1]
DELTA = (ROOT / "examples" / "delta_rule.mlir").read_text(encoding="utf-8")
CELLS = (ROOT / "tests" / "programs" / "recurrent_cells.mlir").read_text(encoding="utf-8")
PATHS = (ROOT / "tests" / "programs" / "recurrent_paths.mlir").read_text(encoding="utf-8")
MACHINES = ["h100", "a100", "l40s"]

Arrays = tuple[NDArray[Any], ...]


def of_delta(h: int, t: int, e: int, d: int = 64) -> Arrays:
    random = np.random.default_rng(h + t + e)
    q, k = (random.standard_normal((h, t, d)).astype(np.float16) for _ in range(2))
    return q, k, random.standard_normal((h, t, e)).astype(np.float16), random.standard_normal((h, t)).astype(np.float32)


def delta(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], b: NDArray[Any]) -> Arrays:
    """In float64, one token after another."""
    q, k, v, b = (each.astype(np.float64) for each in (q, k, v, b))
    k = k / np.sqrt((k**2).sum(-1, keepdims=True) + 1e-6)
    state, read = np.zeros((q.shape[0], q.shape[2], v.shape[2])), np.zeros(v.shape)
    for t in range(q.shape[1]):
        wrong = v[:, t] - np.einsum("hd,hde->he", k[:, t], state)
        state = state + k[:, t, :, None] * (wrong / (1 + np.exp(-b[:, t, None])))[:, None]
        read[:, t] = np.einsum("hd,hde->he", q[:, t], state)
    return read, state


def of_cells(b: int, t: int, c: int) -> Arrays:
    random = np.random.default_rng(b + t + c)
    shapes = ((b, t, c), (b, t, c), (b, c), (c,))
    return tuple(random.standard_normal(shape).astype(np.float32) for shape in shapes)


def cells(x: NDArray[Any], z: NDArray[Any], h: NDArray[Any], shift: NDArray[Any]) -> Arrays:
    x, z, h, shift = (each.astype(np.float64) for each in (x, z, h, shift))
    n, y = np.ones(h.shape), np.zeros(x.shape)
    for t in range(x.shape[1]):
        gate, before = 1 / (1 + np.exp(-(z[:, t] + h + shift))), h
        h = (1 - gate) * h + gate * np.tanh(x[:, t] / 2)
        n = np.maximum(n * 0.75, gate)
        y[:, t] = h / n + before
    return y, h, n, y.sum(-1)


def of_paths(b: int, t: int) -> Arrays:
    random = np.random.default_rng(b + t)
    return tuple(random.integers(-5, 6, shape).astype(np.int32) for shape in ((b, t, 24), (24,), (b, 24)))


def paths(e: NDArray[Any], cost: NDArray[Any], s: NDArray[Any]) -> Arrays:
    before, best = np.zeros_like(e), np.zeros(e.shape[:2], np.int32)
    for t in range(e.shape[1]):
        before[:, t] = s
        s = np.maximum(s - cost, s.max(-1, keepdims=True) - 2) + e[:, t] - np.arange(24, dtype=np.int32) % 3
        best[:, t] = s.max(-1)
    return s, before, best


# -- the reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("t", [0, 1, 7])
def test_the_reference_takes_one_position_after_another(t: int) -> None:
    for text, arrays, plain in (
        (DELTA, of_delta(2, t, 3), delta),
        (CELLS, of_cells(2, t, 5), cells),
        (PATHS, of_paths(2, t), paths),
    ):
        for found, expected in zip(run_function(parse_module(text), [*arrays]).results, plain(*arrays), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_the_reference_is_what_pytorch_gives() -> None:
    arrays = of_delta(2, 9, 5)
    expected = oracles.ORACLES["delta_rule"](*(torch.from_numpy(each.astype(np.float64)) for each in arrays))
    for found, each in zip(run_function(parse_module(DELTA), [*arrays]).results, expected, strict=True):
        np.testing.assert_allclose(found, each.numpy(), rtol=1e-12, atol=1e-12)


# -- kernels -----------------------------------------------------------------------------------------


def hold(kernel: treadle.Kernel, arrays: Arrays, expected: Arrays, within: float = 1e-5) -> None:
    """Verified, and near what a plain loop gives."""
    verdicts = kernel.verify(*arrays, backend="emulator")
    assert verdicts
    assert all(each.ok for each in verdicts), verdicts
    found = kernel.run(*arrays, backend="emulator")
    for each, plain in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(each.astype(np.float64), plain, rtol=within, atol=within)


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_the_delta_rule(machine: str) -> None:
    kernel = treadle.compile(DELTA, machine=machine)
    assert kernel.estimate.kernels == 1
    for sizes in ((3, 37, 45), (1, 1, 1), (2, 0, 5), (5, 8, 65)):
        arrays = of_delta(*sizes)
        hold(kernel, arrays, delta(*arrays), within=4e-3)


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_two_states_between_others(machine: str) -> None:
    """What is fed and what is read has kernels of its own."""
    kernel = treadle.compile(CELLS, machine=machine)
    assert kernel.estimate.kernels == 3
    for sizes in ((3, 21, 37), (1, 1, 1), (2, 0, 4), (7, 5, 130)):
        arrays = of_cells(*sizes)
        hold(kernel, arrays, cells(*arrays))


@pytest.mark.parametrize("machine", MACHINES)
def test_kernels_of_integers(machine: str) -> None:
    kernel = treadle.compile(PATHS, machine=machine)
    for sizes in ((5, 17), (1, 0), (3, 1)):
        arrays = of_paths(*sizes)
        hold(kernel, arrays, paths(*arrays), within=0)


@pytest.mark.parametrize(("d", "group"), [(8, "h=1,e=4"), (48, "h=2,e=16"), (200, "h=1,e=8"), (64, "h=4,e=1")])
@pytest.mark.parametrize("warps", ["e=1", "h=1"])
def test_pieces_of_any_size(d: int, group: str, warps: str) -> None:
    text = DELTA.replace("?x64x", f"?x{d}x").replace("?x64xf", f"?x{d}xf")
    text = text.replace(f"?x{d}x?xf16", "?x?x?xf16") if d != 64 else text
    kernel = treadle.compile(
        text, machine="a100", passes=[f'hierarchy-choose-sizes{{group="{group}" warps="{warps}"}}']
    )
    arrays = of_delta(3, 6, 21, d)
    hold(kernel, arrays, delta(*arrays), within=4e-3)


@pytest.mark.parametrize("t", [1, 2, 5])
def test_a_length_that_is_known(t: int) -> None:
    arrays = of_delta(2, t, 9)
    kernel = treadle.compile(DELTA, machine="h100", sizes={"h": 2, "t": t, "e": 9})
    hold(kernel, arrays, delta(*arrays), within=4e-3)


def test_a_wrong_state_is_found() -> None:
    kernel = treadle.compile(DELTA, machine="h100")
    arrays = of_delta(2, 20, 8)
    reference = treadle.compile(DELTA.replace("arith.addf %old", "arith.subf %old"), machine="h100")
    found = reference.run(*arrays, backend="emulator")
    good = kernel.run(*arrays, backend="emulator")
    verdicts = kernel.verify(*arrays, backend="emulator")
    for one, other, verdict in zip(found, good, verdicts, strict=True):
        assert np.abs(one.astype(float) - other.astype(float)).max() > 20 * verdict.tolerance


def test_infinities_and_nan_stay_in_states() -> None:
    x, z, h, shift = of_cells(2, 5, 6)
    h[0, 1], h[1, 2] = np.nan, np.inf
    kernel = treadle.compile(CELLS, machine="h100")
    with np.errstate(all="ignore"):
        expected = cells(x, z, h, shift)
    for found, each in zip(kernel.run(x, z, h, shift, backend="emulator"), expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-4, atol=1e-4)


STEPS = {
    "states that change places": ("%a = %S0 : !s, %b = %S1 : !s", "%x = %X : !X", "%b, %z, %a", "!s, !s, !X"),
    "what is fed, and nothing else": ("%a = %S0 : !s, %b = %S1 : !s", "%x = %X : !X", "%b, %a, %x", "!s, !s, !X"),
    "a state that is what was fed": ("%a = %S0 : !s", "%b = %X : !X", "%b, %a", "!s, !Y"),
    "one array four times": ("%a = %S0 : !s, %b = %S0 : !s", "%x = %X : !X", "%z, %z, %z, %z", "!s, !s, !X, !Y"),
    "what is the same everywhere": ("%a = %S0 : !s", "%x = %X : !X, %b = %S1 : !s", "%z, %b", "!s, !X"),
    "what stands before": ("%a = %S0 : !s", "%b = %P : !X", "%z, %z", "!s, !X"),
}
"""States, what is fed, what is yielded, and the types of that."""


def of_steps(states: str, fed: str, yielded: str, types: str, kept: list[int]) -> str:
    """A program that returns those of the results that are kept."""
    given, names = types.split(", "), [f"%r{i}x" for i in range(len(types.split(", ")))]
    inner = ", ".join("!s" for _ in given)
    returned = ", ".join(names[i] for i in kept)
    formats = ", ".join(given[i] for i in kept)
    return f"""
!X = tensor<?x?xf32, #diagram.array<[b, t]>>
!Y = tensor<?x?xf32, #diagram.array<[t, b]>>
!s = tensor<?xf32, #diagram.array<[b]>>
func.func @f(%X: !X, %S0: !s, %S1: !s) -> ({formats}) {{
  %P = diagram.read %X at "b, t - 1" padded : !X -> !X
  {", ".join(names)} = diagram.recurrence over t ({states}) each ({fed}) -> ({types}) {{
    %z = diagram.map (%p = %a : !s, %q = %b : !s) -> !s {{
      %h = arith.constant 0.5 : f32
      %u = arith.mulf %p, %h : f32
      %r = arith.addf %u, %q : f32
      diagram.yield %r : f32
    }}
    diagram.yield {yielded} : {inner}
  }}
  func.return {returned} : {formats}
}}"""


@pytest.mark.parametrize("name", STEPS)
def test_steps_of_all_kinds(name: str) -> None:
    """Also where only the first result is used, or only the last."""
    states, fed, yielded, types = STEPS[name]
    count = len(types.split(", "))
    random = np.random.default_rng(4)
    arrays = tuple(random.standard_normal(shape).astype(np.float32) for shape in ((7, 13), (7,), (7,)))
    for kept in (list(range(count)), [0], [count - 1]):
        text = of_steps(states, fed, yielded, types, kept)
        hold(treadle.compile(text, machine="h100"), arrays, tuple(run_function(parse_module(text), [*arrays]).results))


def test_a_state_without_axes() -> None:
    """Of bytes, and of positions, which are fed as an array is."""
    text = """
!L = tensor<?xi8, #diagram.array<[t]>>
!T = tensor<?xi32, #diagram.array<[t]>>
!o = tensor<?xf32, #diagram.array<[t]>>
!n = tensor<f32, #diagram.array<[]>>
!i = tensor<i32, #diagram.array<[]>>
!c = tensor<i8, #diagram.array<[]>>
func.func @f(%L: !L) -> (!n, !o) {
  %begin = diagram.fill 0.25 : f32 -> !n
  %at = diagram.index -> !T
  %last, %Y = diagram.recurrence over t (%a = %begin : !n) each (%x = %L : !L, %k = %at : !T) -> (!n, !o) {
    %z = diagram.map (%p = %a : !n, %q = %x : !c, %w = %k : !i) -> !n {
      %h = arith.constant 0.5 : f32
      %v = arith.extsi %q : i8 to i32
      %m = arith.addi %v, %w : i32
      %f = arith.sitofp %m : i32 to f32
      %u = arith.mulf %p, %h : f32
      %r = arith.addf %u, %f : f32
      diagram.yield %r : f32
    }
    diagram.yield %z, %z : !n, !n
  }
  func.return %last, %Y : !n, !o
}"""
    given = np.random.default_rng(2).integers(-3, 4, 29).astype(np.int8)
    state, made = 0.25, np.zeros(29)
    for t, each in enumerate(given):
        made[t] = state = 0.5 * state + int(each) + t
    hold(treadle.compile(text, machine="a100"), (given,), (np.asarray(state), made))


# -- the model ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [DELTA, CELLS, PATHS], ids=["delta", "cells", "paths"])
def test_a_plan_says_what_the_kernel_does(text: str) -> None:
    """Before and after its streams are expanded, and as the interpreter counts it."""
    times: list[list[float]] = []
    for last in ("hierarchy-choose-sizes", "hierarchy-expand-streams"):
        module = parse_module(text)
        run_pipeline(module, Options("h100"), last=last)
        kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
        function = entry_function(module)
        plans = [(plan_of(op), sizes_of_kernel(op, function)) for op in kernels]
        found = [estimate(plan, machine_of(module), sizes) for plan, sizes in plans]
        times.append([each.time_us for each in found if each is not None])
    assert times[0] == pytest.approx(times[1])


def test_positions_take_their_time() -> None:
    """Each waits for the one before."""

    def time(t: int) -> float:
        text = DELTA.replace("t = 60", f"t = {t}")
        kernel = treadle.compile(text, machine="h100", passes=["diagram-chunk-recurrences{recurrences=none}"])
        assert kernel.estimate.time_us is not None
        return kernel.estimate.time_us

    assert time(4000) > 1.9 * time(2000)


def test_what_comes_next_is_fetched_ahead() -> None:
    """Seven positions, or as many as are asked for."""
    assert "8 stages" in treadle.compile(DELTA, machine="h100").cuda
    assert "2 stages" in treadle.compile(DELTA, machine="h100", passes=["pipelining{positions=2}"]).cuda


@pytest.mark.parametrize("t", [1, 6, 7, 8, 20])
def test_fewer_positions_than_are_on_their_way(t: int) -> None:
    kernel = treadle.compile(DELTA, machine="h100")
    verdicts = kernel.verify(*of_delta(2, t, 5, 64), backend="emulator")
    assert all(verdict.ok for verdict in verdicts), verdicts


# -- in Python ---------------------------------------------------------------------------------------


def test_a_step_in_python() -> None:
    @treadle.kernel("h t d, h t d, h t e, h t, h t -> h t e, h d e", machine="h100", static="d")
    def gated(Q: Any, K: Any, V: Any, rate: Any, decay: Any) -> Any:
        def step(S: Any, q: Any, k: Any, v: Any, b: Any, a: Any) -> Any:
            S = S * tl.exp(a)
            S = S + k * (b * (v - tl.contract(k, S, over="d")))
            return S, tl.contract(q, S, over="d").to("f16")

        last, read = tl.recurrence(step, over="t", states="h d e", inputs=[Q, K, V, rate, decay])
        return read, last

    q, k, v, b = of_delta(2, 11, 7, 24)
    k = (k / np.linalg.norm(k.astype(float), axis=-1, keepdims=True)).astype(np.float16)
    b, decay = 1 / (1 + np.exp(-b)), -np.abs(b)
    found = gated(q, k, v, b, decay, backend="emulator")
    state, read = np.zeros((2, 24, 7)), np.zeros((2, 11, 7))
    wide = [each.astype(np.float64) for each in (q, k, v, b, decay)]
    for t in range(11):
        query, key, value, rate, less = (each[:, t] for each in wide)
        state = state * np.exp(less)[:, None, None]
        wrong = rate[:, None] * (value - np.einsum("hd,hde->he", key, state))
        state = state + key[:, :, None] * wrong[:, None]
        read[:, t] = np.einsum("hd,hde->he", query, state)
    for each, plain in zip(found, (read, state), strict=True):
        np.testing.assert_allclose(each.astype(float), plain, rtol=2e-3, atol=2e-3)


def test_states_that_begin_with_numbers_and_arrays() -> None:
    @treadle.kernel("b t, b -> b, b, b t", machine="a100")
    def smoothed(X: Any, begin: Any) -> Any:
        def step(s: Any, n: Any, x: Any) -> Any:
            s = 0.75 * s + tl.tanh(x) * 0.25
            return s, tl.maximum(n, s), s * n

        return tl.recurrence(step, over="t", states=[begin, ("b", -1.0)], inputs=X)

    random = np.random.default_rng(1)
    x, s = random.standard_normal((3, 9)).astype(np.float32), random.standard_normal(3).astype(np.float32)
    found = smoothed(x, s, backend="emulator")
    n, made = np.full(3, -1.0), np.zeros((3, 9))
    for t in range(9):
        before = n
        s = 0.75 * s + np.tanh(x[:, t]) * 0.25
        made[:, t], n = s * before, np.maximum(n, s)
    for each, plain in zip(found, (s, n, made), strict=True):
        np.testing.assert_allclose(each, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("machine", MACHINES)
def test_laws_in_a_step(machine: str) -> None:
    """Shares of a row, and what divides by its length, which is a number there."""
    text = """
!X = tensor<?x5x8xf32, #diagram.array<[t, c, d]>>
!x = tensor<5x8xf32, #diagram.array<[c, d]>>
!r = tensor<5xf32, #diagram.array<[c]>>
!R = tensor<?x5xf32, #diagram.array<[t, c]>>
func.func @f(%X: !X, %H: !x) -> (!x, !R) attributes {sizes = #diagram.sizes<t = 9>} {
  %last, %Y = diagram.recurrence over t (%h = %H : !x) each (%x = %X : !X) -> (!x, !R) {
    %s = diagram.map (%a = %h : !x, %b = %x : !x) -> !x {
      %u = arith.addf %a, %b : f32
      diagram.yield %u : f32
    }
    %p = diagram.apply @softmax(%s) over [d] : (!x) -> !x
    %v = diagram.apply @variance(%s) over [d] : (!x) -> !r
    diagram.yield %p, %v : !x, !r
  }
  func.return %last, %Y : !x, !R
}"""
    random = np.random.default_rng(3)
    x, h = (random.standard_normal(shape).astype(np.float32) for shape in ((9, 5, 8), (5, 8)))
    state, made = h.astype(np.float64), np.zeros((9, 5))
    for t in range(9):
        scores = state + x[t]
        made[t], powers = scores.var(-1), np.exp(scores - scores.max(-1, keepdims=True))
        state = powers / powers.sum(-1, keepdims=True)
    kernel = treadle.compile(text, machine=machine)
    for each, plain in zip(kernel.run(x, h, backend="emulator"), (state, made), strict=True):
        np.testing.assert_allclose(each, plain, rtol=1e-5, atol=1e-5)


def test_the_length_of_a_law_in_a_step_is_known() -> None:
    text = """
!X = tensor<?x?xf32, #diagram.array<[t, b]>>
!s = tensor<?xf32, #diagram.array<[b]>>
!n = tensor<f32, #diagram.array<[]>>
func.func @f(%X: !X, %n: !n) -> !n {
  %last = diagram.recurrence over t (%h = %n : !n) each (%x = %X : !X) -> (!n) {
    %y = diagram.apply @mean(%x) over [b] : (!s) -> !n
    diagram.yield %y : !n
  }
  func.return %last : !n
}"""
    with pytest.raises(TreadleError, match=r"the size of .b., which is known only at launch: give the axis"):
        treadle.compile(text)


def test_shares_in_a_step_of_python() -> None:
    @treadle.kernel("t c, t d, c d -> t d, c d", machine="h100", static="c d")
    def routed(Q: Any, V: Any, S: Any) -> Any:
        def step(S: Any, q: Any, v: Any) -> Any:
            p = tl.softmax(q, over="c")
            S = S * (1 - p) + p * v
            return S, tl.contract(p, S, over="c")

        last, read = tl.recurrence(step, over="t", states=S, inputs=[Q, V])
        return read, last

    random = np.random.default_rng(5)
    q, v, s = (random.standard_normal(shape).astype(np.float32) for shape in ((7, 6), (7, 9), (6, 9)))
    found = routed(q, v, s, backend="emulator")
    state, read = s.astype(np.float64), np.zeros((7, 9))
    for t in range(7):
        p = np.exp(q[t]) / np.exp(q[t].astype(np.float64)).sum()
        state = state * (1 - p[:, None]) + p[:, None] * v[t]
        read[t] = p @ state
    for each, plain in zip(found, (read, state), strict=True):
        np.testing.assert_allclose(each, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("used", ["x", "y", "both"])
def test_what_a_step_does_not_use(used: str) -> None:
    """Its axes are none of the kernel."""

    @treadle.kernel("t c, t d -> c, t c", machine="h100", static="d")
    def summed(X: Any, Y: Any) -> Any:
        def step(s: Any, x: Any, y: Any) -> Any:
            tl.tanh(y)
            s = s * 0.5 + (x if used == "x" else tl.sum(y, over="d") if used == "y" else x * tl.sum(y, over="d"))
            return s, s

        return tl.recurrence(step, over="t", states="c", inputs=[X, Y])

    random = np.random.default_rng(5)
    x, y = (random.standard_normal((9, n)).astype(np.float32) for n in (5, 6))
    state, made = np.zeros(5), np.zeros((9, 5))
    for t in range(9):
        total = y[t].astype(np.float64).sum()
        state = state * 0.5 + (x[t] if used == "x" else total if used == "y" else x[t] * total)
        made[t] = state
    for each, plain in zip(summed(x, y, backend="emulator"), (state, made), strict=True):
        np.testing.assert_allclose(each, plain, rtol=1e-5, atol=1e-5)


def test_a_step_that_uses_nothing_along_its_axis() -> None:
    """What it is given still says how many positions there are, if the states have its other axes."""

    @treadle.kernel("t c -> c", machine="h100")
    def halved(X: Any) -> Any:
        return tl.recurrence(lambda s, x: s * 0.5, over="t", states=[("c", 1.0)], inputs=X)[0]

    @treadle.kernel("t d, c -> c", machine="h100")
    def others(X: Any, S: Any) -> Any:
        return tl.recurrence(lambda s, x: s * 0.5, over="t", states=S, inputs=X)[0]

    given = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(halved(given, backend="emulator"), np.full(3, 0.5**5))
    with pytest.raises(TreadleError, match="have other axes that no state has: let it use one of them"):
        others(given, np.ones(3, np.float32), backend="emulator")


def refused(step: Any, match: str, over: str = "t", states: Any = "b") -> None:
    function = treadle.kernel("b t -> b")(
        lambda X: tl.recurrence(step, over=over, states=states, inputs=X)[0]  # pyright: ignore[reportUnknownLambdaType]
    )
    with pytest.raises(TreadleError, match=match):
        function.trace(["f32"], {"b": 3, "t": 4})


def test_what_is_no_step() -> None:
    refused(lambda s, x: s + x, "along one axis", over="b t")
    refused(lambda s, x: s + x, "which no array of 'inputs' has", over="u")
    refused(lambda s, x: s + x, "along 'u', which no argument has", states="u")
    refused(lambda s, x: s + x, "not int", states=[3])
    refused(lambda s, x: (), "returns 0 arrays, it has 1 states")
    refused(lambda s, x: 1.0, "returns float that is no array made of its arguments")
    refused(lambda s, x: tl.sum(s + x, over="b"), r"has axes \[b\] before a step, \[\] after it")
    refused(lambda s, x: tl.keep(s + x, "b < 2"), "'diagram.where' in the body of a recurrence")


def test_recurrences_that_are_alike_become_one_and_others_not() -> None:
    """Whatever a map in their bodies computes."""
    lines = PLAIN.split("\n")
    begin = next(i for i, line in enumerate(lines) if "diagram.recurrence" in line)
    own = lines[begin : begin + 7]
    for name, change, count in (("mulf", "mulf", 1), ("mulf", "subf", 2)):
        more = [line.replace("%S, %Y", "%T, %U").replace(name, change) for line in own]
        module = parse_module(
            "\n".join([*lines[: begin + 7], *more, "  func.return %S, %T : !s, !s", "}"]).replace(
                "-> !s {", "-> (!s, !s) {", 1
            )
        )
        unite_equal(entry_function(module).body.block)
        assert sum(isinstance(op, RecurrenceOp) for op in module.walk()) == count


# -- what is refused ---------------------------------------------------------------------------------

WRONG = {
    r"state 0 is tensor<\?xf16": ("f32", "f16"),
    "nothing says how many positions": ("each (%x = %X : !X)", "each (%x = %S0 : !s)"),
    "result 1 is .*without axis 't'": ("-> (!s, !X) {", "-> (!s, !s) {"),
    "the body yields 2 arrays, the recurrence gives 3": ("%S, %Y = ", "%S, %Y, %Z = "),
    "a product of f8E4M3FN": (
        "%y = diagram.map",
        "%f = diagram.fill 1.0 : f8E4M3FN -> !g\n %p = diagram.contract %f, %f over [b] accumulate f32 : !g, !g -> !n\n"
        "%y = diagram.map",
    ),
    "adds 'into' an array": (
        "%y = diagram.map",
        "%f = diagram.fill 1.0 : f32 -> !n\n %p = diagram.reduce add %s over [b] into %f : !s -> !n\n %y = diagram.map",
    ),
    "it is of one position": ("%y = diagram.map", "%f = diagram.fill 1.0 : f32 -> !X\n %y = diagram.map"),
    "'diagram.scan' in the body": ("%y = diagram.map", "%f = diagram.scan add %s over b : !s -> !s\n %y = diagram.map"),
}
PLAIN = """
!X = tensor<?x?xf32, #diagram.array<[b, t]>>
!s = tensor<?xf32, #diagram.array<[b]>>
!n = tensor<f32, #diagram.array<[]>>
!g = tensor<?xf8E4M3FN, #diagram.array<[b]>>
func.func @f(%X: !X, %S0: !s) -> !s {
  %S, %Y = diagram.recurrence over t (%s = %S0 : !s) each (%x = %X : !X) -> (!s, !X) {
    %y = diagram.map (%a = %s : !s, %c = %x : !s) -> !s {
      %z = arith.mulf %a, %c : f32
      diagram.yield %z : f32
    }
    diagram.yield %y, %y : !s, !s
  }
  func.return %S : !s
}"""


@pytest.mark.parametrize("match", WRONG)
def test_what_is_no_recurrence(match: str) -> None:
    old, new = WRONG[match]
    assert old in PLAIN
    text = PLAIN.replace(old, new)
    text = text.replace("(!s, !X) {", "(!s, !X, !X) {") if "%Z" in new else text
    with pytest.raises((TreadleError, VerifyException), match=match):
        parse_module(text).verify()


def test_an_axis_that_a_step_reduces_is_held_whole() -> None:
    text = DELTA.replace("?x64x", "?x?x").replace("?x64xf", "?x?xf")
    with pytest.raises(
        TreadleError, match=r"no kernel can have it: axis 'd' is reduced by %norm.*known only at launch"
    ):
        treadle.compile(text, machine="h100")


def test_absent_elements_are_refused() -> None:
    text = PLAIN.replace("  %S, %Y", '  %W = diagram.where %X if "t < 5" : !X -> !X\n  %S, %Y').replace("= %X", "= %W")
    with pytest.raises(TreadleError, match="%W has elements only where a condition holds"):
        treadle.compile(text, machine="h100")


def test_linalg_has_no_recurrence() -> None:
    module = load_module(ROOT / "examples" / "delta_rule.mlir")
    with pytest.raises(Refusal, match="linalg has nothing like it"):
        ConvertDiagramToLinalgPass().apply(None, module)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("option", "match"),
    [
        ("hierarchy-split-streams{parts=2 axis=t}", "no part of that knows the state before it"),
        ('hierarchy-choose-sizes{stream="t=4"}', "a recurrence takes one position after another"),
        ("streaming{axis=d}", "cannot stream 'd': it is a recurrence along 't'"),
    ],
)
def test_other_ways_are_refused(option: str, match: str) -> None:
    with pytest.raises(TreadleError, match=match):
        treadle.compile(DELTA, machine="h100", passes=[option])
