"""Products in a row become one kernel as long as one fits the machine, and no longer."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import treadle
import treadle.language as tl


def chain(products: int, width: int) -> treadle.language.NamedKernel:
    axes = "abcdefgh"[: products + 1]
    weights = ", ".join(f"{left} {right}" for left, right in pairwise(axes))

    def function(*arrays: tl.Array) -> tl.Array:
        value, *rest = arrays
        for axis, weight in zip(axes, rest, strict=False):
            value = tl.contract(value, weight, over=axis).to("f16")
        return value

    return treadle.kernel(f"m {axes[0]}, {weights} -> m {axes[-1]}", static=list(axes))(function)


@pytest.mark.parametrize(("products", "width", "kernels"), [(2, 64, 1), (6, 64, 2)])
def test_products_in_a_row(products: int, width: int, kernels: int) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal((40, width)).astype(np.float16)]
    arrays += [(random.standard_normal((width, width)) / width**0.5).astype(np.float16) for _ in range(products)]
    compiled = chain(products, width).compiled(*arrays)
    apart = [step for step in compiled.derivation if step.law == "no memory for one kernel"]
    assert (len(compiled.cost().kernels) > 1) == bool(apart) == (kernels > 1)
    assert all("registers a thread" in step.reason or "shared memory" in step.reason for step in apart)
    want = arrays[0].astype(np.float64)
    for weight in arrays[1:]:
        want = want @ weight.astype(np.float64)
    np.testing.assert_allclose(compiled(*arrays), want, atol=0.02 * np.abs(want).max())
