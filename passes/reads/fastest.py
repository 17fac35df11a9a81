"""Which reads to let bubble up: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.dialects.diagram import ReadOp
from treadle.passes.kernels.by_time import WORTH
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.reads.bubble import bubble_up
from treadle.passes.reads.found import Computed

ANY = 0.999
"""Of the time before, what is less: enough where nothing is computed twice, for then less is saved and read."""


def fastest_reads(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Computed], rewrite: str
) -> tuple[Sequence[Computed], str]:
    """The arrays whose reads are to be reads of what these are made of, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)

    def times(chosen: Iterable[Computed]) -> Times:
        def bubble_all(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            from treadle.passes.diagram_compose_maps import DiagramComposeMapsPass  # which comes later

            for each in chosen:
                bubble_up(copy, _in_copy(each, values), rewrite)
            if (around := copy.parent_op()) is not None:
                assert isinstance(around, ModuleOp)
                DiagramComposeMapsPass().apply(Context(), around)

        return trial.times(bubble_all, trial.longer)

    repeats = any(each.repeats(trial.stated) for each in found)
    return fastest_of(found, times, trial.longer, WORTH if repeats else ANY)


def _in_copy(each: Computed, values: Mapping[SSAValue, SSAValue]) -> Computed:
    reads = [values[read.result].owner for read in each.reads]
    return Computed(values[each.value], tuple(read for read in reads if isinstance(read, ReadOp)))


__all__ = ["fastest_reads"]
