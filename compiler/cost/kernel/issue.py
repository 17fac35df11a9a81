"""Instructions: what a warp issues for each operation, and which units of an SM that keeps busy.

Read from what nvcc makes of the printed kernels; `benchmarks/model.py` compares."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from treadle.compiler.amounts import Amount, ceil_div, choice, is_any, least, most
from treadle.compiler.cost.kernel.promotion import issued_by_promotion, promoted_parts
from treadle.compiler.cost.kernel.spread import FRAGMENT_ROWS, Spread
from treadle.compiler.cost.kernel.work import is_tensor_product, multiply_format
from treadle.compiler.lowering.products import MOST_SHARED_FRAGMENTS
from treadle.compiler.machines.machine import WARP
from treadle.dialects.cuda.tiles import WORD
from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.schedule import ScheduleAttr, promoted_every

VECTOR = 16
"""Bytes that a lane copies at once."""

KINDS = {
    "products": "HMMA, with the format of the operands behind it",
    "filled": "HMMA of zeros, with the format of the operands behind it: what warpgroups multiply where half a step is "
    "left of an axis; no instructions",
    "ldmatrix": "LDSM of four 8 x 8 tiles",
    "shared": "LDS and STS",
    "float": "FFMA and its kind",
    "lagging": "FMNMX of maxima that may lag: seldom where turns take their powers before they know them",
    "promote": "FADD of sums that warpgroups promote",
    "special": "MUFU",
    "select": "FSETP and FSEL",
    "convert": "F2FP",
    "shuffle": "SHFL",
    "copies": "LDGSTS of 16 bytes, with the step of its address",
    "lanes": "what lanes of a producer issue where they copy for warpgroups",
    "global": "LDG and STG of 16 bytes",
    "leaving": "16 bytes of a lane that leave by way of shared memory (`leaving.py` says by how many instructions); "
    "`leaving words`: of results of words, those that leave from registers among them",
    "operands": "512 bytes of shared memory that a warpgroup's product reads for each warp; no instructions",
    "turn": "addresses, counters, waits and branches of one turn of a loop; `turn copies`: of its copies; "
    "`turn warpgroup`, `turn operands`: where warpgroups multiply, and for what their products read",
}
"""Every kind of instruction that the model knows."""

SHARED_BYTES = {
    "ldmatrix": 4 * 128,
    "operands": 4 * 128,
    "shared": WARP * 4,
    "shuffle": WARP * 4,
    "copies": WARP * VECTOR,
}
"""Bytes that one instruction moves through shared memory."""

DEPTH = {"f8": 32, "i8": 32, "f16": 16, "bf16": 16, "tf32": 8}
"""How much of the axis that is summed over one product of 16 x 8 takes, by the format of its operands."""


def depth_of_instruction(op: ContractOp) -> int:
    """How much of the axis that is summed over one instruction of a contraction takes."""
    return DEPTH[multiply_format(op)] if is_tensor_product(op) else 1


PRODUCT_FLOP = {format: 2 * 16 * 8 * depth for format, depth in DEPTH.items()}

TURN = 25
"""Of one turn, for each product in it, and COPY_STEPS for each of its copies. What ptxas 13.0 makes of attention and
matmul is within 25 of this, see `benchmarks/results/model-*.md`."""
COPY_STEPS = 3

WARPGROUP_TURN, WARPGROUP_PRODUCT = 24, 6
"""Of one turn of warpgroups, and for each product in it: rings, stages, waits, descriptors of whole tiles. Each step
of a product then moves one descriptor for each operand in shared memory. Counted over the main loops of `examples/`
without masks, as ptxas 13.0 makes them, what is left beside those descriptors is 30 with one product, 34 to 39 with
two. (What conversions and positions of a step move is not counted.)"""

SUBLOOP_TURN = 11
"""Of one turn of a subloop: its counter and branch, and the addresses of both operands, as ptxas 13.0 makes them."""


OF_WARPGROUPS = ("turn warpgroup", "turn operands", "promote", "lanes")
OF_SINGLE_WARPS = ("products", "ldmatrix", "copies", "turn", "turn copies")
"""What only those issue: a warpgroup multiplies with a few large instructions, and a producer copies."""


def is_issued(kind: str, grouped: Amount) -> Amount:
    """Whether warps that compute issue instructions of a kind."""
    if kind.split()[0] in ("operands", "filled"):
        return False
    of_groups, of_singles = kind in OF_WARPGROUPS, kind in OF_SINGLE_WARPS or kind.split()[0] == "products"
    return choice(grouped, not of_singles, not of_groups)


def issued_by_turn(products: int) -> Iterator[tuple[str, float]]:
    yield "turn", TURN * max(1, products)
    yield "turn warpgroup", WARPGROUP_TURN + WARPGROUP_PRODUCT * products


@dataclass(frozen=True)
class Product:
    """A product of matrices by axes, as both forms of a kernel show it."""

    format: str
    result: tuple[str, ...]
    over: tuple[str, ...]
    left: str
    """Where the operand with the rows is: `registers`, or `shared`, where each step reads it; `lasting` is shared and
    does not change in a stream, so that single warps may keep it in registers, and `kept` where all warps do."""
    every: int = 0
    """How many products are added up before their sum is promoted; 0 where it is not."""


def product_of(op: ContractOp, left: str, schedule: ScheduleAttr | None) -> Product:
    format = multiply_format(op) if is_tensor_product(op) else "f32"
    return Product(format, axes_of(op.result.type), tuple(op.over_axes), left, promoted_every(schedule, op))


def issued_by_product(product: Product, spread: Spread) -> Iterator[tuple[str, Amount]]:
    """Instructions of one execution: each right operand is read once for all row tiles of a warp."""
    depth = _depth(product, spread)
    turns = spread.turns_of(product.over)
    if turns > 1:
        yield "turn", SUBLOOP_TURN * turns
    rows, columns = _tiles(product, spread)
    if product.format not in PRODUCT_FLOP:
        yield "float", spread.of_lane(product.result) * depth
        # Rows and columns of a lane, two of each in a tile: several in a load, and an address for each load.
        yield "shared", 2 * (rows + columns) * depth
        return
    deep = ceil_div(depth, DEPTH[product.format])
    if product.format == "tf32":
        yield f"products {product.format}", rows * columns * deep
        yield "shared", (4 * rows * (product.left != "registers") + 2 * columns) * deep
        return
    yield f"products {product.format}", rows * columns * _steps(product.format, depth)
    if is_any(filled := deep - _steps(product.format, depth)):
        yield f"filled {product.format}", rows * columns * filled
    yield "ldmatrix", ceil_div(columns, 2) * deep + rows * deep * _is_read_again(product, rows, deep, spread)
    sums = spread.of_lane(product.result)
    parts = promoted_parts(sums) if product.every else 1  # each of which reads the left operand
    is_read = product.left not in ("registers", "kept")
    yield "turn operands", deep * parts * (1 + is_read)
    # The four warps of a warpgroup share what they read of the right operand; the left one is in registers or read.
    yield "operands", columns * deep / 8 + rows * deep * parts * is_read
    if product.every:
        yield from issued_by_promotion(sums, depth, product.every)


def _steps(format: str, depth: Amount) -> Amount:
    """Whole steps, of which the last may take half the time of one, where single warps multiply."""
    step = DEPTH[format]
    return ceil_div(depth, step // 2) / 2 if step == 16 else ceil_div(depth, step)


def read_before(product: Product, spread: Spread) -> Amount:
    """`ldmatrix` before a stream, of a left operand that is then kept."""
    if product.left not in ("lasting", "kept"):
        return 0
    rows, _ = _tiles(product, spread)
    deep = ceil_div(_depth(product, spread), DEPTH.get(product.format, 16))
    return choice(_is_read_again(product, rows, deep, spread), 0, rows * deep)


def kept_registers(product: Product, spread: Spread) -> Amount:
    """Of a thread, for a left operand that it keeps during a stream."""
    return 4 * read_before(product, spread)


def spared_registers(product: Product, spread: Spread) -> Amount:
    """Of a thread, for a left operand that it would keep during a stream, and of which a subloop holds one piece."""
    turns = spread.turns_of(product.over)
    kept = kept_registers(product, replace(spread, subloops={}))
    return kept - ceil_div(kept, turns) if turns > 1 else 0


def least_of_streams(spared: Mapping[int | None, Amount]) -> Amount:
    """Of registers by stream the fewest: which stream needs most is not known here."""
    counts = [count for stream, count in spared.items() if stream is not None]
    return least(*counts) if counts else 0


def _depth(product: Product, spread: Spread) -> Amount:
    """The largest of the axes that are summed over."""
    return most(1, *(spread.tiles[axis] for axis in product.over))


def _tiles(product: Product, spread: Spread) -> tuple[Amount, Amount]:
    """Products of one warp, 16 x 8 each, along rows and columns."""
    rows = spread.of_warp(spread.row) if spread.row else 1
    columns = prod(spread.of_warp(axis) for axis in product.result if axis != spread.row)
    return ceil_div(rows, 16), ceil_div(columns, 8)


def _is_read_again(product: Product, rows: Amount, deep: Amount, spread: Spread) -> Amount:
    if product.left == "lasting":
        if spread.turns_of(product.over) > 1:
            return True
        return spread.rereads | (4 * rows * deep > MOST_SHARED_FRAGMENTS)
    if product.left == "kept":
        return spread.turns_of(product.over) > 1
    return product.left == "shared"


def issued_by_reduction(op: ReduceOp, spread: Spread) -> Iterator[tuple[str, Amount]]:
    """The exchange among the lanes that share a row; four of them in a fragment, of whose columns a step has several.
    Sums are exchanged after the stream, once: that is not counted. Without products, what warps that share a row
    exchange through shared memory."""
    if not spread.has_products:
        yield from _issued_by_warps(op, spread)
    if not spread.has_products or spread.row in op.over_axes or op.kind.data == "add":
        return
    rows = spread.of_lane(axes_of(op.result.type))
    is_shared = most(*(spread.tiles[axis] for axis in op.over_axes)) > 1
    exchanges = choice(is_shared, (WARP // FRAGMENT_ROWS).bit_length() - 1, 0)
    yield "shuffle", exchanges * rows
    yield "float", exchanges * rows


def _issued_by_warps(op: ReduceOp, spread: Spread) -> Iterator[tuple[str, Amount]]:
    """Each warp writes its part of every row that it has, and reads all parts of these, four at a time."""
    count = spread.sharing(op.over_axes)
    rows = prod(spread.of_warp(axis) for axis in axes_of(op.result.type))
    several = count > 1
    yield "shared", several * rows * (1 + ceil_div(count, 4))
    yield "float", several * rows * count


AT_QUOTIENTS = 15
"""Of an element of a table that is loaded by itself: divisions of its positions, its address and tests. In a step of
attention to blocks, of 48 elements a lane, ptxas 13.0 makes 763 of integers for an A100, 1,320 of 64 for an H100."""


LANE_ROW, BOX_BYTES = 9, 128
"""What a producer's lanes issue for a vector of 16 bytes beside its copy, divided by the boxes of a row: the place of
the row, found once for all of them. ptxas 13.0 makes 41 to 46 of four rows whose places data say, of one box or two."""


def issued_by_copy(
    axes: tuple[str, ...],
    width: int,
    spread: Spread,
    shared: bool,
    leaves: bool = False,
    blocks: Mapping[str, int] | None = None,
    by_lanes: bool = False,
) -> Iterator[tuple[str, Amount]]:
    """A tile from or to device memory; or, if it `leaves`, to there by way of shared memory. Where neighbours are one
    element of the array, for there are `blocks` of them, elements go one by one. `by_lanes`: where warpgroups multiply,
    lanes of the producer copy it, which is what tensor copies do otherwise."""
    warps = prod(spread.warps.values())
    moved = width * prod(spread.tiles[axis] for axis in axes) / (WARP * VECTOR * warps)
    if leaves:
        yield "leaving" if width < WORD else "leaving words", moved
        return
    if not shared:
        single = blocks is not None and axes[-1:] and axes[-1] in blocks
        yield "global", moved * VECTOR / width if single else moved
        if single:
            yield "float", AT_QUOTIENTS * moved * VECTOR / width
        return
    yield "copies", moved
    if by_lanes:
        boxes = ceil_div(width * spread.tiles[axes[-1]], BOX_BYTES)
        yield "lanes", moved * (1 + LANE_ROW / boxes)
    # Where the threads do not share it out evenly, the last turn is tested.
    turns = ceil_div(moved, 1)
    yield "turn copies", COPY_STEPS * (turns + (turns != moved))
