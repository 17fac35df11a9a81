"""Gradients of gates are numbers where powers are none: far below zero, 1 + exp(-x) is infinite in f32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl

torch = pytest.importorskip("torch")
F = torch.nn.functional

FAR = np.array([-1e30, -1000, -104, -88.8, -88, -60, -20, -1, 0, 1, 20, 60, 88.8, 104, 1000], np.float32)

GATES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sigmoid": (tl.sigmoid, torch.sigmoid),
    "silu": (tl.silu, F.silu),
    "square": (lambda a: tl.sigmoid(a) * tl.sigmoid(a), lambda a: torch.sigmoid(a) ** 2),
    "quotient": (lambda a: 3.0 / (tl.exp(a) + 2.0), lambda a: 1.5 * torch.sigmoid(-a + np.log(2.0))),
    "powers of two": (lambda a: 1.0 / (1.0 + tl.exp2(-a)), lambda a: torch.sigmoid(a * np.log(2.0))),
    "scaled": (lambda a: a * tl.sigmoid(1.702 * a), lambda a: a * torch.sigmoid(1.702 * a)),
    "of a gate": (lambda a: tl.sigmoid(tl.silu(a)), lambda a: torch.sigmoid(F.silu(a))),
}

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
