"""Choices (`a < b ? a : b`) where C would read them otherwise without parentheses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle
import treadle.language as tl
from treadle.compiler.printer.scalars import term


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("(a < b ? a : b)", "(a < b ? a : b)"),
        ("(a == b)", "(a == b)"),
        ("(a & b)", "(a & b)"),
        ("(a + b)", "a + b"),
        ("(a) + (b)", "(a) + (b)"),
        ("a", "a"),
    ],
)
def test_what_binds_looser_than_a_sum_keeps_its_parentheses(text: str, printed: str) -> None:
    assert term(text) == printed


def shares(Q: Any, K: Any, V: Any) -> Any:
    P = tl.softmax(tl.keep(tl.contract(Q, K, over="d"), "y <= q + 3"), over="x y").to("f16")
    return tl.sum(P, over="q"), tl.contract(P, V, over="x y")


def test_a_bound_that_is_a_choice() -> None:
    """The end of a row is the sooner of two, where each row has a beginning of its own: it printed `q0 < a < q ? a : q`
    in the kernel for rows that tensor copies cannot read, and its results were zeros."""
    function = treadle.kernel("q d, x d y, x y e -> x y, q e", machine="h100")(shares)
    program = function.trace(["f16"] * 3, {"q": 333, "x": 64, "y": 3, "d": 16, "e": 16}, "dey")
    kernel = treadle.compile(program, machine="h100", cache=False)
    random = np.random.default_rng(0)
    given = [random.standard_normal(shape).astype(np.float16) for shape in ((5, 16), (3, 16, 3), (3, 3, 16))]
    for verdict in kernel.verify(*given, backend="emulator"):
        assert verdict.ok, str(verdict)
