"""Choices by positions that only put identities of reductions in the place of elements are conditions
(`diagram-raise-masks`); all others stay what they are."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import count
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

import treadle
import treadle.language as tl
from treadle.compiler.pipeline import run_passes
from treadle.compiler.source import parse_module
from treadle.dialects.diagram import WhereOp
from treadle.runtime.interpreter import run_function

PASS = "diagram-raise-masks"
PASSES = [ArgSpec("diagram-expand-laws", {}), ArgSpec(PASS, {})]


def positions(S: Any) -> tuple[Any, Any]:
    return tl.index("x", S), tl.index("q", S)


def causal(S: Any, fill: Any = -inf) -> Any:
    x, q = positions(S)
    return tl.where(x <= q, S, fill)


def attended(S: Any, V: Any) -> Any:
    return tl.contract(tl.softmax(S, over="x"), V, over="x")


def chosen(asks: Callable[[Any, Any], Any], *, otherwise: bool = False) -> Callable[[Any, Any], Any]:
    """Attention to what a comparison lets through (or else does not)."""

    def program(S: Any, V: Any) -> Any:
        held = asks(*positions(S))
        return attended(tl.where(held, -inf, S) if otherwise else tl.where(held, S, -inf), V)

    return program


def with_sink(S: Any, V: Any) -> Any:
    T = causal(S)
    m = tl.max(T, over="x")
    E = tl.exp(T - m)
    return tl.contract(E / (tl.sum(E, over="x") + tl.exp(1.0 - m)), V, over="x")


def normed(S: Any, V: Any) -> Any:
    T = causal(S, 0.0)
    return tl.sum(T / tl.sqrt(tl.sum(T * T, over="x") + 1e-6), over="x")


def nested(S: Any, V: Any) -> Any:
    x, q = positions(S)
    return attended(tl.where(q - x < 5, causal(S), -inf), V)


def added(S: Any, V: Any) -> Any:
    x, q = positions(S)
    return attended(S * 0.5 + tl.where(x <= q, 0.0, -inf), V)


def rounded_mask(S: Any, V: Any) -> Any:
    x, q = positions(S)
    return attended(S * 0.5 + tl.where(x <= q, 0.0, -inf).to("f16"), V)


def counted(S: Any, V: Any) -> Any:
    """A mask of the numbers 0 and 1, as PyTorch has them."""
    x, q = positions(S)
    seen, near = tl.where(x <= q, 1, 0), tl.where(q - x < 5, 1, 0)
    hidden = 1 - seen * near
    return attended(tl.where(hidden > 0, -inf, S), V)


def one_good_one_bad(S: Any, V: Any) -> Any:
    x, q = positions(S)
    return attended(tl.where(q - x < 5, causal(S), -1e9), V)


SEEN: dict[str, tuple[Callable[[Any, Any], Any], Sequence[str]]] = {
    "causal": (chosen(lambda x, q: x <= q), ["x <= q"]),
    "hidden": (chosen(lambda x, q: x > q, otherwise=True), ["x <= q"]),
    "negated": (chosen(lambda x, q: ~(x > q)), ["x <= q"]),
    "turned": (chosen(lambda x, q: q >= x), ["q >= x"]),
    "before": (chosen(lambda x, q: x < q + 1), ["x < q + 1"]),
    "window": (chosen(lambda x, q: (x <= q) & (q - x < 5)), ["x <= q and q - x < 5"]),
    "hidden window": (chosen(lambda x, q: (x > q) | (q - x >= 5), otherwise=True), ["x <= q and q - x < 5"]),
    "same": (chosen(lambda x, q: x.equals(q)), ["x == q"]),
    "prefix": (chosen(lambda x, q: (x <= q) | (x < 4)), ["x <= q or x < 4"]),
    "blocks": (chosen(lambda x, q: x // 4 <= q // 4), ["x // 4 <= q // 4"]),
    "blocks alone": (chosen(lambda x, q: (x // 3).equals(q // 3)), ["x // 3 == q // 3"]),
    "strides": (
        chosen(lambda x, q: (x <= q) & (((q - x) % 3).equals(0) | (q - x < 2))),
        ["x <= q and ((q - x) % 3 == 0 or q - x < 2)"],
    ),
    "bits": (
        chosen(lambda x, q: (x <= q) & (((q - x) % 4).equals(0) | (q - x < 2))),
        ["x <= q and ((q - x) % 4 == 0 or q - x < 2)"],
    ),
    "distances": (chosen(lambda x, q: tl.abs(x - q) <= 5), ["x - q <= 5 and q - x <= 5"]),
    "far": (chosen(lambda x, q: tl.abs(x - q) > 5, otherwise=True), ["x - q <= 5 and q - x <= 5"]),
    "one distance": (
        chosen(lambda x, q: tl.abs(x - q).equals(2) | (x <= q)),
        ["(x - q <= 2 and q - x <= 2 and (x - q >= 2 or q - x >= 2)) or x <= q"],
    ),
    "the smaller of two": (
        chosen(lambda x, q: tl.minimum(x + 3, tl.maximum(q, 2 * x)) > 4),
        ["x + 3 > 4 and (q > 4 or 2 * x > 4)"],
    ),
    "nested": (nested, ["x <= q", "q - x < 5"]),
    "added": (added, ["x <= q"]),
    "rounded": (rounded_mask, ["x <= q"]),
    "counted": (counted, ["x <= q and q - x < 5"]),
    "scaled": (lambda S, V: attended(causal(S) * 0.3, V), ["x <= q"]),
    "turned scale": (lambda S, V: attended(causal(S, inf) * -0.3, V), ["x <= q"]),
    "capped": (lambda S, V: attended(causal(tl.tanh(S)), V), ["x <= q"]),
    "sigmoids": (lambda S, V: tl.contract(tl.sigmoid(causal(S)), V, over="x"), ["x <= q"]),
    "sink": (with_sink, ["x <= q"]),
    "linear": (lambda S, V: tl.contract(causal(S, 0.0), V, over="x"), ["x <= q"]),
    "linear, strict": (
        lambda S, V: tl.contract(tl.where(positions(S)[0] < positions(S)[1], S, 0.0), V, over="x"),
        ["x < q"],
    ),
    "ones": (lambda S, V: tl.contract(causal(S * 0.0 + 1.0, 0.0), V, over="x"), ["x <= q"]),
    "factors": (lambda S, V: tl.sum(S * tl.where(positions(S)[0] <= 3, 1.0, 0.0), over="x"), ["x <= 3"]),
    "cumulative": (
        lambda S, V: tl.contract(tl.where(positions(S)[0] <= positions(S)[1], 1.0, 0.0), V, over="x"),
        ["x <= q"],
    ),
    "norm": (normed, ["x <= q"]),
    "maximum": (lambda S, V: tl.max(causal(S), over="x"), ["x <= q"]),
    "minimum": (lambda S, V: tl.min(causal(S, inf), over="x"), ["x <= q"]),
    "product": (lambda S, V: tl.prod(causal(S, 1.0), over="x"), ["x <= q"]),
    "integers": (lambda S, V: tl.max(causal(tl.index("q", S) - tl.index("x", S), -(2**31)), over="x"), ["x <= q"]),
    "sum of exponents": (lambda S, V: tl.logsumexp(causal(S), over="x"), ["x <= q"]),
    "columns": (lambda S, V: tl.sum(tl.softmax(causal(S), over="x"), over="q"), ["x <= q"]),
    "down columns": (lambda S, V: tl.contract(tl.softmax(causal(S), over="q"), V, over="x"), ["x <= q"]),
}
"""Programs of scores [q, x] and values [x, e], and the conditions that they become."""

STAYS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a zero": (lambda S, V: attended(causal(S, 0.0), V), "the maximum %m takes it, where it may be zero"),
    "-1e9": (lambda S, V: attended(causal(S, -1e9), V), "the maximum %m takes it, where it may be below zero"),
    "inf": (lambda S, V: attended(causal(S, inf), V), "the maximum %m takes it, where it may be inf"),
    "one good, one bad": (one_good_one_bad, "the maximum %m takes it, where it may be below zero"),
    "a negative scale": (lambda S, V: attended(causal(S) * -0.3, V), "the maximum %m takes it, where it may be inf"),
    "a minimum": (lambda S, V: tl.min(causal(S), over="x"), "the minimum %min takes it, where it may be -inf"),
    "a sum": (lambda S, V: tl.sum(causal(S), over="x"), "the sum %sum takes it, where it may be -inf"),
    "squares": (lambda S, V: tl.sum(causal(S) ** 2, over="x"), "the sum %sum takes it, where it may be inf"),
    "powers of inf": (lambda S, V: tl.sum(tl.exp2(causal(S, inf)), over="x"), "may be inf"),
    "a power of zero": (lambda S, V: tl.sum(tl.exp(causal(S, 0.0)), over="x"), "where it may be above zero"),
    "a product": (
        lambda S, V: tl.prod(causal(S, 0.0), over="x"),
        "the product %product takes it, where it may be zero",
    ),
    "a cap": (lambda S, V: attended(tl.tanh(causal(S)), V), "the maximum %m takes it, where it may be below zero"),
    "less a mean": (
        lambda S, V: tl.sum((causal(S, 0.0) - tl.mean(S, over="x")) ** 2, over="x"),
        "takes it, where it may be above zero",
    ),
    "0 log 0": (
        lambda S, V: tl.sum(tl.softmax(causal(S), over="x") * tl.log(tl.softmax(causal(S), over="x")), over="x"),
        "where it may be NaN",
    ),
    "0 / 0": (lambda S, V: tl.sum(causal(S, 0.0) / tl.max(V, over="e"), over="x"), "where it may be NaN"),
    "positions": (lambda S, V: tl.argmax(causal(S), over="x"), "the minimum %min takes it, where it may be above zero"),
    "8 bits": (
        lambda S, V: tl.sum(tl.exp(causal(S).to("f8E4M3FN").to("f32")), over="x"),
        "the sum %sum takes it, where it may be above zero",
    ),
    "empty rows": (chosen(lambda x, q: x < q), "where it may be NaN: a row of %m may have no other element"),
    "an end": (chosen(lambda x, q: (x <= q) & (x < q - 2)), "a row of %m may have no other element"),
    "a window between": (chosen(lambda x, q: (x > q + 4) & (x < q + 9)), "a row of %m may have no other element"),
    "twice a position": (chosen(lambda x, q: (2 * x).equals(q)), "a row of %m may have no other element"),
    "only strides": (chosen(lambda x, q: ((q - x) % 3).equals(1)), "a row of %m may have no other element"),
}
"""Programs that stay as they are, and why."""


def scores(Q: Any, K: Any) -> Any:
    return tl.contract(Q, K, over="d")


def traced(program: Callable[[Any, Any], Any], rows: int = 9, columns: int = 9) -> ModuleOp:
    """The program, over scores that are made."""
    random = np.random.default_rng(0)
    S, V = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, columns), (columns, 3)))
    for axes in ("q e", "q", "x"):
        try:
            signature = f"q x, x e -> {axes}"
            return parse_module(treadle.kernel(signature)(lambda S, V: program(S, V)).compiled(S, V).diagram)
        except treadle.TreadleError as error:
            if "axes" not in str(error):
                raise
    raise AssertionError("no signature fits")


def raised(module: ModuleOp) -> ModuleOp:
    copy = module.clone()
    run_passes(copy, PASSES)
    return copy


def texts(module: ModuleOp) -> list[str]:
    return [op.condition.text.data for op in module.walk() if isinstance(op, WhereOp)]


def results(module: ModuleOp, *arrays: Any) -> tuple[np.ndarray[Any, Any], ...]:
    return tuple(np.asarray(each) for each in run_function(module, arrays).results)


@pytest.mark.parametrize("name", SEEN)
def test_what_only_puts_identities_is_a_condition(name: str) -> None:
    program, conditions = SEEN[name]
    module = traced(program)
    after = raised(module)
    assert texts(after) == conditions
    assert "arith.select" not in str(after) or "logsumexp" in str(after) or name == "sum of exponents"
    random = np.random.default_rng(1)
    S, V = (random.standard_normal(shape).astype(np.float32) for shape in ((9, 9), (9, 3)))
    for wanted, got in zip(results(module, S, V), results(after, S, V), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


WRAPPING: dict[str, tuple[Callable[[Any, Any], Any], bool]] = {
    "product": (lambda x, q: 300_000_000 * x <= q, True),
    "product within 32 bits": (lambda x, q: 200_000_000 * x <= q, False),
    "sum": (lambda x, q: x + 2_147_483_640 >= q, True),
    "shares": (lambda x, q: (300_000_000 * x) // 4 <= q, True),
    "remainders": (lambda x, q: (300_000_000 * x) % 7 <= q, True),
    "lowest bits": (lambda x, q: (300_000_001 * x + q) % 8 <= 3, False),
    "there and back": (lambda x, q: 300_000_000 * x - 299_999_999 * x <= q, False),
}
"""What maps ask of 9 positions in 32 bits, and whether these wrap around there."""


@pytest.mark.parametrize("name", WRAPPING)
def test_integers_that_wrap_around_are_no_condition(name: str) -> None:
    """Conditions are about whole numbers."""
    asks, wraps = WRAPPING[name]
    module = traced(lambda S, V: tl.contract(tl.where(asks(*positions(S)), S, 0.0), V, over="x"))
    after = raised(module)
    assert bool(texts(after)) != wraps
    random = np.random.default_rng(1)
    S, V = (random.standard_normal(shape).astype(np.float32) for shape in ((9, 9), (9, 3)))
    for wanted, got in zip(results(module, S, V), results(after, S, V), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", STAYS)
def test_what_is_no_identity_stays(name: str) -> None:
    program, reason = STAYS[name]
    module = traced(program)
    after = raised(module)
    assert texts(after) == []
    assert f"decline {PASS}" in str(after)
    assert reason in str(after)


def test_what_is_returned_stays() -> None:
    S = np.zeros((9, 9), np.float32)
    kernel = treadle.kernel("q x -> q x, q")(lambda S: (causal(S), tl.max(causal(S), over="x"))).compiled(S)
    assert texts(raised(parse_module(kernel.diagram))) == ["x <= q"]  # of the second, which is another array
    one = treadle.kernel("q x -> q x, q")(lambda S: (T := causal(S), tl.max(T, over="x"))).compiled(S)
    after = raised(parse_module(one.diagram))
    assert texts(after) == []
    assert "it is returned" in str(after)


@pytest.mark.parametrize(
    ("rows", "columns", "is_kept"),
    [(9, 9, True), (9, 5, True), (9, 4, False), (13, 9, True), (14, 9, False), (5, 70, True)],
)
def test_a_window_must_not_end_behind_the_keys(rows: int, columns: int, is_kept: bool) -> None:
    module = traced(chosen(lambda x, q: (x <= q) & (q - x < 5)), rows, columns)
    assert bool(texts(raised(module))) == is_kept


def test_data_are_no_positions() -> None:
    module = traced(lambda S, V: attended(tl.where((positions(S)[0] <= positions(S)[1]) & (S > 0), S, -inf), V))
    after = raised(module)
    assert texts(after) == []
    assert PASS not in str(after)


# -- any program ------------------------------------------------------------------------------------

STEPS = {
    "half": "{a} * 0.5",
    "minus": "{a} * -2.0",
    "more": "{a} + 1.0",
    "exp": "exp({a})",
    "exp2": "exp2({a})",
    "square": "{a} * {a}",
    "tanh": "tanh({a})",
    "invert": "1.0 / {a}",
    "below": "exp({a} - {m})",
    "share": "{a} / {l}",
    "weigh": "{a} * {s}",
    "shift": "{a} + {s}",
    "cast": "cast",
    "again": "select",
}
ENDS = ("max", "min", "add", "add", "mul", "contract", "contract", "return")
FILLS = ("-inf", "inf", "0.0", "1.0", "-1.0e9")
HEX = {"-inf": "0xff800000", "inf": "0x7f800000"}


class Text:
    """A program of scores [q, x] and values [x, e], written down step by step."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = map("v{}".format, count())

    def add(self, line: str, type: str = "!S") -> str:
        name = next(self.names)
        self.lines.append(f"  %{name} = {line}")
        return name

    def body(self, inputs: Sequence[str], types: Sequence[str], lines: Sequence[str]) -> str:
        given = ", ".join(f"%i{i} = %{each} : {type}" for i, (each, type) in enumerate(zip(inputs, types, strict=True)))
        inner = "\n".join(f"    {line}" for line in lines)
        return self.add(f"diagram.map ({given}) -> !S {{\n{inner}\n    diagram.yield %r : f32\n  }}")

    def reduced(self, kind: str, value: str) -> str:
        return self.add(f"diagram.reduce {kind} %{value} over [x] : !S -> !row")

    def select(self, value: str, form: tuple[int, int, int], predicate: str, fill: str, fill_first: bool) -> str:
        x, q, more = form
        sides = "%f, %i0" if fill_first else "%i0, %f"
        lines = [
            *(
                f"%{name} = arith.constant {number} : i32"
                for name, number in (("a", x), ("b", q), ("c", more), ("z", 0))
            ),
            f"%f = arith.constant {HEX.get(fill, fill)} : f32",
            "%ax = arith.muli %i1, %a : i32",
            "%bq = arith.muli %i2, %b : i32",
            "%s = arith.addi %ax, %bq : i32",
            "%t = arith.addi %s, %c : i32",
            f"%k = arith.cmpi {predicate}, %t, %z : i32",
            f"%r = arith.select %k, {sides} : f32",
        ]
        return self.body([value, "x", "q"], ["!S", "!x", "!q"], lines)

    def step(self, kind: str, value: str) -> str:
        if kind == "below":
            m = self.reduced("max", value)
            return self.body([value, m], ["!S", "!row"], ["%d = arith.subf %i0, %i1 : f32", "%r = math.exp %d : f32"])
        if kind == "share":
            return self.body([value, self.reduced("add", value)], ["!S", "!row"], ["%r = arith.divf %i0, %i1 : f32"])
        if kind in ("weigh", "shift"):
            operation = "mulf" if kind == "weigh" else "addf"
            return self.body([value, "B"], ["!S", "!S"], [f"%r = arith.{operation} %i0, %i1 : f32"])
        if kind == "cast":
            return self.add(f"diagram.cast %{self.add(f'diagram.cast %{value} : !S -> !S16')} : !S16 -> !S")
        lines = {
            "half": ["%c = arith.constant 0.5 : f32", "%r = arith.mulf %i0, %c : f32"],
            "minus": ["%c = arith.constant -2.0 : f32", "%r = arith.mulf %i0, %c : f32"],
            "more": ["%c = arith.constant 1.0 : f32", "%r = arith.addf %i0, %c : f32"],
            "exp": ["%r = math.exp %i0 : f32"],
            "exp2": ["%r = math.exp2 %i0 : f32"],
            "square": ["%r = arith.mulf %i0, %i0 : f32"],
            "tanh": ["%r = math.tanh %i0 : f32"],
            "invert": ["%c = arith.constant 1.0 : f32", "%r = arith.divf %c, %i0 : f32"],
        }
        return self.body([value], ["!S"], lines[kind])


Asked = tuple[tuple[int, int, int], str, str, bool]


def program(asked: Sequence[Asked], steps: Sequence[str], end: str, sizes: tuple[int, int] | None) -> str:
    q, x = sizes or ("?", "?")
    text, rest = Text(), iter(asked)
    value = text.select("S", *next(rest))
    for kind in steps:
        another = next(rest, None) if kind == "again" else None
        value = text.select(value, *another) if another else value if kind == "again" else text.step(kind, value)
    if end == "contract":
        result, type = text.add(f"diagram.contract %{value}, %V over [x] accumulate f32 : !S, !V -> !O"), "!O"
    elif end == "return":
        result, type = value, "!S"
    else:
        result, type = text.reduced(end, value), "!row"
    lines = "\n".join(text.lines)
    return f"""
!S = tensor<{q}x{x}xf32, #diagram.array<[q, x]>>
!S16 = tensor<{q}x{x}xf16, #diagram.array<[q, x]>>
!V = tensor<{x}x2xf32, #diagram.array<[x, e]>>
!O = tensor<{q}x2xf32, #diagram.array<[q, e]>>
!row = tensor<{q}xf32, #diagram.array<[q]>>
!q = tensor<{q}xi32, #diagram.array<[q]>>
!x = tensor<{x}xi32, #diagram.array<[x]>>
func.func @f(%S: !S, %V: !V, %B: !S) -> {type} {{
  %x = diagram.index -> !x
  %q = diagram.index -> !q
{lines}
  func.return %{result} : {type}
}}
"""


small = st.integers(-2, 2)
anything = st.tuples(
    st.tuples(small, small, st.integers(-3, 3)),
    st.sampled_from(("sle", "slt", "sge", "sgt", "eq", "ne")),
    st.sampled_from(FILLS),
    st.booleans(),
)
near_causal = st.tuples(
    st.tuples(st.just(1), st.just(-1), st.integers(-1, 1)),
    st.sampled_from(("sle", "slt", "sge", "sgt")),
    st.sampled_from(("-inf", "-inf", "0.0")),
    st.booleans(),
)
choices = st.one_of(near_causal, near_causal, anything)
ROADS = st.one_of(
    st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    st.sampled_from(
        [["below", "share"], ["half", "below", "share"], ["again", "below", "share"], ["shift", "below"], ["below"], []]
    ),
)


@pytest.mark.parametrize("draw", range(4))
@settings(max_examples=75, deadline=None)
@given(
    asked=st.lists(choices, min_size=1, max_size=2),
    steps=ROADS,
    end=st.sampled_from(ENDS),
    sizes=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    is_known=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_program_keeps_its_results(
    draw: int, asked: list[Asked], steps: list[str], end: str, sizes: tuple[int, int], is_known: bool, seed: int
) -> None:
    """With finite inputs it gives what it gave, NaN included; with others where the formula is no NaN."""
    module = parse_module(program(asked, steps, end, sizes if is_known else None))
    after = raised(module)
    if not texts(after):
        return
    random = np.random.default_rng(seed)
    S, V, B = (random.integers(-3, 4, shape).astype(np.float32) for shape in (sizes, (sizes[1], 2), sizes))
    with np.errstate(all="ignore"):
        (wanted,), (got,) = results(module, S, V, B), results(after, S, V, B)
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)
        for array in (S, V, B):
            holes = random.random(array.shape) < 0.2
            array[holes] = random.choice([inf, -inf, nan], int(holes.sum()))
        (wanted,), (got,) = results(module, S, V, B), results(after, S, V, B)
        known = ~np.isnan(wanted)
        np.testing.assert_allclose(got[known], wanted[known], rtol=1e-9, atol=1e-9)


# -- to the kernel -----------------------------------------------------------------------------------


def in_words(program: Callable[..., Any], machine: str, sizes: tuple[int, int]) -> treadle.Kernel:
    Q, K = (np.zeros((1, 2, size, 64), np.float16) for size in sizes)
    return treadle.kernel("b h q d, b h x d, b h x e -> b h q e", machine=machine)(program).compiled(Q, K, K)


def code(kernel: treadle.Kernel) -> str:
    return re.sub(r"^//.*\n", "", kernel.cuda, flags=re.MULTILINE)


ASKED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "causal": ("x <= q", lambda x, q: x <= q),
    "window": ("x <= q and q - x < 128", lambda x, q: (x <= q) & (q - x < 128)),
}


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ASKED)
def test_the_kernel_is_that_of_the_condition(name: str, machine: str) -> None:
    condition, asks = ASKED[name]

    def where(Q: Any, K: Any, V: Any) -> Any:
        S = scores(Q, K) * 0.125
        S = tl.where(asks(tl.index("x", S), tl.index("q", S)), S, -inf)
        return attended(S, V)

    def keep(Q: Any, K: Any, V: Any) -> Any:
        S = scores(Q, K) * 0.125
        S = tl.keep(S, condition)
        return attended(S, V)

    written, stated = (in_words(each, machine, (333, 333)) for each in (where, keep))
    assert code(written).replace("where_kernel", "keep_kernel") == code(stated)
    assert written.estimate.time_us == stated.estimate.time_us


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("sizes", [(70, 70), (37, 101), (130, 131)])
def test_verified_in_the_emulator(sizes: tuple[int, int], machine: str) -> None:
    def windowed(Q: Any, K: Any, V: Any) -> Any:
        S = scores(Q, K)
        x, q = positions(S)
        S = tl.where((x > q) | (q - x >= 20), -inf, S)
        return attended(S * 0.125, V)

    random = np.random.default_rng(0)
    Q, K, V = (random.standard_normal((1, 2, size, 64)).astype(np.float16) for size in (sizes[0], sizes[1], sizes[1]))
    kernel = treadle.kernel("b h q d, b h x d, b h x e -> b h q e", machine=machine)(windowed).compiled(Q, K, V)
    assert any(step.rewrite == PASS for step in kernel.derivation)
    for verdict in kernel.verify(Q, K, V, backend="emulator"):
        assert verdict.ok, str(verdict)
