"""Which swaps to write, and which axes are one then: the model tells, of all kernels of the function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

Joins = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Way:
    """Swaps to write, and pairs of axes to join then, each as it is called when its turn comes."""

    found: tuple[Swapped, ...]
    joins: Joins


def write(function: func.FuncOp, way: Way, rewrite: str) -> None:
    """Write swaps, and let axes be one (Apart where they are not)."""
    for each in way.found:
        write_swap(each)
    names: dict[str, str] = {}
    for outer, inner in way.joins:
        names[f"{outer}_{inner}"] = join(function, (outer, names.get(inner, inner)), rewrite)


def fastest_way(
    module: ModuleOp, function: func.FuncOp, found: Sequence[Swapped], rewrite: str
) -> tuple[Way | None, str]:
    """The way that takes least time, None where that does not pay, and the times."""
    trial = FunctionTrial(module, function)
    before = trial.times(lambda copy, values: None, trial.longer)
    ways = [Way(tuple(found), joins) for joins in joins_of(found)]
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
    """The ways in which axes around those that blocks are swapped along may be one: none of them, those within, and
    then those around, of static sizes, as far as one operand of a product has them side by side."""
    ways: dict[Joins, None] = {(): None}
    within: dict[tuple[str, str], None] = {}
    around: dict[tuple[str, str], None] = {}
    for each in found:
        before, after = _beside(each)
        *inner, name = [each.axis, *after]
        for axis in reversed(inner):
            within[axis, name] = None
            name = f"{axis}_{name}"
        for axis in reversed(before):
            around[axis, name] = None
            name = f"{axis}_{name}"
        for joins in (tuple(within), (*within, *around)):
            ways[joins] = None
    return list(ways)


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
