"""Tiles in shared memory: coordinates -> offset, with padding or an XOR swizzle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

from treadle.compiler.layouts.bits import BitMatrix
from treadle.compiler.layouts.digits import LayoutError
from treadle.dialects.cuda.layout import RowsAttr

CHUNK_BYTES = 16
"""What one lane moves at most, and what a swizzle moves as one."""
BANKS = 32
BANK_BYTES = 4
PERIOD_BYTES = BANKS * BANK_BYTES
"""Addresses so far apart lie in the same bank."""


@dataclass(frozen=True)
class Tile:
    """A tile in shared memory: a `#cuda.rows` with the names of its axes and the bytes of an element."""

    axes: tuple[str, ...]
    rows: RowsAttr
    element_bytes: int

    @property
    def chunk(self) -> int:
        """Elements in 16 bytes."""
        return CHUNK_BYTES // self.element_bytes

    @property
    def extents(self) -> dict[str, int]:
        return dict(zip(self.axes, self.rows.shape, strict=True))

    @property
    def bytes(self) -> int:
        """Bytes that the tile takes, padding included."""
        return self.rows.elements * self.element_bytes

    @property
    def row_axis(self) -> str | None:
        """The axis along which elements are neighbours."""
        return None if self.rows.row_axis is None else self.axes[self.rows.row_axis]

    def row_and_column(self, coordinates: Mapping[str, int]) -> tuple[int, int]:
        """The row in which an element lies, and where in it."""
        row = sum(
            coordinates.get(axis, 0) * stride for axis, stride in zip(self.axes, self.rows.row_strides, strict=True)
        )
        return row, 0 if self.row_axis is None else coordinates.get(self.row_axis, 0)

    def offset(self, coordinates: Mapping[str, int]) -> int:
        """Elements from the beginning of the tile to an element; an axis that is not given is at 0."""
        return self.rows.offset([coordinates.get(axis, 0) for axis in self.axes], self.chunk)

    def address(self, coordinates: Mapping[str, int]) -> int:
        """Bytes from the beginning of the tile to an element."""
        return self.offset(coordinates) * self.element_bytes

    @property
    def is_binary(self) -> bool:
        """Whether the address is linear over bits: extents and pitch are powers of two."""
        return all(extent & (extent - 1) == 0 for extent in self.rows.shape) and _is_power(self.rows.pitch.data)

    def place(self) -> dict[str, int]:
        """For `bits.matrix`: where the bits of each coordinate lie in the input of `matrix`, elements lowest."""
        found: dict[str, int] = {}
        below = 0
        order = sorted(self.axes, key=lambda axis: axis != self.row_axis)
        strides = dict(zip(self.axes, self.rows.row_strides, strict=True))
        order = order[:1] + sorted(order[1:], key=lambda axis: strides[axis])
        for axis in order:
            found[axis] = below
            below += (self.extents[axis] - 1).bit_length()
        return found

    def matrix(self) -> BitMatrix:
        """From the bits of the coordinates, at `place`, to the bits of the byte address: the swizzle is in it
        (LayoutError if `is_binary` does not hold)."""
        if not self.is_binary:
            raise LayoutError(f"tile {self.rows} has no matrix of bits: an extent or its pitch is no power of two")
        bits = (prod(self.rows.shape) - 1).bit_length()
        place = self.place()

        def coordinates(word: int) -> dict[str, int]:
            return {axis: word >> place[axis] & (extent - 1) for axis, extent in self.extents.items()}

        return BitMatrix(tuple(self.address(coordinates(1 << i)) for i in range(bits)))


def _is_power(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def natural_swizzle(row_chunks: int) -> tuple[int, int] | None:
    """`(bits, shift)` such that one chunk of eight neighbouring rows lies in eight different groups of four banks, for
    rows of so many chunks without padding; None if none is needed.

    Let 2^v be the largest power of two, at most 8, that divides the chunks of a row. Chunk c of row r begins at group
    (r chunks + c) mod 8, which takes 8 / 2^v values, all equal to c mod 2^v, and returns every 8 / 2^v rows. XOR of
    the lowest v bits with the number of returns, r >> (3 - v), separates those, and stays within the row because 2^v
    divides its chunks. For rows of 8 chunks this is CUTLASS's `Swizzle<3, 3, 3>`, for 4 `Swizzle<2, 3, 3>`."""
    v = min((row_chunks & -row_chunks).bit_length() - 1, 3)
    return (v, 3 - v) if v else None


def tile_rows(extents: Iterable[int], element_bytes: int, pad: int = 0, swizzle: Iterable[int] = ()) -> RowsAttr:
    """A tile whose rows are filled up to whole chunks, then padded by `pad` chunks."""
    shape = tuple(extents)
    chunk = CHUNK_BYTES // element_bytes
    return RowsAttr(shape, (row_chunks_of(shape, element_bytes) + pad) * chunk, swizzle)


def row_chunks_of(extents: Iterable[int], element_bytes: int) -> int:
    """Chunks that a row takes without padding."""
    row = next((extent for extent in reversed(tuple(extents)) if extent != 1), 1)
    return -(-row * element_bytes // CHUNK_BYTES)
