"""Error bounds: no correct kernel exceeds them, in whatever order it adds, and wrong ones do.

Kernels are imitated in numpy with the roundings of a GPU: float16 and float32 elements, sums in shuffled
order, accumulators that truncate, approximate exponentials, running maxima."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import f32
from xdsl.ir import Block

from treadle.compiler.source import load_module, parse_module
from treadle.runtime.interpreter import Bounded, bounds, run_with_bounds
from treadle.runtime.interpreter.arrays import Numbers
from treadle.runtime.interpreter.scalars import value_of

ATTENTION = Path(__file__).parents[1] / "examples" / "attention.mlir"
F32, F16 = np.float32, np.float16

HEADER = """
!A = tensor<?x?xf32, #diagram.array<[a, b]>>
!B = tensor<?x?xf32, #diagram.array<[b, c]>>
!C = tensor<?x?xf32, #diagram.array<[a, c]>>
!Ah = tensor<?x?xf16, #diagram.array<[a, b]>>
!Bh = tensor<?x?xf16, #diagram.array<[b, c]>>
!Ch = tensor<?x?xf16, #diagram.array<[a, c]>>
!a = tensor<?xf32, #diagram.array<[a]>>
!ah = tensor<?xf16, #diagram.array<[a]>>
!ab = tensor<?xbf16, #diagram.array<[a]>>
"""


def bounded(body: str, *arguments) -> Bounded:
    (result,) = run_with_bounds(parse_module(HEADER + body), arguments)
    return result


def assert_holds(result: Bounded, computed: np.ndarray) -> None:
    error = np.abs(computed.astype(np.float64) - result.value)
    assert (error <= result.error).all(), f"error {error.max()} where the bound is {result.error.max()}"


# -- imitations of the machine ---------------------------------------------------------------------


def truncated(values: np.ndarray) -> np.ndarray:
    """float64 to float32, towards zero, as an accumulator of a tensor core."""
    near = values.astype(F32)
    over = np.abs(near.astype(np.float64)) > np.abs(values)
    return np.where(over, np.nextafter(near, F32(0)), near)


def product(left: np.ndarray, right: np.ndarray, random, start: np.ndarray | None = None) -> np.ndarray:
    """A matrix product with a truncating float32 accumulator, in shuffled order."""
    total = np.zeros((left.shape[0], right.shape[1]), F32) if start is None else start
    for k in random.permutation(left.shape[1]):
        exact = left[:, k : k + 1].astype(np.float64) * right[k : k + 1].astype(np.float64)
        total = truncated(total.astype(np.float64) + exact)
    return total


def exp(values: np.ndarray, random) -> np.ndarray:
    """exp by ex2.approx: a rounded argument, and a result up to 2 units off."""
    scaled = values.astype(F32) * F32(1.4426950408889634)
    result = np.exp2(scaled.astype(np.float64))
    return (result * (1 + random.uniform(-1, 1, result.shape) * 2.0**-22.5)).astype(F32)


def total(values: np.ndarray, random) -> np.ndarray:
    """A sum along the last axis in the elements' format, in shuffled order."""
    sum = np.zeros(values.shape[:-1], values.dtype)
    for k in random.permutation(values.shape[-1]):
        sum = sum + values[..., k]
    return sum


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, random, forget: str = "") -> np.ndarray:
    """One head, online, in pieces of random size; `forget` names a mistake to make."""
    m = np.full((len(q), 1), -np.inf, F32)
    l = np.zeros((len(q), 1), F32)  # noqa: E741
    acc = np.zeros((len(q), v.shape[1]), F32)
    start, end = 0, len(k) - (1 if forget == "last key" else 0)
    while start < end:
        stop = min(end, start + int(random.integers(1, 70)))
        s = product(q, k[start:stop].T, random) * F32(0.125)
        new = np.maximum(m, s.max(1, keepdims=True))
        e = exp(s - new, random)
        f = np.zeros_like(m) if start == 0 else exp(m - new, random)
        if forget == "rescale":
            f = np.ones_like(f)
        l = l * f + total(e, random)[:, None]  # noqa: E741
        acc = product(e.astype(F16), v[start:stop], random, acc * f)
        m, start = new, stop
    return (acc / l).astype(F16)


# -- whole programs --------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("format", ["h", ""])
def test_products_in_any_order(seed, format):
    random = np.random.default_rng(seed)
    dtype = F16 if format else F32
    a, b = random.standard_normal((20, 150)).astype(dtype), random.standard_normal((150, 30)).astype(dtype)
    result = bounded(
        f"""func.func @f(%a: !A{format}, %b: !B{format}) -> !C {{
          %c = diagram.contract %a, %b over [b] accumulate f32 : !A{format}, !B{format} -> !C
          func.return %c : !C }}""",
        a,
        b,
    )
    if format:
        assert_holds(result, product(a, b, random))
    order = random.permutation(150)
    in_order = np.zeros((20, 30), F32)
    for k in order:
        in_order = in_order + a[:, k : k + 1].astype(F32) * b[k : k + 1].astype(F32)
    assert_holds(result, in_order)
    assert result.error.max() < (1.5e-2 if format else 4e-3)


def test_tf32_products_round_their_operands():
    random = np.random.default_rng(3)
    a, b = random.standard_normal((20, 150)).astype(F32), random.standard_normal((150, 30)).astype(F32)
    result = bounded(
        """func.func @f(%a: !A, %b: !B) -> !C {
          %c = diagram.contract %a, %b over [b] accumulate f32 as tf32 : !A, !B -> !C
          func.return %c : !C }""",
        a,
        b,
    )

    def tf32(values):
        bits = values.view(np.uint32)
        return ((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(F32)

    computed = product(tf32(a), tf32(b), random)
    assert_holds(result, computed)
    plain = bounded(
        """func.func @f(%a: !A, %b: !B) -> !C {
          %c = diagram.contract %a, %b over [b] accumulate f32 : !A, !B -> !C
          func.return %c : !C }""",
        a,
        b,
    )
    assert (np.abs(computed - plain.value) > plain.error).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [1, 30])
def test_streamed_attention_in_any_pieces(seed, scale):
    random = np.random.default_rng(seed)
    q, k, v = (random.standard_normal((n, 64)).astype(F16) for n in (20, 333, 333))
    q = (q * F16(scale)).astype(F16)
    (result,) = run_with_bounds(load_module(ATTENTION), [a[None, None] for a in (q, k, v)])
    computed = attention(q, k, v, random)
    assert_holds(result, computed[None, None])
    if scale == 1:
        assert result.error.max() < 5e-3


@pytest.mark.parametrize("mistake", ["rescale", "last key"])
def test_mistakes_in_attention_are_seen(mistake):
    random = np.random.default_rng(5)
    q, k, v = (random.standard_normal((n, 64)).astype(F16) for n in (20, 333, 333))
    (result,) = run_with_bounds(load_module(ATTENTION), [a[None, None] for a in (q, k, v)])
    computed = attention(q, k, v, random, mistake)[None, None]
    assert (np.abs(computed - result.value) > result.error).any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scale", [1, 50])
def test_streamed_softmax_in_float32(seed, scale):
    random = np.random.default_rng(seed)
    s = (random.standard_normal((10, 400)) * scale).astype(F32)
    result = bounded(
        """func.func @f(%s: !A) -> !A {
          %p = diagram.apply @softmax(%s) over [b] : (!A) -> !A
          func.return %p : !A }""",
        s,
    )
    m, l = np.full((10, 1), -np.inf, F32), np.zeros((10, 1), F32)  # noqa: E741
    for piece in np.split(s, np.sort(random.integers(1, 400, 20)), axis=1):
        if piece.size == 0:
            continue
        new = np.maximum(m, piece.max(1, keepdims=True))
        l = l * exp(m - new, random) + total(exp(piece - new, random), random)[:, None]  # noqa: E741
        m = new
    assert_holds(result, exp(s - m, random) / l)
    assert (result.error[result.value > 1e-6] / result.value[result.value > 1e-6]).max() < 2e-3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("scale", "offset"), [(1, 0), (50, 0), (1, 1000)])
def test_softmax_whose_factor_moved_over_the_difference(seed, scale, offset):
    """exp(a - b) as exp2(c a - c b), each product rounded on its own."""
    random = np.random.default_rng(seed)
    s = (random.standard_normal((10, 400)) * scale + offset).astype(F32)
    result = bounded(
        """func.func @f(%s: !A) -> !A {
          %p = diagram.apply @softmax(%s) over [b] : (!A) -> !A
          func.return %p : !A }""",
        s,
    )
    factor = F32(1.4426950408889634)
    argument = s * factor - (s.max(1, keepdims=True) * factor)
    e = (np.exp2(argument.astype(np.float64)) * (1 + random.uniform(-1, 1, s.shape) * 2.0**-22.5)).astype(F32)
    assert_holds(result, e / total(e, random)[:, None])


@pytest.mark.parametrize(("kind", "ufunc"), [("add", np.add), ("mul", np.multiply), ("max", np.maximum)])
@pytest.mark.parametrize("dtype", [F16, F32])
def test_reductions_in_any_order(kind, ufunc, dtype):
    random = np.random.default_rng(9)
    h = "h" if dtype == F16 else ""
    a = (1 + 0.1 * random.standard_normal((20, 100))).astype(dtype)
    result = bounded(
        f"""func.func @f(%a: !A{h}) -> !a{h} {{
          %r = diagram.reduce {kind} %a over [b] : !A{h} -> !a{h}
          func.return %r : !a{h} }}""",
        a,
    )
    for _ in range(5):
        computed = a[:, 0] * 0 + (1 if kind == "mul" else 0)
        for k in random.permutation(100):
            computed = ufunc(computed, a[:, k])
        assert_holds(result, computed)
    if kind == "max":
        assert (result.error == 0).all()


PRODUCT = """func.func @f(%a: {0}) -> {1} {{
          %r = diagram.reduce mul %a over [b] : {0} -> {1}
          func.return %r : {1} }}"""


@pytest.mark.parametrize("dtype", [F16, F32])
def test_partial_products_may_leave_the_range(dtype):
    """Whatever an order overflows or loses is within the bound, also of rows with zeros, infinities and NaN."""
    random = np.random.default_rng(1)
    a = (
        random.choice([-1, 1], (4000, 6))
        * 10.0 ** random.integers(*((-4, 5) if dtype == F16 else (-37, 39)), (4000, 6))
    ).astype(dtype)
    for special in (0.0, np.inf, np.nan):
        a[random.random(4000) < 0.1, random.integers(6)] = special
    h = "h" if dtype == F16 else ""
    result = bounded(PRODUCT.format(f"!A{h}", f"!a{h}"), a)
    known = np.isfinite(result.error)
    assert 0.05 < known.mean() < 0.95
    for _ in range(20):
        computed = np.ones(4000, dtype)
        for k in random.permutation(6):
            with np.errstate(all="ignore"):
                computed = computed * a[:, k]
        with np.errstate(all="ignore"):
            near = np.abs(computed.astype(np.float64) - result.value) <= result.error
        same = (computed == result.value) | (np.isnan(computed) & np.isnan(result.value))
        assert (same | near | ~known).all()


def test_products_that_stay_in_range_keep_their_bounds():
    a = np.array([[1e30, 1e30, 1e-30], [1e-30, 1e-30, 1e30], [1, 2, 3], [0, 2, 3], [np.inf, 2, 3]], F32)
    result = bounded(PRODUCT.format("!A", "!a"), a)
    assert result.error[0] == np.inf  # 1e60, were it the first step
    assert 1e-38 < result.error[1] < 1e-7  # 1e-60, which is lost, and then 1e30 as large
    assert result.error[2] < 1e-5
    assert result.error[3] < 1e-36
    assert result.error[4] == 0


def test_a_product_of_integers_is_exact():
    text = """!I = tensor<?x?xi32, #diagram.array<[a, b]>>
        !i = tensor<?xi32, #diagram.array<[a]>>
        """ + PRODUCT.format("!I", "!i")
    a = np.random.default_rng(0).integers(-9, 10, (5, 800)).astype(np.int32) | 1
    result = bounded(text, a)
    assert (result.value == np.multiply.reduce(a, axis=1, dtype=np.int32)).all()
    assert (result.error == 0).all()


@pytest.mark.parametrize("turned", [False, True])
def test_an_infinite_element_times_what_vanishes_has_no_bound(turned):
    """exp(-300) is zero in f32, and the product NaN; what is zero exactly gives NaN in the formula, too."""
    scores = np.zeros((3, 8), F32)
    scores[0, 3], scores[1, 3] = -300, -2
    values = np.ones((8, 4), ml_dtypes.bfloat16)
    values[3, :2] = np.inf
    order = "%v, %n" if turned else "%n, %v"
    types = "!Bb, !Ab" if turned else "!Ab, !Bb"
    result = bounded(
        f"""!Ab = tensor<?x?xbf16, #diagram.array<[a, b]>>
        !Bb = tensor<?x?xbf16, #diagram.array<[b, c]>>
        func.func @f(%s: !A, %v: !Bb) -> !C {{
          %p = diagram.apply @softmax(%s) over [b] : (!A) -> !A
          %n = diagram.cast %p : !A -> !Ab
          %c = diagram.contract {order} over [b] accumulate f32 : {types} -> !C
          func.return %c : !C }}""",
        scores,
        values,
    )
    assert (result.error[0, :2] == np.inf).all()
    assert (result.error[1:, :2] == 0).all()
    assert (result.value[1:, :2] == np.inf).all()
    assert np.isfinite(result.error[:, 2:]).all()


@pytest.mark.parametrize("seed", range(3))
def test_sums_that_start_from_something_large(seed):
    """Each step rounds a partial sum that the start is a part of."""
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((20, 150)).astype(F16), random.standard_normal((150, 30)).astype(F16)
    start = (1000 * random.standard_normal((20, 30))).astype(F32)
    result = bounded(
        """func.func @f(%a: !Ah, %b: !Bh, %c: !C) -> !C {
          %r = diagram.contract %a, %b over [b] accumulate f32 into %c : !Ah, !Bh -> !C
          func.return %r : !C }""",
        a,
        b,
        start,
    )
    assert_holds(result, product(a, b, random, start))
    big = (100 * random.standard_normal(20)).astype(F32)
    result = bounded(
        """func.func @f(%a: !A, %c: !a) -> !a {
          %r = diagram.reduce add %a over [b] into %c : !A -> !a
          func.return %r : !a }""",
        a.astype(F32),
        big,
    )
    computed = big
    for k in random.permutation(150):
        computed = computed + a[:, k].astype(F32)
    assert_holds(result, computed)


def test_a_reduction_in_a_narrower_format_rounds_its_elements():
    random = np.random.default_rng(4)
    a = random.standard_normal((20, 50)).astype(F32)
    for kind, oracle in (("max", np.max), ("add", np.sum)):
        result = bounded(
            f"""func.func @f(%a: !A) -> !ah {{
              %r = diagram.reduce {kind} %a over [b] : !A -> !ah
              func.return %r : !ah }}""",
            a,
        )
        assert_holds(result, oracle(a.astype(F16), axis=1))


def test_integers_have_no_error_until_they_come_from_one():
    text = """!I = tensor<?x?xi32, #diagram.array<[a, b]>>
        !i = tensor<?xi32, #diagram.array<[a]>>
        func.func @f(%a: !A) -> !i {{
          %n = diagram.map (%x = %a : !A) -> !I {{
            %c = arith.constant {0} : f32
            %y = arith.mulf %x, %c : f32
            %z = arith.fptosi {1} : f32 to i32
            diagram.yield %z : i32
          }}
          %r = diagram.contract %n, %n over [b] accumulate i32 : !I, !I -> !i
          func.return %r : !i }}"""
    given = np.array([[1.0, 2.0, 3.0]])
    exact = bounded(text.format(1.5, "%x"), given)
    assert exact.value.tolist() == [14]
    assert exact.error.tolist() == [0]
    near_a_jump = bounded(text.format(1.0, "%y"), given)
    assert near_a_jump.error.item() >= 14 - (0 + 1 + 4)


@pytest.mark.parametrize(("kind", "ufunc"), [("add", np.add), ("mul", np.multiply)])
def test_integers_that_wrap_are_exact(kind, ufunc):
    text = f"""!I = tensor<?x?xi32, #diagram.array<[a, b]>>
        !i = tensor<?xi32, #diagram.array<[a]>>
        func.func @f(%a: !I) -> !i {{
          %r = diagram.reduce {kind} %a over [b] : !I -> !i
          func.return %r : !i }}"""
    random = np.random.default_rng(3)
    given = random.integers(-(2**31), 2**31, (4, 500)).astype(np.int32) | 1
    result = bounded(text, given)
    assert result.value.tolist() == ufunc.reduce(random.permuted(given, axis=1), axis=1, dtype=np.int32).tolist()
    assert not result.error.any()


def test_the_bound_grows_no_faster_than_the_partial_sums():
    """Elements of one sign make a partial sum twice as large as those that cancel."""
    text = """func.func @f(%a: !A) -> !a {
          %r = diagram.reduce add %a over [b] : !A -> !a
          func.return %r : !a }"""
    ones = np.ones((1, 100))
    same, mixed = bounded(text, ones), bounded(text, ones * np.where(np.arange(100) % 2, 1, -1))
    assert same.error.item() == pytest.approx(2 * mixed.error.item(), rel=1e-3)


@pytest.mark.parametrize(("type", "dtype"), [("!ah", F16), ("!ab", ml_dtypes.bfloat16)])
def test_casts_round_once(type, dtype):
    random = np.random.default_rng(2)
    a = (random.standard_normal(5000) * 10.0 ** random.integers(-12, 4, 5000)).astype(F32)
    result = bounded(
        f"""func.func @f(%a: !a) -> {type} {{
          %r = diagram.cast %a : !a -> {type}
          func.return %r : {type} }}""",
        a,
    )
    rounded = a.astype(dtype).astype(np.float64)
    assert_holds(result, rounded)
    assert (np.abs(rounded - result.value) / result.error).max() > 0.4


def test_what_leaves_its_format_has_no_bound():
    result = bounded(
        """func.func @f(%a: !a) -> !ah {
          %r = diagram.cast %a : !a -> !ah
          func.return %r : !ah }""",
        np.array([1.0, 65504.0, 1e6, np.inf, np.nan], F32),
    )
    assert np.isfinite(result.error).tolist() == [True, True, False, True, True]
    assert result.error[3:].tolist() == [0, 0]


def test_arguments_are_exact():
    result = bounded("func.func @f(%a: !a) -> !a { func.return %a : !a }", np.ones(3))
    assert (result.error == 0).all()


def test_a_choice_that_rounding_decides_allows_both():
    result = bounded(
        """func.func @f(%a: !a, %k: !a) -> !a {
          %r = diagram.map (%x = %a : !a, %y = %k : !a) -> !a {
            %three = arith.constant 3.0 : f32
            %q = arith.divf %x, %three : f32
            %c = arith.cmpf ogt, %q, %y : f32
            %zero = arith.constant 0.0 : f32
            %r = arith.select %c, %three, %zero : f32
            diagram.yield %r : f32
          }
          func.return %r : !a }""",
        np.array([3.0, 3.0]),
        np.array([1.0, 0.5]),
    )
    assert result.value.tolist() == [0, 3]
    assert result.error[0] >= 3
    assert result.error[1] == 0


# -- each scalar operation -------------------------------------------------------------------------

OPERATIONS = sorted(
    (kind for kind in bounds.SPREAD if kind.name.startswith("math.") or kind.name.endswith("f")),
    key=lambda kind: kind.name,
)
SPECIAL = {arith.CmpfOp, arith.ExtFOp, arith.TruncFOp, math.FPowIOp}


def operation(kind, count: int):
    return kind(*Block(arg_types=[f32] * count).args)


@pytest.mark.parametrize("kind", [k for k in OPERATIONS if k not in SPECIAL], ids=lambda kind: kind.name)
@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32 - 1))
def test_an_operation_passes_on_no_less_than_it_must(kind, seed):
    """Any operands within their bounds give a result within the bound of the result."""
    random = np.random.default_rng(seed)
    count = 3 if kind is math.FmaOp else (2 if _is_binary(kind) else 1)
    op = operation(kind, count)
    values = [random.standard_normal(200) * 10.0 ** random.integers(-2, 2, 200) for _ in range(count)]
    errors = [np.abs(random.standard_normal(200)) * 10.0 ** random.integers(-6, 0, 200) for _ in range(count)]
    operands = tuple(Numbers(v, e) for v, e in zip(values, errors, strict=True))
    value = value_of(op, tuple(values))
    error = bounds.scalar_error(op, operands, value)
    for _ in range(20):
        moved = tuple(v + e * random.uniform(-1, 1, 200) for v, e in zip(values, errors, strict=True))
        there, known = value_of(op, moved), np.isfinite(value) & np.isfinite(error)
        with np.errstate(all="ignore"):
            if kind not in bounds.EXACT:
                there = there.astype(F32).astype(np.float64)
            assert not (known & ~(np.abs(there - value) <= error)).any()


def _is_binary(kind) -> bool:
    names = ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "maxnumf", "minnumf", "powf", "copysign")
    return kind.name.split(".")[1] in names


ONE = {
    "math.exp": np.exp,
    "math.exp2": np.exp2,
    "math.expm1": np.expm1,
    "math.log": np.log,
    "math.log2": np.log2,
    "math.log10": np.log10,
    "math.log1p": np.log1p,
    "math.sqrt": np.sqrt,
    "math.rsqrt": lambda x: (1 / np.sqrt(x.astype(np.float64))).astype(x.dtype),
    "math.cbrt": np.cbrt,
    "math.sin": np.sin,
    "math.cos": np.cos,
    "math.asin": np.arcsin,
    "math.acos": np.arccos,
    "math.atan": np.arctan,
    "math.sinh": np.sinh,
    "math.cosh": np.cosh,
    "math.tanh": np.tanh,
    "math.asinh": np.arcsinh,
    "math.acosh": np.arccosh,
    "math.atanh": np.arctanh,
    "math.absf": np.abs,
    "math.floor": np.floor,
    "arith.negf": np.negative,
}
TWO = {
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": np.divide,
    "arith.maximumf": np.maximum,
    "arith.minnumf": np.fmin,
    "math.copysign": np.copysign,
    "math.powf": lambda x, y: np.power(x.astype(np.float64), y.astype(np.float64)).astype(x.dtype),
}
BORDERS = np.array([0.0, -0.0, 1, -1, 2, -2, 0.5, np.inf, -np.inf, np.nan, 65504, -65504, 6e-8, 1e-4, 11, -11, 88.5])
"""Where domains end, functions turn and formats run out."""


def numbers_at_borders(random: np.random.Generator, dtype: type) -> np.ndarray:
    """Ordinary numbers, borders, and neighbours of borders a few roundings away."""
    ordinary = random.standard_normal(200).astype(dtype)
    borders = random.choice(BORDERS, 200).astype(dtype)
    with np.errstate(all="ignore"):
        beside = borders[100:] * (1 + random.integers(-3, 4, 100) * np.finfo(dtype).eps).astype(dtype)
    return random.permuted(np.concatenate([ordinary, borders[:100], beside.astype(dtype)]))


def evaluated(steps, format, inputs):
    """The bound of a straight-line body, and what numpy computes in the format that it states."""
    computed, lines = list(inputs), []
    with np.errstate(all="ignore"):
        for i, (name, left, right) in enumerate(steps):
            chosen = [left % len(computed), right % len(computed)][: 2 if name in TWO else 1]
            lines.append(f"%v{i + 2} = {name} {', '.join(f'%v{j}' for j in chosen)} : {format}")
            computed.append({**ONE, **TWO}[name](*(computed[j] for j in chosen)))
    type = f"tensor<?x{format}, #diagram.array<[a]>>"
    body = "\n".join(lines)
    result = bounded(
        f"""func.func @f(%x: {type}, %y: {type}) -> {type} {{
          %r = diagram.map (%v0 = %x : {type}, %v1 = %y : {type}) -> {type} {{
            {body}
            diagram.yield %v{len(computed) - 1} : {format}
          }}
          func.return %r : {type} }}""",
        *inputs,
    )
    return result, computed[-1].astype(np.float64)


@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(st.sampled_from([*ONE, *TWO]), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=8),
    st.sampled_from(["f32", "f16"]),
    st.integers(0, 2**32 - 1),
)
@example([("arith.addf", 0, 1), ("math.exp", 0, 0), ("math.exp", 0, 0), ("math.log1p", 7, 0)], "f16", 317)
def test_scalar_programs_in_their_own_format(steps, format, seed):
    """Any straight-line body, at and beside the borders of domains and formats."""
    random = np.random.default_rng(seed)
    inputs = [numbers_at_borders(random, F32 if format == "f32" else F16) for _ in range(2)]
    result, computed = evaluated(steps, format, inputs)
    known = np.isfinite(result.error) & np.isfinite(result.value)
    with np.errstate(all="ignore"):
        error = np.abs(computed - result.value)
    assert not (known & ~(error <= result.error)).any()
    wild = np.isfinite(result.error) & ~np.isfinite(result.value)
    np.testing.assert_array_equal(computed[wild], result.value[wild])


BESIDE = [
    ("math.log", 0.0),
    ("math.log2", 0.0),
    ("math.log10", 0.0),
    ("math.sqrt", 0.0),
    ("math.rsqrt", 0.0),
    ("math.log1p", -1.0),
    ("math.asin", 1.0),
    ("math.asin", -1.0),
    ("math.acos", 1.0),
    ("math.atanh", 1.0),
    ("math.acosh", 1.0),
]


@pytest.mark.parametrize(("name", "border"), BESIDE)
@pytest.mark.parametrize("side", [-1, 0, 1])
def test_an_interval_that_touches_the_border_of_a_domain_has_no_bound(name, border, side):
    """A sum that rounds to one side of the border, or beyond both: NaN, infinity and a number are all right."""
    kind = next(op for op in bounds.SPREAD if op.name == name)
    op = operation(kind, 1)
    middle = np.array([border + side * 1e-9])
    for error in (1e-8, 10.0):
        value = value_of(op, (middle,))
        assert np.isinf(bounds.scalar_error(op, (Numbers(middle, np.full(1, error)),), value))
    exact = bounds.scalar_error(op, (Numbers(middle, np.zeros(1)),), value)
    assert np.isfinite(exact).all() or (name == "math.rsqrt" and side == 0)


def test_the_least_integer_times_an_inexact_one() -> None:
    """Whose size is no number of i32: the bound was below zero, and a right result called wrong."""
    module = parse_module("""
!X = tensor<4xf32, #diagram.array<[i]>>
!N = tensor<4xi32, #diagram.array<[i]>>
func.func @f(%X: !X, %n: !N) -> !N {
  %R = diagram.map (%x = %X : !X, %m = %n : !N) -> !N {
    %third = arith.constant 0.33333334 : f32
    %y = arith.mulf %x, %third : f32
    %k = arith.fptosi %y : f32 to i32
    %r = arith.muli %k, %m : i32
    diagram.yield %r : i32
  }
  func.return %R : !N
}""")
    n = np.full(4, -(2**31), np.int32)
    (result,) = run_with_bounds(module, (np.asarray([3.0, 6.0, 7.5, 0.1], np.float32), n))
    assert (result.error >= 0).all()


EXTREMUM = """
func.func @f(%A: !A, %t: !a) -> !A {{
  %S = diagram.map (%v = %A : !A, %s = %t : !a) -> !A {{
    %y = arith.mulf %v, %s : f32
    diagram.yield %y : f32
  }}
  %m = diagram.reduce {kind} %S over [b] : !A -> !a
  %is = diagram.map (%v = %{of} : !A, %e = %m : !a) -> !A {{
    %same = arith.cmpf oeq, %v, %e : f32
    %one = arith.constant 1.0 : f32
    %zero = arith.constant 0.0 : f32
    %y = arith.select %same, %one, %zero : f32
    diagram.yield %y : f32
  }}
  func.return %is : !A
}}"""
THIRD = np.full(1, 1 / 3, F32)


@pytest.mark.parametrize("kind", ["max", "min"])
def test_an_element_that_no_other_reaches_is_the_extremum(kind: str) -> None:
    sign = 1 if kind == "max" else -1
    far, near = np.array([[1, 2, 3, 2]], F32) * sign, np.array([[1, 3, np.nextafter(F32(3), F32(2)), 2]], F32) * sign
    text = EXTREMUM.format(kind=kind, of="S")
    result = bounded(text, far, THIRD)
    assert result.value.tolist() == [[0, 0, 1, 0]]
    assert not result.error.any()
    assert (bounded(text, near, THIRD).error > 0).tolist() == [[False, True, True, False]]
    with_nan = np.where(far == sign, np.nan, far).astype(F32)
    assert bounded(text, with_nan, THIRD).error.shape == far.shape


def test_what_is_not_the_elements_of_the_extremum_is_near_it() -> None:
    """Equal to the maximum of thirds, an argument is so by its own digits."""
    result = bounded(EXTREMUM.format(kind="max", of="A"), np.array([[1, 2, 3, F32(3) * THIRD[0]]], F32), THIRD)
    assert (result.error > 0).any()


def test_a_comparison_with_itself_asks_for_a_nan() -> None:
    result = bounded(
        EXTREMUM.format(kind="max", of="S").replace("oeq, %v, %e", "une, %v, %v"), np.array([[1, 2]], F32), THIRD
    )
    assert not result.value.any()
    assert not result.error.any()
