"""Programs that came out wrong once, found by random ones and made small: each on machines of both kinds, with its
operations in one kernel and in many."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.func import FuncOp

from roads import compiled
from treadle.compiler.sizes import default_sizes

FOUND = sorted((Path(__file__).parent / "programs" / "found").glob("*.mlir"))


@pytest.mark.sample(7)
@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_in_one_kernel(path: Path, machine: str) -> None:
    check(path, machine, fusion=True)


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_in_many_kernels(path: Path) -> None:
    check(path, "a100", fusion=False)


def check(path: Path, machine: str, fusion: bool) -> None:
    road = compiled(path.read_text(encoding="utf-8"), machine=machine, fusion=fusion)
    (function,) = [op for op in road.algorithm.walk() if isinstance(op, FuncOp)]
    road.check(default_sizes(function))
