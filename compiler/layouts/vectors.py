"""How wide an access may be: neighbours in registers that are neighbours in memory, at aligned addresses."""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from treadle.compiler.layouts.digits import joined
from treadle.compiler.layouts.maps import Map

MOST_BYTES = 16
"""The widest access of a lane."""


def widest_fragment(places: Map, axis: str | None, whole_modes: bool = True) -> int:
    """The most neighbours along an axis, a power of two, that every thread of a fragment holds in registers that follow
    each other, beginning at multiples of that number. With `whole_modes` only the fastest digit counts, as the array
    that is declared has it; without, digits that continue each other count as one."""
    modes = places.modes("register")
    modes = modes if whole_modes else joined(modes)
    if not modes or axis is None or (modes[-1].axis, modes[-1].stride) != (axis, 1):
        return 1
    last = modes[-1]
    rest = (mode for mode in (*modes[:-1], *places.modes("lane"), *places.modes("warp")) if mode.axis == axis)
    return power_in(gcd(last.size, *(mode.stride for mode in rest)))


def widest_copy(extents: Iterable[int]) -> int:
    """The most neighbours along a row, a power of two, that fill rows: a copy may move so many at once."""
    wide = [extent for extent in extents if extent != 1]
    return power_in(wide[-1]) if wide else 1


def widest_in_memory(offsets: Iterable[int], element_bytes: int, most_bytes: int = MOST_BYTES) -> int:
    """The most elements, a power of two, that fit a vector and divide every one of these distances in elements: the
    sizes of pieces and whatever else moves the address."""
    most = max(most_bytes // element_bytes, 1)
    return min(most, power_in(gcd(*offsets))) if (offsets := [each for each in offsets if each]) else most


def power_in(number: int) -> int:
    """The largest power of two that divides a number; 1 for 0."""
    return number & -number if number else 1


def ladder(widest: int, element_bytes: int, has_halves: bool = False) -> list[int]:
    """The widths among which the alignment of an array chooses at launch, the widest first: the widest, 8 bytes too
    where `has_halves`, 4 bytes, 1 element."""
    halves = (8 // element_bytes,) if has_halves else ()
    return [width for width in dict.fromkeys((widest, *halves, 4 // element_bytes, 1)) if 0 < width <= widest]
