"""Fragments as maps: (register, lane, warp) -> coordinates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from treadle.compiler.layouts.digits import LayoutError, Term, digit_of
from treadle.compiler.layouts.maps import Map
from treadle.dialects.cuda.layout import LayoutAttr, Mode

INDICES = ("register", "lane", "warp")


def fragment(layout: LayoutAttr) -> Map:
    """The map of a fragment's layout."""
    return Map.of(register=layout.register, lane=layout.lane, warp=layout.warp)


def as_layout(map: Map) -> LayoutAttr:
    """The layout of a map of registers, lanes and warps (LayoutError if it has other indices)."""
    if strange := [name for name in map.indices if name not in INDICES]:
        raise LayoutError(f"a fragment has no index '{strange[0]}'")
    return LayoutAttr(*(map.modes(name) for name in INDICES))


def same_elements(left: LayoutAttr, right: LayoutAttr) -> bool:
    """Whether every thread holds the same elements under both layouts, in whatever registers: nothing need move."""
    return fragment(left).same_threads(fragment(right))


def meets(wide: LayoutAttr, narrow: LayoutAttr) -> bool:
    """Whether every thread that holds an element of a tile in layout `wide` holds, in layout `narrow`, the element of a
    tile of fewer axes that it meets: what element-wise operations need of an operand that is spread along the rest."""
    axes = tuple(axis for axis in fragment(wide).axes if axis in narrow.axes())
    return fragment(wide).slice(axes).same_threads(fragment(narrow))


def register_digits(target: LayoutAttr, source: Iterable[Mode]) -> tuple[tuple[Term, ...], ...]:
    """For each register digit of `target`, how to find it from the register digits `source` of the same thread: what a
    printer writes in the brackets of an array whose digits are not those of the loops around it. LayoutError if a digit
    would have to be cut where it cannot be."""
    given = tuple(source)
    return tuple(digit_of(mode, given) for mode in target.register)


def holders(layout: LayoutAttr) -> Map:
    """Where each element is held: coordinates -> (register, lane, warp), the first of its copies (LayoutError if the
    layout leaves elements out)."""
    return fragment(layout).inverse()


def place_of(layout: LayoutAttr, coordinates: Mapping[str, int]) -> dict[str, int]:
    """The register (its digits counted as one index), lane and warp that hold an element."""
    return dict.fromkeys(INDICES, 0) | holders(layout)(**coordinates)


# -- what instructions are made of ----------------------------------------------------------------


def accumulator_atom(rows: str, columns: str) -> Map:
    """One accumulator of `mma.m16n8` (PTX ISA 9.7.14.5.8), 16 x 8 elements of 32 bits, four a lane."""
    return Map.of(
        register=(Mode(rows, 2, 8), Mode(columns, 2, 1)),
        lane=(Mode(rows, 8, 1), Mode(columns, 4, 2)),
    )


def left_atom(rows: str, depth: str) -> Map:
    """One left operand of `mma.m16n8k16` (PTX ISA 9.7.14.5.8), 16 x 16 elements of 16 bits, eight a lane."""
    return Map.of(
        register=(Mode(depth, 2, 8), Mode(rows, 2, 8), Mode(depth, 2, 1)),
        lane=(Mode(rows, 8, 1), Mode(depth, 4, 2)),
    )


def right_atom(depth: str, columns: str) -> Map:
    """One right operand of `mma.m16n8k16` (PTX ISA 9.7.14.5.8), 16 x 8 elements of 16 bits, four a lane."""
    return Map.of(
        register=(Mode(depth, 2, 8), Mode(depth, 2, 1)),
        lane=(Mode(columns, 8, 1), Mode(depth, 4, 2)),
    )
