"""Index arithmetic as it is printed: what is plain to a reader without it is not written, and is the same number."""

from __future__ import annotations

import re
from itertools import product

import pytest
from test_tune import EXAMPLES

from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.printer.arithmetic import INDEX_OPERATORS, plain
from treadle.compiler.source import load_module

OPERATORS = sorted(set(INDEX_OPERATORS.values()))


@pytest.mark.parametrize("operator", OPERATORS)
def test_what_is_plain_is_the_same_number(operator: str) -> None:
    told = 0
    for left, right in product(("0", "1", "7", "x", "(x + 1)"), repeat=2):
        if (text := plain(operator, left, right)) is None or (operator in "/%" and right == "0"):
            continue
        told += 1
        for x in (1, 2, 5):
            value = {"x": x}
            written = eval(f"{left} {operator.replace('/', '//')} {right}", value)
            assert eval(text, value) == written, f"{left} {operator} {right}"
    assert told or operator in ("&", ">>")


def test_what_is_not_plain_is_written() -> None:
    for operator, left, right in (("-", "0", "x"), ("/", "1", "x"), ("/", "x", "0"), ("%", "x", "0"), ("+", "x", "x")):
        assert plain(operator, left, right) is None


@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_kernels_hold_no_plain_arithmetic(machine: str) -> None:
    module = load_module(EXAMPLES / "attention_causal.mlir")
    run_pipeline(module, Options(machine))
    text = print_cuda(module).partition("template <int ALIGNED>")[2]
    body = "\n".join(line for line in text.splitlines() if "const int64_t" in line)
    assert " = " in body
    for pattern in (r"= 0 \+", r"\+ 0[;)]", r"- 0\)", r" / 1[;)]", r" \* 1[;)]", r"\(0 \* ", r"uint32_t\(0\)"):
        assert not re.search(pattern, body), re.search(f".*{pattern}.*", body)
