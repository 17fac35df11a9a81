"""Which products with triangles to make as scans: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.kernels.function_trial import FunctionTrial, compose
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.products.scanned import Scanned, scan, scanned_called


def fastest_scanned(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Scanned], rewrite: str
) -> tuple[Sequence[Scanned], str]:
    """The products to make as scans, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[Scanned]) -> Times:
        def rewritten(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for each in list(scanned_called(copy.body.block, [each.name for each in chosen])):
                scan(copy, each, rewrite, "")
            compose(copy)

        return trial.times(rewritten, trial.longer)

    return fastest_of(found, times, trial.longer)


__all__ = ["fastest_scanned"]
