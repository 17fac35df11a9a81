"""Which sums to scatter: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.kernels.function_trial import FunctionTrial, compose
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.products.scattered import Scattered, scatter_all


def fastest_scattered(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Scattered], rewrite: str
) -> tuple[Sequence[Scattered], str]:
    """The sums to scatter, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[Scattered]) -> Times:
        def rewritten(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            scatter_all(copy, [each.name for each in chosen], rewrite, "")
            compose(copy)

        return trial.times(rewritten, trial.longer)

    return fastest_of(found, times, trial.longer)


__all__ = ["fastest_scattered"]
