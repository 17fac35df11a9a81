"""What the types of `cuda` say: buffers, tiles in shared memory, fragments; and checks of them."""

from __future__ import annotations

from operator import le

from xdsl.dialects.builtin import (
    MemRefType,
)
from xdsl.ir import Attribute
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.boxes import SPANS, BoxesAttr
from treadle.dialects.cuda.layout import LayoutAttr, RowsAttr
from treadle.dialects.diagram.array import (
    axes_of,
    encoding_of,
    format_of,
    level_of,
    sizes_of,
)
from treadle.dialects.diagram.formats import number_format


def layout_of(type: Attribute) -> LayoutAttr:
    """The layout of a fragment (VerifyException if it has none)."""
    layout = encoding_of(type).layout
    if not isinstance(layout, LayoutAttr):
        raise VerifyException(f"{type} is not a fragment: it has no #cuda.layout")
    return layout


def rows_of(type: Attribute) -> RowsAttr:
    """The layout of a tile in shared memory (VerifyException if it has none)."""
    layout = encoding_of(type).layout
    if not isinstance(layout, RowsAttr):
        raise VerifyException(f"{type} is not a tile in shared memory: it has no #cuda.rows")
    return layout


def boxes_of(type: Attribute) -> BoxesAttr:
    """The layout of a tile for tensor copies (VerifyException if it has none)."""
    layout = encoding_of(type).layout
    if not isinstance(layout, BoxesAttr):
        raise VerifyException(f"{type} is not a tile for tensor copies: it has no #cuda.boxes")
    return layout


def is_boxed(type: Attribute) -> bool:
    """Whether a tile lies in shared memory as tensor copies bring it."""
    return is_shared(type) and isinstance(encoding_of(type).layout, BoxesAttr)


def is_fragment(type: Attribute) -> bool:
    return isinstance(encoding_of(type).layout, LayoutAttr)


def is_buffer(type: Attribute) -> bool:
    return isinstance(type, MemRefType)


def is_shared(type: Attribute) -> bool:
    return is_buffer(type) and level_of(type) == "shared"


def check_fragment(type: Attribute, what: str) -> None:
    if not is_fragment(type):
        raise VerifyException(f"{what} is {type}: expected a fragment, a tensor with a #cuda.layout")
    layout, sizes = layout_of(type), sizes_of(type)
    for axis in layout.axes():
        if axis not in sizes:
            raise VerifyException(f"{what} has no axis '{axis}', along which its layout spreads it")
    for axis, size in sizes.items():
        if layout.extent(axis) < size:
            raise VerifyException(
                f"{what} has {size} elements along '{axis}', but its layout reaches only {layout.extent(axis)}"
            )


def check_tile(type: Attribute, what: str) -> None:
    if not is_shared(type):
        raise VerifyException(f"{what} is {type}: expected a tile in shared memory")
    if isinstance(encoding_of(type).layout, BoxesAttr):
        return _check_boxes(type, what)
    rows, sizes = rows_of(type), sizes_of(type)
    if len(rows.shape) != len(sizes):
        raise VerifyException(f"{what} has {len(sizes)} axes, its #cuda.rows {len(rows.shape)}")
    for (axis, size), extent in zip(sizes.items(), rows.shape, strict=True):
        if extent < size:
            raise VerifyException(f"{what} has {size} elements along '{axis}', but its #cuda.rows only {extent}")
    if rows.row_axis is not None and rows.pitch.data < rows.shape[rows.row_axis]:
        raise VerifyException(f"rows of {rows.shape[rows.row_axis]} elements lie {rows.pitch.data} apart")
    if rows.swizzle_bits and rows.pitch.data % ((16 // format_bytes(type)) << rows.swizzle_bits):
        raise VerifyException(
            f"{what} is swizzled by {rows.swizzle_bits} bits, but a row of {rows.pitch.data} elements is no multiple "
            f"of {1 << rows.swizzle_bits} chunks of 16 bytes: its chunks would leave it"
        )


def _check_boxes(type: Attribute, what: str) -> None:
    boxes, sizes = boxes_of(type), tuple(sizes_of(type).values())
    is_within = len(sizes) == len(boxes.shape) and all(map(le, sizes, boxes.shape))
    if not is_within:
        raise VerifyException(f"{what} has {sizes} elements, its #cuda.boxes {boxes.shape}")
    if boxes.span.data * format_bytes(type) not in SPANS:
        raise VerifyException(
            f"{what} has rows of {boxes.span.data * format_bytes(type)} bytes in its boxes: 32, 64 or 128"
        )


def extents_of(type: Attribute) -> tuple[int, ...]:
    """The elements of a tile in shared memory along each axis, those that only pad it included."""
    return boxes_of(type).shape if is_boxed(type) else rows_of(type).shape


def padded_axes(type: Attribute) -> tuple[str, ...]:
    """The axes along which a tile in shared memory reaches further than it has elements."""
    sizes = sizes_of(type)
    return tuple(axis for axis, extent in zip(sizes, extents_of(type), strict=True) if extent > sizes[axis])


WORD = 4
"""Bytes of a number at least, for lanes to copy it by itself (PTX ISA 9.7.9.25.3.1, `cp.async`)."""


def is_line(type: Attribute) -> bool:
    """Whether a tile in rows is one line, such as a number for each column of a product, or one number: lanes copy them
    one by one, with no alignment but that of a number, and the whole tile is little. Narrower ones than words they load
    and store."""
    if not is_shared(type) or is_boxed(type):
        return False
    return sum(extent != 1 for extent in rows_of(type).shape) <= 1


def lies_along(type: Attribute, axis: str) -> bool:
    """Whether elements along the axis are neighbours in a tile."""
    if is_boxed(type):
        return axes_of(type)[-1:] == (axis,)
    rows = rows_of(type)
    return rows.row_axis is not None and axes_of(type)[rows.row_axis] == axis


def format_bytes(type: Attribute) -> int:
    """Bytes of an element."""
    return number_format(format_of(type)).bytes


def tile_bytes(type: Attribute) -> int:
    """Bytes that a tile takes in shared memory, a multiple of 128, or of 1024 where it lies in boxes."""
    boxed = is_boxed(type)
    elements = boxes_of(type).elements if boxed else rows_of(type).elements
    unit = 1024 if boxed else 128
    return -(-elements * format_bytes(type) // unit) * unit
