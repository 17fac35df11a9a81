"""`log(1 + exp(x))` by a polynomial: as exact as the function, wherever that has a number."""

from __future__ import annotations

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.passes.diagram_expand_approximations import SOFTPLUS

EVERYWHERE = np.concatenate(
    [np.linspace(-110, 110, 4001), np.linspace(-1e-3, 1e-3, 101), [0.0, -0.0, 1e30, -1e30, np.inf, -np.inf, np.nan]]
).astype(np.float32)

FORMS = {
    "log1p": lambda a: tl.log1p(tl.exp(a)),
    "log": lambda a: tl.log(1 + tl.exp(a)),
    "of a multiple": lambda a: tl.log1p(tl.exp(a * 0.5)),
}


def test_the_polynomial_alone() -> None:
    u = np.concatenate([np.linspace(1e-6, 1, 200001), np.logspace(-30, 0, 2001)])
    found = u * np.polynomial.polynomial.polyval(u, SOFTPLUS)
    assert np.max(np.abs(found / np.log1p(u) - 1)) < 2.0**-23
    assert all(np.float32(each) == each for each in SOFTPLUS)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("form", FORMS)
def test_everywhere(form: str, machine: str) -> None:
    compiled = treadle.kernel("n -> n", machine=machine)(FORMS[form]).compiled(EVERYWHERE)
    assert "log1pf(" not in compiled.cuda
    assert "logf(" not in compiled.cuda
    found = compiled.run(EVERYWHERE, backend="emulator")
    given = EVERYWHERE.astype(np.float64) * (0.5 if form == "of a multiple" else 1.0)
    wanted = np.logaddexp(given, 0)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-37)  # a power of -100 is off by 100 times 2^-24
    near = np.abs(given) < 4
    np.testing.assert_allclose(found[near], wanted[near], rtol=1e-6)


def test_what_is_no_softplus_stays() -> None:
    compiled = treadle.kernel("n -> n", machine="a100")(lambda a: tl.log(2 + tl.exp(a))).compiled(EVERYWHERE)
    assert "logf(" in compiled.cuda
