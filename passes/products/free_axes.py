"""Which free axes of products to make one: the model tells, of all kernels of the program, with and without."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from treadle.passes.axes.merge import merge
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.products.apart import Apart, merge_apart

Group = tuple[str, ...]
Merging: TypeAlias = "Group | Apart"
"""Axes that become one in all of a function, or in one product of it."""

MORE = 2
"""Times its stated size each axis has that only the launch tells, where both are timed again: who makes kernels for one
token will not bring thousands."""


def fastest_merging(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Merging], rewrite: str
) -> tuple[Sequence[Merging], str]:
    """Which of these to merge, none where that does not pay, and the times."""
    trial = FunctionTrial(module, function)
    longer = {axis: MORE * size for axis, size in trial.likely.items()}

    def times(chosen: Iterable[Merging]) -> Times:
        def merge_all(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
            merge_each(copy, chosen, rewrite, "", values)

        return trial.times(merge_all, longer)

    return fastest_of(found, times, longer)


def merge_each(
    function: func.FuncOp,
    chosen: Iterable[Merging],
    rewrite: str,
    why: str,
    values: Mapping[SSAValue, SSAValue] | None = None,
) -> None:
    """Merge these, in a copy of their function if `values` says what stands there for each of its values."""
    for each in chosen:
        if isinstance(each, Apart):
            product = each.product if values is None else values[each.product]
            merge_apart(function, each, product, rewrite, why)
        else:
            merge(function, function.body.block, each, rewrite, why)


def axes_in(merging: Merging) -> Group:
    """The axes that become one."""
    return merging.axes if isinstance(merging, Apart) else merging


__all__ = ["Merging", "axes_in", "fastest_merging", "merge_each"]
