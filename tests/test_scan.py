"""Scans: what all elements up to each make along an axis (`diagram.scan`), in every place that it can be in."""

from __future__ import annotations

import re
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from ml_dtypes import bfloat16
from numpy.typing import NDArray

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.compiler.source import parse_module
from treadle.runtime.interpreter import run_function

KINDS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
ORDERS = ["", "exclusive", "reverse", "exclusive reverse"]
MACHINES = ["h100", "a100"]
FIRST = {"add": 0, "mul": 1, "max": -np.inf, "min": np.inf}
FIRST_OF_INTEGERS = FIRST | {"max": -(2**31), "min": 2**31 - 1}


def expected(kind: str, order: str, data: NDArray[Any], begins: Any = None) -> NDArray[Any]:
    """One result at a time, each reduced from its elements, along the last dimension."""
    result = np.empty_like(data)
    first = (FIRST if data.dtype.kind == "f" else FIRST_OF_INTEGERS)[kind]
    own = "exclusive" not in order
    for i in range(data.shape[-1]):
        part = data[..., i + 1 - own :] if "reverse" in order else data[..., : i + own]
        result[..., i] = KINDS[kind].reduce(part, axis=-1, dtype=data.dtype, initial=first)
    return result if begins is None else KINDS[kind](result, begins)


def scan(
    kind: str,
    order: str,
    format: str = "f32",
    axes: str = "q, x",
    over: str = "x",
    more: str = "",
    length: str = "?",
) -> str:
    lengths = "x".join(length if axis == "x" else "?" for axis in axes.split(", "))
    return f"""
!S = tensor<{lengths}x{format}, #diagram.array<[{axes}]>>
func.func @scan(%S: !S) -> !S {{
  {more}
  %C = diagram.scan {kind} {"%L" if more else "%S"} over {over} {order} : !S -> !S
  func.return %C : !S
}}"""


def elements(format: str, *shape: int, kind: str = "add") -> NDArray[Any]:
    """Numbers of both signs; of which many are multiplied, near 1."""
    random = np.random.default_rng(sum(shape))
    if format == "i32":
        return random.integers(-(2**20), 2**20, shape).astype(np.int32)
    low, high = (0.98, 1.02) if kind == "mul" else (0.5, 2.0)
    return (random.uniform(low, high, shape) * random.choice([-1, 1], shape)).astype(np.float32)


def verify(kernel: treadle.Kernel, *given: NDArray[Any]) -> None:
    verdicts = kernel.verify(*given, backend="emulator")
    assert verdicts
    assert all(each.ok for each in verdicts), verdicts


# -- the reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["f32", "i32"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_reference_combines_the_elements_up_to_each(kind: str, order: str, format: str) -> None:
    module = parse_module(scan(kind, order, format))
    for q, x in ((3, 7), (2, 1), (4, 0), (0, 3)):
        data = elements(format, q, x)
        (found,) = run_function(module, [data]).results
        wide = data if format == "i32" else data.astype(np.float64)
        np.testing.assert_allclose(found, expected(kind, order, wide), rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
def test_the_reference_scans_any_axis(order: str) -> None:
    data = elements("f32", 5, 4, 3)
    (found,) = run_function(parse_module(scan("add", order, axes="h, q, x", over="q")), [data]).results
    last = np.moveaxis(data.astype(np.float64), 1, -1)
    np.testing.assert_allclose(found, np.moveaxis(expected("add", order, last), -1, 1), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_absent_elements_count_for_nothing(kind: str, order: str) -> None:
    module = parse_module(scan(kind, order, more='%L = diagram.where %S if "x <= q and 1 <= x" : !S'))
    data = elements("f32", 6, 9)
    (found,) = run_function(module, [data]).results
    q, x = np.arange(6)[:, None], np.arange(9)[None]
    there = np.where((x <= q) & (x >= 1), data.astype(np.float64), FIRST[kind])
    np.testing.assert_allclose(found, expected(kind, order, there), rtol=1e-13, atol=1e-14)


BEGUN = """
!S = tensor<?x?xf32, #diagram.array<[q, x]>>
!r = tensor<?xf32, #diagram.array<[q]>>
func.func @begun(%S: !S, %r: !r) -> !S {
  %C = diagram.scan KIND %S over x ORDER into %r : !S, !r -> !S
  func.return %C : !S
}"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_begins_with_what_it_is_given(kind: str, order: str) -> None:
    module = parse_module(BEGUN.replace("KIND", kind).replace("ORDER", order))
    data, begins = elements("f32", 5, 6), elements("f32", 5)
    (found,) = run_function(module, [data, begins]).results
    wanted = expected(kind, order, data.astype(np.float64), begins.astype(np.float64)[:, None])
    np.testing.assert_allclose(found, wanted, rtol=1e-13, atol=1e-14)


# -- rows --------------------------------------------------------------------------------------------


@cache
def compiled(text: str, machine: str) -> treadle.Kernel:
    return treadle.compile(text, machine=machine)


@pytest.mark.parametrize("x", [1, 37, 513, 1100, 0])
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("format", ["f32", "i32"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sample(24)
def test_rows(kind: str, order: str, format: str, machine: str, x: int) -> None:
    """From the first element on in pieces of any number; in reverse of a number that is known."""
    length = str(x) if "reverse" in order else "?"
    verify(compiled(scan(kind, order, format, length=length), machine), elements(format, 3, x, kind=kind))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("over", ["q", "x"])
def test_rows_along_either_axis(over: str, order: str, machine: str) -> None:
    text = scan("add", order, axes="h, q, x", over=over, length="90")
    text = text.replace("?x?x90", "?x33x90")
    verify(compiled(text, machine), elements("f32", 2, 33, 90))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_what_a_condition_leaves(kind: str, order: str, machine: str) -> None:
    text = scan(kind, order, more='%L = diagram.where %S if "x <= q" : !S', length="70")
    verify(compiled(text, machine), elements("f32", 40, 70, kind=kind))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.sample(6)
def test_rows_that_begin_with_what_is_given(kind: str, order: str, machine: str) -> None:
    text = BEGUN.replace("KIND", kind).replace("ORDER", order).replace("?x?x", "?x300x")
    verify(compiled(text, machine), elements("f32", 5, 300, kind=kind), elements("f32", 5))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("kind", ["add", "max"])
def test_a_stream_carries_what_came_before(kind: str, machine: str) -> None:
    """Against numpy, across many pieces: each begins where the one before ended."""
    data = elements("i32", 3, 5000)
    kernel = compiled(scan(kind, "", "i32"), machine)
    assert "into" in next(line for line in str(kernel.hierarchy).splitlines() if "diagram.scan" in line)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(kernel.run(data, backend="emulator"), KINDS[kind].accumulate(data, axis=1))


# -- scores that are scanned -------------------------------------------------------------------------

STICK = """
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!V = tensor<?x?x64xf16, #diagram.array<[h, x, v]>>
!O = tensor<?x?x64xf32, #diagram.array<[h, q, v]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!N = tensor<?x?x?xf16, #diagram.array<[h, q, x]>>
!r = tensor<?x?xf32, #diagram.array<[h, q]>>
func.func @stick(%Q: !Q, %K: !K, %V: !V) -> (!O, !r) {
  %S = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %seen = diagram.where %S if "x < q" : !S
  %z = diagram.map (%s = %seen : !S) -> !S {
    %scale = arith.constant 0.125 : f32
    %r = arith.mulf %s, %scale : f32
    diagram.yield %r : f32
  }
  %l = diagram.map (%s = %z : !S) -> !S {
    %e = math.exp %s : f32
    %r = math.log1p %e : f32
    diagram.yield %r : f32
  }
SCAN
  %P16 = diagram.cast %P : !S -> !N
  %O = diagram.contract %P16, %V over [x] accumulate f32 : !N, !V -> !O
  %R = diagram.reduce add %P over [x] : !S -> !r
  func.return %O, %R : !O, !r
}"""
"""Stick-breaking attention: each key takes `1 / (1 + exp(-z))` of what the later ones leave. What is left of the stick
is 1 less the sum of each row, which is a result, too."""

FORMS = {
    "inclusive": """  %C = diagram.scan add %l over x reverse : !S -> !S
  %P = diagram.map (%s = %z : !S, %c = %C : !S) -> !S {
    %t = arith.subf %s, %c : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }""",
    "exclusive": """  %C = diagram.scan add %l over x exclusive reverse : !S -> !S
  %P = diagram.map (%s = %z : !S, %own = %l : !S, %c = %C : !S) -> !S {
    %share = arith.subf %s, %own : f32
    %t = arith.subf %share, %c : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }""",
    "prefix": """  %T = diagram.reduce add %l over [x] : !S -> !r
  %C = diagram.scan add %l over x : !S -> !S
  %P = diagram.map (%s = %z : !S, %own = %l : !S, %c = %C : !S, %all = %T : !r) -> !S {
    %share = arith.subf %s, %own : f32
    %later = arith.subf %all, %c : f32
    %t = arith.subf %share, %later : f32
    %e = math.exp %t : f32
    diagram.yield %e : f32
  }""",
}


def stick(form: str, format: str = "f16", rest: bool = True) -> str:
    text = STICK.replace("SCAN", FORMS[form]).replace("f16", format)
    if not rest:
        text = text.replace("(!O, !r)", "!O").replace("%O, %R : !O, !r", "%O : !O")
        text = text.replace("  %R = diagram.reduce add %P over [x] : !S -> !r\n", "")
    return text


def operands(h: int, q: int, x: int, dtype: Any = np.float16) -> list[NDArray[Any]]:
    random = np.random.default_rng(q + x)
    return [random.standard_normal(shape).astype(dtype) for shape in ((h, q, 64), (h, x, 64), (h, x, 64))]


def stick_breaking(
    queries: NDArray[Any], keys: NDArray[Any], values: NDArray[Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """As the paper has it: a sigmoid times the product of all that later keys leave, key by key, in float64."""
    q, k, v = (torch.tensor(each.astype(np.float64)) for each in (queries, keys, values))
    share = torch.sigmoid(q @ k.mT / 8)
    left, weights = torch.ones(*q.shape[:2], dtype=torch.float64), torch.zeros_like(share)
    for x in reversed(range(k.shape[1])):
        seen = torch.arange(q.shape[1]) > x
        weights[:, :, x] = torch.where(seen, share[:, :, x] * left, 0.0)
        left = torch.where(seen, left * (1 - share[:, :, x]), left)
    return weights @ v, weights.sum(-1)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("rest", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_stick_breaking_attention_is_one_kernel(form: str, rest: bool, machine: str) -> None:
    kernel = compiled(stick(form, rest=rest), machine)
    assert str(kernel.hierarchy).count("hierarchy.kernel @") == 1
    for h, q, x in ((1, 130, 130), (3, 65, 200), (1, 1, 1), (2, 5, 0), (0, 3, 4)):
        given = operands(h, q, x)
        verify(kernel, *given)
        found = kernel.run(*given, backend="emulator")
        wanted = stick_breaking(*given)
        for ours, theirs in zip(found if rest else [found], wanted, strict=False):
            np.testing.assert_allclose(ours, theirs.numpy(), rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("form", FORMS)
def test_stick_breaking_attention_in_bf16(form: str, machine: str) -> None:
    verify(compiled(stick(form, "bf16", rest=False), machine), *operands(2, 65, 130, bfloat16))


@pytest.mark.parametrize("machine", MACHINES)
def test_large_scores_leave_nothing_of_the_stick(machine: str) -> None:
    """Where exponents of what is taken off are far below zero: none of the powers is infinite."""
    queries, keys, values = operands(1, 70, 140)
    found, rest = compiled(stick("inclusive"), machine).run(queries * 8, keys, values, backend="emulator")
    wanted, taken = stick_breaking(queries * 8, keys, values)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-2, atol=1e-2)
    np.testing.assert_allclose(rest, taken.numpy(), rtol=1e-2, atol=1e-2)


GATED = """
!Q = tensor<?x?x64xf16, #diagram.array<[h, q, d]>>
!K = tensor<?x?x64xf16, #diagram.array<[h, x, d]>>
!S = tensor<?x?x?xf32, #diagram.array<[h, q, x]>>
!r = tensor<?x?xf32, #diagram.array<[h, q]>>
func.func @gated(%Q: !Q, %K: !K) -> !r {
  %z = diagram.contract %Q, %K over [d] accumulate f32 : !Q, !K -> !S
  %l = diagram.map (%s = %z : !S) -> !S {
    %r = arith.mulf %s, %s : f32
    diagram.yield %r : f32
  }
  %C = diagram.scan add %l over x reverse : !S -> !S
  %b = diagram.map (%s = %z : !S, %c = %C : !S) -> !S {
    %r = arith.subf %s, %c : f32
    diagram.yield %r : f32
  }
  %m = diagram.reduce max %b over [x] : !S -> !r
  func.return %m : !r
}"""


@pytest.mark.parametrize("machine", MACHINES)
def test_a_maximum_follows_what_grows(machine: str) -> None:
    """A maximum of what falls by all that later pieces add falls with it."""
    kernel = compiled(GATED, machine)
    assert str(kernel.hierarchy).count("hierarchy.kernel @") == 1
    for h, q, x in ((1, 130, 130), (2, 37, 200), (1, 1, 1)):
        queries, keys, _ = operands(h, q, x)
        verify(kernel, queries, keys)
        scores = torch.tensor(queries.astype(np.float64)) @ torch.tensor(keys.astype(np.float64)).mT
        wanted = (scores - torch.flip(torch.cumsum(torch.flip(scores**2, [-1]), -1), [-1])).amax(-1)
        found = kernel.run(queries, keys, backend="emulator")
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-4, atol=1e-3)


# -- what is refused ---------------------------------------------------------------------------------


def test_a_stream_that_has_what_came_before_is_not_cut() -> None:
    why = "'x' is scanned by %C, and no part of it knows what came before"
    with pytest.raises(TreadleError, match=why):
        treadle.compile(stick("prefix"), machine="h100", passes=["hierarchy-split-streams{parts=2}"])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("form", ["inclusive", "exclusive"])
def test_a_stream_that_grows_is_cut(form: str, machine: str) -> None:
    """What later parts add is scanned along the parts: a step of generation has blocks for all of a machine."""
    kernel = treadle.compile(stick(form), machine=machine, passes=["hierarchy-split-streams{length=64}"])
    assert re.search(r"diagram.scan add %\w+ over x_part exclusive reverse", str(kernel.hierarchy))
    for h, q, x in ((1, 1, 130), (2, 3, 200), (1, 1, 1), (1, 2, 0), (1, 70, 321)):
        verify(kernel, *operands(h, q, x))


SHARED = """
!X = tensor<?x200xf32, #diagram.array<[i, j]>>
!Xd = tensor<?x200xf32, #diagram.array<[i, j], level = device>>
!Yd = memref<?x200xf32, #diagram.array<[i, j], level = device>>
!Xt = tensor<8x200xf32, #diagram.array<[i, j], level = register>>
func.func @rows(%X: !X) -> !X attributes {sizes = #diagram.sizes<i = 64, j = 200>} {
  %C = hierarchy.kernel @rows (%Xd = %X : !X as !Xd) saves (%Yd : !Yd) -> (!X)
      schedule #hierarchy.schedule<group = [i = 8], whole = [j = 200], warps = [WARPS]> {
    hierarchy.group [i = 8] {
      %x = hierarchy.load %Xd : !Xd -> !Xt
      %C = diagram.scan add %x over j : !Xt -> !Xt
      hierarchy.save %C into %Yd : !Xt, !Yd
    }
    hierarchy.yield
  }
  func.return %C : !X
}"""


def test_a_row_that_is_scanned_lies_in_one_warp() -> None:
    why = "'diagram.scan' %C: several warps would share axis 'j', along which 'add' is scanned by one"
    with pytest.raises(TreadleError, match=why):
        treadle.compile(SHARED.replace("WARPS", "j = 2"), machine="a100")
    data = elements("f32", 9, 200)
    found = treadle.compile(SHARED.replace("WARPS", "i = 4"), machine="a100").run(data, backend="emulator")
    np.testing.assert_allclose(found, np.cumsum(data.astype(np.float64), axis=1), rtol=1e-5, atol=1e-4)


# -- cumulative sums in Python -----------------------------------------------------------------------


def cumulative(reverse: bool, exclusive: bool, machine: str) -> Any:
    @treadle.kernel("q x -> q x", machine=machine)
    def function(A: tl.Array) -> tl.Array:
        return tl.cumsum(A, over="x", reverse=reverse, exclusive=exclusive)

    return function


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("format", ["f32", "f16", "i32"])
@pytest.mark.parametrize(("reverse", "exclusive"), list(product([False, True], repeat=2)))
@pytest.mark.sample(8)
def test_cumulative_sums(reverse: bool, exclusive: bool, format: str, machine: str) -> None:
    function = cumulative(reverse, exclusive, machine)
    order = " ".join(word for word, is_so in (("reverse", reverse), ("exclusive", exclusive)) if is_so)
    for shape in ((3, 37), (2, 300), (1, 1), (4, 0), (0, 4)):
        data = elements("i32" if format == "i32" else "f32", *shape)
        given = data.astype(np.float16) if format == "f16" else data
        kernel = function.compiled(given)
        assert shape[1] < 16 or "diagram.scan" in str(kernel.hierarchy)
        verify(kernel, given)
        wide = given if format == "i32" else given.astype(np.float64)
        found = kernel.run(given, backend="emulator")
        precise = 1e-3 if format == "f16" else 1e-5
        np.testing.assert_allclose(found, expected("add", order, wide), rtol=precise, atol=precise * 16)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("reverse", "exclusive"), list(product([False, True], repeat=2)))
def test_no_infinity_reaches_a_sum_that_it_is_not_in(reverse: bool, exclusive: bool, machine: str) -> None:
    data = np.ones((2, 200), np.float32)
    data[0, 70], data[1, 30] = np.inf, np.nan
    found = cumulative(reverse, exclusive, machine).compiled(data).run(data, backend="emulator")
    for row, at in ((0, 70), (1, 30)):
        first, last = (at + 1 - exclusive, 200) if reverse else (0, at + exclusive)
        there = np.zeros(200, bool)
        there[first:last] = True
        np.testing.assert_array_equal(np.isfinite(found[row]), there)


def test_cumulative_sums_of_what_is_computed_are_in_its_kernel() -> None:
    """Stick-breaking attention as a program in Python has it, with a sum under an order; no scores are saved."""

    @treadle.kernel("h q d, h x d, h x v -> h q v", machine="h100", static="d v")
    def attention(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
        z = tl.contract(Q, K, over="d") * 0.125
        l = tl.log(1 + tl.exp(z))  # noqa: E741
        later = tl.cumsum(tl.keep(l, "x < q"), over="x", reverse=True, exclusive=True)
        P = tl.keep(tl.exp(z - l - later), "x < q")
        return tl.contract(P.to("f16"), V, over="x")

    sizes = {"h": 16, "q": 4096, "x": 4096, "d": 64, "v": 64}
    kernel = treadle.compile(str(attention.trace(["f16"] * 3, sizes, fixed=("d", "v"))), machine="h100")
    assert kernel.estimate.kernels == 1
    assert [step.rewrite for step in kernel.derivation if step.rewrite == "diagram-raise-scans"]
    given = operands(2, 65, 130)
    verify(kernel, *given)
    wanted, _ = stick_breaking(*given)
    np.testing.assert_allclose(kernel.run(*given, backend="emulator"), wanted.numpy(), rtol=4e-3, atol=4e-3)


# -- one after another -------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["b", "c"])
@pytest.mark.parametrize("machine", MACHINES)
def test_scans_of_what_is_scanned(machine: str, first: str) -> None:
    """The second reads what the first, of which a scan is made before, gives."""
    program = treadle.kernel("b c -> b c", machine=machine)(lambda A: tl.cumsum(tl.cumsum(A, over=first), over="c"))
    data = elements("f32", 7, 11)
    kernel = program.compiled(data)
    verify(kernel, data)
    wanted = data.astype(np.float64).cumsum("bc".index(first)).cumsum(1)
    np.testing.assert_allclose(kernel.run(data, backend="emulator"), wanted, rtol=1e-5, atol=1e-4)
    raised = [step.subject for step in kernel.derivation if step.rewrite == "diagram-raise-scans"]
    assert len(raised) == (2 if first == "c" else 1)  # no kernel scans along two axes
