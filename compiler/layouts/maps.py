"""Maps from indices to coordinates, and their algebra.

A map has named indices (`register`, `lane`, `warp`; or the coordinates of a tile) and named coordinates (`q`, `x`; or
the offset in memory). Each index is written in digits, and each digit moves one coordinate by a stride. Fragments,
tiles without swizzle, strided arrays and the order in which threads copy are all such maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from treadle.compiler.layouts.digits import (
    LayoutError,
    Modes,
    cut_all,
    joined,
    ordered,
    overlap,
    places,
)
from treadle.dialects.cuda.layout import Mode, digits_of


@dataclass(frozen=True)
class Map:
    """From indices to coordinates: the coordinate of an axis is the sum, over the digits of all indices that move the
    axis, of digit times stride. A digit without an axis moves nothing: its values are copies.

    `digits` pairs each index with its modes, the slowest first; `Map.of(lane=[Mode("q", 8, 1), Mode("x", 4, 2)])`."""

    digits: tuple[tuple[str, Modes], ...]

    @classmethod
    def of(cls, **indices: Iterable[Mode]) -> Map:
        return cls.from_digits(indices)

    @classmethod
    def from_digits(cls, indices: Mapping[str, Iterable[Mode]]) -> Map:
        """A map from its digits by index; digits of one value are left out."""
        return cls(tuple((name, tuple(mode for mode in modes if mode.size != 1)) for name, modes in indices.items()))

    # -- what it is --------------------------------------------------------------------------------

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.digits)

    @property
    def axes(self) -> tuple[str, ...]:
        """The coordinates, in the order of the digits that move them."""
        return tuple(dict.fromkeys(mode.axis for mode in self.all_modes() if mode.axis))

    def modes(self, index: str) -> Modes:
        """Digits of an index; none if the map does not have it (it then has one value)."""
        return next((modes for name, modes in self.digits if name == index), ())

    def all_modes(self) -> Modes:
        return tuple(mode for _, modes in self.digits for mode in modes)

    def size(self, index: str) -> int:
        """Values of an index."""
        return prod(mode.size for mode in self.modes(index))

    def extent(self, axis: str) -> int:
        """One more than the largest coordinate reached along an axis."""
        return 1 + sum((mode.size - 1) * mode.stride for mode in self.all_modes() if mode.axis == axis)

    def extents(self) -> dict[str, int]:
        return {axis: self.extent(axis) for axis in self.axes}

    def __call__(self, **values: int) -> dict[str, int]:
        """Coordinates at these values of the indices; an index that is not given is 0."""
        found = dict.fromkeys(self.axes, 0)
        for name, modes in self.digits:
            for mode, digit in zip(modes, digits_of(values.get(name, 0), modes), strict=True):
                if mode.axis:
                    found[mode.axis] += digit * mode.stride
        return found

    def everywhere(self) -> Iterator[tuple[dict[str, int], dict[str, int]]]:
        """All values of the indices, with their coordinates: the map by enumeration, for tests."""
        for values in product(*(range(self.size(name)) for name in self.indices)):
            given = dict(zip(self.indices, values, strict=True))
            yield given, self(**given)

    # -- when two are the same ---------------------------------------------------------------------

    def normal(self) -> Map:
        """The same function in the fewest digits."""
        return Map(tuple((name, joined(modes)) for name, modes in sorted(self.digits) if joined(modes)))

    def same_as(self, other: Map) -> bool:
        """Whether both are the same function: every value of every index gives the same coordinates."""
        return self.normal() == other.normal()

    def same_threads(self, other: Map, relabelled: str = "register") -> bool:
        """Whether every thread holds the same elements, in whatever register: both are the same function up to the
        order of the digits of the index `relabelled`. Digits of a map may not overlap (LayoutError)."""
        for each in (self, other):
            each.check_disjoint()
        mine, theirs = self.without(relabelled), other.without(relabelled)
        return mine.same_as(theirs) and ordered(self.modes(relabelled)) == ordered(other.modes(relabelled))

    def check_disjoint(self) -> None:
        """LayoutError if two digits of one axis carry into each other."""
        clash = overlap(self.all_modes())
        if clash is not None:
            raise LayoutError(f"digits {clash[0]} and {clash[1]} of one coordinate carry into each other")

    @property
    def has_copies(self) -> bool:
        """Whether different values of the indices give the same coordinates by design (digits that move nothing)."""
        return any(not mode.axis for mode in self.all_modes())

    # -- the algebra -------------------------------------------------------------------------------

    def then(self, outer: Map) -> Map:
        """Composition: first this map, then `outer`, whose indices are this map's coordinates.

        Where `outer` writes a coordinate in one digit it is linear, and any sum of strides goes through. Where it
        writes it in several, this map's digits are cut where those meet; LayoutError if they cannot be, or carry, or
        reach past what `outer` takes."""
        return Map(tuple((name, tuple(self._through(modes, outer))) for name, modes in self.digits))

    def _through(self, modes: Modes, outer: Map) -> Iterator[Mode]:
        for mode in modes:
            if not mode.axis:
                yield mode
                continue
            if mode.axis not in outer.indices:
                raise LayoutError(f"coordinate '{mode.axis}' is no index of the next map ({', '.join(outer.indices)})")
            target = joined(outer.modes(mode.axis))
            self._check_fits(mode.axis, target)
            bounds = _place_values(target)
            pieces = (mode,) if len(target) <= 1 else cut_all((mode,), bounds[1:-1], mode.axis)
            for piece in pieces:
                yield _apply(piece, target, bounds)

    def _check_fits(self, axis: str, target: Modes) -> None:
        size = prod(mode.size for mode in target)
        if self.extent(axis) > size:
            raise LayoutError(f"coordinate '{axis}' reaches {self.extent(axis)}, the next map takes {size}")
        if len(target) > 1 and overlap(mode for mode in self.all_modes() if mode.axis == axis) is not None:
            raise LayoutError(f"digits of '{axis}' carry into each other, and the next map is not linear in it")

    def inverse(self) -> Map:
        """From coordinates to the indices that hold them, the first where there are copies: composed with this map it
        is the identity of the coordinates. LayoutError if a coordinate is held nowhere, or by two digits."""
        found: dict[str, list[tuple[int, Mode]]] = {axis: [] for axis in self.axes}
        for name, modes in self.digits:
            place = 1
            for mode in reversed(modes):
                if mode.axis:
                    found[mode.axis].append((mode.stride, Mode(name, mode.size, place)))
                place *= mode.size
        return Map(tuple((axis, _compact(axis, digits)) for axis, digits in found.items()))

    def slice(self, axes: Iterable[str], drop: Iterable[str] = ("register",)) -> Map:
        """What is left of the coordinates `axes`: digits of others become copies, or vanish from the indices `drop`."""
        kept, gone = set(axes), set(drop)

        def left(name: str, mode: Mode) -> Iterator[Mode]:
            if mode.axis in kept:
                yield mode
            elif name not in gone:
                yield Mode("", mode.size, 0)

        return Map(
            tuple((name, tuple(new for mode in modes for new in left(name, mode))) for name, modes in self.digits)
        )

    def without(self, *names: str) -> Map:
        """The map with these indices held at 0."""
        return Map(tuple((name, modes) for name, modes in self.digits if name not in names))

    def renamed(self, axes: Mapping[str, str]) -> Map:
        """The same map with coordinates of other names."""

        def new(mode: Mode) -> Mode:
            return Mode(axes.get(mode.axis, mode.axis), mode.size, mode.stride)

        return Map(tuple((name, tuple(map(new, modes))) for name, modes in self.digits))

    def beside(self, other: Map) -> Map:
        """Concatenation: every index has the digits of both, those of `other` slower, and coordinates add."""
        names = dict.fromkeys((*self.indices, *other.indices))
        return Map(tuple((name, (*other.modes(name), *self.modes(name))) for name in names))

    def tiled(self, by: Map, tile: Mapping[str, int] | None = None) -> Map:
        """Product: this map repeated as `by` says, one step of `by` being one `tile` (this map's extents, unless
        given)."""
        sizes = self.extents() | dict(tile or {})

        def step(mode: Mode) -> Mode:
            return Mode(mode.axis, mode.size, mode.stride * sizes.get(mode.axis, 1))

        return self.beside(Map(tuple((name, tuple(map(step, modes))) for name, modes in by.digits)))

    def divide(self, tile: Mapping[str, int]) -> tuple[Map, Map]:
        """Division by a tile: the map within a tile, and the map of tiles, counted in tiles. `tiled` puts them together
        again, up to the order of the digits of an index (LayoutError if a digit lies across the edge of a tile)."""
        inside: list[tuple[str, Modes]] = []
        across: list[tuple[str, Modes]] = []
        for name, modes in self.digits:
            pieces = modes
            for axis, size in tile.items():
                pieces = cut_all(pieces, (size,), axis)
            far = [mode for mode in pieces if mode.axis in tile and mode.stride >= tile[mode.axis]]
            near = tuple(mode for mode in pieces if mode not in far)
            for mode in far:
                if mode.stride % tile[mode.axis]:
                    raise LayoutError(f"digit {mode} does not step over whole tiles of {tile[mode.axis]}")
            across.append((name, tuple(Mode(m.axis, m.size, m.stride // tile[m.axis]) for m in far)))
            inside.append((name, near))
        return Map(tuple(inside)), Map(tuple(across))


def refine(left: Map, right: Map) -> tuple[Map, Map]:
    """Both maps with every digit cut wherever a digit of either begins or ends along the same axis, so that a digit of
    one is a whole digit of the other (LayoutError if one cannot be cut there)."""
    for axis in dict.fromkeys((*left.axes, *right.axes)):
        marks = places(left.all_modes(), axis) | places(right.all_modes(), axis)
        left, right = (
            Map(tuple((name, cut_all(modes, marks, axis)) for name, modes in each.digits)) for each in (left, right)
        )
    return left, right


def _place_values(modes: Modes) -> tuple[int, ...]:
    """Where each digit of an index begins, from the fastest, and where the last ends."""
    values = [1]
    for mode in reversed(modes):
        values.append(values[-1] * mode.size)
    return tuple(values)


def _apply(piece: Mode, target: Modes, bounds: tuple[int, ...]) -> Mode:
    """A digit of a coordinate, as a digit of what the coordinate's own digit moves."""
    if len(target) == 1:
        return Mode(target[0].axis, piece.size, piece.stride * target[0].stride)
    position = max(i for i, bound in enumerate(bounds[:-1]) if bound <= piece.stride)
    if piece.stride % bounds[position]:
        raise LayoutError(f"digit {piece} lies across digits of the next map")
    mode = target[len(target) - 1 - position]
    if not mode.axis:
        return Mode("", piece.size, 0)
    return Mode(mode.axis, piece.size, piece.stride // bounds[position] * mode.stride)


def _compact(axis: str, digits: list[tuple[int, Mode]]) -> Modes:
    """The digits of a coordinate, the slowest first, if they number it without gaps."""
    digits.sort(key=lambda digit: digit[0])
    reached = 1
    for stride, mode in digits:
        if stride != reached:
            what = "is held nowhere" if stride > reached else "is held twice"
            raise LayoutError(f"no inverse: coordinate {reached if stride > reached else stride} of '{axis}' {what}")
        reached *= mode.size
    return tuple(mode for _, mode in reversed(digits))
