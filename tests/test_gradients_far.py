"""Gradients of gates are numbers where powers are none: far below zero, 1 + exp(-x) is infinite in f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differences import run
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl

torch = pytest.importorskip("torch")
F = torch.nn.functional

FAR = np.array([-1e30, -1000, -104, -88.8, -88, -60, -20, -1, 0, 1, 20, 60, 88.8, 104, 1000], np.float32)
LARGE = np.array([-87, -80, -75, -70, -67, -66.6, -66, -60, -40, -3, 0.5, 2, 40, 67, 75], np.float32)
"""Powers are finite, but above what they are held at."""

GATES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sigmoid": (tl.sigmoid, torch.sigmoid),
    "silu": (tl.silu, F.silu),
    "square": (lambda a: tl.sigmoid(a) * tl.sigmoid(a), lambda a: torch.sigmoid(a) ** 2),
    "quotient": (lambda a: 3.0 / (tl.exp(a) + 2.0), lambda a: 1.5 * torch.sigmoid(-a + np.log(2.0))),
    "powers of two": (lambda a: 1.0 / (1.0 + tl.exp2(-a)), lambda a: torch.sigmoid(a * np.log(2.0))),
    "scaled": (lambda a: a * tl.sigmoid(1.702 * a), lambda a: a * torch.sigmoid(1.702 * a)),
    "of tanh": (lambda a: tl.tanh(a) * tl.sigmoid(a), lambda a: torch.tanh(a) * torch.sigmoid(a)),
    "of a bell": (lambda a: tl.exp(-(a * a)) * tl.sigmoid(a), lambda a: torch.exp(-a * a) * torch.sigmoid(a)),
    "two": (lambda a: tl.sigmoid(a) * tl.sigmoid(-2.0 * a), lambda a: torch.sigmoid(a) * torch.sigmoid(-2 * a)),
    "of a gate": (lambda a: tl.sigmoid(tl.silu(a)), lambda a: torch.sigmoid(F.silu(a))),
}

RISING: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "logarithm": (lambda a: tl.log(tl.sigmoid(a)), F.logsigmoid),
    "reciprocal": (lambda a: a / tl.sigmoid(a), lambda a: a / torch.sigmoid(a)),
    "root": (lambda a: tl.sqrt(tl.sigmoid(a)), lambda a: torch.sqrt(torch.sigmoid(a))),
    "other power": (lambda a: tl.exp(-0.875 * a) * tl.sigmoid(a), lambda a: torch.exp(-0.875 * a) * torch.sigmoid(a)),
    "hyperbolic": (lambda a: tl.sigmoid(a) * (tl.exp(a) + tl.exp(-a)), lambda a: 2 * torch.sigmoid(a) * torch.cosh(a)),
}
"""Slopes that do not vanish where a power of theirs is large, though it divides."""

ONE_MAP = """
!x = tensor<?xf32, #diagram.array<[n]>>
func.func @gate(%A: !x) -> !x attributes {sizes = #diagram.sizes<n = 15>} {
  %Y = diagram.map (%x = %A : !x) -> !x {
    %one = arith.constant 1.0 : f32
    %m = arith.negf %x : f32
    %e = math.exp %m : f32
    %b = arith.addf %e, %one : f32
    %y = arith.divf %x, %b : f32
    diagram.yield %y : f32
  }
  func.return %Y : !x
}
"""


@pytest.mark.parametrize("gate", GATES)
def test_far_from_zero(gate: str) -> None:
    mine, theirs = GATES[gate]
    check(gradient_of(mine), theirs)


def test_in_one_map() -> None:
    check(treadle.differentiate(ONE_MAP), F.silu)


def test_a_logarithm_is_left_alone() -> None:
    """The slope of log(1 + exp(x)) does not vanish where the power is infinite: held finite, it would."""
    assert "minimumf" not in str(gradient_of(lambda a: tl.log(1.0 + tl.exp(a))))


@pytest.mark.parametrize("gate", RISING)
def test_slopes_that_do_not_vanish(gate: str) -> None:
    """In float64, where no power is infinite."""
    mine, theirs = RISING[gate]
    x = torch.from_numpy(LARGE).double().requires_grad_()
    y = theirs(x)
    (expected,) = torch.autograd.grad(y.sum(), x)
    (found,) = run(gradient_of(mine), [x.detach().numpy(), y.detach().numpy(), np.ones(len(LARGE))])
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("where", [FAR, LARGE], ids=("far", "large"))
def test_slopes_of_slopes(gate: str, where: np.ndarray[Any, Any]) -> None:
    """What the second gradient says of the result goes on through the first."""
    mine, theirs = GATES[gate]
    first = gradient_of(mine)
    second = treadle.differentiate(first)
    x = torch.from_numpy(where).double().requires_grad_()
    given = torch.linspace(-2, 2, len(where)).double().requires_grad_()
    direction = torch.linspace(1, 3, len(where)).double()
    y = theirs(x)
    (slope,) = torch.autograd.grad(y, x, given, create_graph=True)
    by_x, by_given = torch.autograd.grad(slope, (x, given), direction)
    own = [where, *(each.detach().numpy().astype(np.float32) for each in (y, given, slope, direction))]
    one, by_result, found = treadle.compile(second, machine="a100").run(*own)
    through = treadle.compile(first, machine="a100").run(where, own[1], by_result)
    np.testing.assert_allclose(one + through, by_x.numpy(), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found, by_given.numpy(), rtol=1e-5, atol=1e-12)


def gradient_of(gate: Callable[[Any], Any]) -> ModuleOp:
    @treadle.kernel("n -> n")
    def kernel(a: tl.Array) -> tl.Array:
        return gate(a)

    return treadle.differentiate(kernel.compiled(FAR).program)


def check(gradient: ModuleOp | str, gate: Callable[[Any], Any]) -> None:
    a = torch.from_numpy(FAR).double().requires_grad_()
    given = np.linspace(-2, 2, len(FAR)).astype(np.float32)
    y = gate(a)
    (expected,) = torch.autograd.grad(y, a, torch.from_numpy(given).double())
    computed = treadle.compile(gradient, machine="a100").run(FAR, y.detach().numpy().astype(np.float32), given)
    np.testing.assert_allclose(computed, expected.numpy(), rtol=1e-5, atol=1e-18)
