"""Programs that arrive as `linalg` on plain tensors, as other front ends write them."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import at
from treadle.compiler.pipeline import run_passes
from treadle.dialects.hierarchy.schedule import derivation_of

DIALECTS = ("linalg", "tensor")

UNKNOWN = "a diagram has no such operation (docs/xdsl.md: how a compiler keeps it between kernels)"


def raised(module: ModuleOp) -> ModuleOp:
    """The program as diagrams, in place; one that is made of diagrams stays as it is (TreadleError where something
    cannot be raised)."""
    if any(op.dialect_name() in DIALECTS for op in module.walk()):
        run_passes(module, [ArgSpec("convert-linalg-to-diagram", {})])
        for function in [op for op in module.body.ops if isinstance(op, func.FuncOp)]:
            _check(function)
    return module


def _check(function: func.FuncOp) -> None:
    """Refuse what stayed, for nothing below knows it."""
    steps = [step.texts() for step in derivation_of(function.attributes)]
    reasons = {(subject, law): reason for _, subject, law, reason in steps}
    for op in function.walk():
        if op.dialect_name() in DIALECTS:
            why = reasons.get((_subject(op), f"{op.name} stays"), UNKNOWN)
            raise at(op, f"it cannot be raised to a diagram: {why}")


def _subject(op: Operation) -> str:
    hint = op.results[0].name_hint if op.results else None
    return f"%{hint}" if hint else op.name
