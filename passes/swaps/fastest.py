"""Which swaps to write, and which axes are one then: the model tells, of all kernels of the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ContractOp, ReadOp, SwapOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.passes.kernels.by_time import is_faster
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import times_text
from treadle.passes.swaps.found import Swapped
from treadle.passes.swaps.joined import Apart, join
from treadle.passes.swaps.write import write_swap

ANY = 0.999
"""Of the time before, what is less: nothing is computed twice, and less is saved and read."""

Joins: TypeAlias = tuple[tuple[str, ...], ...]
"""Axes that become one, each group of them."""


@dataclass(frozen=True)
class Way:
    """Swaps to write, and axes that become one then."""

    found: tuple[Swapped, ...]
    joins: Joins


def write(function: func.FuncOp, way: Way, rewrite: str) -> None:
    """Write swaps, and let axes be one (Apart where they are not)."""
    for each in way.found:
        write_swap(each)
    for axes in way.joins:
        join(function, axes, rewrite)


def fastest_way(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Swapped], rewrite: str
) -> tuple[Way | None, str]:
    """The way that takes least time, None where that does not pay, and the times."""
    trial = FunctionTrial(module, function)
    before = trial.times(lambda copy, values: None, trial.longer)
    # columns along two axes are no tile: those beside the blocks are one with theirs, if there are any
    ways = [Way(tuple(found), joins) for joins in joins_of(found) if joins or not all(map(_runs, found))]
    timed = [(_times(trial, way, rewrite), i) for i, way in enumerate(ways)]
    least, i = min(timed)
    told = times_text(least, before, trial.longer)
    return (ways[i] if is_faster(least, before, ANY) else None), told


def _times(trial: FunctionTrial, way: Way, rewrite: str) -> tuple[float, float]:
    apart: list[Apart] = []

    def rewritten(copy: func.FuncOp, values: Mapping[SSAValue, SSAValue]) -> None:
        try:
            write(copy, Way(tuple(_in_copy(each, values) for each in way.found), way.joins), rewrite)
        except Apart as reason:
            apart.append(reason)

    return trial.times(rewritten, trial.longer, lambda module: not apart and _are_swapped(module, len(way.found)))


def _are_swapped(module: ModuleOp, count: int) -> bool:
    """Whether kernels swap as often as was meant, and read nothing in its place."""
    return sum(isinstance(op, SwapOp) for op in module.walk()) == count


def _in_copy(found: Swapped, values: Mapping[SSAValue, SSAValue]) -> Swapped:
    def reads(of: Sequence[ReadOp]) -> tuple[ReadOp, ...]:
        owners: list[Operation] = [owner for each in of if isinstance(owner := values[each.result].owner, Operation)]
        return tuple(owner for owner in owners if isinstance(owner, ReadOp))

    return Swapped(values[found.product], found.axis, found.block, reads(found.wholes), reads(found.parts))


def joins_of(found: Sequence[Swapped]) -> list[Joins]:
    """The ways in which axes beside those that blocks are swapped along may be one with them: none of them, those
    within, and then those around, one more each time, of static sizes, as far as one operand of the product has them
    side by side."""
    runs = [_runs(each) for each in found]
    count = max(map(len, runs))
    each_time = (tuple(dict.fromkeys(run[min(i, len(run) - 1)] for run in runs if run)) for i in range(count))
    return [(), *dict.fromkeys(each_time)]


def _runs(found: Swapped) -> list[tuple[str, ...]]:
    """The axis of the blocks with those beside it, more each time; at least two."""
    before, after = _beside(found)
    runs = [(*before[i:], found.axis, *after) for i in reversed(range(len(before) + 1))]
    return [run for run in runs if len(run) > 1]


def _beside(found: Swapped) -> tuple[list[str], list[str]]:
    """The axes before and after that of the blocks that are its neighbours in the product, and which the same operand
    has alone."""
    product = found.product.owner
    assert isinstance(product, ContractOp)
    own = next(each for each in (product.lhs, product.rhs) if found.axis in axes_of(each.type))
    other = product.rhs if own is product.lhs else product.lhs
    sizes, axes = sizes_of(found.product.type), axes_of(found.product.type)
    alone = [axis in axes_of(own.type) and axis not in axes_of(other.type) and sizes[axis] != DYNAMIC for axis in axes]
    first = last = axes.index(found.axis)
    while first > 0 and alone[first - 1]:
        first -= 1
    while last + 1 < len(axes) and alone[last + 1]:
        last += 1
    at = axes.index(found.axis)
    return list(axes[first:at]), list(axes[at + 1 : last + 1])


__all__ = ["Way", "fastest_way", "joins_of", "write"]
