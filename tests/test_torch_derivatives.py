# pyright: standard
"""Derivatives of every kind, through operators and compiled functions: PyTorch's own, or one clear refusal. A tangent
that is lost would make a constant of a result, in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as forward_mode
import torch.nn.functional as F
from torch._subclasses import FakeTensorMode

import treadle
import treadle.language as tl
from treadle.compiler.errors import TreadleError
from treadle.torch import backend, operator

torch.manual_seed(2)


@treadle.kernel("q d, x d, x e -> q e")
def kernel(Q: Any, K: Any, V: Any) -> Any:
    return tl.contract(tl.softmax(tl.contract(Q, K, over="d") * 0.25, over="x"), V, over="x")


def formula(Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor) -> torch.Tensor:
    return torch.softmax(Q @ K.transpose(-1, -2) * 0.25, -1) @ V


WITH = operator("treadle_tests::derived", kernel, formula)
WITHOUT = operator("treadle_tests::underived", kernel)
Q, K, V = torch.randn(5, 16), torch.randn(7, 16), torch.randn(7, 16)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def forwards(f: Callable[..., Any]) -> torch.Tensor:
    return torch.func.jvp(f, (Q, K, V), (K[:5], V, K))[1]


def dual(f: Callable[..., Any]) -> torch.Tensor | None:
    with forward_mode.dual_level():
        return forward_mode.unpack_dual(f(forward_mode.make_dual(Q, K[:5]), K, V)).tangent


def gradient(f: Callable[..., Any]) -> torch.Tensor:
    return torch.func.grad(lambda q: f(q, K, V).square().sum())(Q)


def of_many(f: Callable[..., Any]) -> torch.Tensor:
    return torch.vmap(torch.func.grad(lambda q: f(q, K, V).square().sum()))(torch.stack([Q, -Q]))


def jacobian(f: Callable[..., Any]) -> torch.Tensor:
    return torch.func.jacrev(lambda q: f(q, K, V))(Q[:2])


def twice(f: Callable[..., Any]) -> torch.Tensor:
    """As a penalty on a gradient, beside what is differentiable in other ways."""
    q = Q.clone().requires_grad_()
    (once,) = torch.autograd.grad(f(q, K, V).square().sum(), q, create_graph=True)
    return torch.autograd.grad((once * q).sum(), q)[0]


KINDS = [forwards, dual, gradient, of_many, jacobian, twice]


@pytest.mark.parametrize("derive", KINDS)
def test_operators_are_derived_by_their_formula(derive: Callable[..., Any]) -> None:
    torch.testing.assert_close(derive(WITH), derive(formula), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("derive", KINDS)
def test_without_a_formula_all_but_backward_is_refused(derive: Callable[..., Any]) -> None:
    """`backward()` is derived: see `test_torch_gradients.py`."""
    with pytest.raises(TreadleError, match="register it with formula="):
        derive(WITHOUT)


def test_a_constant_inside_a_transform_needs_no_formula() -> None:
    found = torch.func.grad(lambda q: (q * WITHOUT(Q, K, V)).sum())(Q)
    torch.testing.assert_close(found, formula(Q, K, V), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.vmap(WITHOUT, (0, None, None))(Q[None], K, V)[0], formula(Q, K, V))


def test_an_operator_that_is_registered_again() -> None:
    operator("treadle_tests::again", kernel)
    again = operator("treadle_tests::again", kernel, formula)
    torch.testing.assert_close(gradient(again), gradient(formula), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("derive", "said"),
    [
        (lambda f: torch.vmap(f, (0, None, None))(Q[None], K, V), "inside a transform of torch.func"),
        (forwards, "inside a transform of torch.func"),
        (dual, "has a tangent of forward mode"),
        (lambda f: f(FakeTensorMode().from_tensor(Q), K, V), "fake tensor"),
    ],
)
def test_a_kernel_alone_refuses_what_it_would_leave_out(derive: Callable[..., Any], said: str) -> None:
    with pytest.raises(TreadleError, match=rf"{said}.*treadle\.torch\.operator"):
        derive(kernel)


def test_a_whole_graph_says_how_kernels_get_into_it() -> None:
    with pytest.raises(Exception, match=r"treadle\.torch\.operator\(name, kernel\)"):
        torch.compile(lambda q: kernel(q, K, V), backend="eager", fullgraph=True)(Q)
    torch.testing.assert_close(torch.compile(lambda q: kernel(q, K, V) * 2, backend="eager")(Q), kernel(Q, K, V) * 2)


def derived_there(q: torch.Tensor) -> torch.Tensor:
    program = treadle.kernel("q d, x d, x e -> q e")(kernel.function).compiled(q, K, V).diagram
    return treadle.compile(program, cache=False).run(q, K, V)


def judged_there(q: torch.Tensor) -> bool:
    return kernel.compiled(q, K, V).verify(q, K, V)[0].ok


def called_there(q: torch.Tensor) -> torch.Tensor:
    return treadle.kernel("q d, x d, x e -> q e")(kernel.function)(q, K, V)


@pytest.mark.parametrize("within", [derived_there, judged_there, called_there])
def test_a_compiled_function_does_not_look_into_this_compiler(within: Callable[..., Any]) -> None:
    """PyTorch's compiler reads numpy as tensors, also that of passes, once it looks below a function that it took."""
    torch.testing.assert_close(torch.compile(within, backend="eager")(Q), within(Q))


@pytest.mark.parametrize("derive", [forwards, gradient, of_many])
@pytest.mark.parametrize("is_causal", [False, True])
def test_transforms_inside_a_compiled_function(derive: Callable[..., Any], is_causal: bool) -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)

    compiled = torch.compile(lambda: derive(attention), backend=backend, options={"cpu_work": 0})
    torch.testing.assert_close(compiled(), derive(attention), atol=1e-4, rtol=1e-4)
