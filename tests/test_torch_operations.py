# pyright: standard
"""What PyTorch's modules compute element by element, join and take apart: kernels, and numbers as eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from treadle.torch import Report
from treadle.torch.backend import make_backend
from treadle.torch.compiled_graph import Launch
from treadle.torch.options import Options

torch.manual_seed(2)

NUMBERS = torch.cat([torch.randn(28) * 3, torch.tensor([0.0, -0.0, 1e-6, -1e-6, 1.5, 2.5, -2.5])]).reshape(5, 7)
SPECIAL = torch.where(
    torch.arange(35).reshape(5, 7) % 5 == 0, torch.tensor([inf, -inf, nan] * 12)[:35].reshape(5, 7), 1
)

Function = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def report_of(function: Function, *inputs: torch.Tensor, machine: str = "a100", backend: str = "emulator") -> Report:
    """Compile, compare every result with eager PyTorch's, and say what was taken."""
    report = Report()
    options = Options.of({"machine": machine, "backend": backend})
    with torch.no_grad():
        want = several(function(*inputs))
        got = several(torch.compile(function, backend=make_backend(options, report.graphs.append))(*inputs))
    for a, b in zip(got, want, strict=True):
        unit = 0 if b.dtype.itemsize == 1 else 2.0**-9 if b.dtype == torch.float16 else 2e-6
        torch.testing.assert_close(a, b, atol=unit, rtol=unit, equal_nan=True)
        assert a.stride() == b.stride()
    return report


def several(result: Any) -> tuple[torch.Tensor, ...]:
    return tuple(result) if isinstance(result, tuple | list) else (result,)


def nothing_is_left(report: Report) -> None:
    assert report.taken
    assert not report.left, report


ACTIVATIONS: dict[str, Function] = {
    "elu": lambda x: F.elu(x, 0.5),
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "softplus": lambda x: F.softplus(x, 2.0, 3.0),
    "mish": F.mish,
    "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "softshrink": F.softshrink,
    "hardshrink": F.hardshrink,
    "tanhshrink": F.tanhshrink,
    "threshold": lambda x: F.threshold(x, 0.1, 2.0),
    "log1p": lambda x: torch.log1p(x.abs()),
    "expm1": torch.expm1,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "tan": torch.tan,
    "atan": torch.atan,
    "asin": lambda x: torch.asin(x / 20),
    "acos": lambda x: torch.acos(x / 20),
    "asinh": torch.asinh,
    "acosh": lambda x: torch.acosh(x.abs() + 2),
    "atanh": lambda x: torch.atanh(x / 20),
    "log10": lambda x: torch.log10(x.abs()),
    "floor": torch.floor,
    "ceil": torch.ceil,
    "round": torch.round,
    "trunc": torch.trunc,
    "frac": torch.frac,
    "sign": torch.sign,
    "power of a number": lambda x: 2.0**x,
    "atan2": lambda x: torch.atan2(x, x + 1),
    "copysign": lambda x: torch.copysign(x, -x),
    "fmax": lambda x: torch.fmax(x, x * 2),
    "fmin": lambda x: torch.fmin(x, x * 2),
    "hypot": lambda x: torch.hypot(x, x + 1),
    "erfinv": lambda x: torch.erfinv(x / 12),
    "logaddexp": lambda x: torch.logaddexp(x, x * 2),
    "isnan": lambda x: torch.where(torch.isnan(x), 0.5, x),
    "isinf": lambda x: torch.where(torch.isinf(x), 0.5, x),
    "isfinite": lambda x: torch.where(torch.isfinite(x), x, 0.5),
    "nan_to_num": lambda x: torch.nan_to_num(x, 0.5, 4.0, -4.0),
    "xor": lambda x: torch.where((x > 0) ^ (x < 1), x, 0.5),
}


@pytest.mark.sample(20)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_functions_of_one_element(name: str, dtype: torch.dtype) -> None:
    """At ordinary numbers, where functions turn, and at those that are none. The doubling is exact."""
    report = report_of(lambda x: ACTIVATIONS[name](x) * 2, NUMBERS.to(dtype))
    nothing_is_left(report)
    torch._dynamo.reset()
    nothing_is_left(report_of(lambda x: ACTIVATIONS[name](x) * 2, SPECIAL.to(dtype)))


@pytest.mark.parametrize("name", ["expm1", "log1p", "elu", "selu", "mish", "asinh"])
def test_what_is_small_keeps_its_digits(name: str) -> None:
    x = torch.logspace(-30, -3, 35).reshape(5, 7)
    x = x if name in ("log1p", "mish") else -x
    with torch.no_grad():
        got = torch.compile(lambda x: ACTIVATIONS[name](x) * 2, backend="treadle")(x)
    torch.testing.assert_close(got, (ACTIVATIONS[name](x.double()) * 2).float(), atol=0.0, rtol=1e-6)


def test_hypotenuses_of_any_size() -> None:
    """Squares that overflow or vanish do neither, and an infinity hides what is no number."""
    sizes = torch.tensor([0.0, -0.0, 1.0, -3.0, 1e-37, 1e-20, 1e20, 2e38, inf, -inf, nan])
    a, b = (each.contiguous() for each in torch.meshgrid(sizes, sizes, indexing="ij"))
    report = Report()
    with torch.no_grad():
        found = torch.compile(
            torch.hypot, backend=make_backend(Options.of({"backend": "emulator"}), report.graphs.append)
        )(a, b)
    torch.testing.assert_close(found, torch.hypot(a.double(), b.double()).float(), atol=0.0, rtol=4e-7, equal_nan=True)
    nothing_is_left(report)


def test_inverses_of_erf_up_to_the_ends() -> None:
    """Where PyTorch's f32 has them, infinities at 1 and NaN beyond, small numbers and those next to 1 in all digits."""
    small, ends = torch.logspace(-30, -1, 30), 1 - torch.logspace(-7, -0.5, 30)
    x = torch.cat([small, -small, ends, -ends, torch.tensor([0.0, -0.0, 1.0, -1.0, 1.5, -inf, nan])])
    report = Report()
    with torch.no_grad():
        found = torch.compile(
            torch.erfinv, backend=make_backend(Options.of({"backend": "emulator"}), report.graphs.append)
        )(x)
    torch.testing.assert_close(found, torch.erfinv(x.double()).float(), atol=0.0, rtol=1e-6, equal_nan=True)
    assert (found.signbit() == x.signbit())[~x.isnan() & (x.abs() <= 1)].all()
    nothing_is_left(report)


@pytest.mark.parametrize("function", [torch.hypot, lambda x, y: torch.erfinv(x) * y], ids=["hypot", "erfinv"])
def test_gradients_of_what_formulas_say(function: Function) -> None:
    x, y = torch.linspace(-0.95, 0.95, 35).reshape(5, 7), torch.linspace(2.0, -1.0, 35).reshape(5, 7)
    report = Report()
    options = Options.of({"backend": "emulator", "training": True})
    made = torch.compile(function, backend=make_backend(options, report.graphs.append))
    ours, theirs = (
        torch.autograd.grad(each(*given).sin().sum(), given)
        for each, given in (
            (made, [each.clone().requires_grad_() for each in (x, y)]),
            (function, [each.double().requires_grad_() for each in (x, y)]),
        )
    )
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b.float(), atol=2e-6, rtol=4e-6)
    nothing_is_left(report)


COMPARISONS: dict[str, Function] = {
    "with a number": lambda x: (x <= 0.1, x >= 0.1, x < 1 / 3, x < 0.1),
    "with the same number": lambda x: (x * 0 + 0.1).eq(0.1),
    "with a number that bounds": lambda x: (
        x.clamp(max=0.1) == 0.1,
        x.clamp(min=2049) > 2049,
        F.hardtanh(x, -0.1) < -0.1,
    ),
    "with one that is chosen": lambda x: torch.where(x > 1 / 3, x, 1 / 3) <= 1 / 3,
    "with a tensor of one number": lambda x: x * 2 == torch.full((), 0.2),
    "with integers": lambda x: (x + 1).eq(torch.arange(2048, 2060, dtype=torch.int32)),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", COMPARISONS)
def test_what_is_compared_in_16_bits_is_rounded_to_them(name: str, dtype: torch.dtype) -> None:
    x = torch.tensor([0.1, 0.2, -0.1, 1 / 3, 0.0, 1.0, 2047.0, 2048.0, 2050.0, inf, nan, 1e-7]).to(dtype)
    nothing_is_left(report_of(lambda x: [torch.where(each, x, -x) for each in several(COMPARISONS[name](x))], x))


@pytest.mark.parametrize("function", [torch.sigmoid, torch.tanh, torch.exp, torch.asinh, torch.reciprocal])
def test_functions_of_integers_do_not_wrap_around(function: Function) -> None:
    x = torch.tensor([0, 1, -1, 100, -100, 2**24, 2**31 - 1, -(2**31)], dtype=torch.int32)
    nothing_is_left(report_of(lambda x: function(x) * 2, x))


REDUCTIONS: dict[str, Function] = {
    "max": lambda x: x.max() * 2,
    "min": lambda x: x.min() * 2,
    "values of a maximum": lambda x: x.max(-1)[0] * 2,
    "values of a minimum": lambda x: x.min(0, keepdim=True).values * 2,
    "product": lambda x: x.prod(-1),
    "product of all": lambda x: (x / 2).prod(),
    "any": lambda x: torch.any(x > 2, -1),
    "any of all": lambda x: torch.any(x > 2),
    "any of numbers": lambda x: torch.any(torch.relu(x), 0),
    "all": lambda x: torch.all(x > -2, -1),
    "var_mean": lambda x: torch.var_mean(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "nansum": lambda x: torch.nansum(x, -1),
    "how many": lambda x: (x > 0).sum(-1),
    "count_nonzero": lambda x: torch.count_nonzero(torch.relu(x), dim=-1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    nothing_is_left(report_of(REDUCTIONS[name], NUMBERS))


def test_places_of_a_maximum_of_integers_stay() -> None:
    report = report_of(lambda x: x.max(-1), NUMBERS.int())
    assert [left.operation for left in report.left] == ["max.dim"]


W = torch.randn(7, 7)
MODULES: dict[str, Function] = {
    "rotated halves": lambda x: torch.cat([-x[:, 4:], x[:, :4]], -1) * 2 + x,
    "stacked": lambda x: torch.stack([x[:, :7] @ W, x[:, 1:]], -1) * 2,
    "stacked first": lambda x: torch.stack([x.exp(), x, x * 2]),
    "three parts": lambda x: torch.cat([x.exp(), x, x.abs()], 0) + 1,
    "results of products": lambda x: torch.cat([x[:, :7] @ W, x[:, 1:].relu() @ W], -1),
    "softmax over parts": lambda x: torch.softmax(torch.cat([x[:, :7] @ W, x[:, 1:]], -1), -1),
    "log_softmax over parts": lambda x: torch.log_softmax(torch.cat([x * 2, x.exp()], -1), -1),
    "parts that are multiplied": lambda x: torch.cat([x.exp(), x], -1) @ torch.cat([x, -x], -1).t(),
    "integers": lambda x: torch.cat([(x > 0).int(), (x < 1).int()], -1) * 3,
    "repeated": lambda x: x.repeat(2, 3) * torch.arange(24) - 1,
    "bilinear": lambda x: F.bilinear(x[:, :7], x[:, 1:], torch.stack([W, W.t(), W * 2])),
    "addmv": lambda x: torch.addmv(x[:, 0], x, x[0], beta=0.5, alpha=2.0),
    "batch_norm": lambda x: F.batch_norm(x, x[0], x[1].abs(), x[2], x[3]),
    "instance_norm": lambda x: F.instance_norm(x[None] * 2),
    "masks of positions": lambda x: torch.tril(x @ x.t()) @ x,
    "softmax of one": lambda x: torch.softmax(x[:, :1] * 2, -1) + torch.log_softmax(x[:, :1] * 3, -1),
    "products over one": lambda x: (x[:, :1] * 2) @ x[:1] + 1,
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.sample(20)
def test_what_is_joined_and_taken_apart(name: str, machine: str, dtype: torch.dtype) -> None:
    x = torch.randn(5, 8).to(dtype)
    W.data = W.data.to(dtype)
    nothing_is_left(report_of(MODULES[name], x, machine=machine))


@pytest.mark.parametrize("power", [0.5, 1, 2, 3.5])
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_distances_of_all_pairs(power: float, machine: str) -> None:
    def distances(x: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x[None] * 2, x[None, :3], power, compute_mode="donot_use_mm_for_euclid_dist") + 1

    nothing_is_left(report_of(distances, NUMBERS, machine=machine))


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_euclidean_distances_of_many_rows(machine: str) -> None:
    """Which PyTorch makes by a product, with the squares beside its factors."""
    x, y = torch.randn(2, 40, 16), torch.randn(2, 30, 16)
    nothing_is_left(report_of(lambda x, y: torch.cdist(x * 2, y).neg().exp(), x, y, machine=machine))


@pytest.mark.parametrize("training", [False, True])
def test_the_nearest_by_euclidean_distances(training: bool) -> None:
    def nearest(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tuple(torch.cdist(x, y).topk(3, largest=False))

    x, y = torch.randn(50, 16, requires_grad=True), torch.randn(40, 16, requires_grad=True)
    report = Report()
    options = Options.of({"cpu_work": 2**50, "training": training})
    compiled = torch.compile(nearest, backend=make_backend(options, report.graphs.append))
    (own, places), (theirs, expected) = compiled(x, y), nearest(x, y)
    torch.testing.assert_close(own, theirs)
    torch.testing.assert_close(places, expected)
    slopes, of_theirs = (torch.autograd.grad(each.square().sum(), (x, y)) for each in (own, theirs))
    torch.testing.assert_close(slopes, of_theirs, rtol=1e-4, atol=1e-4)
    assert {left.operation for left in report.left} == ({"scatter.src"} if training else set())


@pytest.mark.parametrize(
    ("power", "dtype"), [(1.0, torch.float64), (0.0, torch.float32), (float("inf"), torch.float32)]
)
def test_distances_of_no_program_are_pytorchs(power: float, dtype: torch.dtype) -> None:
    """Which would write all differences, were they written out."""
    report = report_of(lambda x: torch.cdist(x * 2, x[:3], power).exp(), NUMBERS.to(dtype))
    assert any("_cdist_forward" in left.operation for left in report.left)


@pytest.mark.parametrize("power", [1, 2, 3])
def test_distances_are_trained(power: float) -> None:
    """By kernels, but for powers of which PyTorch has the gradient; of equal rows it is zero."""

    def near(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cdist(x * 2, y, power, compute_mode="donot_use_mm_for_euclid_dist").neg().exp()

    x, y = torch.randn(3, 5, 8), torch.randn(3, 7, 8)
    y[0, 0] = x[0, 1] * 2
    x.requires_grad_(), y.requires_grad_()
    report = Report()
    options = Options.of({"cpu_work": 2**50, "training": True})
    compiled = torch.compile(near, backend=make_backend(options, report.graphs.append))
    own, theirs = (torch.autograd.grad(each(x, y).sum(), (x, y)) for each in (compiled, near))
    torch.testing.assert_close(own, theirs)
    assert any("_cdist_backward" in each.operation for each in report.left) is (power == 3)


def test_parts_of_different_sizes_stay() -> None:
    report = report_of(lambda x: torch.cat([x, x[:, :3]], -1).exp() * 2, NUMBERS)
    assert [left.reason for left in report.left] == ["parts of different sizes, which are no axis of parts"]


class Compiled(Exception):
    """What is asked is known before anything runs."""


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_what_is_rotated_before_attention_is_saved_and_no_scores_are(
    machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotated halves are an axis of two and one of 32: a product would sum over both, and keys would be no stream."""

    def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        return x * cos + torch.cat([-x[..., 32:], x[..., :32]], -1) * sin

    def attention(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        return F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v)

    def stop(*_: Any) -> None:
        raise Compiled

    monkeypatch.setattr(Launch, "forward", stop)
    given = [torch.ones(*shape).half() for shape in ((4, 16, 1024, 64),) * 3 + ((1024, 64),) * 2]
    report = Report()
    options = Options.of({"machine": machine, "cpu_work": 2**50})
    with torch.no_grad(), pytest.raises(Compiled):
        torch.compile(attention, backend=make_backend(options, report.graphs.append))(*given)
    nothing_is_left(report)
    (kernel,) = report.taken[-1].kernel.cost().kernels
    assert kernel.stream
    held = [kernel.levels[0].memory_bytes for taken in report.taken for kernel in taken.kernel.cost().kernels]
    assert max(held) < 4 * 16 * 1024 * 1024 * 2, report  # bytes of all scores


def test_what_fits_no_machine_is_cut() -> None:
    """Tensors that share angles and nothing else: a kernel of all would hold each whole, along its own other axes."""

    def rotated(angles: torch.Tensor, *tensors: torch.Tensor) -> list[torch.Tensor]:
        sin, cos = angles.sin() * 2, angles.cos() * 2
        return [half * by + 1 for x in tensors for half in x.split(4, -1) for by in (sin, cos)]

    given = [torch.randn(2, 4, 9, 8) for _ in range(3)]
    report = report_of(rotated, torch.randn(9, 4), *given, backend="interpreter")
    assert len(report.taken) > 1
    nothing_is_left(report)


ALONG: dict[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "softmax": lambda x, dim: x.softmax(dim),
    "softmax of a sum": lambda x, dim: (x + 1).softmax(dim) * 2,
    "softmin": lambda x, dim: F.softmin(x, dim),
    "log_softmax": lambda x, dim: x.log_softmax(dim),
    "softmax of parts": lambda x, dim: torch.cat([x, x * 2], 1).softmax(dim)[:, :7],
    "cumsum": lambda x, dim: x.cumsum(dim) * 2,
    "topk": lambda x, dim: x.topk(1, dim).values * 2,
    "amax": lambda x, dim: x.amax(dim) * 2,
}


@pytest.mark.parametrize("dim", [2, 3, -3])
@pytest.mark.parametrize("name", ALONG)
def test_a_dimension_that_is_not_there_is_refused(name: str, dim: int) -> None:
    """As PyTorch does it: nothing is computed along another one."""
    options = Options.of({"machine": "a100", "backend": "emulator"})
    compiled = torch.compile(lambda x: ALONG[name](x, dim), backend=make_backend(options, Report().graphs.append))
    with pytest.raises(IndexError, match="Dimension out of range"), torch.no_grad():
        compiled(NUMBERS)
