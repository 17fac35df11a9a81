"""A program whose masks are conditions, to judge results by that may be no number in the formula."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.pipeline import try_passes
from treadle.dialects.hierarchy.schedule import derivation_of
from treadle.passes._functions import functions

RAISE = "diagram-raise-masks"


def with_conditions(module: ModuleOp) -> ModuleOp | None:
    """The program with what its choices by positions leave out absent, as the compiler makes it; None where it has no
    such choice (TreadleError)."""
    raised = module.clone()
    try_passes(raised, [ArgSpec("diagram-expand-laws", {}), ArgSpec(RAISE, {})])
    steps = [step for function in functions(raised) for step in derivation_of(function.attributes)]
    return raised if any(step.texts()[0] == RAISE for step in steps) else None


__all__ = ["with_conditions"]
