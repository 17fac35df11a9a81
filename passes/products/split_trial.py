"""Which products to make part by part: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.products.split import Split, split, split_called


def fastest_split(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Split], rewrite: str
) -> tuple[Sequence[Split], str]:
    """The products to make part by part, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[Split]) -> Times:
        names = [each.name for each in chosen]

        def split_all(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            for name in names:
                if (each := split_called(copy.body.block, name)) is not None:
                    split(copy, each, rewrite)
            _compose(copy)

        return trial.times(split_all, trial.longer)

    return fastest_of(found, times, trial.longer)


def _compose(function: func.FuncOp) -> None:
    """As the pipeline will."""
    # imported here, for they come later in the pipeline
    from treadle.passes.diagram_bubble_up_reads import DiagramBubbleUpReadsPass
    from treadle.passes.diagram_compose_maps import DiagramComposeMapsPass
    from treadle.passes.diagram_hoist_factors import DiagramHoistFactorsPass
    from treadle.passes.diagram_merge_free_axes import DiagramMergeFreeAxesPass
    from treadle.passes.diagram_reassociate import DiagramReassociatePass

    module = function.parent_op()
    assert isinstance(module, ModuleOp)
    for step in (
        DiagramHoistFactorsPass(),
        DiagramReassociatePass(),
        DiagramBubbleUpReadsPass(),
        DiagramComposeMapsPass(),
        DiagramMergeFreeAxesPass(),
    ):
        step.apply(Context(), module)


__all__ = ["fastest_split"]
