"""Which free axes of products to make one: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.axes.merge import merge
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of

Group = tuple[str, ...]

MORE = 2
"""Times its stated size each axis has that only the launch tells, where both are timed again: who makes kernels for one
token will not bring thousands."""


def fastest_groups(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Group], rewrite: str
) -> tuple[Sequence[Group], str]:
    """Which of these to merge, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)
    longer = {axis: MORE * size for axis, size in trial.likely.items()}

    def times(chosen: Iterable[Group]) -> Times:
        def merge_all(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for axes in chosen:
                merge(copy, copy.body.block, axes, rewrite)

        return trial.times(merge_all, longer)

    return fastest_of(found, times, longer)


__all__ = ["fastest_groups"]
