"""Where the meaning of a law is found: in the program, else among the standard laws."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import at
from treadle.compiler.source import load_module
from treadle.dialects import diagram

STANDARD_LAWS = Path(diagram.__file__).with_name("laws.mlir")


@cache
def standard_laws() -> ModuleOp:
    return load_module(STANDARD_LAWS)


def _laws_in(module: ModuleOp) -> dict[str, diagram.LawOp]:
    return {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, diagram.LawOp)}


def find_law(module: ModuleOp, op: diagram.ApplyOp) -> diagram.LawOp:
    """The law that `op` applies; a law of the program hides the standard one of the same name."""
    name = op.law.string_value()
    standard = _laws_in(standard_laws())
    known = {**standard, **_laws_in(module)}
    if name not in known:
        axes = ", ".join(f"'{axis}'" for axis in op.over_axes)
        raise at(
            op,
            f"there is no law for '{name}' on axis {axes}: define @{name} with diagram.law, or use one of "
            f"{', '.join(sorted(known))}",
        )
    law = known[name]
    if (problem := law.why_not(op)) is not None:
        raise at(op, problem)
    return law
