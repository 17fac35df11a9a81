"""Whether the warps of a kernel can have roles: the laws that must hold, and the fact that shows where one does not."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.layouts.operations import has_rows
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import is_extent
from treadle.dialects.cuda.boxes import MOST_ROWS, cut, why_no_order
from treadle.dialects.cuda.kernel import WITHOUT_MAPS
from treadle.dialects.cuda.layout import Mode, is_interleaved, spelled
from treadle.dialects.cuda.multiples import constant_of, is_multiple
from treadle.dialects.cuda.roles import WARPGROUP, register_cap
from treadle.dialects.cuda.runs import SWIZZLED_ROWS, rows_of_run
from treadle.dialects.cuda.tensor_gathers import run_type, why_no_box, why_no_runs, why_not_filled
from treadle.dialects.cuda.tensor_maps import MOST_AXES, shared_axis, why_no_rows, why_not_padded
from treadle.dialects.cuda.tiles import (
    WORD,
    boxes_of,
    format_bytes,
    is_fragment,
    is_line,
    is_shared,
    layout_of,
    padded_axes,
    rows_of,
)
from treadle.dialects.cuda.warpgroups import columns_of_warpgroup, result_axes, row_order, why_no_product
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.formats import PACKED
from treadle.dialects.diagram.place import PlaceAttr
from treadle.passes.loops.turns import known_in_turns, known_to_all
from treadle.passes.warps.tiles import boxed_type, products_of

REGISTERS = {1: (0, 0), 2: (24, 240), 3: (32, 160)}
"""Registers of a thread of the producer's warpgroup and of a consumer, by the number of consumer warpgroups: with one,
every thread has as many as there can be."""

BUSY = {2: (40, 232)}
"""The same of a producer that copies shares for a cluster, or walks loops whose ends are loaded: with 24 it spills, and
with it what is computed before the roles (ptxas 13.0)."""

BY_LANES = {2: (56, 224), 3: (56, 152)}
"""The same of producers whose lanes copy: they keep where each copies from, and have several loads on their way. With
32 or 40 registers for these ptxas 13.0 spills up to 92 bytes of them; consumers whose registers the model estimates at
223 to 235, of 240, spill nothing with 224."""

OF_PRODUCER = {3: 32}
"""Registers of a thread of the producer in blocks of one consumer warpgroup, by how many share a multiprocessor: with
24 ptxas 13.0 spills 8 bytes of heads of 40. Of two blocks each consumer would have 216; they were no faster than larger
ones where streams are short, and slower where they are long: heads of 40, 4096 keys, took 322 us where three warpgroups
of a block took 266. Of four it would have 104: of heads of 64 in steps of 64 keys ptxas spills 176 bytes, and steps of
48 took 153 us where three blocks took 133 in steps of 64 (causal attention of 512; all on an H100)."""


def shares_of_blocks(blocks: int) -> tuple[int, int]:
    """Registers of a thread of the producer's warpgroup and of a consumer, in blocks of one consumer warpgroup of which
    so many share a multiprocessor (PTX ISA 9.7.19.5, `setmaxnreg`)."""
    return OF_PRODUCER[blocks], 2 * register_cap(2 * WARPGROUP, blocks) - OF_PRODUCER[blocks]


AT_LAUNCH = {1: 255, 2: 168, 3: 128}
"""Of any thread when the block starts: with the producer's, all warpgroups share 65,536."""
BESIDE_ACCUMULATORS = 30
"""What ptxas 13.0 wants beside the accumulators of one product of a warpgroup, within the registers of the start: 26,
or 30 with the left operand in registers. It makes no code where they are missing ("insufficient registers")."""


def has_room_by_lanes(kernel: cuda.KernelOp) -> bool:
    """Whether the products of a turn have room in the registers of consumers beside a producer whose lanes copy. With
    less, ptxas 13.0 spills what they compute, and has them run one after another (C7512)."""
    granted = BY_LANES.get(kernel.threads.data // WARPGROUP)
    loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
    return granted is None or all(_words_of_products(loop) + BESIDE_ACCUMULATORS <= granted[1] for loop in loops)


def _words_of_products(loop: scf.ForOp) -> int:
    """Registers of a thread for the sums of all products of a turn, and for what they multiply that is computed."""
    products = [op for op in loop.walk() if isinstance(op, cuda.ProductOp)]
    held = dict.fromkeys(value for op in products for value in (op.result, op.lhs) if is_fragment(value.type))
    return sum(prod(layout_of(each.type).register_shape) * format_bytes(each.type) // WORD for each in held)


def most_columns(groups: int) -> int:
    """Of a product in a block of so many consumer warpgroups: a thread has half as many accumulators."""
    return 2 * (AT_LAUNCH[groups] - BESIDE_ACCUMULATORS)


def most_columns_beside(blocks: int) -> int:
    """The same in blocks of one consumer warpgroup, of which so many share a multiprocessor."""
    return 2 * (register_cap(2 * WARPGROUP, blocks) - BESIDE_ACCUMULATORS)


@dataclass(frozen=True)
class Reason:
    """Why a kernel keeps one role: the law that is missing, and the fact that shows it."""

    law: str
    fact: str


def inward_copies(within: cuda.KernelOp | Block) -> list[cuda.CopyOp]:
    return [op for op in within.walk() if isinstance(op, cuda.CopyOp) and not op.is_outward]


def is_inward(op: Operation) -> bool:
    return isinstance(op, cuda.CopyOp) and not op.is_outward


def why_not(kernel: cuda.KernelOp) -> Reason | None:
    """Why the warps of a kernel cannot have roles; None if they can."""
    loops = [op for op in kernel.body.block.ops if isinstance(op, scf.ForOp)]
    copies = inward_copies(kernel)
    by_lanes = tiles_by_lanes(copies)
    if not any(loop.is_ancestor(copy) for loop in loops for copy in copies):
        return Reason("a producer overlaps copies with computation", "no loop of the kernel copies tiles")
    for reason in (
        *(_tile_problem(copy) for copy in copies),
        *(why_not_by_lanes(copy) for copy in copies if copy.tile in by_lanes),
        *(_product_problem(op) for op in kernel.walk() if isinstance(op, cuda.ProductOp)),
        *(_use_problem(tile) for tile in dict.fromkeys(copy.tile for copy in copies)),
        _turns_problem(kernel, copies),
        _ends_problem(kernel, copies, by_lanes),
    ):
        if reason is not None:
            return reason
    groups = kernel.threads.data // WARPGROUP
    if kernel.threads.data % WARPGROUP or groups not in REGISTERS:
        fact = f"{kernel.threads.data} threads are not one, two or three warpgroups"
        return Reason("consumers are whole warpgroups", fact)
    most = most_columns(groups)
    for op in kernel.walk():
        if isinstance(op, cuda.ProductOp) and (columns := columns_of_warpgroup(op.result.type)) > most:
            law = "a product takes its accumulators from the registers that a thread starts with"
            return Reason(law, f"{columns} columns; {groups} warpgroups that compute have at most {most} each")
    return None


def _tile_problem(copy: cuda.CopyOp) -> Reason | None:
    """Why the tile of a copy cannot lie as products of warpgroups read it, however it comes."""
    if is_line(copy.tile.type):
        return None
    law = "what a producer brings lies in boxes"
    name, type = f"%{copy.buffer.name_hint}", copy.tile.type
    sizes = sizes_of(type)
    wide = [axis for axis, size in sizes.items() if size != 1]
    if str(format_of(type)) not in PACKED:
        return Reason("warpgroups multiply values of 8 or 16 bits", f"{name} holds {format_of(type)}")
    if len(wide) != 2 or wide[-1] != axes_of(type)[-1]:
        return Reason(law, f"pieces of {name} are no rows of neighbours: they have elements along {wide}")
    if not {*padded_axes(type)} <= _summed(copy):
        return Reason(law, f"the tile of {name} is padded, from {list(sizes.values())} to {list(rows_of(type).shape)}")
    orders = orders_of(copy.tile)
    if len(orders) > 1:
        law = "rows come in the order of the columns that a product makes of them"
        return Reason(law, f"products want %{copy.tile.name_hint} in the orders {', '.join(map(spelled, orders))}")
    return None


def tiles_by_lanes(copies: Iterable[cuda.CopyOp]) -> frozenset[SSAValue]:
    """Those of the tiles of some copies that the lanes of the producer copy."""
    return frozenset(tile for tile in dict.fromkeys(copy.tile for copy in copies) if _is_by_lanes(tile))


def _is_by_lanes(tile: SSAValue) -> bool:
    """Whether it is a line of words, or one of whose copies some is no tensor copy."""
    return is_line(tile.type) or any(why_no_map(copy) is not None for copy in _copies_of(tile))


def why_not_by_lanes(copy: cuda.CopyOp) -> Reason | None:
    """Why lanes do not copy a tile in boxes, beside the reason why no tensor copy brings it; None if they do."""
    if is_line(copy.tile.type):
        return None
    beside = next(each for each in map(why_no_map, _copies_of(copy.tile)) if each is not None)
    law, name = "lanes copy rows of neighbours, in their order", f"%{copy.buffer.name_hint}"
    if axes_of(copy.tile.type)[-1] in copy.divisors:
        return Reason(law, f"{name} is read at quotients along its rows; nor a tensor copy: {beside.fact}")
    if copy.place is not None and not has_rows(copy):
        return Reason(law, f"{name}, read at {copy.place.text.data}, has none; nor a tensor copy: {beside.fact}")
    if any(orders_of(copy.tile)):
        return Reason(law, f"products want {name} in another; nor a tensor copy: {beside.fact}")
    return None


def _copies_of(tile: SSAValue) -> list[cuda.CopyOp]:
    copies = (use.operation for use in tile.uses)
    return [copy for copy in copies if isinstance(copy, cuda.CopyOp) and not copy.is_outward]


def why_no_map(copy: cuda.CopyOp) -> Reason | None:
    """Why tensor copies do not bring the tile of a copy, which may lie in boxes; None if they do."""
    if is_line(copy.tile.type) or _tile_problem(copy) is not None:  # which is a reason of its own
        return None
    return _map_problem(copy) or _order_problem(copy) or _stop_problem(copy)


def _map_problem(copy: cuda.CopyOp) -> Reason | None:
    law = "a producer's copies are described by tensor maps"
    kernel = copy.tile.owner.parent_op() if isinstance(copy.tile.owner, cuda.SharedOp) else None
    if kernel is not None and WITHOUT_MAPS in kernel.attributes:
        return Reason(law, "arrays that have no tensor map")
    name, sizes = f"%{copy.buffer.name_hint}", sizes_of(copy.tile.type)
    rows = next(size for size in sizes.values() if size != 1)
    if copy.place is None and copy.inside is not None:
        return Reason(law, f"{name} has zeros around it, at {copy.inside.text.data}: no map has the view in its bounds")
    if not 2 <= (dimensions := len(axes_of(copy.buffer.type))) <= MOST_AXES:
        return Reason(law, f"{name} has {dimensions} axes: a tensor map has 2 to {MOST_AXES}")
    if rows > MOST_ROWS:
        return Reason(law, f"a box has at most {MOST_ROWS} rows, pieces of {name} {rows}")
    if copy.place is not None:
        return _runs_problem(copy, copy.place)
    problem = why_not_padded(boxed_type(copy.tile), copy.buffer.type)
    return None if problem is None else Reason(law, problem)


def _runs_problem(copy: cuda.CopyOp, place: PlaceAttr) -> Reason | None:
    """Of a tile whose rows lie where data say."""
    law = "a tensor map brings runs of rows that lie where data say"
    name, tile = f"%{copy.buffer.name_hint}, read at {place.text.data}", boxed_type(copy.tile)
    problem = why_no_runs(place.forms, tile) or why_not_filled(copy.buffer.type, tile)
    problem = problem or why_no_box(run_of(copy)) or _few_rows(run_of(copy))
    return None if problem is None else Reason(law, f"{name}: {problem}")


def _few_rows(run: cuda.TensorMapType) -> str | None:
    """Why a run is too short for a tensor copy of its own; None if it is not."""
    rows = prod(run.shape[:-1])
    return None if rows >= SWIZZLED_ROWS else f"{rows} rows follow each other, of {SWIZZLED_ROWS} a copy is worth it"


def run_of(copy: cuda.CopyOp) -> cuda.TensorMapType:
    """The map whose boxes are the runs of a tile that is scattered: the longest for where its pieces begin."""
    assert copy.place is not None
    tile, forms = boxed_type(copy.tile), copy.place.forms
    boxes = boxes_of(tile)
    along = shared_axis(boxes)
    offset = copy.offsets[along]
    rows = rows_of_run(forms, axes_of(tile)[along], boxes.rows, lambda number: is_multiple(offset, number))
    return run_type(copy.buffer.type, tile, forms, rows)


def row_of(copy: cuda.CopyOp) -> cuda.TensorMapType:
    """The map whose boxes are single rows of a tile that is scattered."""
    assert copy.place is not None
    return run_type(copy.buffer.type, boxed_type(copy.tile), copy.place.forms, 1)


def _stop_problem(copy: cuda.CopyOp) -> Reason | None:
    if not is_by_rows(copy):
        return None
    behind = "before" if stop_of(copy) is None else "behind"
    law = f"what lies {behind} a position that data tells is zeros where it is multiplied"
    boxes = boxes_of(boxed_type(copy.tile))
    rows = axes_of(copy.tile.type)[shared_axis(boxes)]
    other = next((axis for axis, _ in (*_begins_of(copy), *_stops_of(copy)) if axis != rows), None)
    if other is not None:
        return Reason(law, f"rows of %{copy.buffer.name_hint} lie along '{other}': no tensor copy ends within one")
    problem = why_no_rows(boxes, format_bytes(copy.tile.type)) if copy.place is None else why_no_box(row_of(copy))
    return None if problem is None else Reason(law, f"%{copy.buffer.name_hint}: {problem}")


def stop_of(copy: cuda.CopyOp) -> SSAValue | None:
    """Before which position a copy must bring zeros although its array goes on: a product over that axis multiplies
    what lies behind it with zeros, and what is there may be no number, or there is nothing of a factor behind it. None
    if there is no such position."""
    return next((limit for _, limit in _stops_of(copy)), None)


def begin_of(copy: cuda.CopyOp) -> SSAValue | None:
    """From which position on a copy must bring what its array has, and zeros before, for the same reason."""
    return next((begin for _, begin in _begins_of(copy)), None)


def is_by_rows(copy: cuda.CopyOp) -> bool:
    return begin_of(copy) is not None or stop_of(copy) is not None


def _stops_of(copy: cuda.CopyOp) -> list[tuple[str, SSAValue]]:
    bounds, summed = zip(copy.bound_axes, copy.limits, strict=True), _summed(copy)
    ends = [(axis, limit) for axis, limit in bounds if not _ends_with_array(copy, axis, limit)]
    return [(axis, limit) for axis, limit in ends if axis in summed or not is_extent(limit)]


def _ends_with_array(copy: cuda.CopyOp, axis: str, limit: SSAValue) -> bool:
    """Whether the array of a copy's map ends at a limit: of what is scattered, along an axis that it has itself."""
    if copy.place is None:
        return is_extent(limit)
    own, sizes = copy.forms.get(axis), sizes_of(copy.buffer.type)
    return is_extent(limit) and own == Linear({axis: 1}) and sizes[axis] in (DYNAMIC, constant_of(limit))


def _begins_of(copy: cuda.CopyOp) -> list[tuple[str, SSAValue]]:
    return list(zip(copy.begun_axes, copy.begins, strict=True))


def _summed(copy: cuda.CopyOp) -> set[str]:
    return {product.axis for product in products_of(copy.tile)}


def _product_problem(op: cuda.ProductOp) -> Reason | None:
    law = "warpgroups multiply"
    if op.instruction.data not in ("m16n8k16", "m16n8k32", "m16n8k32_s32"):
        return Reason(law, f"the product over '{op.axis}' runs on {op.instruction.data}")
    if op.subloop is not None:
        return Reason(law, f"the product over '{op.axis}' is walked by a subloop, whose pieces warps load to registers")
    for tile in (left_of(op), op.rhs):
        if is_shared(tile.type) and not _is_copied(tile):
            fact = f"%{tile.name_hint} is written by the consumers"
            return Reason("what warpgroups multiply is brought by the producer", fact)
    problem = why_no_product(left_of(op).type, op.rhs.type, op.result.type, op.axis)
    return None if problem is None else Reason(law, f"over '{op.axis}': {problem}")


def _order_problem(copy: cuda.CopyOp) -> Reason | None:
    """Rows in another order come by maps in which their axis is several dimensions."""
    tile, law = copy.tile, "rows come in the order of the columns that a product makes of them"
    orders = orders_of(tile)
    inner = cut(next(iter(orders), ()))
    if not inner:
        return None
    sizes = sizes_of(tile.type)
    if (problem := why_no_order(next(iter(orders)), sizes[inner[0].axis])) is not None:
        return Reason(law, problem)
    if len(sizes) + len(inner) - 1 > MOST_AXES:
        fact = f"%{copy.buffer.name_hint} would need {len(sizes) + len(inner) - 1} dimensions: at most {MOST_AXES}"
        return Reason(law, fact)
    offset = copy.offsets[axes_of(tile.type).index(inner[0].axis)]
    if not is_multiple(offset, inner[0].stride):
        return Reason(law, f"pieces of %{copy.buffer.name_hint} may begin between multiples of {inner[0].stride}")
    return None


def orders_of(tile: SSAValue) -> set[tuple[Mode, ...]]:
    """In which orders products want the rows of a tile."""
    products = [use.operation for use in tile.uses if isinstance(use.operation, cuda.ProductOp)]
    return {row_order(op.result.type) if op.rhs is tile else () for op in products}


def left_of(op: cuda.ProductOp) -> SSAValue:
    """The left operand of a product: the tile, if it is read only for products, and not once for all steps."""
    owner = op.lhs.owner
    return owner.source if isinstance(owner, cuda.ReadOp) and not is_kept(owner) else op.lhs


def _use_problem(tile: SSAValue) -> Reason | None:
    reads = reads_of(tile)
    multiplied = [use.operation for use in tile.uses if _multiplies(use.operation)]
    if reads and multiplied:
        user = next(iter(reads[0].result.uses)).operation
        fact = f"%{tile.name_hint} is also used by '{user.name}'"
        return Reason("what a producer brings is read by products alone, or by none", fact)
    for read in reads:
        if is_line(tile.type) or is_left_operand(read):  # whose layout products say
            continue
        layout, sizes = layout_of(read.result.type), sizes_of(read.result.type)
        if result_axes(layout) is None or is_interleaved(layout) or format_bytes(read.result.type) != 2:
            law = "what warps read of a piece are 16-bit numbers, spread as the sum of a product"
            return Reason(law, f"%{tile.name_hint} is read otherwise")
        if any(layout.extent(axis) != size for axis, size in sizes.items()):
            return Reason("all warps read rows of their own", f"%{tile.name_hint} has fewer than there are")
    return None


def reads_of(tile: SSAValue) -> list[cuda.ReadOp]:
    """Those by which consumers bring it to registers."""
    return [use.operation for use in tile.uses if isinstance(use.operation, cuda.ReadOp) and is_kept(use.operation)]


def is_kept(read: cuda.ReadOp) -> bool:
    """Whether consumers read a tile themselves. Products of warpgroups read the tiles of their left operands, but one
    that is read before the loop of its products, once for all steps of it, stays in registers (PTX ISA 9.7.15.5.1)."""
    products = (use.operation for use in read.result.uses)
    return not is_left_operand(read) or any(product.parent is not read.parent for product in products)


def is_left_operand(read: cuda.ReadOp) -> bool:
    """Whether a tile is read for nothing but to be the left operand of products."""
    users = [use.operation for use in read.result.uses]
    return all(isinstance(user, cuda.ProductOp) and user.lhs is read.result for user in users)


def _multiplies(op: Operation) -> bool:
    return isinstance(op, cuda.ProductOp) or (isinstance(op, cuda.ReadOp) and not is_kept(op))


def _is_copied(tile: SSAValue) -> bool:
    return any(is_inward(use.operation) for use in tile.uses)


def _ends_problem(kernel: cuda.KernelOp, copies: Sequence[cuda.CopyOp], by_lanes: Container[SSAValue]) -> Reason | None:
    """Producer and consumers walk the same loops, so both must know where these begin and end. Constants, the sizes of
    static axes, both know wherever they stand."""
    known = known_to_all(kernel.body.block)
    loops = dict.fromkeys(place for copy in copies if isinstance(place := copy.parent_op(), scf.ForOp))
    for loop in loops:
        known |= known_in_turns(loop, known)
    if all(end in known or constant_of(end) is not None for end in ends_of(copies, by_lanes)):
        return None
    fact = "where a loop that copies begins or ends depends on what the warps of the kernel find together"
    return Reason("both roles walk the same loops", fact)


def ends_of(copies: Sequence[cuda.CopyOp], by_lanes: Container[SSAValue]) -> list[SSAValue]:
    """What says whether and how often the loops and branches run in which tiles are copied, and how far copies go;
    `by_lanes` are the tiles that lanes copy."""
    places = dict.fromkeys(copy.parent_op() for copy in copies)
    counts = [(place, 3 if isinstance(place, scf.ForOp) else 1) for place in places]
    ends = [end for place, n in counts if isinstance(place, scf.ForOp | scf.IfOp) for end in place.operands[:n]]
    bounded = [copy for copy in copies if copy.place is not None or copy.tile in by_lanes]
    ends += [end for copy in bounded for end in (*copy.limits, *copy.begins, *copy.lengths)]
    others = [copy for copy in copies if copy not in bounded]
    return ends + [end for copy in others for end in (begin_of(copy), stop_of(copy)) if end is not None]


def _turns_problem(kernel: cuda.KernelOp, copies: Sequence[cuda.CopyOp]) -> Reason | None:
    """Turns of a ring are counted: a copy in a branch must be the last of its tile."""
    law = "the turns of a ring can be counted"
    block, branched = kernel.body.block, set[SSAValue]()
    for copy in copies:
        if copy.tile in branched:
            return Reason(law, f"%{copy.tile.name_hint} is copied again after a copy that may not happen")
        parent = copy.parent_op()
        if parent is kernel:
            continue
        if not isinstance(parent, scf.ForOp | scf.IfOp) or parent.parent is not block:
            return Reason(law, f"%{copy.tile.name_hint} is copied in a loop in a loop")
        if isinstance(parent, scf.IfOp):
            branched.add(copy.tile)
        elif constant_of(parent.step) is None:
            return Reason(law, "the pieces of a loop that copies have no one size")
    for tile in dict.fromkeys(copy.tile for copy in copies):
        places = [copy.parent for copy in copies if copy.tile is tile]
        if len(places) != len(set(places)):
            return Reason(law, f"%{tile.name_hint} is copied twice in a turn")
    return None
