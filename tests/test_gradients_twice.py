"""Gradients of gradients: a derived gradient is a program as any other, so it can be derived again. Held against
PyTorch's double backward, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from differences import differentiated, inputs_of, odd_sizes, run
from test_gradients_torch import EXAMPLES, REFERENCE, ROUNDED

from treadle.compiler.source import load_module
from treadle.runtime.interpreter import entry_function

torch: Any = pytest.importorskip("torch")

TWICE = ("softmax", "log_sum_exp", "matmul_gelu", "layer_norm", "attention", "attention_causal", "conv1d", "variance")
"""Examples that PyTorch has twice differentiable, too."""


@pytest.mark.parametrize("name", TWICE)
def test_gradients_of_gradients_are_those_of_pytorch(name: str) -> None:
    """`f_gradient` is given the results as arguments of their own. PyTorch's are functions of the arguments: what the
    second gradient says of a result goes on through the first."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    inputs = inputs_of(entry_function(module), odd_sizes(entry_function(module)))
    tensors = [torch.from_numpy(np.array(each)).requires_grad_() for each in inputs]
    given = REFERENCE[name](*tensors)
    given = given if isinstance(given, tuple) else (given,)
    random = np.random.default_rng(5)
    cotangents = [torch.from_numpy(random.standard_normal(tuple(each.shape))).requires_grad_() for each in given]
    first = torch.autograd.grad(given, tensors, cotangents, create_graph=True)
    directions = [random.standard_normal(tuple(each.shape)) for each in first]
    wanted = [*tensors, *cotangents]
    moved = [torch.from_numpy(each) for each in directions]
    expected = torch.autograd.grad(first, wanted, moved, allow_unused=True, materialize_grads=True)

    gradient = differentiated(module)
    results, pairs = run(module, inputs), [each.detach().numpy() for each in cotangents]
    made = run(gradient, [*inputs, *results, *pairs])
    again = run(differentiated(gradient), [*inputs, *results, *pairs, *made, *directions])
    by_inputs, rest = again[: len(inputs)], again[len(inputs) :]
    by_results, by_cotangents = rest[: len(results)], rest[len(results) :]
    through = run(gradient, [*inputs, *results, *by_results])
    found = [*(one + other for one, other in zip(by_inputs, through, strict=True)), *by_cotangents]
    for own, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(own, other, rtol=ROUNDED, atol=ROUNDED * float(other.abs().max()))
