"""Whether a kernel holds an axis whole or is fed it more than once, where it may do either: the cost model tells.

Held whole, an axis is loaded and computed once, but a group holds all of it in registers at every moment; streamed, a
group holds a piece, and makes each as often as reductions wait for each other."""

from __future__ import annotations

from math import inf

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import default_sizes
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr
from treadle.passes._functions import function_of, kernels
from treadle.passes._structure import Structure, remember, structure_of
from treadle.passes.hierarchy_choose_sizes import choice_for
from treadle.passes.kernels.trial import alone
from treadle.passes.tiling import TilingPass

WORTH = 0.9
"""Of the time with the axis held whole, what streaming may take: the model is not so exact that less is a gain."""


def is_faster_streamed(ctx: Context, module: ModuleOp, kernel: KernelOp, axis: str) -> bool:
    """Whether a kernel without a schedule takes less time with the axis fed in pieces, or fits only so."""
    key = structure_of(kernel, module.attributes, default_sizes(function_of(kernel)), [axis])
    if key is None:
        return _is_faster_streamed(ctx, module, kernel, axis)
    if (known := _KNOWN.get(key)) is None:
        known = remember(_KNOWN, key, _is_faster_streamed(ctx, module, kernel, axis))
    return known


_KNOWN: dict[Structure, bool] = {}
"""Each kernel is asked of while it is tried, and again once it is made."""


def _is_faster_streamed(ctx: Context, module: ModuleOp, kernel: KernelOp, axis: str) -> bool:
    whole = _time(ctx, module, kernel, None)
    streamed = _time(ctx, module, kernel, axis)
    return streamed < inf and streamed <= WORTH * whole


def _time(ctx: Context, module: ModuleOp, kernel: KernelOp, axis: str | None) -> float:
    """In microseconds, as the model chooses sizes; infinite if none fit the machine."""
    copy = kernel.clone()
    if axis is not None:
        copy.properties["schedule"] = ScheduleAttr({}, {axis: UNDECIDED}, {})
    apart, trial = alone(module, function_of(kernel), copy)
    try:
        TilingPass().apply(ctx, apart)
        (tiled,) = kernels(trial)
        assert tiled.schedule is not None
        choice = choice_for(tiled, tiled.schedule, machine_of(module))
    except (PassFailedException, TreadleError):
        return inf
    return choice.estimate.time_us
