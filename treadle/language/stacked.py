"""Arrays side by side along an axis of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from treadle.compiler.errors import TreadleError
from treadle.language.array import Array, graph_of, traced
from treadle.language.functions import chosen, index
from treadle.language.graph import check_axis, computing_format


def stack(arrays: Iterable[Array], axis: str) -> Array:
    """Several arrays as one, along a new axis, the last, with a place for each: `stack([A, B, C], axis="r")` has three
    along r. What one array does not vary along, it is repeated along.

    TreadleError for no arrays, and for an axis that there is with another size."""
    parts = [traced("stack", each) for each in arrays]
    if not parts:
        raise TreadleError("stack of no arrays: it takes one or more")
    graph = graph_of("stack", parts)
    known = graph.sizes.setdefault(check_axis(axis), len(parts))
    if known != len(parts):
        said = "a symbolic size" if known < 0 else f"{known} elements"
        raise TreadleError(f"stack of {len(parts)} arrays along '{axis}', which has {said}: take another name for it")
    if having := [each for each in parts if axis in each.axes]:
        raise TreadleError(f"stack along '{axis}', an axis that {having[0]} has already: take another name for it")
    place: Any = index(axis, parts[0])
    whole = parts[-1]
    format = computing_format([each.value for each in parts])
    for number, each in reversed([*enumerate(parts[:-1] or parts)]):
        whole = chosen(place.equals(number), each, whole, format)
    return whole


__all__ = ["stack"]
