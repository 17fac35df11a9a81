"""Conditions with quotients and remainders of positions: what they say, what is told from them, and every level."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, reduce
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_conditions import program, visited
from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i1, i32
from xdsl.ir import Block, SSAValue
from xdsl.utils.exceptions import VerifyException

import treadle
import treadle.language as tl
from roads import Road, compiled
from treadle.compiler.cost.kernel.plan import Pieces
from treadle.compiler.cost.reading.stream_limits import fed_of_visits
from treadle.compiler.lowering import comparisons
from treadle.compiler.lowering.comparisons import into
from treadle.dialects.diagram.condition import (
    AtLeastZero,
    Condition,
    ConditionAttr,
    Linear,
    Remainder,
    Term,
    evaluate,
    forms_of,
    leaves_32_bits,
    read_condition,
    resolved,
    terms_of,
    widened,
)
from treadle.dialects.diagram.linear import leaves_64_bits
from treadle.dialects.diagram.presence import stretches
from treadle.dialects.diagram.solved import solved
from treadle.dialects.hierarchy import PieceOp
from treadle.passes.expressions.conditions import spelled
from treadle.passes.streams.limits import LimitWriter
from treadle.passes.streams.ranges import Knowledge, Range, every_of, some_of
from treadle.passes.streams.visits import Visits
from treadle.runtime.interpreter.scalars import BINARY

# -- conditions by chance -----------------------------------------------------------------------------------------

NUMBERS = st.integers(-9, 40)
FACTORS = st.integers(-4, 5)
DIVISORS = st.integers(1, 12)


def sums(names: str) -> st.SearchStrategy[str]:
    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.builds(lambda a, sign, b: f"({a} {sign} {b})", inner, st.sampled_from("+-"), inner),
            st.builds(lambda k, a: f"({k}) * ({a})", FACTORS, inner),
            st.builds(lambda a, sign, n: f"({a}) {sign} {n}", inner, st.sampled_from(["//", "%", "%"]), DIVISORS),
        )

    return st.recursive(st.one_of(st.sampled_from(names), st.builds(str, NUMBERS)), grown, max_leaves=5)


def conditions(names: str) -> st.SearchStrategy[str]:
    signs = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
    compared = st.builds(lambda a, sign, b: f"{a} {sign} {b}", sums(names), signs, sums(names))

    def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.builds(lambda a, word, b: f"({a}) {word} ({b})", inner, st.sampled_from(["and", "or"]), inner)
        return st.one_of(joined, st.builds("not ({})".format, inner))

    return st.recursive(compared, grown, max_leaves=3)


def python_says(text: str, **at: Any) -> Any:
    """With numpy's integers, whose quotients and remainders are Python's."""
    words = text.replace("not (", "~(").replace(" and ", " & ").replace(" or ", " | ").replace("~(", "np.logical_not(")
    return eval(words, {"np": np}, at)  # the texts of these tests


def holds(condition: Condition, **at: Any) -> Any:
    return evaluate(condition, lambda term: at[str(term)])


Q, X = np.arange(13)[:, None], np.arange(29)[None]


@settings(max_examples=300, deadline=None)
@given(conditions("qxn"), st.integers(-40, 40))
def test_a_condition_says_what_python_says(text: str, n: int) -> None:
    """Whatever the sign of what is divided; so does what is written from it."""
    wanted = np.broadcast_to(python_says(text, q=Q, x=X, n=np.int64(n)), (13, 29))
    condition = read_condition(text)
    np.testing.assert_array_equal(np.broadcast_to(holds(condition, q=Q, x=X, n=n), (13, 29)), wanted)
    again = read_condition(spelled(condition, {}))
    np.testing.assert_array_equal(np.broadcast_to(holds(again, q=Q, x=X, n=n), (13, 29)), wanted)


def run(block: Block, known: dict[SSAValue, Any]) -> None:
    """What the operations of a block give."""
    for op in block.ops:
        match op:
            case arith.ConstantOp(value=IntegerAttr() as number):
                is_truth = op.result.type == i1  # of which 1 is -1
                found: Any = bool(number.value.data) if is_truth else np.int64(number.value.data)
            case arith.CmpiOp():
                left, right = (known[operand] for operand in op.operands)
                found = {3: left <= right, 5: left >= right}[op.predicate.value.data]
            case arith.SelectOp():
                found = np.where(*(known[operand] for operand in op.operands))
            case arith.IndexCastOp():
                found = known[op.input]
            case PieceOp():
                continue
            case _:
                found = BINARY[type(op)](*(np.asarray(known[operand]) for operand in op.operands))
        known[op.results[0]] = found


@settings(max_examples=200, deadline=None)
@given(conditions("qxn"), st.integers(-40, 40))
def test_operations_say_what_the_condition_says(text: str, n: int) -> None:
    condition = read_condition(text)
    block = Block(arg_types=[i32, i32, i32])
    terms: dict[Term, SSAValue] = dict(zip("qxn", block.args, strict=True))
    found = comparisons.test_of(condition, terms, into(block), {"q": 13, "x": 29, "n": 40})
    known: dict[SSAValue, Any] = dict(zip(block.args, (Q, X, np.int64(n)), strict=True))
    run(block, known)
    wanted = python_says(text, q=Q, x=X, n=np.int64(n))
    np.testing.assert_array_equal(np.broadcast_to(known[found], (13, 29)), np.broadcast_to(wanted, (13, 29)))


# -- what is told from a condition --------------------------------------------------------------------------------


def limits(range: Range, pieces: Mapping[str, tuple[int, int]], given: Mapping[SSAValue, int]) -> tuple[int, int]:
    """The ends of a range as a group computes them."""
    block = Block()
    writer = LimitWriter("x", 8, into(block), lambda value: value, lambda value: pytest.fail(str(value)), {})
    ends = writer.limits(range)
    known: dict[SSAValue, Any] = dict(given)
    for op in block.ops:
        if isinstance(op, PieceOp):
            known[op.first], known[op.end] = (np.int64(end) for end in pieces[op.axis.data])
    run(block, known)
    low, high = (int(known[end]) for end in ends)
    return low, high


@pytest.mark.parametrize("draw", range(4))
@settings(max_examples=75, deadline=None)
@given(text=conditions("qxn"), first=st.integers(0, 9), size=st.integers(1, 9), n=st.integers(-20, 30))
def test_ranges_hold_all_that_may_count(draw: int, text: str, first: int, size: int, n: int) -> None:
    """Of the positions along x: none that counts for some q of a piece is outside of what the stream is fed, and all
    count for every q inside of what needs no test. The cost model finds the ends that the group computes."""
    value = Block(arg_types=[i32]).args[0]
    condition = resolved(read_condition(text), lambda term: value if term == "n" else None)
    known = Knowledge("x", lambda _: True, lambda _: False)
    some, every = some_of(condition, known), every_of(condition, known)
    q, x = np.arange(first, first + size)[:, None], np.arange(29)
    kept = np.broadcast_to(python_says(text, q=q, x=x[None], n=np.int64(n)), (size, 29))
    pieces = {"q": (first, first + size), "x": (0, 29)}
    low, high = limits(some, pieces, {value: n})
    assert not kept[:, (x < low) | (x >= high)].any()
    if every is not None:
        low, high = limits(every, pieces, {value: n})
        assert kept[:, (x >= low) & (x < high)].all()
    if value in terms_of(condition):
        return
    fed = fed_of_visits(Visits(some, every), Pieces("x", 8), (Pieces("q", size),))
    for range, said in () if fed is None else ((some, fed.some), (every, fed.every)):
        if range is not None and said is not None:
            assert tuple(int(end(pieces)) for end in said) == limits(range, pieces, {})


@pytest.mark.parametrize(
    "text",
    ["x // 32 >= q // 16 - 1", "q // 4 - x // 6 <= 1", "2 * (x // 3) <= q", "(x + q) // 4 <= 5", "q % 5 + x <= 9"],
)
def test_one_quotient_along_the_axis_is_told_exactly(text: str) -> None:
    """Not a position more than one of the rows counts, nor one less than all count."""
    known = Knowledge("x", lambda _: True, lambda _: False)
    condition = read_condition(text)
    every = every_of(condition, known)
    assert every is not None
    for first, size in product(range(0, 40, 3), (1, 4, 7)):
        kept = holds(condition, q=np.arange(first, first + size)[:, None], x=np.arange(99))
        pieces = {"q": (first, first + size), "x": (0, 99)}
        for found, wanted in ((some_of(condition, known), kept.any(0)), (every, kept.all(0))):
            low, high = limits(found, pieces, {})
            inside = (np.arange(99) >= low) & (np.arange(99) < high)
            np.testing.assert_array_equal(inside, wanted)


@settings(max_examples=300, deadline=None)
@given(conditions("qx"), st.integers(1, 9), st.integers(1, 9))
def test_a_cell_is_asked_at_its_beginning(text: str, rows: int, columns: int) -> None:
    """Where a condition holds anywhere in a cell, what is asked at its first position does."""
    condition = read_condition(text)
    asked = widened(condition, {"q": rows, "x": columns})
    kept = np.broadcast_to(python_says(text, q=np.arange(27)[:, None], x=X), (27, 29))
    for q, x in product(range(0, 18, 4), range(0, 20, 3)):
        assert not kept[q : q + rows, x : x + columns].any() or bool(holds(asked, q=q, x=x))


@pytest.mark.parametrize("text", ["(q - x) % 17 == 0", "x % 20 < 3", "(2 * x + q) % 19 >= 16", "(q - x) % 23 <= 4"])
def test_one_remainder_of_a_cell_is_told_exactly(text: str) -> None:
    condition = read_condition(text)
    steps = 2 if "2 *" in text else 1
    asked = widened(condition, {"q": 3, "x": 4})
    for q, x in product(range(40), repeat=2):
        cell = holds(condition, q=np.arange(q, q + 3)[:, None], x=np.arange(x, x + 4))
        if steps == 1:
            assert bool(holds(asked, q=q, x=x)) == cell.any()
        else:
            assert bool(holds(asked, q=q, x=x)) >= cell.any()


@settings(max_examples=300, deadline=None)
@given(conditions("qx"))
def test_what_is_solved_for_an_axis_says_the_same(text: str) -> None:
    for form in forms_of(read_condition(text)):
        told = solved(form, "x")
        if told is not None:
            assert all("x" not in term.form.atoms for term in told.divided)
            one, other = (holds(AtLeastZero(each), q=Q, x=X) for each in (form, told))
            np.testing.assert_array_equal(np.broadcast_to(one, (13, 29)), np.broadcast_to(other, (13, 29)))


@settings(max_examples=200, deadline=None)
@given(conditions("qx"))
def test_stretches_are_what_a_row_has(text: str) -> None:
    found = stretches([read_condition(text)], "x")
    if found is None:
        return
    kept = np.broadcast_to(python_says(text, q=Q, x=X), (13, 29))

    def of(form: Linear) -> Any:
        return form.evaluate(lambda term: Q if term == "q" else pytest.fail(str(term)))

    there = np.zeros((13, 29), bool)
    for each in found:
        tests = [of(low) <= X for low in each.lows] + [of(high) >= X for high in each.highs]
        there |= reduce(np.logical_and, [*tests, *(of(gate) >= 0 for gate in each.gates)], np.ones((13, 29), bool))
    np.testing.assert_array_equal(there, kept)


def test_numbers_beyond_32_and_64_bits_are_known() -> None:
    def form(text: str) -> Linear:
        return next(forms_of(read_condition(text)))

    assert not leaves_32_bits(form("(q - x) % 128 == 0"))
    assert leaves_32_bits(form("(q + x) % 128 == 0"))
    assert not leaves_32_bits(form("(q + x) % 128 == 0"), lambda _: 2**29)
    assert leaves_32_bits(form("n[q] % 7 == 0").plus(Linear({}, 0)))  # a multiple of 7 may be below the least number
    assert leaves_64_bits(Linear({Remainder(Linear({"x": 2**33}), 3): 1}))
    with pytest.raises(VerifyException, match="has numbers beyond 64 bits"):
        ConditionAttr("(9000000000 * x + q) % 18446744073709551616 == 0")
    wide = next(forms_of(read_condition("999999 * q <= 2 * (x // 8796093022208)")))
    assert solved(wide, "x") is None


# -- every level --------------------------------------------------------------------------------------------------

CONDITIONS = [
    "x % 16 == 0",
    "(q - x) % 12 == 5",
    "x <= q and ((q - x) % 24 == 0 or q - x < 10)",
    "q % 4 <= x % 4",
    "q // 16 - x // 32 <= 1 and x <= q",
    "q // 7 == x // 9",
    "2 * (x // 5) - 3 * (q // 4) + q % 3 <= x",
    "(first[q] - 2 * x) % 5 < 2",
    "seg[x] % 2 == 0 and x // 16 <= q // 16",
    "x % 16 // 4 != q % 4",
    "(x + 2147480000 + n) % 1000 < 300",
    "b % 2 == 0 or x % 100 == 7",
    "(q - x) % 128 == 3",
]


@cache
def road(condition: str, machine: str) -> Road:
    return compiled(program(condition), machine=machine)


@pytest.mark.sample(8, each=False)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("sizes", [{"b": 2, "q": 70, "x": 90}, {"b": 1, "q": 33, "x": 300}, {"b": 1, "q": 1, "x": 17}])
def test_every_level_agrees(condition: str, machine: str, sizes: dict[str, int]) -> None:
    road(condition, machine).check(sizes)


@pytest.mark.parametrize("condition", ["x % 300 < 2", "x <= q and ((q - x) % 400 == 0 or q - x < 20)"])
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_pieces_without_the_remainder_are_not_visited(condition: str, machine: str) -> None:
    sizes = {"b": 1, "q": 500, "x": 1000}
    road(condition, machine).check(sizes)
    counts, holds, rows, step = visited(condition, sizes)
    starts = product(range(0, sizes["q"], rows), range(0, sizes["x"], step))
    pieces = [holds[0, q : q + rows, x : x + step] for q, x in starts]
    some = sum(bool(piece.any()) for piece in pieces)
    # a piece past the end is asked about as if it were whole
    assert some <= sum(counts.values()) <= some + len(pieces) // 8
    assert sum(counts.values()) < 2 * len(pieces) // 3


def test_blocks_that_are_compared_are_limited_exactly() -> None:
    sizes = {"b": 1, "q": 300, "x": 600}
    counts, holds, rows, step = visited("q // 16 - x // 32 <= 1 and x // 16 <= q // 16", sizes)
    starts = product(range(0, sizes["q"], rows), range(0, sizes["x"], step))
    pieces = [holds[0, q : q + rows, x : x + step] for q, x in starts]
    assert sum(counts.values()) == sum(bool(piece.any()) for piece in pieces)


def strided(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
    S = tl.keep(tl.contract(Q, K, over="d") * 0.125, "x <= q and ((q - x) % 16 == 0 or q - x < 16)")
    return tl.contract(tl.softmax(S, over="x"), V, over="x")


@pytest.mark.parametrize("d", [16, 64])
def test_strided_attention_in_python(d: int) -> None:
    rng = np.random.default_rng(d)
    Q, K, V = (rng.standard_normal((size, d)).astype(np.float16) for size in (70, 90, 90))
    found = treadle.kernel("q d, x d, x e -> q e")(strided)(Q, K, V)
    q, x = np.ogrid[:70, :90]
    seen = (x <= q) & (((q - x) % 16 == 0) | (q - x < 16))
    P = np.where(seen, np.exp(Q.astype(float) @ K.astype(float).T * 0.125), 0)
    assert np.abs(found - P / P.sum(1, keepdims=True) @ V.astype(float)).max() < 1e-2
