"""How a value that is needed in another layout gets there: in registers of the same threads, or by shared memory."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import Attribute, Block, Region, SSAValue

from treadle.compiler.layouts.accesses import Access, copies, fragment_access
from treadle.compiler.layouts.conversions import plan_conversion
from treadle.compiler.layouts.digits import LayoutError
from treadle.compiler.layouts.fragments import fragment, same_elements
from treadle.compiler.layouts.operations import access_cost, is_fewest, of_spread_copies, of_whole_sectors
from treadle.compiler.layouts.swizzle import Choice, choose_rows
from treadle.compiler.layouts.vectors import MOST_BYTES, widest_fragment, widest_in_memory
from treadle.dialects.cuda.layout import LayoutAttr, RowsAttr
from treadle.dialects.cuda.tiles import layout_of
from treadle.dialects.diagram import MapOp
from treadle.dialects.diagram import YieldOp as MapYieldOp
from treadle.dialects.diagram.array import format_of, sizes_of
from treadle.dialects.diagram.formats import FORMAT_BYTES


def stays_in_threads(source: LayoutAttr, target: LayoutAttr) -> bool:
    """Whether every thread has what it needs already, under whatever numbers of registers."""
    return same_elements(source, target)


def renumbered(value: SSAValue, type: Attribute) -> MapOp:
    """The value with its elements in the registers of another layout: a map that changes nothing."""
    body = Block(arg_types=[format_of(type)])
    body.add_op(MapYieldOp(body.args[0]))
    return MapOp([value], type, Region(body))


def is_exchanged(source: LayoutAttr, target: LayoutAttr, type: Attribute) -> bool:
    """Whether shuffles are the cheapest way, of all that bring the elements where they are needed."""
    sizes = sizes_of(type)
    if any(layout.extent(axis) < size for layout in (source, target) for axis, size in sizes.items()):
        return False
    try:
        plan = plan_conversion(source, target, FORMAT_BYTES[str(format_of(type))], warp_barriers=False)
    except LayoutError:  # they reach past the tile in different ways: a tile in shared memory holds what both have
        return False
    return plan.way == "shuffle"


def loaded_layout(type: Attribute, buffer: Attribute) -> LayoutAttr:
    """The layout in which a fragment is loaded: its own, or where that asks for sectors twice, one that asks for each
    once and is exchanged, if that is the cheaper. (16 bits in the pairs of an accumulator, 8 rows and 16 columns: two
    requests reach into 8 lines each, 18; or one does, and neighbours exchange a pair, 9 and 5.) Neighbours that a
    thread has in registers apart from each other are loaded into some that follow each other."""
    layout, sizes, bytes = layout_of(type), sizes_of(type), FORMAT_BYTES[str(format_of(type))]
    if sizes and (turned := layout.neighbours_last(next(reversed(sizes)))) is not None:
        return turned
    wide = of_whole_sectors(layout, next(reversed(sizes)), bytes) if sizes else None
    if wide is None or is_fewest(layout, buffer, sizes):
        return layout
    plan = plan_conversion(wide, layout, bytes, warp_barriers=False)
    costs = [access_cost(each, buffer, sizes) for each in (wide, layout)]
    return wide if plan.way == "shuffle" and costs[0] + plan.cost.total < costs[1] else layout


def stored_layout(type: Attribute, buffer: Attribute) -> LayoutAttr:
    """The layout in which a fragment is stored: its own, or where lanes hold copies of several registers, one in which
    they share them out, if that is the cheaper. (Sums of 16 rows beside an accumulator: two requests of 8 lanes, or
    a select and one request of 16.)"""
    layout, sizes, bytes = layout_of(type), sizes_of(type), FORMAT_BYTES[str(format_of(type))]
    spread = of_spread_copies(layout) if sizes else None
    if spread is None:
        return layout
    plan = plan_conversion(layout, spread, bytes, warp_barriers=False)
    costs = [access_cost(each, buffer, sizes) for each in (spread, layout)]
    return spread if plan.way == "shuffle" and costs[0] + plan.cost.total < costs[1] else layout


def staging_rows(source: LayoutAttr, target: LayoutAttr, type: Attribute) -> RowsAttr:
    """The tile in shared memory through which a value goes from one layout to the other, with the fewest bank conflicts
    of the vectors that are written and read."""
    rows = _staging(source, target, type).rows
    return RowsAttr(tuple(sizes_of(type).values()), rows.pitch.data, (bits.data for bits in rows.swizzle))


def staging_wavefronts(layout: LayoutAttr, type: Attribute) -> int:
    """The wavefronts by which all warps read or write a fragment in the tile of `staging_rows`."""
    return _staging(layout, layout, type).accesses[0].wavefronts


def _staging(source: LayoutAttr, target: LayoutAttr, type: Attribute) -> Choice:
    sizes, bytes = sizes_of(type), FORMAT_BYTES[str(format_of(type))]
    wide = {axis: size for axis, size in sizes.items() if size != 1}
    row = next(reversed(wide), None)
    accesses = [vectors_of(source, row, bytes, wide), vectors_of(target, row, bytes, wide)]
    return choose_rows(tuple(wide), tuple(wide.values()), bytes, *accesses)


def vectors_of(
    layout: LayoutAttr, row: str | None, element_bytes: int, sizes: Mapping[str, int], most: int | None = None
) -> Access:
    """What one side of the way moves: as `cuda.write` and `cuda.read` are printed, at most so many elements at once."""
    places = fragment(layout).slice(sizes)
    cut = sizes.get(row or "", 0) if layout.extent(row or "") > sizes.get(row or "", 0) else 0
    width = min(widest_fragment(places, row), widest_in_memory([cut], element_bytes), most or MOST_BYTES)
    return fragment_access(layout.slice(sizes), row, width, once=copies(places) > 1)
