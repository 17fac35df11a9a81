"""The linear view: where every digit has a power of two of values, a layout is a matrix over GF(2).

The bits of the indices go in, the bits of the coordinates come out, and addition without carry is XOR; so is the
swizzle of a tile, which strides cannot say. Rank, kernel and image then answer for all addresses at once what would
otherwise have to be enumerated: how many lanes hold copies (kernel), which addresses are reached (image), how many
wavefronts an access takes (the rank that the bank bits lose, see `conflicts`). This is the view of Triton's linear
layouts (arXiv 2505.23819); digits with strides also cover sizes that are no powers of two, so both are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from treadle.compiler.layouts.digits import LayoutError
from treadle.compiler.layouts.maps import Map


@dataclass(frozen=True)
class BitMatrix:
    """A matrix over GF(2): `columns[i]` is what input bit i gives, its bits packed in an integer."""

    columns: tuple[int, ...]

    def __call__(self, bits: int) -> int:
        """The output bits of these input bits."""
        found = 0
        for i, column in enumerate(self.columns):
            if bits >> i & 1:
                found ^= column
        return found

    def then(self, outer: BitMatrix) -> BitMatrix:
        """The product `outer * self`: first this, then `outer` (LayoutError if it takes fewer bits than come)."""
        if any(column >> len(outer.columns) for column in self.columns):
            raise LayoutError(f"a matrix of {len(outer.columns)} input bits is given more")
        return BitMatrix(tuple(outer(column) for column in self.columns))

    def masked(self, mask: int) -> BitMatrix:
        """Only these output bits."""
        return BitMatrix(tuple(column & mask for column in self.columns))

    def image(self) -> tuple[int, ...]:
        """A basis of the outputs that are reached, each with a leading bit of its own."""
        basis: list[int] = []
        for column in self.columns:
            rest = _reduce(column, basis)
            if rest:
                basis.append(rest)
        return tuple(basis)

    def rank(self) -> int:
        return len(self.image())

    def kernel(self) -> tuple[int, ...]:
        """A basis of the inputs that give 0: the copies."""
        basis: list[tuple[int, int]] = []
        found: list[int] = []
        for i, column in enumerate(self.columns):
            value, made_of = column, 1 << i
            for other, other_made_of in basis:
                if value ^ other < value:
                    value, made_of = value ^ other, made_of ^ other_made_of
            if value:
                basis.append((value, made_of))
                basis.sort(reverse=True)
            else:
                found.append(made_of)
        return tuple(found)

    def inverse(self) -> BitMatrix:
        """The matrix that undoes this one (LayoutError if it is not square and of full rank)."""
        size = len(self.columns)
        if self.rank() != size or any(column >> size for column in self.columns):
            raise LayoutError(f"a matrix of {size} input bits and rank {self.rank()} has no inverse")
        rows = [(column, 1 << i) for i, column in enumerate(self.columns)]
        for bit in range(size):
            pivot = next(i for i in range(bit, size) if rows[i][0] >> bit & 1)
            rows[bit], rows[pivot] = rows[pivot], rows[bit]
            value, made_of = rows[bit]
            rows = [(v ^ value, m ^ made_of) if i != bit and v >> bit & 1 else (v, m) for i, (v, m) in enumerate(rows)]
        return BitMatrix(tuple(made_of for _, made_of in rows))


def identity(bits: int) -> BitMatrix:
    return BitMatrix(tuple(1 << i for i in range(bits)))


def _reduce(value: int, basis: Sequence[int]) -> int:
    for other in sorted(basis, reverse=True):
        value = min(value, value ^ other)
    return value


def is_binary(map: Map) -> bool:
    """Whether the matrix of a map exists: every size and stride is a power of two, and no sum of digits carries."""
    moving = [mode for mode in map.all_modes() if mode.axis]
    if any(mode.size & (mode.size - 1) for mode in map.all_modes()):
        return False
    taken = dict.fromkeys(map.axes, 0)
    for mode in moving:
        bits = (mode.size - 1) * mode.stride
        if mode.stride & (mode.stride - 1) or taken[mode.axis] & bits:
            return False
        taken[mode.axis] |= bits
    return True


def matrix(map: Map, indices: Sequence[str], place: Mapping[str, int]) -> BitMatrix:
    """The matrix of a map: the bits of `indices` go in, those of the first lowest; the bits of coordinate `axis` come
    out from bit `place[axis]` on (LayoutError if `is_binary` does not hold; axes without a place are left out)."""
    if not is_binary(map):
        raise LayoutError("a map with digits that are no powers of two, or that carry, has no matrix of bits")
    columns: list[int] = []
    for name in indices:
        for mode in reversed(map.modes(name)):
            step = 1
            while step < mode.size:
                columns.append((step * mode.stride) << place[mode.axis] if mode.axis in place else 0)
                step *= 2
    return BitMatrix(tuple(columns))


def places_of(map: Map) -> dict[str, int]:
    """A place for each coordinate of a map, one above another."""
    found: dict[str, int] = {}
    below = 0
    for axis in map.axes:
        found[axis] = below
        below += (map.extent(axis) - 1).bit_length()
    return found
