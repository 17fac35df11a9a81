"""Printed files as they are, to be read in a review: `pytest tests/test_printer_golden.py --update-golden` writes them
anew. What they compute is tested elsewhere, on the same text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roads import compiled

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["sin2cos2", "matmul", "softmax"])
def test_the_printed_file(name: str, request: pytest.FixtureRequest) -> None:
    road = compiled((ROOT / "examples" / f"{name}.mlir").read_text())
    printed = re.sub(r"\A(//.*\n)+\n*", "", road.text)  # how it was derived is tested with the passes
    golden = ROOT / "tests" / "golden" / f"{name}.cu"
    if request.config.getoption("--update-golden"):
        golden.write_text(printed)
    assert printed == golden.read_text(), "printed otherwise than before: read the difference, then --update-golden"
    road.check({axis: 40 + 3 * i for i, axis in enumerate(road.symbolic)})
