"""Programs that arrive as `linalg` on plain tensors, as other front ends write them."""

from __future__ import annotations

from xdsl.dialects import arith, func, tensor
from xdsl.dialects.builtin import ModuleOp, TensorType, UnrealizedConversionCastOp
from xdsl.ir import Operation
from xdsl.transforms.dead_code_elimination import dce
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import at
from treadle.compiler.pipeline import run_passes
from treadle.dialects.hierarchy.schedule import derivation_of

DIALECTS = ("linalg", "tensor", "cf")
ABOUT_SHAPES = ("empty", "dim", "extract_slice", "collapse_shape", "expand_shape", "cast")
"""Operations of `tensor` that stay for another's sake."""

DATA = "an array of numbers in the program is data: make it an argument of the function"
UNKNOWN = "a diagram has no such operation (docs/xdsl.md: how a compiler keeps it between kernels)"

MERGES = "it merges dimensions of an array that is not computed here, or whose sizes are not known: merge them outside"

BLOCKS = "it has several blocks: a program is one block of operations, without branches"


def raised(module: ModuleOp) -> ModuleOp:
    """The program as diagrams, in place; one that is made of diagrams stays as it is (TreadleError where something
    cannot be raised)."""
    for function in [op for op in module.walk() if isinstance(op, func.FuncOp)]:
        if len(function.body.blocks) > 1:
            raise at(function, BLOCKS)
    if any(op.dialect_name() in DIALECTS for op in module.walk()):
        run_passes(module, [ArgSpec("convert-linalg-to-diagram", {})])
        dce(module)
        for function in [op for op in module.body.ops if isinstance(op, func.FuncOp)]:
            _check(function)
    return module


def _check(function: func.FuncOp) -> None:
    """Refuse what stayed, for nothing below knows it; first what the pass gave a reason for."""
    steps = [step.texts() for step in derivation_of(function.attributes)]
    reasons = {(subject, law): reason for _, subject, law, reason in steps}
    stayed = [op for op in function.walk() if (op.dialect_name() in DIALECTS and not _is_view(op)) or _is_data(op)]
    said = {op: reasons.get((_subject(op), f"{op.name} stays")) or _why(op) for op in stayed}
    for op in sorted(stayed, key=lambda op: (said[op] is None, op.name.removeprefix("tensor.") in ABOUT_SHAPES)):
        raise at(op, f"it cannot be raised to a diagram: {said[op] or UNKNOWN}")


def _why(op: Operation) -> str | None:
    """Why an operation is not raised that the pass has no words for."""
    if _is_data(op):
        return DATA
    return MERGES if isinstance(op, tensor.CollapseShapeOp) else None


def _is_view(op: Operation) -> bool:
    """Whether an operation only merges dimensions of one array for another, in the same memory."""
    # imported here, with all of xDSL's linalg, which most programs do without
    from treadle.passes.linalg.merged_results import computed

    if not isinstance(op, tensor.CollapseShapeOp) or computed(op.src) is None:
        return False
    return all(isinstance(use.operation, UnrealizedConversionCastOp) for use in op.result.uses)


def _is_data(op: Operation) -> bool:
    return isinstance(op, arith.ConstantOp) and isinstance(op.result.type, TensorType)


def _subject(op: Operation) -> str:
    hint = op.results[0].name_hint if op.results else None
    return f"%{hint}" if hint else op.name
