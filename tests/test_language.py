"""`treadle.kernel`: Python functions over named axes, against numpy and PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle import TreadleError
from treadle.compiler.explain.text import explanation_text
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import format_of
from treadle.language.conditions import Comparison
from treadle.runtime.interpreter import entry_function

torch = pytest.importorskip("torch")
F = torch.nn.functional


def rows(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@treadle.kernel("h q d, h x d, h x e -> h q e")
def attention(Q: tl.Array, K: tl.Array, V: tl.Array) -> tl.Array:
    """Plain attention."""
    S = tl.contract(Q, K, over="d") * 0.125
    return tl.contract(tl.softmax(S, over="x"), V, over="x")


def test_attention_at_several_lengths_is_one_kernel_after_the_first() -> None:
    kernels = []
    for length in (33, 40, 70, 33):
        Q, K, V = (torch.randn(2, n, 64).half() for n in (40, length, length))
        result = attention(Q, K, V)
        assert result.dtype == torch.float16
        expected = F.scaled_dot_product_attention(Q.double(), K.double(), V.double())
        assert (result.double() - expected).abs().max() < 2e-3
        kernels.append(attention.compiled(Q, K, V))
    assert len(set(kernels)) == 2  # the first length alone, then any
    assert kernels[1].arguments[1].axes == {"h": 2, "x": None, "d": 64}
    assert attention.__doc__ == "Plain attention."
    assert "mma" in kernels[1].cuda


def test_values_are_named_as_the_variables_else_as_the_operations() -> None:
    @treadle.kernel("q d, x d, x -> q, x")
    def traced(Q: tl.Array, K: tl.Array, B: tl.Array) -> tuple[tl.Array, tl.Array]:
        S = tl.contract(Q, K, over="d") * 0.5
        S = tl.where(tl.index("x", S) <= tl.index("q", S), S + B, -1.0)
        seen_2 = tl.keep(S, "x <= q")
        return tl.max(tl.softmax(seen_2, over="x"), over="x"), tl.exp(tl.contract(Q, S, over="d q"))

    sizes = {"q": 3, "d": 4, "x": 5}
    module = traced.trace(["f16"] * 3, sizes, sizes)
    names = [result.name_hint for op in entry_function(module).body.block.ops for result in op.results]
    scores = ["product", "S", "x_index", "q_index", "B_f32", "add", "S_b"]
    assert names == [*scores, "seen", "softmax", "max", "S_b_f16", "product_b", "exp", "result0", "result1"]
    assert str(module) == str(traced.trace(["f16"] * 3, sizes, sizes))


@pytest.mark.parametrize(("name", "given"), [("_3d", "product"), ("_1_", "product"), ("x_1_", "x"), ("__y__", "y")])
def test_names_that_ir_cannot_have(name: str, given: str) -> None:
    sources: dict[str, Any] = {"tl": tl}
    exec(f"def f(Q, K):\n    {name} = tl.contract(Q, K, over='d')\n    return {name} * 2", sources)
    module = treadle.kernel("q d, x d -> q x")(sources["f"]).trace(
        ["f16"] * 2, sizes := {"q": 3, "d": 4, "x": 5}, sizes
    )
    names = [result.name_hint for op in entry_function(module).body.block.ops for result in op.results]
    assert names == [given, "mul", "result0"]


def test_variables_that_refuse_to_be_asked() -> None:
    """As those that stand for an object of a context do outside of it."""

    class Elsewhere:
        @property
        def __class__(self) -> Any:
            raise RuntimeError("outside of its context")

        @__class__.setter
        def __class__(self, type: Any) -> None: ...

    other = Elsewhere()

    @treadle.kernel("a -> a")
    def twice(A: tl.Array) -> tl.Array:
        assert other is not None
        return A * 2

    assert np.array_equal(twice(rows(5)), rows(5) * 2)


def test_steps_name_what_they_are_about() -> None:
    @treadle.kernel("a, a -> a")
    def both(A: tl.Array, B: tl.Array) -> tl.Array:
        return tl.exp(A + B) * 2

    compiled = both.compiled(rows(5), rows(5))
    subjects = [step.subject for step in compiled.derivation if step.law == "maps compose"]
    assert subjects == ["%add into %exp", "%exp into %result0"]
    nameless = compiled.diagram.replace("%add", "%100").replace("%exp", "%101")
    steps = treadle.compile(nameless).derivation
    assert "a result of diagram.map into %result0" in [step.subject for step in steps]


def test_costs_are_printed_as_the_command_line_prints_them() -> None:
    @treadle.kernel("a, a -> a")
    def both(A: tl.Array, B: tl.Array) -> tl.Array:
        return tl.exp(A + B) * 2

    cost = both.compiled(rows(5), rows(5)).cost()
    assert str(cost) == explanation_text(cost)
    assert str(cost).startswith(f"on {cost.machine}\n\nkernel @both   a = 5\n")
    assert repr(cost).startswith("Explanation(")


def test_formats_are_those_of_the_arguments() -> None:
    Q, K, V = rows(2, 5, 64), rows(2, 6, 64), rows(2, 6, 64)
    assert attention(Q, K, V).dtype == np.float32
    bfloat = [torch.from_numpy(each).bfloat16() for each in (Q, K, V)]
    assert attention(*bfloat).dtype == torch.bfloat16


ELEMENTWISE: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, b: a + b * 2 - 3.0 / (b * b + 1), lambda a, b: a + b * 2 - 3.0 / (b * b + 1)),
    (
        lambda a, b: -a + (2 - b) + (1 + a) * (3 * b) + (a - 1) / 2,
        lambda a, b: -a + 2 - b + (1 + a) * 3 * b + (a - 1) / 2,
    ),
    (lambda a, b: a**3 + abs(b) ** 0.5 + 2 ** (+a), lambda a, b: a**3 + b.abs() ** 0.5 + 2**a),
    (lambda a, b: tl.exp(a) + tl.exp2(b), lambda a, b: a.exp() + b.exp2()),
    (lambda a, b: tl.log(abs(a) + 1) + tl.log2(abs(b) + 1), lambda a, b: (a.abs() + 1).log() + (b.abs() + 1).log2()),
    (lambda a, b: tl.sqrt(a * a) + tl.rsqrt(b * b + 1), lambda a, b: (a * a).sqrt() + (b * b + 1).rsqrt()),
    (lambda a, b: tl.sin(a) * tl.cos(b) + tl.tanh(a), lambda a, b: a.sin() * b.cos() + a.tanh()),
    (lambda a, b: tl.erf(a) + tl.sigmoid(b), lambda a, b: a.erf() + b.sigmoid()),
    (lambda a, b: tl.relu(a) + tl.silu(b) + tl.gelu(a), lambda a, b: F.relu(a) + F.silu(b) + F.gelu(a)),
    (lambda a, b: tl.softplus(a) - tl.logsigmoid(b), lambda a, b: F.softplus(a) - F.logsigmoid(b)),
    (lambda a, b: tl.gelu(a, "tanh") + b, lambda a, b: F.gelu(a, approximate="tanh") + b),
    (lambda a, b: tl.maximum(a, b) - tl.minimum(a, 0), lambda a, b: a.maximum(b) - a.clamp(max=0)),
    (lambda a, b: tl.where(a > b, a, 2.0), lambda a, b: torch.where(a > b, a, 2.0)),
    (lambda a, b: tl.where(a <= 0, b, a) + tl.where(a.equals(a), 1, b), lambda a, b: torch.where(a <= 0, b, a) + 1),
    (
        lambda a, b: tl.where(a < b, a, b) * tl.where(a <= 0.5, 1.0, b),
        lambda a, b: a.minimum(b) * torch.where(a <= 0.5, 1.0, b),
    ),
]


@pytest.mark.parametrize("case", range(len(ELEMENTWISE)))
@pytest.mark.sample(6)
def test_elementwise(case: int) -> None:
    mine, theirs = ELEMENTWISE[case]
    a, b = torch.from_numpy(rows(7, 33)), torch.from_numpy(rows(7, 33, seed=1))
    result = treadle.kernel("m n, m n -> m n")(lambda a, b: mine(a, b))(a, b)
    expected = theirs(a.double(), b.double())
    torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-5)


def test_axes_are_aligned_by_name() -> None:
    A, b, c = rows(5, 40), rows(40), rows(5)
    mine = treadle.kernel("m n, n, m -> n m")(lambda A, b, c: (A + b) * c)
    np.testing.assert_allclose(mine(A, b, c), ((A + b) * c[:, None]).T, rtol=1e-6)


def test_an_axis_that_nothing_varies_along_is_filled() -> None:
    a, b = rows(5), rows(9)
    mine = treadle.kernel("m, n -> m n")(lambda a, b: a * 2)
    np.testing.assert_array_equal(mine(a, b), np.repeat(a[:, None] * 2, 9, axis=1))


def test_several_results_and_reductions() -> None:
    A = rows(6, 50)

    @treadle.kernel("m n -> m n, m, m, m")
    def statistics(A: tl.Array) -> tuple[tl.Array, ...]:
        mean = A.mean("n")
        return A - mean, ((A - mean) ** 2).mean("n"), tl.max(A, "n"), tl.min(A, "n") + tl.sum(A, over="n")

    centred, variance, largest, rest = statistics(A)
    np.testing.assert_allclose(centred, A - A.mean(1, keepdims=True), atol=1e-5)
    np.testing.assert_allclose(variance, A.var(1), rtol=1e-4)
    np.testing.assert_array_equal(largest, A.max(1))
    np.testing.assert_allclose(rest, A.min(1) + A.sum(1), rtol=1e-4, atol=1e-4)


def test_integers_stay_integers() -> None:
    a = np.arange(40, dtype=np.int32).reshape(4, 10) - 7
    mine = treadle.kernel("m n -> m n, m")(lambda a: (tl.where(a > 0, a * 3 - 1, -a), a.sum("n")))
    doubled, total = mine(a)
    assert doubled.dtype == total.dtype == np.int32
    np.testing.assert_array_equal(doubled, np.where(a > 0, a * 3 - 1, -a))
    np.testing.assert_array_equal(total, a.sum(1))


def test_gates_of_integers_do_not_wrap_around() -> None:
    """A cube of 2000, and a sign of the least integer, need more than 32 bits."""
    a = np.array([0, 1, -1, 5, 2000, -2000, 2**31 - 1, -(2**31)], np.int32)
    mine = treadle.kernel("m -> m, m, m")(lambda a: (tl.sigmoid(a), tl.silu(a), tl.gelu(a, "tanh")))
    given = torch.from_numpy(a).double()
    for got, want in zip(mine(a), (F.sigmoid(given), F.silu(given), F.gelu(given, approximate="tanh")), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_an_array_in_the_middle_of_an_element_is_copied() -> None:
    """numpy calls one contiguous all the same."""
    A = rows(5, 8)
    apart = np.zeros(A.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(A.shape)
    apart[:] = A
    np.testing.assert_array_equal(treadle.kernel("m n -> m n")(lambda A: A * 2)(apart), A * 2)


def test_integers_that_an_axis_is_added_to_stay_exact() -> None:
    a = np.array([2**24 + 1, -5, 7], np.int32)
    weaved = treadle.kernel("n, m -> n m")(lambda a, b: a)(a, np.zeros(2, np.int32))
    assert weaved.dtype == np.int32
    np.testing.assert_array_equal(weaved, np.stack([a, a], 1))


def test_what_is_no_integer_any_more_is_a_float() -> None:
    a = np.arange(7, dtype=np.int32)
    half = treadle.kernel("n -> n")(lambda a: a / 2)(a)
    assert half.dtype == np.float32
    np.testing.assert_array_equal(half, a / 2)


def test_numbers_of_numpy_are_numbers() -> None:
    A = np.abs(rows(5, 8)) + 1
    mine = treadle.kernel("m n -> m n")(
        lambda A: tl.where(np.float32(2) < A, np.float32(3) * A ** np.int64(2), A * np.float16(0.5) - np.int8(1))
    )
    np.testing.assert_allclose(mine(A), np.where(A > 2, 3 * A**2, A * 0.5 - 1), rtol=1e-6)
    turned = treadle.kernel("m n -> m n")(lambda A: np.float32(2) / A - np.float64(1) * A + np.float32(2) ** A)
    np.testing.assert_allclose(turned(A), 2 / A - A + 2**A, rtol=1e-5)
    a = np.arange(7, dtype=np.int32)
    assert treadle.kernel("n -> n")(lambda a: a + np.int64(3))(a).dtype == np.int32


def test_the_absolute_value_of_an_integer_is_exact() -> None:
    """f32 does not hold 2^24 + 1; of -2^31 there is none, and it stays as it is, as in numpy."""
    a = np.array([[-(2**24 + 1), 2**24 + 1, 0], [-1, -(2**31) + 1, -(2**31)]], np.int32)
    result = treadle.kernel("m n -> m n")(abs)(a, backend="emulator")
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, np.abs(a))


def test_conversions() -> None:
    a = rows(4, 10) * 5
    mine = treadle.kernel("m n -> m n", result="f32")(lambda a: a.to("i32").to("f32") + a.to("f16").to("f32"))
    np.testing.assert_allclose(mine(a), np.trunc(a) + a.astype(np.float16), rtol=1e-6)


def test_a_static_axis_has_a_kernel_for_each_size() -> None:
    @treadle.kernel("b d, d -> b d", static="d")
    def rms_norm(X: tl.Array, g: tl.Array) -> tl.Array:
        return X * tl.rsqrt((X**2).mean("d") + 1e-5) * g

    for width in (16, 96):
        X, g = rows(5, width), rows(width)
        np.testing.assert_allclose(
            rms_norm(X, g), X / np.sqrt((X**2).mean(1, keepdims=True) + 1e-5) * g, rtol=1e-4, atol=1e-5
        )
        assert rms_norm.compiled(X, g).arguments[1].axes == {"d": width}


def test_scalars_are_arguments_without_axes() -> None:
    A = rows(5, 8)
    scale = treadle.kernel("m n, -> m n")(lambda A, s: A * s)
    np.testing.assert_allclose(scale(A, 2.5), A * 2.5)


@pytest.mark.parametrize(
    ("signature", "message"),
    [
        ("q d, x d", "is no signature"),
        ("a -> b -> c", "is no signature"),
        ("q q -> q", "appears twice"),
        ("qd, xd -> qx", "axis 'qx' of a result is in no argument .*: axes are separated by spaces, as in 'q x'$"),
        ("1q -> 1q", "'1q' is not an identifier"),
        ("q; -> q", "not an identifier"),
        (3, "'3' is no signature"),
    ],
)
def test_what_is_no_signature(signature: str, message: str) -> None:
    with pytest.raises(TreadleError, match=message):
        treadle.kernel(signature)


def test_options_that_do_not_fit() -> None:
    with pytest.raises(TreadleError, match="'k', which the signature does not have"):
        treadle.kernel("m -> m", static="k")
    with pytest.raises(TreadleError, match="unknown number format 'f64'"):
        treadle.kernel("m -> m", result="f64")
    with pytest.raises(TreadleError, match="did you mean 'bf16'"):
        treadle.kernel("m -> m", result="bfloat16")
    with pytest.raises(TreadleError, match="takes 1 arguments, its signature has 2"):
        treadle.kernel("m, m -> m")(lambda a: a)
    with pytest.raises(TreadleError, match="takes 3 arguments, its signature has 2"):
        treadle.kernel("m, m -> m")(lambda a, b, c: a)


def test_further_parameters_keep_their_defaults() -> None:
    """In front of the arrays' own defaults there are arrays still: what the signature names is given."""

    @treadle.kernel("m, m -> m")
    def line(a: Any, b: Any = None, slope: float = 3.0, *, offset: float = 0.5) -> Any:
        return a * slope + b + offset

    assert line.names == ("a", "b")
    a, b = np.float32([1, 2]), np.float32([10, 20])
    np.testing.assert_array_equal(line(a, b), 3 * a + b + 0.5)


def test_a_mean_of_any_number():
    """One kernel object, traced anew where an axis became symbolic; none of no elements."""
    mean = treadle.kernel("m n -> m")(lambda A: tl.mean(A * np.float32(3), over="n"))
    for count in (8, 16, 5):
        A = np.random.default_rng(count).standard_normal((4, count)).astype(np.float32)
        np.testing.assert_allclose(mean(A), 3 * A.mean(1), rtol=1e-5, atol=1e-6)
    assert np.isnan(mean(np.ones((4, 0), np.float32))).all()


def test_what_kernels_hold_whole_stays_fixed():
    """Heads of another width are another kernel, with the scores near; lengths share one."""
    attention = treadle.kernel("q d, x d, x e -> q e")(
        lambda Q, K, V: tl.contract(tl.softmax(tl.contract(Q, K, over="d"), over="x"), V, over="x")
    )
    for length, width in ((40, 32), (50, 32), (60, 48), (700, 32)):
        Q = np.random.default_rng(width).standard_normal((length, width)).astype(np.float16)
        kernel = attention.compiled(Q, Q, Q)
        assert kernel.estimate.kernels == 1
        assert dict(kernel.arguments[0].axes) == {"q": None if length > 40 else 40, "d": width}
        assert kernel.held_whole >= {"d", "e"}
        assert all(verdict.ok for verdict in kernel.verify(Q, Q, Q))
    assert len(attention._kernels) == 3


def test_an_axis_of_many_sizes_becomes_symbolic(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("treadle.language.function.MOST_SIZES", 3)
    softmax = treadle.kernel("m n -> m n")(lambda A: tl.softmax(A, over="n"))
    sizes = [softmax.compiled(np.zeros((4, n), np.float32)).arguments[0].axes["n"] for n in (64, 65, 66, 67, 64)]
    assert sizes == [64, 65, 66, None, None]


@pytest.mark.parametrize(("format", "said"), [("f32", 1), ("f16", 0)])
def test_products_of_f32_may_be_rounded(format: str, said: int):
    traced = treadle.kernel("m k, k n -> m n")(lambda A, B: tl.contract(A, B, over="k", multiply="tf32"))
    text = str(traced.trace([format, format], {"m": 4, "k": 8, "n": 8}))
    assert text.count("as tf32") == said


@pytest.mark.parametrize(
    ("left", "right", "multiplied"),
    [
        ("f8E4M3FN", "f8E5M2", "f8E4M3FN f8E5M2"),  # tensor cores take both: weights, and the gradients of results
        ("i8", "ui8", "i8 ui8"),
        ("f8E5M2", "bf16", "bf16 bf16"),
        ("f32", "f16", "f16 f16"),
        ("i8", "f16", "f16 f16"),
    ],
)
def test_two_formats_of_one_product(left: str, right: str, multiplied: str) -> None:
    traced = treadle.kernel("m k, n k -> m n")(lambda A, B: tl.contract(A, B, over="k"))
    module = traced.trace([left, right], {"m": 4, "k": 8, "n": 8})
    (product,) = (op for op in module.walk() if isinstance(op, ContractOp))
    assert [str(format_of(each.type)) for each in (product.lhs, product.rhs)] == multiplied.split()


@pytest.mark.parametrize("machine", ["a100", "l40s", "h100"])
def test_a_product_of_two_formats_of_8_bits(machine: str) -> None:
    random = np.random.default_rng(0)
    A = random.standard_normal((67, 96)).astype(ml_dtypes.float8_e4m3fn)
    B = random.standard_normal((35, 96)).astype(ml_dtypes.float8_e5m2)
    product = treadle.kernel("m k, n k -> m n", result="f32", machine=machine)(lambda A, B: tl.contract(A, B, over="k"))
    (verdict,) = product.compiled(A, B).verify(A, B, backend="emulator")
    assert verdict.ok


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("shape", "it has .axes"),
        ("T", "the signature says"),
        ("astype", "write .to"),
        ("exp", "it has .axes and"),
    ],
)
def test_what_numpy_calls_otherwise(name: str, said: str):
    traced = treadle.kernel("m k, k n -> m n")(lambda A, B: getattr(A, name))
    with pytest.raises(AttributeError, match=f"has no '{name}': {said}"):
        traced.trace(["f32", "f32"], {"m": 4, "k": 8, "n": 8})


OF_INTEGERS = {
    "+": lambda a, b: a + b,
    "//": lambda a, b: a // b,
    "//3": lambda a, b: a // 3,
    "//-4": lambda a, b: a // -4,
    "//8": lambda a, b: a // 8,
    "100//": lambda a, b: 100 // b,
    "%": lambda a, b: a % b,
    "%3": lambda a, b: a % 3,
    "%-3": lambda a, b: a % -3,
    "%8": lambda a, b: a % np.int64(8),
    "%1": lambda a, b: a % 1,
    "-100%": lambda a, b: np.int32(-100) % b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: 5 | (a | b),
    "^": lambda a, b: a ^ b ^ 77,
    "~": lambda a, b: ~a,
    "<<": lambda a, b: a << (b & 7),
    "3<<": lambda a, b: 3 << (b & 7),
    ">>": lambda a, b: a >> (b & 7),
    "-1000>>": lambda a, b: -1000 >> (b & 7),
}


@pytest.mark.parametrize("name", OF_INTEGERS)
@pytest.mark.parametrize("format", [np.int32, np.int8, np.uint8])
def test_integers_as_numpy_has_them(name: str, format: Any) -> None:
    traced = treadle.kernel("n, n -> n")(OF_INTEGERS[name])
    a, b = (np.random.default_rng(seed).integers(*limits, 70) for seed, limits in ((1, (-128, 128)), (2, (1, 9))))
    a, b = a.astype(format), (b * (1 if format is np.uint8 else np.where(np.arange(70) % 2, 1, -1))).astype(format)
    expected = OF_INTEGERS[name](a.astype(np.int32), b.astype(np.int32))
    with np.errstate(all="ignore"):
        assert traced(a, b).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda A, B: A @ B, "contract"),
        (lambda A, B: A[0], "cannot be indexed"),
        (lambda A, B: list(A), "cannot be iterated"),
        (lambda A, B: A * len(A), "has no length: ask .size"),
        (lambda A, B: A // 2, "'//' is of integers, not of f32: take treadle.language.floor of the quotient"),
        (lambda A, B: 2 % A, "'%' is of integers, not of f32"),
        (lambda A, B: tl.index("m", A) % 2.5, "'%' is of integers, not of 2.5"),
        (lambda A, B: A & 1, "'&' is of integers, not of f32"),
        (lambda A, B: A if A > 0 else B, "where, not 'if'"),
        (lambda A, B: A if A else B, "where, not 'if'"),
        (lambda A, B: A + np.ones(3), "pass other data as an argument"),
        (lambda A, B: A + "x", "pass other data as an argument"),
        (lambda A, B: tl.contract(A, B, over="z"), "axis 'z' is summed over, but neither"),
        (lambda A, B: tl.contract(A, 2, over="m"), "takes two arrays"),
        (lambda A, B: tl.contract(A, B, over="m", multiply="f16"), "multiplies as 'f16': it may be 'tf32'"),
        (lambda A, B: A.sum("z"), "no axis 'z'"),
        (lambda A, B: tl.softmax(A, over="z"), "no axis 'z'"),
        (lambda A, B: tl.where(A, A, B), "is a comparison"),
        (lambda A, B: tl.exp(2), "expected an array"),
        (lambda A, B: A.to("f64"), "unknown number format"),
        (lambda A, B: A.to("float16"), "did you mean 'f16'"),
        (lambda A, B: np.exp(A), "numpy.exp does not trace"),
        (lambda A, B: math.sqrt(A), "is no number: use the functions of treadle.language"),
        (lambda A, B: tl.where(A == B, A, B), "A.equals"),
        (lambda A, B: tl.gelu(A, "best"), "gelu knows"),
        (lambda A, B: A.sum("m"), None),
        (lambda A, B: (A, B), "returns 2 arrays, its signature has 1"),
        (lambda A, B: 3, "returns a int"),
        (lambda A, B: A * 1e300, "1e\\+300 does not fit in f32"),
        (lambda A, B: tl.where((A > 0) & 1, A, B), "'&' joins a comparison to another, not to a int"),
        (lambda A, B: tl.where(0 < A < 1, A, B), "join comparisons by & and |"),
        (lambda A, B: tl.argmax(A, over="m n"), "argmax over 'm n': a position is along one axis"),
        (
            lambda A, B: tl.keep(A, "m % n >= 4"),
            r"end = \(index\('q', S\) // 16 \+ 1\) \* 16; keep\(S, 'x < end\[q\]'",
        ),
        (lambda A, B: tl.keep(A, "m << n"), "'m << n' is no comparison: compare with <, <=, >, >=, == or !="),
        (lambda A, B: tl.logsumexp(A, over="n n"), "over='n n' names the axis 'n' twice: name each axis once"),
        (lambda A, B: tl.keep(A, "m <"), "^condition 'm <' cannot be read"),
        (lambda A, B: tl.keep(A, "B[n] > m"), r"'B' is not given: name the array that it is, keep\(..., B=B\)"),
        (lambda A, B: tl.contract(A, B, over="m") * A, None),
        (
            lambda A, B: tl.read(A, "m, (n + 4) % 8"),
            "divides one position by a number .*, compute it in an array of int",
        ),
        (lambda A, B: [A, B], "returns 2 arrays, its signature has 1"),
        (lambda A, B: [A * 2], None),
    ],
)
def test_what_cannot_be_traced(function: Callable[..., Any], message: str | None) -> None:
    traced = treadle.kernel("m n, m n -> m n")(function)
    sizes = {"m": 4, "n": 8}
    if message is None:
        traced.trace(["f32", "f32"], sizes)
        return
    with pytest.raises(TreadleError, match=message):
        traced.trace(["f32", "f32"], sizes)


def test_a_read_at_positions_that_are_computed() -> None:
    """What the message about a remainder of a sum advises: a rotation by halves."""
    A = np.arange(32, dtype=np.float32).reshape(2, 16)
    halves = treadle.kernel("m n -> m n")(lambda X: tl.read(X, "m, at_[n]", at_=(tl.index("n", X) + 8) % 16) * 2)
    assert np.array_equal(halves(A), 2 * np.roll(A, 8, 1))


@pytest.mark.parametrize(
    ("left", "right", "over", "axes"),
    [
        ("b q d", "b x d", "d", "b q x"),
        ("t i", "i h d", "i", "t h d"),  # the larger array is the right one
        ("t h d", "h d o", "h d", "t o"),
        ("d h", "b h x", "d", "b h x"),  # weights of an array: its order stays
    ],
)
def test_the_axes_of_a_product_are_those_of_the_left_then_those_of_the_right(
    left: str, right: str, over: str, axes: str
):
    """So a position that `read` says for each of them is at the axis that is meant."""

    def product(A: tl.Array, B: tl.Array) -> tl.Array:
        C = tl.contract(A, B, over=over)
        assert C.axes == tuple(axes.split())
        return C

    treadle.kernel(f"{left}, {right} -> {axes}")(product).trace(["f32", "f32"], dict.fromkeys("bqdxtiho", 4))


def test_a_rotation_by_halves_of_a_product() -> None:
    random = np.random.default_rng(0)
    X, W = (random.standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 3, 16)))

    def rotated(X: tl.Array, W: tl.Array) -> tl.Array:
        Y = tl.contract(X, W, over="i")
        return tl.read(Y, "t, h, other[d]", other=(tl.index("d", Y) + 8) % 16)

    result = treadle.kernel("t i, i h d -> t h d")(rotated)(X, W)
    assert np.allclose(result, np.roll(np.einsum("ti,ihd->thd", X, W), 8, 2), atol=1e-4)


@pytest.mark.parametrize(
    ("place", "size"),
    [("e, n", 4), ("8 * e + i, n", 1), ("table[e], n", 3), ("table[e // 16], n", 48)],
)
def test_an_axis_that_only_reads_have_is_as_long_as_what_they_read(place: str, size: int) -> None:
    """Where that is fixed, passes know its size, as they do of attention whose values are its keys."""

    def reading(A: tl.Array, table: tl.Array, inner: tl.Array) -> tl.Array:
        named = {"table": table} if "table" in place else {}
        read = tl.read(A, place, **named)
        assert read.graph.sizes["e"] == size
        return tl.sum(read * inner, over=[axis for axis in read.axes if axis in "ei"])

    sizes = {"m": 4, "n": 8, "k": 3, "i": 8}
    traced = treadle.kernel("m n, k, i -> n" if "i" in place else "m n, k, i -> n i")(reading)
    traced.trace(["f32", "i32", "f32"], sizes, fixed=sizes)


def test_a_cumulative_sum_of_what_a_condition_left() -> None:
    """What is left out counts for nothing, and each position has a sum."""
    sums = treadle.kernel("q x -> q x")(lambda S: tl.cumsum(tl.keep(S, "x <= q"), over="x"))
    chosen = treadle.kernel("q x -> q x")(
        lambda S: tl.cumsum(tl.where(tl.index("x", S) <= tl.index("q", S), S, 0.0), over="x")
    )
    S = np.arange(12, dtype=np.float32).reshape(3, 4)
    for function in (sums, chosen):
        assert np.array_equal(function(S), np.cumsum(np.tril(S), 1))


def test_a_result_with_an_axis_too_many() -> None:
    traced = treadle.kernel("m n -> m")(lambda A: A * 2)
    with pytest.raises(TreadleError, match="still has the axes n"):
        traced.trace(["f32"], {"m": 4, "n": 8})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((rows(2, 3),), "takes 2 arguments"),
        ((rows(2, 3), rows(3, 2)), "axis 'm' has 2 elements in argument 'A', but 3 in 'B'"),
        ((rows(2, 3), rows(3)), "has 1 dimensions"),
        ((rows(2, 3), rows(2, 3, dtype=np.float64)), "elements of float64"),
        ((rows(2, 3), [[1.0]]), "the type list"),
        ((rows(2, 3), np.ma.masked_array(rows(2, 3), rows(2, 3) > 0)), "a masked array, whose mask kernels do not see"),
    ],
)
def test_arguments_that_do_not_fit(arguments: tuple[Any, ...], message: str) -> None:
    @treadle.kernel("m n, m n -> m n")
    def add(A: tl.Array, B: tl.Array) -> tl.Array:
        return A + B

    with pytest.raises(TreadleError, match=message):
        add(*arguments)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda A: tl.keep(A, "k < n", n=3).sum("k"), "'n' is no array"),
        (lambda A: A + tl.index(A, "k"), "index takes the name of an axis, and an array"),
        (lambda A: A + tl.index("k", "k"), "index takes the name of an axis, and an array"),
        (lambda A: A + tl.maximum(1.0, 2.0), "'maximum' of numbers alone"),
        (lambda A: A + tl.where(Comparison("olt", "slt", 1, 2), 1.0, 2.0), "'where' of numbers alone"),
    ],
)
def test_numbers_where_an_array_must_be(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(TreadleError, match=said):
        treadle.kernel("m k -> m")(function)(rows(5, 8))


def test_the_mean_of_nothing_is_no_number() -> None:
    result = treadle.kernel("m k -> m")(lambda A: A.mean("k"))(rows(5, 0))
    assert np.isnan(result).all()


def test_what_is_no_size_program_or_machine() -> None:
    kernel = treadle.kernel("m k -> m k")(lambda A: A * 2).compiled(rows(5, 8))
    for size in (-1, 2.5):
        with pytest.raises(TreadleError, match="sizes are whole numbers"):
            kernel.cost(m=size)
    with pytest.raises(TreadleError, match="the program is a int"):
        treadle.compile(5)
    with pytest.raises(TreadleError, match="the machine is a int"):
        treadle.compile(kernel.diagram, machine=5)


@pytest.mark.parametrize("backend", ["emulator", "interpreter"])
def test_each_result_has_memory_of_its_own(backend: str) -> None:
    def function(A: tl.Array) -> Any:
        twice = A * 2
        return A, twice, twice

    given = np.ones((5, 8), np.float32)
    same, once, again = treadle.kernel("m k -> m k, m k, m k")(function)(given, backend=backend)
    same[:] = once[:] = 7
    assert (given == 1).all()
    assert (again == 2).all()


def test_arguments_by_name() -> None:
    product = treadle.kernel("m k, k n -> m n")(lambda A, B: tl.contract(A, B, over="k"))
    a, b = np.ones((3, 4), np.float32), np.ones((4, 2), np.float32)
    assert (product(a, B=b) == 4).all()
    assert (product(B=b, A=a) == 4).all()
    for arguments, named, said in (
        ((a,), {"C": b}, "has no argument 'C'"),
        ((a, b), {"A": a}, "is given 'A' twice"),
        ((), {"B": b}, "needs A, too"),
    ):
        with pytest.raises(TreadleError, match=said):
            product(*arguments, **named)


KEPT_FROM_ANOTHER_CALL: list[Any] = []


@pytest.mark.parametrize(
    "function",
    [
        lambda A, B: A + B,
        lambda A, B: tl.contract(A, B, over="k"),
        lambda A, B: tl.where(A > B, A, 0.0),
        lambda A, B: tl.keep(A, "m < n[m]", n=B),
    ],
)
def test_an_array_of_another_call(function: Callable[..., Any]) -> None:
    def first(A: Any) -> Any:
        KEPT_FROM_ANOTHER_CALL[:] = [A]
        return A.sum("k")

    array = np.ones((3, 4), np.float32)
    treadle.kernel("m k -> m")(first)(array)
    with pytest.raises(TreadleError, match="that another call traced"):
        treadle.kernel("m k -> m")(lambda A: function(A, KEPT_FROM_ANOTHER_CALL[0]).sum("k"))(array)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda A: A.sum(1), "over=1: axes of a traced function have names, not numbers"),
        (lambda A: tl.keep(A, 5).sum("k"), "the condition of keep is a text"),
        (lambda A: np.sum(A, 1), "numpy.sum does not trace: use the functions of treadle.language"),
        (lambda A: A.sum("k") * 10**400, "0 does not fit in f32"),
    ],
)
def test_what_numpy_would_take(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(TreadleError, match=said):
        treadle.kernel("m k -> m")(function)(np.ones((3, 4), np.float32))


def test_a_name_in_other_letters() -> None:
    assert (treadle.kernel("m k -> m")(lambda π: π.sum("k"))(np.ones((3, 4), np.float32)) == 4).all()


def test_abs_is_the_own_one_of_python() -> None:
    @treadle.kernel("i, j -> i, j, j")
    def both(A, n):
        return tl.abs(A), tl.abs(n), abs(n)

    A, n = np.asarray([-1.5, 0, 2], np.float16), np.asarray([-(2**31) + 1, -3, 7], np.int32)
    size, *sizes = both(A, n)
    assert (size == abs(A)).all()
    assert all((each == abs(n)).all() and each.dtype == np.int32 for each in sizes)
    with pytest.raises(TreadleError, match="expected an array of the traced function, not str"):
        tl.abs("A")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("condition", "keeps"),
    [
        ("q // 4 >= x // 4", lambda q, x: q // 4 >= x // 4),
        (
            "q // 4 - 2 <= x // 4 <= q // 4 and 2 * (x // 3) != q",
            lambda q, x: (abs(q // 4 - 1 - x // 4) < 2) & (2 * (x // 3) != q),
        ),
        ("x < (q // 4 + 1) * 4", lambda q, x: x < (q // 4 + 1) * 4),
        ("x // 4 == q // 8 or x // 4 == x // 2", lambda q, x: (x // 4 == q // 8) | (x // 4 == x // 2)),
        ("q_over_4[q] >= q // 4 - x // 4", lambda q, x: q % 5 >= q // 4 - x // 4),
    ],
)
def test_positions_are_compared_by_blocks(condition: str, keeps: Callable[..., Any]) -> None:
    named = "q_over_4" in condition

    @treadle.kernel("q x, q -> q")
    def summed(S: tl.Array, n: tl.Array) -> tl.Array:
        return tl.sum(tl.keep(S, condition, **({"q_over_4": n} if named else {})), over="x") + n * 0

    S = np.random.default_rng(3).standard_normal((37, 45), np.float32)
    q, x = np.ogrid[:37, :45]
    expected = np.where(keeps(q, x), S, 0).sum(1)
    found = summed(S, (np.arange(37) % 5).astype(np.int32))
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "said"),
    [("sofmax", r"did you mean softmax or "), ("hardswish", r"docs/reference has what there is; others")],
)
def test_what_the_language_lacks_is_told_with_what_is_near(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=rf"treadle.language has no '{name}': {said}"):
        getattr(tl, name)
    assert not hasattr(tl, name)


def test_what_is_advised_in_place_of_mish_is_right_far_from_zero() -> None:
    @treadle.kernel("i -> i")
    def mish(x: tl.Array) -> tl.Array:
        return x * tl.tanh(tl.softplus(x))

    x = np.array([-20, -5, 0, 1, 100], np.float32)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(mish(x), wide * np.tanh(np.logaddexp(0, wide)), rtol=1e-5, atol=1e-38)


# -- by a derivation ---------------------------------------------------------------------------------------------------

DERIVATION = """set-machine{name="a100"}
diagram-expand-laws
fusion
streaming{axis=k}
tiling
hierarchy-choose-sizes{group="m=32,n=16" stream="k=48"}
hierarchy-expand-streams
convert-hierarchy-to-cuda
coalescing
"""


def replaying(path: Any) -> treadle.language.NamedKernel:
    product = treadle.kernel("m k, k n -> m n", replay=path)
    return product(lambda A, B: tl.contract(A, B, over="k"))


def test_kernels_by_a_derivation(tmp_path: Path) -> None:
    """Each that is made, the symbolic one included."""
    path = tmp_path / "product.derivation"
    path.write_text(DERIVATION, encoding="utf-8")
    product = replaying(path)
    for m, dtype in ((70, np.float16), (33, np.float16), (70, np.float32)):
        A, B = rows(m, 50, dtype=dtype), rows(50, 24, dtype=dtype)
        kernel = product.compiled(A, B)
        assert "#hierarchy.schedule<group = [m = 32, n = 16], stream = [k = 48]" in kernel.hierarchy
        assert kernel.cuda == treadle.compile(kernel.diagram, replay=path).cuda
        np.testing.assert_allclose(product(A, B, backend="emulator"), A.astype(float) @ B, atol=0.05, rtol=0.01)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("axis=k", "axis=x", "product.derivation:4:1: pass 'streaming': .*axis 'x' is reduced in no kernel"),
        ("tiling", "tilting", "product.derivation:5:1: there is no pass 'tilting'"),
        ("m=32", "q=32", "product.derivation:6:1: pass 'hierarchy-choose-sizes': option 'group' names axis 'q', which"),
    ],
)
def test_a_derivation_that_does_not_fit(before: str, after: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "product.derivation"
    path.write_text(DERIVATION.replace(before, after), encoding="utf-8")
    with pytest.raises(TreadleError, match=message):
        replaying(path)(rows(5, 4), rows(4, 3))


def test_what_is_no_derivation(tmp_path: Path) -> None:
    for path, message in ((tmp_path / "none", "cannot read the derivation .*none"), (5, "the replay is a int")):
        with pytest.raises(TreadleError, match=message):
            replaying(path)(rows(5, 4), rows(4, 3))


@pytest.mark.parametrize("axis", ["q", "x", "t"])
def test_a_condition_reads_one_array_along_several_axes(axis: str) -> None:
    """Whichever of them the array has, as for the segments of attention with itself."""

    @treadle.kernel(f"q d, x d, x e, {axis} -> q e", machine="h100")
    def segments(Q: Any, K: Any, V: Any, of: Any) -> Any:
        S = tl.keep(tl.contract(Q, K, over="d") * 0.25, "x <= q and of[q] == of[x]", of=of)
        return tl.contract(tl.softmax(S, over="x"), V, over="x")

    random = np.random.default_rng(0)
    Q, K, V = (random.standard_normal((37, 16)).astype(np.float16) for _ in range(3))
    of = np.repeat(np.arange(4, dtype=np.int32), [10, 7, 19, 1])
    q, x = np.indices((37, 37))
    P = np.where((x <= q) & (of[q] == of[x]), np.exp(Q.astype(float) @ K.astype(float).T * 0.25), 0)
    kernel = segments.compiled(Q, K, V, of)
    found = kernel.run(Q, K, V, of, backend="emulator")
    np.testing.assert_allclose(found, P / P.sum(1, keepdims=True) @ V.astype(float), rtol=5e-3, atol=5e-3)
    assert kernel.estimate.kernels == 1


def test_a_condition_reads_an_array_that_is_named_otherwise() -> None:
    """Padding of keys whose axis has a name of its own; behind the end of the array are zeros."""

    @treadle.kernel("q x, t -> q", machine="a100")
    def padded(S: Any, there: Any) -> Any:
        return tl.sum(tl.keep(S, "there[x] == 1", there=there), over="x")

    S = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
    there = (np.arange(33) % 3 > 0).astype(np.int32)
    found = padded(S, there, backend="emulator")
    np.testing.assert_allclose(found, S[:, :33][:, there > 0].sum(1), rtol=1e-5, atol=1e-5)
