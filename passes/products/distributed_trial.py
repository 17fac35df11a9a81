"""Which products to make term by term: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.products.distributed import Distributed, distribute, distributed_called


def fastest_distributed(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Distributed], rewrite: str
) -> tuple[Sequence[Distributed], str]:
    """The products to make term by term, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[Distributed]) -> Times:
        def distribute_all(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for name in [each.name for each in chosen]:
                if (each := distributed_called(copy.body.block, name)) is not None:
                    distribute(copy, each, rewrite)
            _compose(copy)

        return trial.times(distribute_all, trial.longer)

    return fastest_of(found, times, trial.longer)


def _compose(function: func.FuncOp) -> None:
    """As the pipeline will."""
    # imported here, for they come later in the pipeline
    from treadle.passes.diagram_compose_maps import DiagramComposeMapsPass
    from treadle.passes.diagram_hoist_factors import DiagramHoistFactorsPass

    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    for step in (DiagramHoistFactorsPass(), DiagramComposeMapsPass()):
        step.apply(Context(), module)


__all__ = ["fastest_distributed"]
