"""The laws that ship with treadle, each in the file of its name in `dialects/diagram/laws`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from treadle.compiler.source import load_module
from treadle.dialects import diagram
from treadle.dialects.diagram import LawOp

FOLDER = Path(diagram.__file__).with_name("laws")


@cache
def standard_laws() -> frozenset[str]:
    """Their names."""
    return frozenset(path.stem for path in FOLDER.glob("*.mlir"))


@cache
def standard_law(name: str) -> LawOp | None:
    """The law of that name, if it ships: only what a program applies is read."""
    if name not in standard_laws():
        return None
    module = load_module(FOLDER / f"{name}.mlir")
    return next(op for op in module.body.block.ops if isinstance(op, LawOp))
