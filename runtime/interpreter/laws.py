"""Where the meaning of a law is found: in the program, else among the standard laws."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import at
from treadle.compiler.laws import standard_law, standard_laws
from treadle.dialects import diagram


def _laws_in(module: ModuleOp) -> dict[str, diagram.LawOp]:
    return {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, diagram.LawOp)}


def find_law(module: ModuleOp, op: diagram.ApplyOp) -> diagram.LawOp:
    """The law that `op` applies; a law of the program hides the standard one of the same name."""
    name = op.law.string_value()
    own = _laws_in(module)
    law = own.get(name) or standard_law(name)
    if law is None:
        axes = ", ".join(f"'{axis}'" for axis in op.over_axes)
        raise at(
            op,
            f"there is no law for '{name}' on axis {axes}: define @{name} with diagram.law, or use one of "
            f"{', '.join(sorted({*own, *standard_laws()}))}",
        )
    if (problem := law.why_not(op)) is not None:
        raise at(op, problem)
    return law
