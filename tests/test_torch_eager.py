# pyright: standard
"""`torch.compile` gives what eager PyTorch gives: values, number formats and strides, also where programs have none
like them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import treadle
from treadle.compiler.errors import TreadleError
from treadle.torch import Report, backend, explain, operator
from treadle.torch.registry import COMPUTED

torch.manual_seed(1)

FLOATS = torch.randn(5, 8)
OTHERS = torch.randn(5, 8)
INTEGERS = torch.randint(-9, 9, (5, 8), dtype=torch.int32)
MORE = torch.randint(-9, 9, (5, 8), dtype=torch.int32)
LARGE = torch.full((5, 8), 2**30, dtype=torch.int32)
ODD = torch.full((5, 8), 2**24 + 1, dtype=torch.int32)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check(function: Callable[..., Any], *inputs: Any, options: dict[str, Any] | None = None) -> None:
    """Compile, and compare every result with eager PyTorch's."""
    with torch.no_grad():
        want = function(*inputs)
        got = torch.compile(function, backend=backend, options=options or {})(*inputs)
    for a, b in zip(several(got), several(want), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-5, equal_nan=True)
        assert a.stride() == b.stride()


def several(result: Any) -> tuple[torch.Tensor, ...]:
    return result if isinstance(result, tuple) else (result,)


def report_of(function: Callable[..., Any], *inputs: Any) -> Report:
    with torch.no_grad():
        return explain(function, inputs)


# -- integers and truth values -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda i, j: (i & j) * 2, (INTEGERS, MORE)),
        (lambda i, j: (i | j) * 2, (INTEGERS, MORE)),
        (lambda i: (~i) * 2, (INTEGERS,)),
        (lambda x, y: torch.where((x > 0) & (y > 0) | ~(x > 1), x, 0.0) * 2, (FLOATS, OTHERS)),
        (lambda x, y: torch.where(torch.logical_and(x, y), x, 0.0) * 2, (FLOATS, OTHERS)),
        (lambda x: torch.where(torch.logical_not(x), x, 1.0) * 2, (FLOATS,)),
        (lambda i, j: torch.where(torch.logical_or(i, j), i, 0) * 2, (INTEGERS, MORE)),
        (lambda i, j: torch.where(torch.logical_and(i, j), 1, 0) * i, (INTEGERS, MORE)),
        (lambda m, n: (m + n).float() * 3, (FLOATS > 0, OTHERS > 0)),
        (lambda m, n: (m + n) * 3 - INTEGERS, (FLOATS > 0, OTHERS > 0)),
        (lambda i, x: (i + (x > 0)) * (x < 1), (ODD, FLOATS)),
        (lambda i, x: (i + (x > 0)) == i + 1, (ODD, FLOATS)),
        (lambda i: i.sum(-1, dtype=torch.float32) * 2, (LARGE,)),
        (lambda i: i.sum(-1) * 2, (LARGE,)),
        (lambda x: x.sum(-1, dtype=torch.int32) * 2, (FLOATS * 9,)),
        (lambda m: m.sum(-1).float() * 2, (FLOATS > 0,)),
        (lambda i: (i**2.0) * 2.0, (LARGE,)),
        (lambda i: (i**2) * 2, (INTEGERS,)),
        (lambda i: (i.abs() ** 9) + i, (INTEGERS,)),
        (lambda i, j: (i ** j.abs()) + 1, (INTEGERS, MORE)),
        (lambda x: torch.full((8,), 2.7, dtype=torch.int32) * x + x, (FLOATS,)),
        (lambda x: torch.full((8,), 5, dtype=torch.bool) * x + x, (FLOATS,)),
        (lambda i: torch.full((8,), 5, dtype=torch.float32) * i + i, (LARGE,)),
        (lambda x: torch.full((8,), 0.1, dtype=torch.float16).float() * x * 2, (FLOATS,)),
        (lambda x: (torch.arange(70000) ** 2).sum() * x + 1, (FLOATS,)),
        (lambda x: (torch.arange(70000, dtype=torch.float32) ** 2).sum() * x + x, (FLOATS,)),
        (lambda i: torch.where(i + torch.arange(8) > 0, i, 0) * 2, (torch.full((5, 8), 2**31 - 1, dtype=torch.int32),)),
    ],
)
def test_integers_and_truth_values(function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    check(function, *inputs)


@pytest.mark.parametrize(
    ("function", "inputs"),
    [
        (lambda x, y: torch.where(torch.logical_and(x, y), x, 0.0) * 2, (FLOATS, OTHERS)),
        (lambda m: m.sum(-1, dtype=torch.int32) * 2, (FLOATS > 0,)),
        (lambda x: (x * torch.arange(8)).sum(-1), (FLOATS,)),
        (lambda i: (i**2.0) * 2.0, (LARGE,)),
    ],
)
def test_what_32_bits_hold_is_a_kernel(function: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
    assert report_of(function, *inputs).taken


# -- strides -------------------------------------------------------------------------------------------

IMAGES = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("function", "input"),
    [
        (lambda a: torch.relu((a.t() * 2).exp()).t().view(-1), FLOATS),
        (lambda a: torch.relu((a.t() * 2).exp()), FLOATS),
        (lambda a: ((a.t() * 2).exp(), (a * 2).exp().sum(0, keepdim=True)), FLOATS),
        (lambda a: (a.t() * 2).exp() > 1, FLOATS),
        (lambda a: ((a.t() * 2).exp()).as_strided((3, 3), (1, 2)), FLOATS),
        (lambda a: (a * 2).exp().permute(0, 2, 3, 1).view(-1), IMAGES),
        (lambda a: (a * 2).exp(), IMAGES[:, :, :1].contiguous(memory_format=torch.channels_last)),
        (lambda a: (a * 2).exp(), IMAGES[:, :2, ::2]),
        (lambda a: ((a.reshape(2, 3, 20) * 2).exp() @ a.reshape(2, 20, 3)).transpose(1, 2), IMAGES),
        (lambda a: F.layer_norm(a.t(), (5,)).view(-1) * 2, FLOATS),
        (lambda a: F.layer_norm(a.t(), (5,), a[:, 0], a[:, 1]), FLOATS),
        (
            lambda a: F.scaled_dot_product_attention(*[a.transpose(1, 2)] * 3).transpose(1, 2).view(2, 3, -1),
            IMAGES.contiguous(),
        ),
        (lambda a: F.scaled_dot_product_attention(*[a.transpose(1, 2)] * 3, is_causal=True), IMAGES.contiguous()),
    ],
)
def test_strides_are_pytorchs(function: Callable[..., Any], input: torch.Tensor) -> None:
    assert report_of(function, input).taken
    torch._dynamo.reset()
    check(function, input)


def test_what_the_backward_pass_reads_has_its_strides() -> None:
    def function(a: torch.Tensor) -> torch.Tensor:
        return ((a.t() * 2).tanh()).t().contiguous().view(-1).square()

    a, b = (FLOATS.clone().requires_grad_() for _ in range(2))
    torch.compile(function, backend=backend)(a).sum().backward()
    function(b).sum().backward()
    torch.testing.assert_close(a.grad, b.grad)


# -- what PyTorch allows, and programs do not ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "input"),
    [
        (lambda x: x.sum().softmax(0) + 1, FLOATS),
        (lambda x: x.sum().log_softmax(-1) + 1, FLOATS),
        (lambda x: x.sum().squeeze(0) + 1, FLOATS),
        (lambda x: x.sum().sum(0) + 1, FLOATS),
        (lambda x: x.sum().mean(-1) + 1, FLOATS),
        (lambda x: x.sum().amax(0) * 2, FLOATS),
        (lambda x: torch.logsumexp(x.sum(), 0) * 2, FLOATS),
        (lambda x: x.sum().var(0) * 2, FLOATS[:, :1]),
        (lambda x: x.expand(0, 8).sum(0) + 1, FLOATS[:1]),
        (lambda x: (x.exp() * 2).expand(0, 8).sum(0) + 1, FLOATS[:1]),
        (lambda i: torch.where(i < 2**40, FLOATS, 0.0) * 2, INTEGERS),
        (lambda x: torch.where(torch.arange(8) < 2**40, x, 0.0) * 2, FLOATS),
    ],
)
def test_dimensions_and_numbers_that_are_not_there(function: Callable[..., Any], input: torch.Tensor) -> None:
    check(function, input)


@pytest.mark.parametrize("counts", [(4, 2, 1), (4, 4, 2), (4, 1, 4)])
def test_keys_and_values_have_heads_of_their_own(counts: tuple[int, int, int]) -> None:
    check(
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        *(torch.randn(2, heads, 9, 16) for heads in counts),
    )


def test_heads_of_no_elements() -> None:
    inputs = torch.randn(2, 3, 5, 0), torch.randn(2, 3, 7, 0), torch.randn(2, 3, 7, 16)
    check(lambda q, k, v: F.scaled_dot_product_attention(q, k, v), *inputs)


def test_a_translation_that_fails_leaves_the_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise IndexError("no such dimension")

    monkeypatch.setitem(COMPUTED, torch.ops.aten.tanh.default, fails)
    with pytest.warns(RuntimeWarning, match="treadle failed at tanh"):
        report = report_of(lambda x: torch.softmax(x.tanh() @ x.t(), -1), FLOATS)
    (left,) = report.left
    assert "IndexError: no such dimension" in left.reason
    assert report.taken


def test_numbers_beyond_32_bits_among_integers() -> None:
    kernel = treadle.kernel("m k -> m k")(lambda A: A + 2**40)
    with pytest.raises(TreadleError, match="1099511627776 does not fit in 32 bits"):
        kernel(INTEGERS)


# -- what reads nothing ------------------------------------------------------------------------------------


def test_a_program_without_arguments_stays() -> None:
    """As the frequencies of rotary positions: a kernel runs where its arguments lie, and there are none."""
    check(lambda a: (a.cumsum(0), torch.exp(torch.arange(8) * -0.5).cos()), FLOATS)


def test_positions_along_an_axis_that_no_argument_has() -> None:
    check(lambda a: a.sum() + torch.arange(8) * 0.5, FLOATS, options={"backend": "interpreter"})


# -- parts of an axis, sizes that values decide --------------------------------------------------------------


WEIGHT = torch.randn(8, 24)


def halves(a: torch.Tensor) -> torch.Tensor:
    q, k, v = (a @ WEIGHT).chunk(3, -1)
    return torch.softmax(q @ k.t(), -1) @ v


def places(a: torch.Tensor) -> torch.Tensor:
    q, k, v = (a @ WEIGHT).view(5, 3, 2, 4).permute(1, 2, 0, 3).unbind(0)
    return F.scaled_dot_product_attention(q, k, v)


def one_copied(a: torch.Tensor) -> torch.Tensor:
    return (a @ WEIGHT).view(5, 3, 8).transpose(0, 1).contiguous()[1].view(-1)


@pytest.mark.parametrize("function", [halves, places, one_copied])
def test_parts_of_an_axis_are_views_and_cut_no_more_than_they_must(function: Callable[..., Any]) -> None:
    report = report_of(function, FLOATS)
    assert report.taken
    assert not report.left, report
    torch._dynamo.reset()
    check(function, FLOATS)


@pytest.mark.parametrize("power", [0, 0.5, 3, -2, float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_norms_of_any_order_are_kernels(power: float, dtype: torch.dtype) -> None:
    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, power, dim=-1, dtype=torch.float32)

    report = report_of(norm, FLOATS.to(dtype))
    assert report.taken
    assert not report.left, report
    torch._dynamo.reset()
    check(norm, FLOATS.to(dtype))


def as_many(x: torch.Tensor) -> torch.Tensor:
    count = int((x > 0).sum().item())
    torch._check(count > 0)
    return torch.softmax(x.flatten()[:count], 0) * 2 + torch.ones(count)


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x[x > 0], 0) * 2


@pytest.mark.parametrize("function", [as_many, chosen])
def test_sizes_that_values_decide_stay(function: Callable[..., Any]) -> None:
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        report = report_of(function, FLOATS)
        assert any("known only once it has run" in left.reason for left in report.left), report
        torch._dynamo.reset()
        check(function, FLOATS)


# -- operators ---------------------------------------------------------------------------------------------

SUMS = treadle.kernel("m k, m -> m, m")(lambda A, n: (A.sum("k"), n + 1))


@pytest.mark.parametrize("wrap", [tuple, list])
def test_an_operator_with_integers_among_its_results(wrap: Callable[[Any], Any]) -> None:
    """They have no gradient; the formula may give its results in a list."""
    name = f"treadle_tests::sums_{wrap.__name__}"
    sums = operator(name, SUMS, lambda A, n: wrap([A.sum(1), n + 1]))
    x, n = FLOATS.clone().requires_grad_(), torch.arange(5, dtype=torch.int32)
    total, more = sums(x, n)
    assert more.dtype == torch.int32
    total.sum().backward()
    assert (x.grad == 1).all()
    torch.library.opcheck(sums, (FLOATS.clone().requires_grad_(), n))


def test_the_formats_of_an_operators_results_follow_the_kernel() -> None:
    whole = operator("treadle_tests::whole", treadle.kernel("m k -> m k")(lambda A: A.to("i32")))
    torch.library.opcheck(whole, (FLOATS,))
    torch.testing.assert_close(torch.compile(whole, dynamic=True, fullgraph=True)(FLOATS * 9), (FLOATS * 9).int())


# -- refusals ----------------------------------------------------------------------------------------------


def test_a_copy_that_does_not_nest_is_pytorchs() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x * 2, -1).t().reshape(4, 6)

    x = torch.randn(4, 6)
    assert report_of(function, x).taken
    torch._dynamo.reset()
    check(function, x)


def test_products_of_two_formats_are_refused_as_pytorch_refuses_them() -> None:
    layer = torch.nn.Linear(8, 4)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.compile(layer, backend=backend)(torch.ones(3, 8, dtype=torch.float16))


def test_one_tensor_is_what_is_explained_for() -> None:
    assert explain(torch.nn.Linear(8, 4), torch.ones(3, 8)).taken


@pytest.mark.parametrize(("precision", "exact"), [("highest", True), ("high", False), ("medium", False)])
def test_products_are_as_exact_as_pytorch_was_told(precision: str, exact: bool) -> None:
    """12 bits of a product whose operands have 11 and 2: more than tf32 keeps."""
    left, right = torch.full((8, 8), 1 + 2.0**-11), torch.eye(8) * 1.5
    torch.set_float32_matmul_precision(precision)
    try:
        made = torch.compile(lambda a, b: a @ b, backend=backend)(left, right)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert bool((made == 1.5 * left).all()) == exact
    torch.testing.assert_close(made, 1.5 * left, rtol=1e-3, atol=0)


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="PyTorch before 2.9")
@pytest.mark.parametrize(
    ("everywhere", "here"), [("none", "tf32"), ("tf32", "none"), ("tf32", "ieee"), ("none", "ieee")]
)
def test_products_are_as_exact_as_each_backend_was_told(everywhere: str, here: str) -> None:
    """PyTorch's newer settings, of which `torch.get_float32_matmul_precision` may fail to tell."""
    left, right = torch.full((8, 8), 1 + 2.0**-11), torch.eye(8) * 1.5
    settings: tuple[Any, Any] = (torch.backends, torch.backends.cuda.matmul)
    settings[0].fp32_precision, settings[1].fp32_precision = everywhere, here
    try:
        report = explain(lambda a, b: a @ b, (left, right))
        made = torch.compile(lambda a, b: a @ b, backend=backend)(left, right)
    finally:
        settings[1].fp32_precision = settings[0].fp32_precision = "none"
    assert not report.left, report
    assert bool((made == 1.5 * left).all()) == (here == "ieee")


@pytest.mark.parametrize(("name", "value"), [("cpu_work", "much"), ("cpu_work", -1), ("machine", 5), ("backend", 1)])
def test_options_of_another_type(name: str, value: Any) -> None:
    with pytest.raises(TreadleError, match=f"the option {name} is"):
        explain(torch.exp, (FLOATS,), options={name: value})


def test_a_sparse_argument() -> None:
    kernel = treadle.kernel("m k -> m k")(lambda A: A * 2)
    with pytest.raises(TreadleError, match="to_dense"):
        kernel(FLOATS.to_sparse())
