"""Coalescing: the sectors that the algebra computes are those that the emulator counts, request by request in sum, for
every access of a kernel at any sizes, strides and alignments; and they are the fewest where rows are aligned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from math import gcd
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.layouts import Traffic, dense_strides, fragment_access, row_copy, traffic
from treadle.compiler.layouts.conversions import by_shuffles
from treadle.compiler.layouts.copies import copy_access, line_span
from treadle.compiler.layouts.fragments import fragment
from treadle.compiler.layouts.operations import of_spread_copies, of_whole_sectors, traffic_of, widest
from treadle.compiler.layouts.order import sector_requests
from treadle.compiler.pipeline import Options, print_cuda, run_pipeline
from treadle.compiler.sass import disassemble, find_disassembler
from treadle.compiler.source import load_module, parse_module
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import variant_name
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator
from treadle.dialects.cuda.tiles import format_bytes
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.runtime.emulator import LaunchReport
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import HostExecution
from treadle.runtime.interpreter import entry_function
from treadle.runtime.nvcc import compile_cubin, find_nvcc

EXAMPLES = Path(__file__).parents[1] / "examples"
NONE = Traffic(0, 0, 0, 0, 0, 0)
ARITHMETIC = {
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b,
    "arith.ceildivui": lambda a, b: -(-a // b),
    "arith.divsi": lambda a, b: a // b,
    "arith.minsi": min,
    "arith.maxsi": max,
    "arith.andi": lambda a, b: a & b,
    "arith.select": lambda test, a, b: a if test else b,
}
PREDICATES = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "__lt__", "__le__", "__gt__", "__ge__")


# -- a small definition of what a kernel accesses -------------------------------------------------


@dataclass
class Walk:
    """Runs the index arithmetic of a kernel, block by block, and asks the algebra about each access it meets."""

    kernel: cuda.KernelOp
    aligned: int
    values: dict[SSAValue, Any]
    strides: dict[SSAValue, dict[str, int]]
    base: dict[SSAValue, int]
    loaded: Traffic = NONE
    stored: Traffic = NONE
    known: dict[Any, Traffic] = field(default_factory=dict[Any, Traffic])

    def run(self, blocks: int) -> None:
        for self.block in range(blocks):
            self.run_block(self.kernel.body.block)

    def run_block(self, block: Block) -> None:
        for op in block.ops:
            self.step(op)

    def step(self, op: Operation) -> None:
        values = self.values
        if op.name in ARITHMETIC and all(operand in values for operand in op.operands):
            values[op.results[0]] = ARITHMETIC[op.name](*(values[operand] for operand in op.operands))
        match op:
            case arith.ConstantOp() if isinstance(op.value, IntegerAttr):
                values[op.result] = op.value.value.data
            case arith.CmpiOp() if op.lhs in values and op.rhs in values:
                test = PREDICATES[op.predicate.value.data]
                values[op.result] = getattr(values[op.lhs], test)(values[op.rhs])
            case arith.IndexCastOp():
                values[op.result] = values[op.input]
            case cuda.BlockIndexOp():
                values[op.result] = self.block
            case scf.ForOp():
                for index in range(values[op.lb], values[op.ub], values[op.step]):
                    values[op.body.block.args[0]] = index
                    self.run_block(op.body.block)
            case scf.IfOp():
                region = op.true_region if values[op.cond] else op.false_region
                if region.blocks:
                    self.run_block(region.block)
            case cuda.RolesOp():  # the producer's are copies of lines, and tensor copies
                self.run_block(op.producer.block)
                self.run_block(op.consumers.block)
            case GlobalAccess():
                self.access(op)
            case _:
                pass

    def access(self, op: GlobalAccess) -> None:
        buffer = next(operand for operand in op.operands if operand in self.strides)
        stores = isinstance(op, cuda.StoreOp) or (isinstance(op, cuda.CopyOp) and op.is_outward)
        offsets = dict(zip(axes_of(buffer.type), (self.values[offset] for offset in op.offsets), strict=True))
        bytes = format_bytes(op.buffer_type)
        start = sum(offset * self.strides[buffer][axis] for axis, offset in offsets.items()) * bytes
        limits = {
            axis: max(self.values[limit] - offsets[axis], 0)
            for axis, limit in zip(op.bound_axes, op.limits, strict=True)
        }
        base = (self.base[buffer] + start) % 128
        key = (op, base, tuple(limits.items()))
        if key not in self.known:
            threads = cuda.threads_at(op, self.kernel)
            self.known[key] = traffic_of(op, threads, self.aligned, self.strides[buffer], base, limits)
        if stores:
            self.stored += self.known[key]
        else:
            self.loaded += self.known[key]


class Watched(EmulatorBackend):
    """The emulator, which keeps what it was launched with."""

    launched: list[tuple[str, int, tuple[Any, ...], LaunchReport]]

    def launch(
        self, kernel: str, grid: Any, block: Any, shared_bytes: int, arguments: Any, cluster: int = 1
    ) -> LaunchReport:
        report = super().launch(kernel, grid, block, shared_bytes, arguments, cluster)
        self.launched.append((kernel, grid[0], tuple(arguments), report))
        return report


def counted(report: LaunchReport, *kinds: str) -> tuple[int, int]:
    """Requests and sectors of these kinds of operation."""
    rows = [row for row in report.operations if row.kind in kinds]
    return sum(row.requests for row in rows), sum(row.sectors for row in rows)


def check(text: str, inputs: list[Any], **options: Any) -> list[tuple[Traffic, Traffic]]:
    """Compile, run in the emulator, and hold its counts against the algebra's; gives what each launch moved."""
    module = parse_module(text)
    run_pipeline(module, Options(**options))
    kernels = {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)}
    variants = {variant_name(k, a): (k, a) for k in kernels.values() for a in cuda.alignments(k)}
    backend = Watched(print_cuda(module), list(variants))
    backend.launched = []
    HostExecution(module, backend).run(entry_function(module), inputs)
    assert backend.launched
    return [compare(*variants[name], *rest) for name, *rest in backend.launched]


def compare(
    kernel: cuda.KernelOp, aligned: int, blocks: int, arguments: tuple[Any, ...], report: LaunchReport
) -> tuple[Traffic, Traffic]:
    walk = Walk(kernel, aligned, {}, {}, {})
    given = iter(arguments)
    for arg in kernel.body.block.args:
        value = next(given)
        if not is_array(arg.type):
            walk.values[arg] = getattr(value, "value", value)
            continue
        axes = axes_of(arg.type)
        known = axes if aligned == cuda.ANY_STRIDES else axes[:-1]
        walk.strides[arg] = dict.fromkeys(axes[-1:], 1) | {axis: next(given).value for axis in known}
        walk.base[arg] = value.pointer
    walk.run(blocks)
    loads = counted(report, "load_global", "copy_async")
    assert (walk.loaded.requests, walk.loaded.sectors) == loads
    assert (walk.stored.requests, walk.stored.sectors) == counted(report, "store_global")
    return walk.loaded, walk.stored


def half(*shape: int) -> Any:
    return np.zeros(shape, np.float16)


def program(name: str, **sizes: int) -> str:
    return (EXAMPLES / f"{name}.mlir").read_text()


def attention_of(d: int) -> str:
    return program("attention").replace("x64xf16", f"x{d}xf16").replace("x64xf32", f"x{d}xf32")


# -- the emulator agrees --------------------------------------------------------------------------


@pytest.mark.parametrize("d", [64, 128])
def test_attention_moves_the_fewest_sectors(d: int) -> None:
    q, x = 128, 256
    arrays = [half(1, 1, q, d), half(1, 1, x, d), half(1, 1, x, d)]
    ((loaded, stored),) = check(attention_of(d), arrays, arch="sm_80")
    assert loaded.is_fewest
    assert stored.is_fewest
    assert loaded.sectors_per_request == stored.sectors_per_request == 16
    assert loaded.has_whole_lines


def test_matmul_moves_the_fewest_sectors() -> None:
    ((loaded, stored),) = check(program("matmul"), [half(256, 256), half(256, 256)], arch="sm_80")
    assert loaded.is_fewest
    assert stored.is_fewest
    assert loaded.sectors_per_request == stored.sectors_per_request == 16


@pytest.mark.parametrize(("q", "x"), [(1, 1), (100, 333), (65, 129), (200, 64)])
def test_attention_at_edges(q: int, x: int) -> None:
    """Pieces that reach past the end: only what is inside is asked for."""
    check(attention_of(64), [half(2, 1, q, 64), half(2, 1, x, 64), half(2, 1, x, 64)])


@pytest.mark.sample(6)
@pytest.mark.parametrize("d", [1, 3, 7, 16, 24, 33, 40, 65, 72, 80, 96, 100])
def test_attention_of_other_depths(d: int) -> None:
    ((loaded, stored),) = check(attention_of(d), [half(1, 2, 70, d), half(1, 2, 130, d), half(1, 2, 130, d)])
    assert loaded.is_fewest
    assert stored.is_fewest


@pytest.mark.parametrize("d", [64, 65])
def test_columns_that_lie_together_are_moved_in_the_fewest(d: int) -> None:
    """Transposed arrays: lanes go down the columns."""
    ((loaded, stored),) = check(attention_of(d), [half(1, 1, d, each).swapaxes(2, 3) for each in (70, 130, 130)])
    assert loaded.is_fewest
    assert stored.is_fewest
    assert loaded.sectors_per_request <= 4


@pytest.mark.sample(6)
@pytest.mark.parametrize("start", [0, 1, 2, 4, 8])
@pytest.mark.parametrize("pitch", [64, 65, 66, 68, 72, 80])
def test_strides_and_addresses_that_allow_less(pitch: int, start: int) -> None:
    """Rows that begin anywhere: narrower vectors, and yet no sector is asked for twice."""
    pieces = [half(40 * pitch + start)[start:].reshape(1, 1, 40, pitch)[..., :64] for _ in "qkv"]
    ((loaded, stored),) = check(attention_of(64), pieces)
    assert loaded.is_fewest
    assert stored.is_fewest


@pytest.mark.parametrize(("m", "n", "k"), [(256, 256, 256), (200, 136, 333), (33, 8, 64), (64, 72, 40), (1, 1, 1)])
def test_matmul_at_any_size(m: int, n: int, k: int) -> None:
    ((loaded, stored),) = check(program("matmul"), [half(m, k), half(k, n)])
    assert loaded.is_fewest
    assert stored.is_fewest


def test_arrays_of_single_elements_make_no_other_access_narrow() -> None:
    """The sums of 99 rows are aligned to 4 bytes; keys and values are copied by 16 a thread all the same."""
    module = parse_module(program("attention_lse"))
    run_pipeline(module, Options(arch="sm_80"))
    (asked,) = [op for op in module.walk() if isinstance(op, cuda.AlignmentOp)]
    assert [asked.buffers[i].name_hint for i in asked.single] == ["L"]
    inputs = [half(1, 2, 99, 64), half(1, 2, 130, 64), half(1, 2, 130, 64)]
    ((loaded, _),) = check(program("attention_lse"), inputs, arch="sm_80")
    assert loaded.has_whole_lines


@pytest.mark.parametrize("name", ["softmax", "batched_matmul", "matmul_epilogue", "two_kernels", "sin2cos2"])
def test_other_examples(name: str) -> None:
    from treadle.runtime.inputs import axis_sizes, make_inputs

    module = load_module(str(EXAMPLES / f"{name}.mlir"))
    function = entry_function(module)
    arrays = [np.asarray(each) for each in make_inputs(function, axis_sizes(function, {}), 0)]
    check(program(name), [each.item() if each.ndim == 0 else each for each in arrays])


# -- copies by sectors are optimal ----------------------------------------------------------------


def distinct_sectors(rows: int, columns: int, down: int, along: int, start: int, bytes: int) -> int:
    """The lower bound, from nothing but the addresses of the elements."""
    elements = product(range(rows), range(columns))
    return len({(start + row * down + column * along) * bytes // 32 for row, column in elements})


def orders() -> Iterator[tuple[int, int, int, int]]:
    """Rows, columns, and strides: rows that touch, that share sectors, that lie apart; and the same for columns."""
    for rows, columns in product((1, 2, 5, 16), (1, 3, 8, 16, 24, 40, 65)):
        for beyond in (0, 1, 2, 7, 8, 15, 16, 31, 100):
            yield rows, columns, columns + beyond, 1
            yield columns, rows, 1, columns + beyond
        yield rows, columns, -columns - 3, 1


@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("start", [0, 1, 2, 5, 8, 15])
def test_dealt_by_sectors_no_way_has_fewer(start: int, bytes: int) -> None:
    for rows, columns, down, along in orders():
        for width in (16 // bytes, 4 // bytes, 1):
            if width > 1 and (along != 1 or any(number % width for number in (start, columns, down))):
                continue
            strides = {"q": down, "d": along}
            base = start + 10_000
            dealt = list(sector_requests({"q": rows, "d": columns}, strides, base, width, bytes))
            moved = [at + i for request in dealt for at in request for i in range(width)]
            assert sorted(moved) == sorted(
                row * down + column * along for row in range(rows) for column in range(columns)
            )
            asked = sum(len({(base + at) * bytes // 32 for at in request}) for request in dealt)
            assert asked == distinct_sectors(rows, columns, down, along, base, bytes)
            assert all(len(request) <= 32 for request in dealt)


@pytest.mark.parametrize("apart", [16, 32, 48])
@pytest.mark.parametrize("width", [8, 2, 1])
def test_where_every_row_begins_a_sector_no_slot_is_empty(apart: int, width: int) -> None:
    """32 bytes of each, next to each other or whole sectors apart: all lanes of a request take part."""
    dealt = list(sector_requests({"q": 32, "d": 16}, {"q": apart, "d": 1}, 0, width, 2))
    assert [len(request) for request in dealt] == [32] * (32 * 16 // width // 32)


def test_elements_without_neighbours_go_where_they_are_near() -> None:
    """Nothing lies together: rows of columns 2 apart take half of each sector, and lanes run along them."""
    (first, *_) = sector_requests({"q": 64, "d": 64}, {"q": 128, "d": 2}, 0, 1, 2)
    assert first == tuple(range(0, 64, 2))
    (first, *_) = sector_requests({"q": 64, "d": 64}, {"q": 2, "d": 128}, 0, 1, 2)
    assert first == tuple(range(0, 64, 2))


# -- copies by rows are optimal -------------------------------------------------------------------


def shapes() -> Iterator[tuple[int, int, int, int]]:
    yield from product((8, 32, 64, 128), (8, 16, 24, 32, 40, 48, 64, 72, 80, 96, 128, 256), (2, 4), (64, 128, 256))


@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("threads", [32, 64, 128, 256])
def test_a_copy_moves_every_element_once(threads: int, bytes: int) -> None:
    for rows, columns, _, _ in shapes():
        for width in (16 // bytes, 4 // bytes, 1):
            access = copy_access({"q": rows, "d": columns}, width, threads, bytes)
            found = [at for request in access.requests({"q": columns, "d": 1}) for at in request]
            assert sorted(found) == list(range(0, rows * columns, width))
            assert all(at % columns + width <= columns for at in found)


@pytest.mark.parametrize("bytes", [2, 4])
def test_aligned_rows_of_whole_sectors_are_moved_in_the_fewest(bytes: int) -> None:
    """16 bytes a thread: if rows and the strides between them are multiples of 32 bytes, no sector is asked for twice;
    and if they are multiples of 128, a request is four whole lines."""
    for rows, columns, _, threads in shapes():
        if columns * bytes % 32:
            continue
        for beyond in (0, 32 // bytes, 64 // bytes, 128 // bytes):
            pitch = columns + beyond
            extents, width = {"q": rows, "d": columns}, 16 // bytes
            moved = traffic(copy_access(extents, width, threads, bytes), {"q": pitch, "d": 1}, bytes)
            assert moved.is_fewest
            if columns * bytes % 128 == 0 and pitch * bytes % 128 == 0:
                assert moved.has_whole_lines
                assert moved.sectors_per_request == min(16, moved.bytes // 32)


@pytest.mark.parametrize("bytes", [2, 4])
def test_dense_tiles_are_moved_in_the_fewest(bytes: int) -> None:
    """Rows of whole vectors, one after another: the tile is one run of bytes, and in the order of the tile requests
    begin at multiples of 512 bytes."""
    for rows, columns, _, _ in shapes():
        access = row_copy({"q": rows, "d": columns}, 16 // bytes)
        assert traffic(access, dense_strides(("q", "d"), {"q": rows, "d": columns}), bytes).is_fewest


@pytest.mark.parametrize("base", [0, 2, 4, 16, 30])
def test_in_the_order_of_the_tile_requests_share_at_most_their_ends(base: int) -> None:
    """Whatever the strides and the alignment: addresses only grow, so consecutive requests share at most one sector.
    With whole sectors out of reach (rows of an odd number of vectors), nothing but idle lanes would do better."""
    for rows, columns, bytes, pitch in product((8, 32), (8, 24, 40, 72), (2, 4), (72, 74, 80, 88)):
        for width in (16 // bytes, 4 // bytes, 1):
            if base % (width * bytes) or pitch % width:
                continue
            access = row_copy({"q": rows, "d": columns}, width)
            moved = traffic(access, {"q": max(pitch, columns), "d": 1}, bytes, base)
            assert moved.sectors - moved.fewest_sectors <= moved.requests - 1
            starts = [min(request) for request in access.requests({"q": max(pitch, columns), "d": 1})]
            assert all(low < high for low, high in pairwise(starts))


def test_lines_are_used_where_the_block_divides() -> None:
    assert line_span({"q": 64, "d": 128}, 8, 128, 2) == 64
    assert line_span({"q": 64, "d": 32}, 8, 128, 2) == 32
    assert line_span({"q": 64, "d": 96}, 8, 128, 2) is None
    assert line_span({"q": 128, "d": 64}, 8, 32, 2) == 64
    assert line_span({"q": 112, "d": 128}, 8, 256, 2) == 128  # 32 rows at once do not divide 112, 16 do
    assert line_span({"q": 64, "d": 96}, 8, 96, 2) == 96
    assert line_span({"q": 9, "d": 64}, 8, 128, 2) is None
    assert line_span({"b": 2, "q": 64, "d": 64}, 8, 128, 2) is None


# -- sectors by brute force, and fragments --------------------------------------------------------


@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("base", [0, 4, 20])
def test_sectors_of_fragments_by_brute_force(base: int, bytes: int) -> None:
    layout = accumulator("q", "d", 1, 4, (2, 1))
    strides, limits = {"q": 40, "d": 1}, {"q": 27, "d": 30}
    moved = traffic(fragment_access(layout, "d", 2), strides, bytes, base, limits)
    requests: dict[tuple[Any, ...], set[int]] = {}
    for registers, lane, warp, at in layout.elements():
        first = {**at, "d": at["d"] - registers[-1]}
        if all(first[axis] < limit for axis, limit in limits.items()):
            byte = base + bytes * sum(position * strides[axis] for axis, position in at.items())
            requests.setdefault((warp, registers[:-1]), set()).add(byte)
            assert lane < 32
    touched = [{(byte + i) // 32 for byte in each for i in range(bytes)} for each in requests.values()]
    assert moved.requests == len(requests)
    assert moved.sectors == sum(map(len, touched))
    assert moved.fewest_sectors == len(set().union(*touched))


def test_what_a_store_from_accumulators_costs() -> None:
    """Pairs of 16 bits fill half a sector a row, so that each is asked for twice; pairs of 32 bits fill sectors, so
    that a way through shared memory would save nothing."""
    access = fragment_access(accumulator("q", "d", 1, 8, (4, 1)), "d", 2)
    narrow, wide = (traffic(access, {"q": 64, "d": 1}, bytes) for bytes in (2, 4))
    assert (narrow.sectors_per_request, narrow.fewest_per_request) == (8, 4)
    assert (wide.sectors_per_request, wide.fewest_per_request) == (8, 8)
    staged = traffic(row_copy({"q": 64, "d": 64}, 8), {"q": 64, "d": 1}, 2)
    assert staged.has_whole_lines


@pytest.mark.parametrize("warps", [(1, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize("columns", [2, 4, 12])
@pytest.mark.parametrize("bytes", [1, 2])
def test_loads_of_whole_sectors(bytes: int, columns: int, warps: tuple[int, int]) -> None:
    """Lanes that fill a sector between them ask for each once, hold what the accumulator's warps hold, and bring it
    there by shuffles alone."""
    own = accumulator("q", "d", 2, columns, warps)
    wide = of_whole_sectors(own, "d", bytes)
    if columns % (4 // bytes):
        assert wide is None
        return
    assert wide is not None
    size = 8 * columns * warps[1]
    held = [
        traffic(fragment_access(each, "d", width), {"q": size, "d": 1}, bytes)
        for each, width in ((own, 2), (wide, 8 // bytes))
    ]
    assert held[0].fewest_sectors == held[1].fewest_sectors == held[1].sectors < held[0].sectors
    assert by_shuffles(wide, own, bytes).cost.total > 0
    assert {tuple(at.items()) for _, at in fragment(wide).everywhere()} == {
        tuple(at.items()) for _, at in fragment(own).everywhere()
    }


def test_what_fills_sectors_or_has_no_neighbours_is_loaded_as_it_is() -> None:
    pairs = accumulator("q", "d", 1, 8, (4, 1))
    assert of_whole_sectors(pairs, "d", 4) is None  # four pairs of 32 bits
    assert of_whole_sectors(pairs, "q", 2) is None  # registers run along the other axis
    assert of_whole_sectors(accumulator("q", "d", 1, 3, (4, 1)), "d", 2) is None  # of three, one would be left


@pytest.mark.parametrize("start", [0, 1, 3, 5])
@pytest.mark.parametrize("warps", [(1, 1), (4, 1), (8, 1)])
@pytest.mark.parametrize("row_tiles", [1, 2, 3, 4])
def test_lanes_that_hold_copies_share_out_rows(row_tiles: int, warps: tuple[int, int], start: int) -> None:
    """Sums of the rows of accumulators, four lanes each: the warp stores its rows by the fewest requests, and what they
    ask for are the fewest sectors that each warp can."""
    own = accumulator("q", "d", row_tiles, 8, warps).slice(["q"])
    spread = of_spread_copies(own)
    assert spread is not None
    held = [{elements_of_warp(each, warp) for warp in range(warps[0])} for each in (own, spread)]
    assert held[0] == held[1]
    moved = [traffic(fragment_access(each, "q", 1, once=True), {"q": 1}, 4, 4 * start) for each in (own, spread)]
    registers = 2 * row_tiles
    assert moved[0].requests == registers * warps[0]
    assert moved[1].requests == registers // gcd(4, registers) * warps[0]
    assert moved[1].sectors <= moved[0].sectors
    if 4 % registers == 0:
        each_warp = [{(at + start) * 4 // 32 for at in elements} for elements in held[0]]
        assert moved[1].sectors == sum(map(len, each_warp))
    assert by_shuffles(own, spread, 4).cost.wavefronts == 0  # selects alone


def elements_of_warp(layout: LayoutAttr, warp: int) -> tuple[int, ...]:
    return tuple(sorted({at["q"] for _, _, its_warp, at in layout.elements() if its_warp == warp}))


def test_what_no_lanes_hold_twice_is_stored_as_it_is() -> None:
    assert of_spread_copies(accumulator("q", "d", 1, 8, (4, 1))) is None
    assert of_spread_copies(LayoutAttr((), (Mode("", 32, 0),), (Mode("q", 4, 1),))) is None  # one register


# -- widths ---------------------------------------------------------------------------------------

FRAGMENT = """
#layout = #cuda.layout<register = [{register}], lane = [{lane}], warp = []>
!X = memref<{size}x{format}, strided<[1], offset: ?>, #diagram.array<[n], level = device>>
!t = tensor<{size}x{format}, #diagram.array<[n], level = register, layout = #layout>>
cuda.kernel @load (%X: !X) threads 32 shared 0 {{
  %zero = arith.constant 0 : index
  %t = cuda.load %X[%zero] : !X -> !t
}}
"""


@pytest.mark.parametrize(
    ("parameters", "width"),
    [
        ({"register": "n:8:1", "lane": "n:32:8", "size": 256, "format": "f16"}, 8),
        ({"register": "n:16:1", "lane": "n:32:16", "size": 512, "format": "f16"}, 8),
        ({"register": "n:8:1", "lane": "n:32:8", "size": 256, "format": "f32"}, 4),
        ({"register": "n:8:1", "lane": "n:32:8", "size": 252, "format": "f16"}, 4),  # pieces begin at multiples of 4
        ({"register": "n:6:1", "lane": "n:32:6", "size": 192, "format": "f16"}, 2),
        ({"register": "n:8:32", "lane": "n:32:1", "size": 256, "format": "f16"}, 1),
        ({"register": "n:2:64, n:2:1", "lane": "n:32:2", "size": 128, "format": "f16"}, 2),
        ({"register": "n:2:1", "lane": "n:32:2", "size": 63, "format": "f32"}, 1),
    ],
)
def test_the_widest_vector_of_a_fragment(parameters: Mapping[str, Any], width: int) -> None:
    module = parse_module(FRAGMENT.format(**parameters))
    (op,) = [op for op in module.walk() if isinstance(op, cuda.LoadOp)]
    assert widest(op) == width


# -- what lies in rows beside products ------------------------------------------------------------

IN_ROWS = [
    ("softmax_matmul", "A"),
    ("quantised_matmul", "X"),
    ("linear_attention", "K"),
    ("attention_f8", "V"),
]


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize(("name", "array"), IN_ROWS)
def test_what_threads_load_beside_products_is_asked_for_once(name: str, array: str, machine: str) -> None:
    """Neighbours by their own format, not by that of a factor that is copied; vectors along their own last axis; and no
    two warps load the same."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    run_pipeline(module, Options(machine=machine))
    loads = [
        (load, cuda.working_threads(kernel))
        for kernel in module.body.block.ops
        if isinstance(kernel, cuda.KernelOp)
        for load in kernel.walk()
        if isinstance(load, cuda.LoadOp) and load.source.name_hint == array
    ]
    for load, threads in loads:
        assert max(load.width_list) * format_bytes(load.buffer_type) >= 8
        assert traffic_of(load, threads).is_fewest
    assert loads or machine == "h100"  # where tensor copies may bring it


# -- what the compiler makes of it ---------------------------------------------------------------------


@pytest.mark.skipif(find_nvcc() is None or find_disassembler() is None, reason="no nvcc or no disassembler")
@pytest.mark.parametrize("name", ["matmul", "softmax", "split_k"])
def test_a_vector_leaves_by_one_instruction(name: str) -> None:
    """As the emulator counts it. The compiler stores a structure of four words as it likes, and at times one by one."""
    module = load_module(EXAMPLES / f"{name}.mlir")
    run_pipeline(module, Options(arch="sm_80"))
    kernels = {kernel.sym_name.data for kernel in module.walk() if isinstance(kernel, cuda.KernelOp)}
    stores = {
        function.name: [each.opcode for each in function.instructions if each.opcode.startswith("STG")]
        for function in disassemble(compile_cubin(print_cuda(module), "sm_80").path)
        if function.name in kernels and "parts" not in function.name
    }
    assert stores
    for kernel, found in stores.items():
        assert set(found) == {"STG.E.128"}, kernel
