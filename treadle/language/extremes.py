"""Where along an axis the largest and the smallest elements are, and the first few of an order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, nan
from typing import Any

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.diagram.formats import INTEGERS
from treadle.dialects.diagram.orders import NO_NUMBERS, NOWHERE
from treadle.language.array import Array, names_of, traced
from treadle.language.conditions import Comparison, Condition
from treadle.language.functions import index, where
from treadle.language.graph import plain
from treadle.language.stacked import side_by_side

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
    _, place = extreme(array, [axis], index(axis, array), largest)
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
    if not largest and array.format not in INTEGERS:
        return _smallest_first(array, axes, places, k)
    return _in_order(_Left(array, places, _last(array, largest), array), axes, k, largest)


def _smallest_first(array: Array, axes: Sequence[str], places: Array, k: int) -> list[tuple[Array, Array]]:
    """NaNs come behind infinities, which they are taken for: their places are those of others and `NO_NUMBERS`."""
    is_nan = _is_nan(array)
    numbers = where(is_nan, inf, array)
    left = _Left(numbers, where(is_nan, places + NO_NUMBERS, places), inf, numbers, has_nans=False)
    return [_as_it_was(value, place) for value, place in _in_order(left, axes, k, largest=False)]


def _as_it_was(value: Array, place: Array) -> tuple[Array, Array]:
    is_nan = (place >= NO_NUMBERS) & ~place.equals(NOWHERE)
    return where(is_nan, nan, value), where(is_nan, place - NO_NUMBERS, place)


def _in_order(left: _Left, axes: Sequence[str], k: int, largest: bool) -> list[tuple[Array, Array]]:
    found = [_extreme(left, axes, largest)]
    for _ in range(1, k):
        value, place = found[-1]
        left = left.without(place, where(value.equals(left.last), place, -1))
        found.append(_extreme(left, axes, largest))
    return found


def extreme(array: Array, axes: Sequence[str], places: Array, largest: bool) -> tuple[Array, Array]:
    """The largest (or smallest) along some axes, or a NaN if there is one, and its place."""
    return _extreme(_Left(array, places, _last(array, largest), array), axes, largest)


@dataclass(frozen=True)
class _Left:
    """What is left of an array where the first of an order are taken: those are `last`, which nothing comes behind."""

    array: Array
    places: Array
    last: float
    left: Array
    behind: Array | None = None
    """Of elements that are `last` themselves, those behind this place are left."""
    has_nans: bool = True

    def without(self, place: Array, behind: Array) -> _Left:
        left = where(self.places.equals(place), self.last, self.left)
        return replace(self, left=left, behind=behind)

    @property
    def is_there(self) -> Condition:
        """Which elements are what they were, and no NaNs: those that are not taken, and those that are `last`."""
        return self.array.equals(self.left)

    def first(self, holds: Condition, axes: Sequence[str]) -> Array:
        """The first place that is left at which something holds of the element."""
        return _first(holds if self.behind is None else holds & (self.places > self.behind), self.places, axes)


def _extreme(left: _Left, axes: Sequence[str], largest: bool) -> tuple[Array, Array]:
    """The largest (or smallest) of what is left, or a NaN if there is one, and its place."""
    value = left.left.max(axes) if largest else left.left.min(axes)
    is_it = left.left.equals(value)
    is_left = is_it if left.behind is None else is_it & left.is_there
    return value, left.first(is_left | _is_nan(left.left) if left.has_nans else is_left, axes)


def _first(holds: Condition, places: Array, axes: Sequence[str]) -> Array:
    return where(holds, places, NOWHERE).min(axes)


def _is_nan(array: Array) -> Condition:
    return Comparison("une", "ne", array, array)


def _last(array: Array, largest: bool) -> float:
    if array.format in INTEGERS:
        return -(2**31) if largest else 2**31 - 1
    return -inf if largest else inf


__all__ = ["argmax", "argmin", "extreme", "in_order", "topk"]
