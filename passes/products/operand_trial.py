"""Which 8-bit operands to transpose: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.products.transposed_operands import TransposedOperand, transpose_operand

Together = tuple[TransposedOperand, ...]
"""What the same products need."""


def fastest_operands(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Together]
) -> tuple[Sequence[Together], str]:
    """Which of these to transpose, the others being widened; none where that does not pay; and the times."""
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[Together]) -> Times:
        def transpose(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for operand in (operand for together in chosen for operand in together):
                transpose_operand(copy.body.block, TransposedOperand(values[operand.value], operand.axes))

        return trial.times(transpose)

    return fastest_of(found, times, trial.longer)


__all__ = ["fastest_operands"]
