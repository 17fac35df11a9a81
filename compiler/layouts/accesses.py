"""Accesses: which elements each lane moves in each instruction of a warp, to shared or device memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from treadle.compiler.layouts.digits import LayoutError, cut
from treadle.compiler.layouts.fragments import INDICES, fragment
from treadle.compiler.layouts.maps import Map
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode, digits_of

Request = tuple[int, ...]
"""What the lanes of one instruction are given: a number (an address, say) for each active lane."""


@dataclass(frozen=True)
class Access:
    """`width` neighbours along `axis`, from the coordinates that `places` gives, by each lane in each instruction.

    The indices of `places` are register, lane and warp, one instruction for each register and warp; or `item`, whose
    values are dealt to the lanes of one warp after another, 32 an instruction. With `once`, of lanes that hold copies
    only the first takes part."""

    places: Map
    axis: str | None
    width: int = 1
    once: bool = False

    @property
    def count(self) -> int:
        """Elements moved, by all lanes of all instructions, copies included."""
        return self.width * prod(self.places.size(name) for name in self.places.indices)

    @property
    def is_dealt(self) -> bool:
        return self.places.indices == ("item",)

    def requests(self, strides: Mapping[str, int]) -> Iterator[Request]:
        """For each instruction and active lane, the sum over the axes of coordinate times stride: offsets, in the unit
        of the strides. A coordinate without a stride counts for nothing."""
        if self.is_dealt:
            every = _table(self.places.modes("item"), strides)
            for first in range(0, len(every), LANES):
                yield tuple(every[first : first + LANES])
            return
        every = _table(self.places.modes("lane"), strides)
        lanes = [every[lane] for lane in self.lanes]
        warps = self.places.modes("warp")
        for warp in _table([mode for mode in warps if mode.axis] if self.once else warps, strides):
            for register in _table(self.places.modes("register"), strides):
                yield tuple(warp + register + lane for lane in lanes)

    @cached_property
    def lanes(self) -> tuple[int, ...]:
        """The lanes that take part, in the order in which `requests` gives them."""
        modes = self.places.modes("lane")
        count = LANES if self.is_dealt else self.places.size("lane")
        return tuple(lane for lane in range(count) if not self.once or is_first_copy(modes, lane))

    def coordinates(self, axes: Sequence[str]) -> Iterator[tuple[tuple[int, ...], ...]]:
        """For each instruction and active lane, the coordinates along these axes of the first element."""
        columns = [self.requests({axis: 1}) for axis in axes]
        for request in zip(*columns, strict=True):
            yield tuple(zip(*request, strict=True))


def is_first_copy(modes: Sequence[Mode], index: int) -> bool:
    """Whether all digits of the index that move nothing are 0."""
    return all(mode.axis or digit == 0 for mode, digit in zip(modes, digits_of(index, modes), strict=True))


def _table(modes: Sequence[Mode], strides: Mapping[str, int]) -> list[int]:
    """Offset for each value of an index."""
    found = [0]
    for mode in modes:
        step = mode.stride * strides.get(mode.axis, 0)
        found = [offset + digit * step for offset in found for digit in range(mode.size)]
    return found


# -- the accesses that kernels make ---------------------------------------------------------------


def row_copy(extents: Mapping[str, int], width: int) -> Access:
    """A tile by vectors of neighbours, consecutive vectors of a row-major tile to consecutive threads, as `cuda.copy`
    is printed; the last axis of more than one element is the row (LayoutError if the width does not divide it)."""
    wide = {axis: extent for axis, extent in extents.items() if extent != 1}
    axis = next(reversed(wide), None)
    if axis is not None and wide[axis] % width:
        raise LayoutError(f"vectors of {width} do not fill rows of {wide[axis]}")
    modes = [
        Mode(name, extent // width, width) if name == axis else Mode(name, extent, 1) for name, extent in wide.items()
    ]
    return Access(Map.of(item=modes), axis, width)


def fragment_access(layout: LayoutAttr, axis: str | None, width: int = 1, once: bool = False) -> Access:
    """A fragment by vectors of registers that are neighbours along an axis (LayoutError if its registers do not come in
    such vectors)."""
    places = fragment(layout)
    if width == 1:
        return Access(places, axis, 1, once)
    return Access(without_vector(places, axis or "", width), axis, width, once)


def without_vector(places: Map, axis: str, width: int) -> Map:
    """A map of registers, lanes and warps without the fastest registers, `width` neighbours along the axis."""
    *slow, last = (*places.modes("register"), Mode("", 1, 0))[: len(places.modes("register")) or 1]
    if (last.axis, last.stride) != (axis, 1) or last.size % width:
        raise LayoutError(f"the registers of {places.modes('register')} are no vectors of {width} along '{axis}'")
    rest = cut(last, width)[:-1] if last.size > width else ()
    return Map.of(register=(*slow, *rest), lane=places.modes("lane"), warp=places.modes("warp"))


def matrix_rows(rows: str, columns: str, extents: Mapping[str, int], element_bytes: int) -> Access:
    """What `ldmatrix` reads from a tile, plain or transposed: eight neighbouring rows of memory, one chunk of each, all
    such matrices of the tile one after another. (`.trans` changes which lane gets an element, not what is read.)"""
    chunk = 16 // element_bytes
    places = Map.of(
        item=(
            Mode(columns, -(-extents[columns] // chunk), chunk),
            Mode(rows, extents[rows], 1),
        )
    )
    return Access(places, columns, chunk)


def right_tf32(columns: str, depth: str, extents: Mapping[str, int], axis: str) -> Access:
    """What lanes read as right operand of `mma.m16n8k8` with tf32 (PTX ISA 9.7.14.5.7): column lane / 4, depth lane %
    4, one element each; `axis` is the one along the rows of memory."""
    places = Map.of(
        register=(Mode(columns, -(-extents[columns] // 8), 8), Mode(depth, -(-extents[depth] // 4), 4)),
        lane=(Mode(columns, 8, 1), Mode(depth, 4, 1)),
        warp=(),
    )
    return Access(places, axis, 1)


def lanes_of(places: Map, warp: int, register: int) -> tuple[dict[str, int], ...]:
    """Coordinates of each lane in one instruction, for tests and pictures."""
    return tuple(places(register=register, lane=lane, warp=warp) for lane in range(LANES))


def copies(places: Map) -> int:
    """How many threads hold each element."""
    return prod(mode.size for name in INDICES[1:] for mode in places.modes(name) if not mode.axis)
