"""Accesses of the `cuda` dialect, as the algebra sees them."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd, prod

from xdsl.ir import Attribute

from treadle.compiler.layouts.accesses import Access, fragment_access
from treadle.compiler.layouts.box_order import box_order, is_ordered
from treadle.compiler.layouts.copies import copy_access, line_span
from treadle.compiler.layouts.digits import cut
from treadle.compiler.layouts.fragments import fragment
from treadle.compiler.layouts.order import sector_requests
from treadle.compiler.layouts.run_order import RunOrder, Runs, in_order, runs_of
from treadle.compiler.layouts.sectors import SECTOR_BYTES, Traffic, dense_strides, traffic, traffic_of_requests
from treadle.compiler.layouts.vectors import MOST_BYTES, widest_copy, widest_fragment, widest_in_memory
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess, is_extent
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode
from treadle.dialects.cuda.tiles import extents_of, format_bytes, is_boxed, is_line, layout_of, rows_of
from treadle.dialects.cuda.transfers import IN_VECTORS
from treadle.dialects.diagram.array import DYNAMIC, axes_of, shape_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.place import axes_of_forms

ASSUMED_SIZE = 4096
"""Size of a symbolic axis where traffic must be told before launch: its rows then begin at whole lines."""

APART = 1 << 40
"""Elements from one run of rows that data choose to the next: none shares a sector with another."""


def widest(op: GlobalAccess, most_bytes: int = 16) -> int:
    """The most neighbours of a row that every thread can move at once, if rows are aligned to them: they divide the
    piece (so that none crosses its end, and pieces begin at multiples), and are neighbours where they come from. One if
    the row may end anywhere, or is all: a line of words is one turn of a block, or a few of a warp, and where it begins
    is to make no other access narrower."""
    type = op.piece_type
    axes, bytes = axes_of(type), format_bytes(op.buffer_type)
    of_words = is_line(type) and IN_VECTORS not in op.attributes
    if not axes or ends_within_rows(op) or of_words or (op.place is not None and not has_rows(op)):
        return 1
    most = widest_in_memory([shape_of(type)[-1]], bytes, most_bytes)
    if isinstance(op, cuda.CopyOp):
        shape = extents_of(type)
        return min(most, widest_copy(shape)) if shape[-1] != 1 else 1
    return min(most, widest_fragment(fragment(layout_of(type)), axes[-1]))


def has_rows(op: GlobalAccess) -> bool:
    """Whether the elements of a scattered tile along its last axis are neighbours: the last position in the buffer goes
    along that axis, and no other does."""
    axes, forms = axes_of(op.piece_type), list(op.forms.values())
    return bool(axes) and forms[-1] == Linear({axes[-1]: 1}) and axes[-1] not in axes_of_forms(forms[:-1])


def span_of_rows(op: cuda.CopyOp, threads: int) -> int | None:
    """Of a copy of a scattered tile whose rows are whole sectors: neighbours that neighbouring threads take before they
    go down; None if it goes in the order of the tile."""
    if not has_rows(op) or is_one_request(op.tile.type):
        return None
    extents = zip(axes_of(op.tile.type), extents_of(op.tile.type), strict=True)
    wide = {axis: extent for axis, extent in extents if extent != 1}
    return line_span(wide, max(op.width_list, default=1), threads, format_bytes(op.buffer_type))


def ends_within_rows(op: GlobalAccess) -> bool:
    """Whether an access begins or ends along its rows where the array does not, at a position that the kernel finds: no
    alignment says of what that is a multiple."""
    sizes = sizes_of(op.piece_type)
    row = next((axis for axis in reversed(sizes) if sizes[axis] != 1), None)
    ends = zip(op.bound_axes, op.limits, strict=True)
    if row in axes_of_forms(form for form, _ in op.padding):
        return True
    return row in op.begun_axes or any(axis == row and not is_extent(limit) for axis, limit in ends)


def widest_in_tile(layout: LayoutAttr, tile: Attribute) -> int:
    """The most elements, at most 16 bytes, that every thread of a fragment moves at once from or to a tile in shared
    memory: neighbours in its registers and in the tile's rows, all of them in the tile or none."""
    rows = rows_of(tile)
    if rows.row_axis is None:
        return 1
    axis, extent = axes_of(tile)[rows.row_axis], rows.shape[rows.row_axis]
    most = widest_in_memory([rows.pitch.data, extent if layout.extent(axis) > extent else 0], format_bytes(tile))
    return min(most, widest_fragment(fragment(layout), axis))


def width_at(op: GlobalAccess, aligned: int) -> int:
    """Elements that an access moves at once in the variant for rows aligned to so many bytes: as many as they allow."""
    return min(max(op.width_list, default=1), max(aligned // format_bytes(op.buffer_type), 1))


def access_of(op: GlobalAccess, threads: int, aligned: int) -> Access:
    """What each lane moves in the variant for rows aligned to so many bytes, if it is not dealt by sectors there."""
    width = width_at(op, aligned)
    if isinstance(op, cuda.CopyOp) or op.is_staged(aligned):
        tile = dealt_tile(op)
        extents = dict(zip(axes_of(tile), extents_of(tile), strict=True))
        return copy_access(extents, width, threads, format_bytes(op.buffer_type))
    return held_access(op, threads, width)


def held_access(op: GlobalAccess, threads: int, width: int) -> Access:
    """What each lane moves of a fragment as its layout has it, so many elements at once."""
    axes = axes_of(op.piece_type)
    layout: LayoutAttr = _in_all_warps(layout_of(op.piece_type), threads)
    return fragment_access(layout, axes[-1] if axes else None, width, once=isinstance(op, cuda.StoreOp))


def _in_all_warps(layout: LayoutAttr, threads: int) -> LayoutAttr:
    """A layout of a fragment that all warps hold alike, where there are more of them than compute: before the roles of
    a block its producer's come, too."""
    if any(mode.axis for mode in layout.warp) or threads <= LANES * layout.warps:
        return layout
    return LayoutAttr(layout.register, layout.lane, [Mode("", threads // LANES, 0)])


def traffic_of(
    op: GlobalAccess,
    threads: int,
    aligned: int = SECTOR_BYTES,
    strides: Mapping[str, int] | None = None,
    base: int = 0,
    limits: Mapping[str, int] | None = None,
) -> Traffic:
    """The sectors and lines of one execution of an access by a block of so many threads, in the variant of its kernel
    for rows aligned to so many bytes.

    `strides` of the buffer in elements: unless given, those of a dense array, in which symbolic sizes are taken as a
    multiple of a line. `base` is the byte address of the piece's first element; elements at or past `limits` along an
    axis (counted from the beginning of the piece) are outside."""
    type, bytes = op.piece_type, format_bytes(op.buffer_type)
    inside = {axis: min(size, (limits or {}).get(axis, size)) for axis, size in sizes_of(type).items()}
    steps = strides if strides is not None else strides_of(op)
    if is_dealt_by_sectors(op, aligned):
        width = width_at(op, aligned)
        counts = {axis: max(inside[axis], 0) for axis in dealt_axes(dealt_tile(op))}
        if not all(inside.values()):
            return traffic_of_requests((), bytes)
        requests = sector_requests(counts, steps, base // bytes, width, bytes)
        return traffic_of_requests((tuple(at * bytes for at in request) for request in requests), width * bytes, base)
    if (runs := dealt_runs(op, aligned)) is not None:
        return _traffic_of_runs(op, runs, aligned, steps, base, inside)
    if is_ordered(op):
        width = width_at(op, aligned)
        requests = box_order(op.piece_type, inside, steps, base // bytes, width).requests()
        return traffic_of_requests((tuple(at * bytes for at in request) for request in requests), width * bytes, base)
    return traffic(access_of(op, threads, aligned), steps, bytes, base, inside)


def _traffic_of_runs(
    op: GlobalAccess, runs: Runs, aligned: int, strides: Mapping[str, int], base: int, inside: Mapping[str, int]
) -> Traffic:
    """Of runs that begin as they would in order, but lie apart."""
    width, bytes, down = width_at(op, aligned), format_bytes(op.buffer_type), strides.get(runs.row, 0)
    has = inside[runs.row] if runs.row and runs.total == 1 else runs.rows, inside[runs.column]
    order = RunOrder(runs.rows, runs.columns, has, down, strides[runs.column], width, bytes)
    every = enumerate(in_order(runs, strides, inside))
    requests = order.requests([(number * APART + base // bytes + start, rows) for number, (start, rows) in every])
    return traffic_of_requests((tuple(at * bytes for at in request) for request in requests), width * bytes)


def is_dealt_by_sectors(op: GlobalAccess, aligned: int) -> bool:
    """Whether an access looks where in its sector each row begins: in variants for rows that begin anywhere, and where
    rows of the tile are no whole sectors or take no vectors of 16 bytes; of fragments, where they are staged."""
    return op.place is None and looks_at_sectors(op, aligned)


def dealt_runs(op: GlobalAccess, aligned: int) -> Runs | None:
    """The runs of an access to rows that lie where data say, if it looks where in its sector each of them begins: in
    the variants in which other accesses do."""
    if op.place is None:
        return None
    tile = dealt_tile(op)
    looks = aligned < SECTOR_BYTES and not is_ordered(op) if is_boxed(tile) else looks_at_sectors(op, aligned)
    return runs_of(op, tile) if looks else None


def looks_at_sectors(op: GlobalAccess, aligned: int) -> bool:
    """Whether the block looks where in its sector each row of a tile begins that is not in boxes, if it can."""
    if not (isinstance(op, cuda.CopyOp) or op.is_staged(aligned)):
        return False
    if is_one_request(tile := dealt_tile(op)) or is_boxed(tile):
        return False
    extents = extents_of(tile)
    whole = bool(extents) and extents[-1] != 1 and extents[-1] * format_bytes(op.buffer_type) % SECTOR_BYTES == 0
    return aligned < SECTOR_BYTES or not (whole and op.has_widest_vectors)


def is_one_request(tile: Attribute) -> bool:
    """Whether one request moves a tile, even element by element: it asks for no sector twice, wherever rows begin."""
    return prod(extents_of(tile)) <= LANES


def dealt_tile(op: GlobalAccess) -> Attribute:
    """The type of the tile in shared memory that an access is dealt to or from."""
    return op.piece_type if op.staged is None else op.staged.tile(op.piece_type)


def dealt_axes(tile: Attribute) -> list[str]:
    """The axes along which a tile has several elements, those that only pad it included; rows and columns last."""
    return [axis for axis, extent in zip(axes_of(tile), extents_of(tile), strict=True) if extent != 1]


def of_whole_sectors(layout: LayoutAttr, axis: str, element_bytes: int) -> LayoutAttr | None:
    """The layout in which a lane holds, of the elements that its neighbours and it have, so many that follow each other
    that they fill whole sectors: what comes next along the axis after theirs is in its registers, too. None if there is
    no such layout, or a lane would hold more than a vector."""
    *others, fast = tuple(layout.register) or (Mode("", 1, 0),)
    across = next((mode for mode in layout.lane if (mode.axis, mode.stride) == (axis, fast.size)), None)
    if (fast.axis, fast.stride) != (axis, 1) or across is None:
        return None
    reached = fast.size * across.size
    after = next((mode for mode in others if (mode.axis, mode.stride) == (axis, reached)), None)
    more, rest = divmod(SECTOR_BYTES, reached * element_bytes)
    wide = Mode(axis, fast.size * more, 1)
    if rest or more < 2 or after is None or after.size % more or wide.size * element_bytes > MOST_BYTES:
        return None
    fewer = Mode(axis, after.size // more, after.stride * more)
    register = [fewer if mode == after else mode for mode in others if mode != after or fewer.size > 1]
    # Lanes that are neighbours lie far apart: then each holds something that it wants, and the rest is its neighbour's.
    spread = Mode(axis, across.size, wide.size)
    apart = cut(spread, reached) if across.size % more == 0 else (spread,)
    lane = [each for mode in layout.lane for each in (reversed(apart) if mode == across else (mode,))]
    return LayoutAttr((*register, wide), lane, layout.warp)


def of_spread_copies(layout: LayoutAttr) -> LayoutAttr | None:
    """The layout in which lanes that held copies share out the registers: each keeps others of them. None if no lanes
    hold copies, or not of several registers."""
    register, lane, spread = list(layout.register), list[Mode](), list[Mode]()
    for mode in layout.lane:
        taken = [] if mode.axis else _spread(register, mode.size)
        lane += [Mode("", mode.size // prod(each.size for each in taken), 0), *taken] if taken else [mode]
        spread += taken
    if not spread:
        return None
    return LayoutAttr([mode for mode in register if mode.size > 1], lane, layout.warp)


def _spread(register: list[Mode], copies: int) -> list[Mode]:
    """Digits for so many copies, taken from registers, the fastest first."""
    found: list[Mode] = []
    for i, mode in reversed(list(enumerate(register))):
        count = gcd(copies, mode.size)
        if count > 1:
            found.insert(0, Mode(mode.axis, count, mode.stride))
            register[i] = Mode(mode.axis, mode.size // count, mode.stride * count)
            copies //= count
    return found


def access_cost(layout: LayoutAttr, buffer: Attribute, sizes: Mapping[str, int]) -> int:
    """What loading or storing fragments costs a warp: requests, and the lines that they reach into, as conversions are
    counted in instructions and wavefronts."""
    moved = _assumed(layout, buffer, sizes)
    return (moved.requests + moved.lines) // layout.warp.size


def is_fewest(layout: LayoutAttr, buffer: Attribute, sizes: Mapping[str, int]) -> bool:
    """Whether a fragment goes to a buffer in the fewest sectors, dense arrays assumed: by the widest vectors that its
    registers have and rows of known size allow."""
    return _assumed(layout, buffer, sizes).is_fewest


def _assumed(layout: LayoutAttr, buffer: Attribute, sizes: Mapping[str, int]) -> Traffic:
    """Of a fragment from or to a buffer, dense arrays assumed."""
    strides, bytes = assumed_strides(buffer), format_bytes(buffer)
    axis = axes_of(buffer)[-1]
    lengths = [strides[each] for each in strides if each != axis] + [sizes[axis]]
    width = min(widest_fragment(fragment(layout), axis), widest_in_memory(lengths, bytes))
    return traffic(fragment_access(layout, axis, width, once=True), strides, bytes, limits=sizes)


def assumed_strides(buffer: Attribute) -> dict[str, int]:
    """Strides of a dense array, in elements, symbolic axes having `ASSUMED_SIZE`."""
    sizes = {axis: ASSUMED_SIZE if size == DYNAMIC else size for axis, size in sizes_of(buffer).items()}
    return dense_strides(axes_of(buffer), sizes)


def strides_of(op: GlobalAccess) -> dict[str, int]:
    """Strides of the elements of an access along the axes of its tile, in elements: of a dense array. What is scattered
    is taken to lie as if it were one, with rows as long as the buffer's."""
    if op.place is None:
        return assumed_strides(op.buffer_type)
    axes = axes_of(op.piece_type)
    sizes = dict.fromkeys(axes, ASSUMED_SIZE)
    row = sizes_of(op.buffer_type)[axes_of(op.buffer_type)[-1]] if has_rows(op) else DYNAMIC
    sizes |= {axis: row for axis in axes[-1:] if row != DYNAMIC}
    return dense_strides(axes, sizes)


def strides_at(op: GlobalAccess, alignment: int) -> tuple[dict[str, int], int]:
    """Strides of an access's buffer in elements and the byte address of its piece, as traffic is told of rows that are
    aligned to so many bytes: those of a dense array, made whole sectors where rows begin with sectors; elsewhere longer
    by what rows are aligned to, and the piece as far into a sector."""
    bytes = format_bytes(op.buffer_type)
    strides = strides_of(op)
    if alignment >= SECTOR_BYTES:
        whole = SECTOR_BYTES // bytes
        longer = {axis: -(-stride // whole) * whole if stride > 1 else stride for axis, stride in strides.items()}
    else:
        more = max(alignment // bytes, 1)
        longer = {axis: stride + more if stride > 1 else stride for axis, stride in strides.items()}
    return longer, (alignment or bytes) % SECTOR_BYTES
