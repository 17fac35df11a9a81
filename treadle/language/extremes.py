"""Where along an axis the largest and the smallest elements are, and the first few of an order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import inf, nan
from typing import Any

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.formats import INTEGERS
from treadle.language.array import Array, names_of, traced
from treadle.language.conditions import Comparison, Condition
from treadle.language.functions import index, where
from treadle.language.graph import plain
from treadle.language.stacked import side_by_side

NOWHERE = 2**31 - 1
"""The position where there is no element."""

MOST = 32
"""How many of an order are looked for: each is an extreme of what the ones before it leave."""


def argmax(array: Array, over: str) -> Array:
    """The position of the largest along an axis, in i32: the first of several, and of a NaN if there is one, as
    `torch.argmax`. 2^31 - 1 where there is no element."""
    return _place("argmax", array, over, largest=True)


def argmin(array: Array, over: str) -> Array:
    """The position of the smallest along an axis, as `argmax`: of a NaN if there is one."""
    return _place("argmin", array, over, largest=False)


def _place(name: str, array: Array, over: str, largest: bool) -> Array:
    array, axis = _along(name, array, over)
    _, place = extreme(array, [axis], index(axis, array), [], largest)
    return place


def topk(array: Array, k: int, over: str, axis: str, largest: bool = True) -> tuple[Array, Array]:
    """The `k` largest (or smallest) elements along the axis `over`, the first of them first, and their positions, in
    i32: two arrays with `axis`, which has k places, as the last. Of equal ones the first comes first, and NaNs count
    as larger than all numbers, as in `torch.topk`. Where fewer than k elements are there: what `max` (or `min`) gives
    of nothing, and 2^31 - 1.

    Each is a maximum of what those before it leave, so k is at most 32. TreadleError for another, and for an axis that
    is known to have fewer elements.

    `values, experts = topk(contract(X, W, over="d"), k=2, over="e", axis="r")` are those that a token is routed to."""
    given: Any = plain(k)
    array, searched = _along("topk", array, over)
    if isinstance(given, bool) or not isinstance(given, int) or given not in range(1, MOST + 1):
        raise TreadleError(f"topk of k={given!r}: it is a whole number, at least 1 and at most {MOST}")
    if DYNAMIC != (size := array.graph.sizes.get(searched, k)) < k:
        raise TreadleError(f"topk of k={k} over '{over}', which has {size} elements: ask for no more than there are")
    values, places = zip(*in_order(array, [searched], index(searched, array), given, largest), strict=True)
    return side_by_side("topk", values, axis), side_by_side("topk", places, axis)


def _along(name: str, array: Array, over: str) -> tuple[Array, str]:
    array, axes = traced(name, array), names_of(over)
    if len(axes) != 1:
        raise TreadleError(f"{name} over '{' '.join(axes)}': a position is along one axis, as in over='x'")
    return array, axes[0]


def in_order(array: Array, axes: Sequence[str], places: Array, k: int, largest: bool) -> list[tuple[Array, Array]]:
    """The first `k` elements of an order along some axes, each with its place, of which `places` has one for each
    element along these. NaNs are larger than all numbers."""
    found: list[tuple[Array, Array]] = []
    take = extreme if largest or array.format in INTEGERS else _smallest_number
    for _ in range(k):
        found.append(take(array, axes, places, [place for _, place in found], largest))
    return found


def extreme(
    array: Array, axes: Sequence[str], places: Array, taken: Sequence[Array], largest: bool
) -> tuple[Array, Array]:
    """The largest (or smallest) of what is not at a place that is taken, or a NaN if there is one, and its place."""
    left, is_left = _left(array, places, taken, largest)
    value = left.max(axes) if largest else left.min(axes)
    is_it = left.equals(value) | _is_nan(left)
    return value, _first(is_it if is_left is None else is_it & is_left, places, axes)


def _smallest_number(
    array: Array, axes: Sequence[str], places: Array, taken: Sequence[Array], largest: bool
) -> tuple[Array, Array]:
    """The smallest of what is not at a place that is taken, a NaN only where nothing else is left."""
    left, is_left = _left(array, places, taken, largest)
    numbers = where(_is_nan(left), inf, left)
    value = numbers.min(axes)
    is_it = numbers.equals(value) & ~_is_nan(left)
    place = _first(is_it if is_left is None else is_it & is_left, places, axes)
    of_nan, is_none = _first(_is_nan(left), places, axes), place.equals(NOWHERE)
    return where(is_none & ~of_nan.equals(NOWHERE), nan, value), where(is_none, of_nan, place)


def _left(array: Array, places: Array, taken: Sequence[Array], largest: bool) -> tuple[Array, Condition | None]:
    """The array with what comes before nothing at the places that are taken; and which these are not, if any are."""
    if not taken:
        return array, None
    is_taken = reduce(Condition.__or__, map(places.equals, taken))
    return where(is_taken, _last(array, largest), array), ~is_taken


def _first(holds: Condition, places: Array, axes: Sequence[str]) -> Array:
    return where(holds, places, NOWHERE).min(axes)


def _is_nan(array: Array) -> Condition:
    return Comparison("une", "ne", array, array)


def _last(array: Array, largest: bool) -> float:
    if array.format in INTEGERS:
        return -(2**31) if largest else 2**31 - 1
    return -inf if largest else inf


__all__ = ["argmax", "argmin", "extreme", "in_order", "topk"]
