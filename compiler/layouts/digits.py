"""Digits: the pieces that indices and coordinates are made of, and how to cut and join them.

A mode `q:8:2` is a digit of 8 values that moves the coordinate of axis `q` by 2 for each. Cutting `q:8:2` at
coordinate 8 gives the two digits `q:2:8, q:4:2`: the same numbers, written finer. Everything else in this package
is made of cutting, joining and renaming digits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from treadle.dialects.cuda.layout import Mode

Modes = tuple[Mode, ...]
"""The digits of one index, the slowest first."""


class LayoutError(ValueError):
    """Two layouts do not fit each other, or one has no inverse; the message says which digits are to blame."""


def joined(modes: Iterable[Mode]) -> Modes:
    """The same function of the index in the fewest digits: digits of one value go, and a digit is joined to the next
    faster one where it continues it (`q:2:8, q:8:1` is `q:16:1`). Two sequences of modes are the same function if
    and only if this gives the same for both."""
    result: list[Mode] = []
    for mode in modes:
        if mode.size == 1:
            continue
        if result and _continues(result[-1], mode):
            slow = result.pop()
            mode = Mode(mode.axis, slow.size * mode.size, mode.stride)
        result.append(mode)
    return tuple(result)


def _continues(slow: Mode, fast: Mode) -> bool:
    return slow.axis == fast.axis and slow.stride == fast.stride * fast.size


def ordered(modes: Iterable[Mode]) -> Modes:
    """The set of coordinates that the digits reach, in normal form: sorted by axis and stride, then joined. For digits
    that do not overlap, two sequences reach the same set if and only if this gives the same for both."""
    moving = sorted((mode for mode in modes if mode.axis and mode.size > 1), key=lambda mode: (mode.axis, -mode.stride))
    return joined(moving)


def span(mode: Mode) -> int:
    """The first coordinate past those that the digit can add, were it alone and written out fully."""
    return mode.size * mode.stride


def overlap(modes: Iterable[Mode]) -> tuple[Mode, Mode] | None:
    """Two digits of one axis whose sum carries, or None: digits without overlap are digits of the coordinate, too."""
    below: dict[str, Mode] = {}
    for mode in sorted((mode for mode in modes if mode.axis and mode.size > 1), key=lambda mode: mode.stride):
        last = below.get(mode.axis)
        if last is not None and mode.stride % span(last):
            return last, mode
        below[mode.axis] = mode
    return None


def cut(mode: Mode, place: int) -> Modes:
    """The digit in two, at a coordinate (slow one first); itself if the coordinate is not inside it (LayoutError if it
    cannot be cut there: 6 values at the fourth)."""
    if place <= mode.stride or place >= span(mode):
        return (mode,)
    fast, rest = divmod(place, mode.stride)
    if rest or mode.size % fast:
        raise LayoutError(f"digit {mode} cannot be cut at {place}: it has {mode.size} values in steps of {mode.stride}")
    return Mode(mode.axis, mode.size // fast, place), Mode(mode.axis, fast, mode.stride)


def cut_all(modes: Iterable[Mode], places: Iterable[int], axis: str) -> Modes:
    """The modes with every digit along the axis cut at all of these coordinates."""
    result = tuple(modes)
    for place in sorted(set(places)):
        result = tuple(piece for mode in result for piece in (cut(mode, place) if mode.axis == axis else (mode,)))
    return result


def places(modes: Iterable[Mode], axis: str) -> set[int]:
    """Coordinates along an axis at which a digit begins or ends."""
    return {place for mode in modes if mode.axis == axis and mode.size > 1 for place in (mode.stride, span(mode))}


@dataclass(frozen=True)
class Term:
    """`index / divide % modulo * times`, index being the digit at `source` of another layout; `modulo` 0 takes all."""

    source: int
    divide: int
    modulo: int
    times: int

    def value(self, digits: Sequence[int]) -> int:
        found = digits[self.source] // self.divide
        return (found % self.modulo if self.modulo else found) * self.times


def digit_of(wanted: Mode, given: Sequence[Mode]) -> tuple[Term, ...]:
    """How to find the digit `wanted` of a coordinate from the digits `given` of the same coordinate: the sum of these
    terms (LayoutError where a digit of one would have to be cut in a place where it has none). The given digits may
    not overlap; those of other axes are passed over."""
    terms: list[Term] = []
    top = span(wanted)
    for source, own in enumerate(given):
        if own.axis != wanted.axis or span(own) <= wanted.stride or own.stride >= top:
            continue
        pieces = cut_all((own,), (wanted.stride, top), own.axis)
        inside = next(piece for piece in pieces if wanted.stride <= piece.stride < top)
        if inside.stride % wanted.stride:
            raise LayoutError(f"digit {wanted} cannot be read off digit {own}")
        divide = inside.stride // own.stride
        modulo = 0 if span(own) <= top else inside.size
        terms.append(Term(source, divide, modulo, inside.stride // wanted.stride))
    return tuple(terms)
