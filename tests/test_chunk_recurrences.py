"""Recurrences whose steps are affine in their states, taken in chunks (`diagram-chunk-recurrences`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from test_recurrence import CELLS, DELTA, PATHS, Arrays, delta, hold, of_delta
from test_recurrence_gradients import differentiated
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

import treadle
from treadle.compiler.errors import Refusal
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import RecurrenceOp
from treadle.passes.diagram_chunk_recurrences import DiagramChunkRecurrencesPass
from treadle.passes.recurrences.affine import why_not
from treadle.runtime.interpreter import run_function

PASS = "diagram-chunk-recurrences"


def in_chunks(text: str, length: int, *names: str) -> ModuleOp:
    module = parse_module(text)
    DiagramChunkRecurrencesPass(names, length).apply(Context(), module)
    module.verify()
    return module


def recurrences(module: ModuleOp) -> list[RecurrenceOp]:
    return [op for op in module.walk() if isinstance(op, RecurrenceOp)]


def reason(text: str) -> str | None:
    """Why the first recurrence of a program is not one for chunks."""
    return why_not(recurrences(parse_module(text))[0])


def holds_in_chunks(text: str, length: int, arrays: Arrays, expected: Sequence[NDArray[Any]], *names: str) -> None:
    """In real numbers, of which the reference's are near."""
    module = in_chunks(text, length, *names)
    for found, each in zip(run_function(module, [*arrays]).results, expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-11, atol=1e-11)


# -- programs ----------------------------------------------------------------------------------------

HEAD = """
!K = tensor<?x?x6xf16, #diagram.array<[h, t, d]>>
!V = tensor<?x?x?xf16, #diagram.array<[h, t, e]>>
!G = tensor<?x?x6xf32, #diagram.array<[h, t, d]>>
!E = tensor<?x?x?xf32, #diagram.array<[h, t, e]>>
!S = tensor<?x6x?xf32, #diagram.array<[h, d, e]>>
!k = tensor<?x6xf16, #diagram.array<[h, d]>>
!v = tensor<?x?xf16, #diagram.array<[h, e]>>
!g = tensor<?x6xf32, #diagram.array<[h, d]>>
!p = tensor<?x?xf32, #diagram.array<[h, e]>>
"""

GATED = (
    HEAD
    + """
func.func @gated(%Q: !K, %K: !K, %V: !V, %G: !G, %S0: !S) -> (!E, !S)
    attributes {sizes = #diagram.sizes<h = 2, t = 21, e = 5>} {
  %S, %O = diagram.recurrence over t REVERSE(%s = %S0 : !S)
      each (%q = %Q : !K, %k = %K : !K, %v = %V : !V, %g = %G : !G) -> (!S, !E) {
    %after = diagram.map (%old = %s : !S, %x = %k : !k, %y = %v : !v, %f = %g : !g) -> !S {
      %a = arith.mulf %old, %f : f32
      %b = arith.extf %x : f16 to f32
      %c = arith.extf %y : f16 to f32
      %d = arith.mulf %b, %c : f32
      %n = arith.addf %a, %d : f32
      diagram.yield %n : f32
    }
    %wide = diagram.cast %q : !k -> !g
    %o = diagram.contract %wide, %after over [d] accumulate f32 : !g, !S -> !p
    diagram.yield %after, %o : !S, !p
  }
  func.return %O, %S : !E, !S
}"""
)
"""Linear attention with a gate for each key channel, which may be zero or negative."""


def of_gated(h: int, t: int, e: int) -> Arrays:
    random = np.random.default_rng(h + t + e)
    q, k = (random.standard_normal((h, t, 6)).astype(np.float16) for _ in range(2))
    v = random.standard_normal((h, t, e)).astype(np.float16)
    gates = random.uniform(-1, 1, (h, t, 6)).astype(np.float32) * (random.random((h, t, 6)) > 0.1)
    return q, k, v, gates.astype(np.float32), random.standard_normal((h, 6, e)).astype(np.float32)


def gated(q: NDArray[Any], k: NDArray[Any], v: NDArray[Any], g: NDArray[Any], s: NDArray[Any], back: bool) -> Arrays:
    q, k, v, g, s = (each.astype(np.float64) for each in (q, k, v, g, s))
    read = np.zeros(v.shape)
    for t in reversed(range(q.shape[1])) if back else range(q.shape[1]):
        s = s * g[:, t, :, None] + k[:, t, :, None] * v[:, t, None, :]
        read[:, t] = np.einsum("hd,hde->he", q[:, t], s)
    return read, s


MATRICES = """
!A = tensor<?x?x4x4xf32, #diagram.array<[h, t, i, j]>>
!X = tensor<?x?x4x?xf32, #diagram.array<[h, t, i, e]>>
!Y = tensor<?x?x?xf32, #diagram.array<[h, t, e]>>
!N = tensor<?x?xf32, #diagram.array<[h, e]>>
!S = tensor<?x4x?xf32, #diagram.array<[h, i, e]>>
!a = tensor<?x4x4xf32, #diagram.array<[h, i, j]>>
!j = tensor<?x4x?xf32, #diagram.array<[h, j, e]>>
!y = tensor<?x?xf32, #diagram.array<[h, e]>>
func.func @matrices(%A: !A, %X: !X, %S0: !S, %N0: !N) -> (!Y, !S, !N)
    attributes {sizes = #diagram.sizes<h = 2, t = 13, e = 3>} {
  %S, %N, %Y = diagram.recurrence over t (%s = %S0 : !S, %n = %N0 : !N) each (%a = %A : !A, %x = %X : !X)
      -> (!S, !N, !Y) {
    %r = diagram.rename %s (i as j) : !S -> !j
    %m = diagram.contract %a, %r over [j] accumulate f32 : !a, !j -> !S
    %after = diagram.map (%u = %m : !S, %v = %x : !S, %w = %s : !S) -> !S {
      %half = arith.constant 0.5 : f32
      %z = arith.constant 2.0 : f32
      %b = arith.mulf %half, %w : f32
      %c = arith.subf %v, %u : f32
      %d = arith.divf %c, %z : f32
      %k = arith.subf %d, %b : f32
      diagram.yield %k : f32
    }
    %less = diagram.map (%u = %n : !N) -> !N {
      %q = arith.constant 0.75 : f32
      %one = arith.constant 1.0 : f32
      %b = arith.mulf %u, %q : f32
      %c = arith.addf %b, %one : f32
      diagram.yield %c : f32
    }
    %top = diagram.reduce max %after over [i] : !S -> !y
    %o = diagram.map (%u = %top : !y, %v = %less : !N) -> !y {
      %b = arith.mulf %u, %v : f32
      diagram.yield %b : f32
    }
    diagram.yield %after, %less, %o : !S, !N, !y
  }
  func.return %Y, %S, %N : !Y, !S, !N
}"""
"""Two states: one that matrices move, and one that is fed nothing; what is read is no linear function of either."""


def of_matrices(h: int, t: int, e: int) -> Arrays:
    random = np.random.default_rng(h + t + e)
    shapes = ((h, t, 4, 4), (h, t, 4, e), (h, 4, e), (h, e))
    return tuple(random.standard_normal(shape).astype(np.float32) / 2 for shape in shapes)


def matrices(a: NDArray[Any], x: NDArray[Any], s: NDArray[Any], n: NDArray[Any]) -> Arrays:
    a, x, s, n = (each.astype(np.float64) for each in (a, x, s, n))
    y = np.zeros((x.shape[0], x.shape[1], x.shape[3]))
    for t in range(a.shape[1]):
        s = (x[:, t] - np.einsum("hij,hje->hie", a[:, t], s)) / 2 - s / 2
        n = 0.75 * n + 1
        y[:, t] = s.max(1) * n
    return y, s, n


# -- the law -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 4, 7])
@pytest.mark.parametrize("t", [0, 1, 7, 12, 21])
def test_chunks_are_what_positions_are(length: int, t: int) -> None:
    """Also where the last one is short, or there is none."""
    arrays = of_delta(2, t, 3)
    holds_in_chunks(DELTA, length, arrays, delta(*arrays), "S")
    for word in ("", "reverse "):
        arrays = of_gated(2, t, 3)
        holds_in_chunks(GATED.replace("REVERSE", word), length, arrays, gated(*arrays, back=bool(word)), "S")
    arrays = of_matrices(2, t, 3)
    holds_in_chunks(MATRICES, length, arrays, matrices(*arrays), "S")


@pytest.mark.parametrize("t", [12, 13])
def test_a_length_that_is_known(t: int) -> None:
    """Chunks that divide it ask of no position whether it is there."""
    text = GATED.replace("REVERSE", "").replace("t = 21, ", "")
    for size in ("6", "?"):
        text = text.replace(f"<?x?x{size}x", f"<?x{t}x{size}x")
    arrays = of_gated(2, t, 3)
    holds_in_chunks(text, 4, arrays, gated(*arrays, back=False), "S")
    assert ("arith.select" in str(in_chunks(text, 4, "S"))) is (t % 4 != 0)


@pytest.mark.parametrize("result", ["%O : !E", "%S : !S"])
@pytest.mark.parametrize("word", ["", "reverse "])
def test_results_that_nobody_uses(result: str, word: str) -> None:
    type = result.split(" : ")[1]
    text = GATED.replace("REVERSE", word).replace("func.return %O, %S : !E, !S", f"func.return {result}")
    text = text.replace("-> (!E, !S)\n", f"-> {type}\n")
    arrays = of_gated(2, 11, 3)
    expected = gated(*arrays, back=bool(word))[0 if type == "!E" else 1]
    holds_in_chunks(text, 4, arrays, [expected], "S")
    assert len(recurrences(in_chunks(text, 4, "S"))) == (4 if type == "!E" else 3)


def test_axes_that_a_step_leaves_apart_have_one_matrix() -> None:
    """Of the delta rule `d` by `d` for all columns; of gates one number for each channel; of one number, that."""
    first, *_ = recurrences(in_chunks(DELTA, 8, "S"))
    assert "#diagram.array<[t_chunk, h, d, d_from]>" in str(first.last[0].type)
    first, *_ = recurrences(in_chunks(GATED.replace("REVERSE", ""), 8, "S"))
    assert "#diagram.array<[t_chunk, h, d]>" in str(first.last[0].type)
    one, two, *_ = recurrences(in_chunks(MATRICES, 8, "S"))
    assert "#diagram.array<[t_chunk, h, i, i_from]>" in str(one.last[0].type)
    assert "#diagram.array<[t_chunk]>" in str(two.last[0].type)


def test_names_of_axes_may_be_taken() -> None:
    text = DELTA.replace("h, ", "t_in, ").replace("[h]", "[t_in]").replace("h = ", "t_in = ")
    arrays = of_delta(2, 11, 3)
    holds_in_chunks(text, 4, arrays, delta(*arrays), "S")


def test_gradients_go_in_chunks() -> None:
    """That of the delta rule is two recurrences with affine steps, one of which goes the other way."""
    gradient, given, expected = differentiated("delta_rule")
    names = [str(op.last[0].name_hint) for op in recurrences(gradient)]
    assert len(names) == 2
    module = in_chunks(str(gradient), 4, *names)
    assert len(recurrences(module)) == 8
    for found, each in zip(run_function(module, given).results, expected, strict=True):
        np.testing.assert_allclose(found, each, rtol=1e-9, atol=1e-9)


def test_two_of_one_name_go_in_chunks_once() -> None:
    module = parse_module(
        DELTA.replace("return %O, %S", "return %P, %S").replace("  func.return", TWICE + "  func.return")
    )
    for op in recurrences(module):
        op.last[0].name_hint = "S"
    DiagramChunkRecurrencesPass(("S",), 4).apply(Context(), module)
    module.verify()
    assert len(recurrences(module)) == 8


TWICE = f"  %T, %P = {DELTA.split('%S, %O = ')[1].split('func.return')[0].replace('= %V', '= %O')}"
"""The delta rule of what another one reads."""

# -- what is no affine step ----------------------------------------------------------------------------

PLAIN = """
!X = tensor<?x?xFED, #diagram.array<[b, t]>>
!s = tensor<?xf32, #diagram.array<[b]>>
!x = tensor<?xFED, #diagram.array<[b]>>
!r = tensor<?xf16, #diagram.array<[b]>>
!n = tensor<f32, #diagram.array<[]>>
func.func @f(%X: !X, %S0: !s) -> !s {
  %S = diagram.recurrence over t (%a = %S0 : !s) each (%b = %X : !X) -> (!s) {
    STEP
    diagram.yield %z : !s
  }
  func.return %S : !s
}"""


def plain(body: str, fed: str = "f32") -> str:
    """A step that is one map of a state `%p` and what is fed, `%q`."""
    step = f"%z = diagram.map (%p = %a : !s, %q = %b : !x) -> !s {{ {body}\n diagram.yield %r : f32 }}"
    return PLAIN.replace("STEP", step).replace("FED", fed)


AFFINE = {
    "a difference": "%r = arith.subf %q, %p : f32",
    "a choice": "%c = arith.cmpf ogt, %q, %q : f32\n %r = arith.select %c, %p, %q : f32",
    "a quotient of a sum": "%u = arith.addf %p, %q : f32\n %r = arith.divf %u, %q : f32",
    "minus itself twice": "%u = arith.negf %p : f32\n %r = arith.addf %u, %u : f32",
    "functions of what is fed": "%u = math.exp %q : f32\n %r = arith.mulf %u, %p : f32",
}

OTHERS = {
    "'arith.mulf' of its state": "%r = arith.mulf %p, %p : f32",
    "'arith.divf' of its state": "%r = arith.divf %q, %p : f32",
    "'math.tanh' of its state": "%u = math.tanh %p : f32\n %r = arith.addf %u, %q : f32",
    "'arith.maximumf' of its state": "%r = arith.maximumf %p, %q : f32",
    "'arith.truncf' of its state": "%u = arith.truncf %p : f32 to f16\n %r = arith.extf %u : f16 to f32",
    "'arith.select' of its state": "%c = arith.cmpf ogt, %p, %q : f32\n %r = arith.select %c, %p, %q : f32",
    "its state is not made of the one before": "%r = arith.mulf %q, %q : f32",
}


@pytest.mark.parametrize("name", AFFINE)
def test_maps_that_are_affine(name: str) -> None:
    random = np.random.default_rng(5)
    arrays = (random.uniform(0.5, 2, (3, 11)).astype(np.float32), random.standard_normal(3).astype(np.float32))
    text = plain(AFFINE[name])
    assert reason(text) is None
    holds_in_chunks(text, 4, arrays, run_function(parse_module(text), [*arrays]).results, "S")


@pytest.mark.parametrize("why", OTHERS)
def test_maps_that_are_not(why: str) -> None:
    assert reason(plain(OTHERS[why])) == why.replace("arith.select' of", "arith.cmpf' of")


def test_steps_that_are_not() -> None:
    assert reason(CELLS) in ("'arith.addf' of its state", "'math.exp' of its state", "a state is made of another one")
    assert reason(PATHS) == "its state is of i32, not of f32"
    rounded = "%y = diagram.cast %a : !s -> !r\n %z = diagram.cast %y : !r -> !s"
    assert reason(PLAIN.replace("STEP", rounded).replace("FED", "f32")) == "'diagram.cast' of its state"
    spread = "%z = diagram.map (%p = %y : !n) -> !s { diagram.yield %p : f32 }"
    largest = f"%y = diagram.reduce max %a over [b] : !s -> !n\n {spread}"
    assert reason(PLAIN.replace("STEP", largest).replace("FED", "f32")) == "'diagram.reduce' of its state"
    summed = largest.replace("max", "add")
    why = "elements of its state meet along 'b', the size of which is not known"
    assert reason(PLAIN.replace("STEP", summed).replace("FED", "f32")) == why
    squared = "%y = diagram.contract %a, %a over [b] accumulate f32 : !s, !s -> !n\n" + spread
    assert reason(PLAIN.replace("STEP", squared).replace("FED", "f32")) == "its state is multiplied by itself"
    text = DELTA.replace("over [d] accumulate f32 : !k, !S", "over [d] accumulate f32 as tf32 : !k, !S")
    assert reason(text) == "a product with its state is rounded to less than f32"


def test_what_lacks_elements_stays() -> None:
    text = plain(AFFINE["a difference"]).replace("%S = ", '%Y = diagram.where %X if "t <= 5" : !X\n  %S = ')
    assert reason(text.replace("= %X : !X)", "= %Y : !X)")) == "what it is fed lacks elements"


def test_options_are_checked() -> None:
    with pytest.raises(PassFailedException, match="at least one position"):
        in_chunks(DELTA, -1, "S")
    with pytest.raises(Refusal, match="%O is no recurrence whose step is affine in its states: such are %S"):
        in_chunks(DELTA, 8, "O")
    assert len(recurrences(in_chunks(DELTA, 8, "none"))) == 1


# -- kernels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["h100", "a100"])
def test_kernels_of_chunks_of_the_delta_rule(machine: str) -> None:
    """Against the reference, and token by token in float64."""
    kernel = treadle.compile(DELTA, machine=machine, passes=[f"{PASS}{{recurrences=S length=8}}"])
    assert kernel.estimate.kernels == 6
    for sizes in ((3, 37, 45), (2, 8, 3), (1, 1, 1), (2, 0, 5)):
        arrays = of_delta(*sizes)
        hold(kernel, arrays, delta(*arrays), within=4e-3)


@pytest.mark.parametrize("word", ["", "reverse "])
def test_kernels_of_gates(word: str) -> None:
    text = GATED.replace("REVERSE", word)
    kernel = treadle.compile(text, machine="h100", passes=[f"{PASS}{{recurrences=S length=4}}"])
    for sizes in ((2, 21, 5), (1, 4, 3), (3, 1, 2)):
        arrays = of_gated(*sizes)
        hold(kernel, arrays, gated(*arrays, back=bool(word)), within=1e-4)


def test_kernels_of_matrices() -> None:
    kernel = treadle.compile(MATRICES, machine="h100", passes=[f"{PASS}{{recurrences=S length=4}}"])
    for sizes in ((2, 13, 3), (3, 8, 5)):
        arrays = of_matrices(*sizes)
        hold(kernel, arrays, matrices(*arrays), within=1e-4)


def test_a_wrong_chunk_is_found() -> None:
    """What a chunk multiplies states by is verified as what else is."""
    arrays = of_delta(2, 24, 8)
    kernel = treadle.compile(DELTA, machine="h100", passes=[f"{PASS}{{recurrences=S length=8}}"])
    good = kernel.run(*arrays, backend="emulator")
    verdicts = kernel.verify(*arrays, backend="emulator")
    state, read = np.zeros((2, 64, 8)), np.zeros((2, 24, 8))
    for first in range(0, 24, 8):  # as if no chunk knew those before it
        read[:, first : first + 8], state = delta(*(each[:, first : first + 8] for each in arrays))
    for one, other, verdict in zip((read, state), good, verdicts, strict=True):
        assert np.abs(one - other.astype(float)).max() > 20 * verdict.tolerance


# -- the model ---------------------------------------------------------------------------------------


def of_sizes(h: int, t: int) -> treadle.Kernel:
    return treadle.compile(DELTA, machine="h100", sizes={"h": h, "t": t, "e": 64})


def time_of(kernel: treadle.Kernel) -> float:
    assert kernel.estimate.time_us is not None
    return kernel.estimate.time_us


def test_it_is_done_where_it_is_faster() -> None:
    """Few sequences leave most of a GPU idle; many do not."""
    chunked = of_sizes(16, 4096)
    plain_one = treadle.compile(
        DELTA, machine="h100", sizes={"h": 16, "t": 4096, "e": 64}, passes=[f"{PASS}{{recurrences=none}}"]
    )
    assert chunked.estimate.kernels > plain_one.estimate.kernels == 1
    assert time_of(chunked) < 0.3 * time_of(plain_one)
    assert of_sizes(2048, 1024).estimate.kernels == 1


def test_a_short_row_stays_and_says_why() -> None:
    module = parse_module(DELTA)
    run_pipeline(module, Options("h100"), last=PASS)
    assert len(recurrences(module)) == 1
    assert "'t' has 60 positions, fewer than 8 chunks of 64" in str(module)


def test_what_is_not_affine_says_why() -> None:
    module = parse_module(CELLS)
    run_pipeline(module, Options("h100"), last=PASS)
    assert f"decline {PASS}" in str(module)
