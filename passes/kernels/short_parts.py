"""Whether a kernel is fed its streamed axis in pieces, or is cut into parts that groups hold whole: the model tells.

A product that sums over a long axis, held whole, leaves room for few of its columns. In parts of the streamed axis
that groups hold whole instead, the long axis is the one that is fed in pieces, as in any product of matrices, and what
is reduced of each part is merged by a second kernel."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import machine_of
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.kernels.roles import WHOLE_LIMIT, Roles, roles_of
from treadle.passes.kernels.trial import alone, scheduled_time
from treadle.passes.streams.stages import StreamPlan

WORTH = 0.9
"""Of the time with the axis streamed, what parts may take: the model is not so exact that less is a gain."""

GRANULE = 16
"""Columns that a product takes at once."""

TENSOR_MAPS = 90
"""The first capability with tensor copies."""


def depth_held(plan: StreamPlan) -> str | None:
    """An axis that groups of a kernel hold whole though it is longer than what they hold of others, if there is one."""
    roles = roles_of(plan.part, stream=plan.axis, wide=True)
    whole = roles.whole if isinstance(roles, Roles) else {}
    return next((axis for axis, size in whole.items() if size > WHOLE_LIMIT), None)


@dataclass(frozen=True)
class ShortParts:
    """Parts of the streamed axis that groups hold whole."""

    length: int
    time: float
    """That they take, in microseconds."""
    why: str


def short_parts(
    ctx: Context, module: ModuleOp, function: func.FuncOp, kernel: KernelOp, plan: StreamPlan
) -> ShortParts | None:
    """Those that take less time than the axis fed in pieces, if there are any."""
    whole, timed = _time(ctx, module, function, kernel, None), list[tuple[float, int]]()
    # no tensor map describes a tile that is padded
    for length in lengths(plan.part.sizes[plan.axis], machine_of(module).capability >= TENSOR_MAPS):
        timed.append((_time(ctx, module, function, kernel, length), length))
    time, length = min(timed, default=(inf, 0))
    if time == inf or time > WORTH * whole:
        return None
    streamed = f"{whole:.3g} us" if whole < inf else "nothing fits"
    return ShortParts(length, time, f"estimated {time:.3g} us, and {streamed} with all of '{depth_held(plan)}' held")


def lengths(size: int, whole_columns: bool) -> Iterator[int]:
    """Lengths of parts that groups can hold, the last and longest one too: of long and of short ones that for which
    groups compute the fewest columns past the end of a part; with `whole_columns`, none past the end of the longest.
    None where only the launch tells how long the axis is, and so the last part."""
    step = GRANULE if whole_columns else 1
    for most in (WHOLE_LIMIT, WHOLE_LIMIT // 2):
        found = [
            length
            for length in range(most // 2 + 1, most + 1)
            if size >= 2 * length and _longest(size, length) <= most and _longest(size, length) % step == 0
        ]
        if found:
            yield min(found, key=lambda length: (_computed(size, length), -length))


def _computed(size: int, length: int) -> int:
    """Columns of all parts."""
    return -(-_longest(size, length) // GRANULE) * GRANULE * (size // length)


def _longest(size: int, length: int) -> int:
    return length + size % length


def _time(ctx: Context, module: ModuleOp, function: func.FuncOp, kernel: KernelOp, length: int | None) -> float:
    """In microseconds, as the model chooses sizes, with launches; infinite where they do not fit the machine."""
    # imported here, for it asks what is decided here
    from treadle.passes.hierarchy_split_streams import HierarchySplitStreamsPass

    copy = kernel.clone()
    apart, _ = alone(module, function, copy)
    try:
        if length is not None:
            HierarchySplitStreamsPass(length=length).apply(ctx, apart)
        return scheduled_time(apart, in_parts=False)
    except (PassFailedException, TreadleError):
        return inf
