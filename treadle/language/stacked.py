"""Arrays side by side along an axis of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32
from xdsl.ir import SSAValue

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import DYNAMIC
from treadle.language.array import Array, graph_of, traced
from treadle.language.functions import index
from treadle.language.graph import check_axis, computing_format, constant


def stack(arrays: Iterable[Array], axis: str) -> Array:
    """Several arrays as one, along a new axis, the last, with a place for each: `stack([A, B, C], axis="r")` has three
    along r. What one array does not vary along, it is repeated along.

    TreadleError for no arrays, and for an axis that there is with another size."""
    return side_by_side("stack", arrays, axis)


def side_by_side(name: str, arrays: Iterable[Array], axis: str) -> Array:
    """`stack`, of what calls itself otherwise."""
    parts = [traced(name, each) for each in arrays]
    if not parts:
        raise TreadleError(f"{name} of no arrays: it takes one or more")
    graph = graph_of(name, parts)
    known = graph.sizes.setdefault(check_axis(axis), len(parts))
    if known != len(parts):
        said = "several sizes" if known == DYNAMIC else f"{known} elements"
        raise TreadleError(f"{name} of {len(parts)} along '{axis}', which has {said}: take another name for it")
    if having := [each for each in parts if axis in each.axes]:
        raise TreadleError(f"{name} along '{axis}', an axis that {having[0]} has already: take another name for it")
    return chosen_by(index(axis, parts[0]), parts)


def chosen_by(places: Array, parts: Sequence[Array]) -> Array:
    """The array whose number the place says, element by element: the last one for all places behind."""
    graph, format = places.graph, computing_format([each.value for each in parts])
    # the parts first, for the axes of places are the last
    inputs = [*(graph.wide(each.value, format) for each in parts), places.value]

    def body(scalars: Sequence[SSAValue]) -> SSAValue:
        *values, place = scalars
        whole = values[-1]
        for number, each in reversed([*enumerate(values[:-1])]):
            whole = arith.SelectOp(arith.CmpiOp(place, constant(number, i32), "eq").result, each, whole).result
        return whole

    return Array(graph, graph.map(inputs, body, format))


__all__ = ["chosen_by", "side_by_side", "stack"]
