"""Layouts by enumeration: every element is held, once or by its replicas, where CuTe says and where the printed index
expressions say; shared tiles keep elements apart, rows aligned and eight rows in eight groups of banks."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import product
from math import prod
from pathlib import Path

import pytest
from cute_facts import printed_with_cute

from roads import attention, compiled, matmul
from treadle.compiler.printer.indices import Loop, coordinate, replicas, subscripts, tile_offset
from treadle.dialects.cuda.layout import (
    LANES,
    LayoutAttr,
    Mode,
    RowsAttr,
    accumulator,
    row_operand,
    rows_layout,
)
from treadle.dialects.cuda.tiles import is_fragment, is_shared, layout_of, rows_of
from treadle.dialects.diagram.array import axes_of, format_of, shape_of

ACCUMULATORS = [
    accumulator("m", "n", rows, columns, warps)
    for rows, columns, warps in product((1, 2, 3), (1, 2, 5, 16), ((1, 1), (4, 1), (2, 2), (1, 8)))
]
OPERANDS = [
    row_operand("m", "k", rows, depth, (Mode("m", warps, 16 * rows),))
    for rows, depth, warps in product((1, 2), (1, 3, 8), (1, 4))
]
PROGRAMS = (
    attention(64, 40, "f16"),
    attention(24, 24, "f32"),
    attention(40, 40, "f32", tf32=True),
    attention(256, 256, "bf16"),
    matmul("mk", "kn", "f16"),
    matmul("km", "nk", "f32", "nm"),
    Path("examples/softmax.mlir"),
    Path("tests/programs/variance.mlir"),
    Path("tests/programs/mlp.mlir"),
)


def types_of(program: str | Path) -> list[object]:
    """The types of all values of a program's kernels."""
    text = (Path(__file__).parents[1] / program).read_text() if isinstance(program, Path) else program
    values = (
        value
        for kernel in compiled(text).kernels
        for op in kernel.walk()
        for value in (*op.results, *(arg for region in op.regions for block in region.blocks for arg in block.args))
    )
    return list(dict.fromkeys(value.type for value in values))


def holders(layout: LayoutAttr) -> Counter[tuple[tuple[str, int], ...]]:
    """How many registers hold each element."""
    return Counter(tuple(sorted(place.items())) for *_, place in layout.elements())


@pytest.mark.sample(11)
@pytest.mark.parametrize("layout", [*ACCUMULATORS, *OPERANDS], ids=str)
def test_every_element_is_held_once(layout: LayoutAttr) -> None:
    found = holders(layout)
    assert set(found.values()) == {1}
    assert len(found) == prod(layout.extent(axis) for axis in layout.axes())


@pytest.mark.parametrize("layout", [*ACCUMULATORS, *OPERANDS], ids=str)
def test_a_slice_is_held_by_its_replicas(layout: LayoutAttr) -> None:
    """A slice keeps one copy for each place along the axes that it lacks, but for the registers' own."""
    for axis in layout.axes():
        sliced = layout.slice([axis])
        found = holders(sliced)
        assert len(found) == layout.extent(axis)
        assert set(found.values()) == {LANES * layout.warps * prod(sliced.register_shape) // len(found)}


@pytest.mark.sample(4)
@pytest.mark.parametrize("program", range(len(PROGRAMS)))
def test_fragments_of_a_kernel_hold_their_tiles(program: int) -> None:
    """Every layout that the compiler makes reaches all of its tile, and every element equally often."""
    fragments = [type for type in types_of(PROGRAMS[program]) if is_fragment(type)]
    assert fragments
    for type in fragments:
        layout, sizes = layout_of(type), dict(zip(axes_of(type), shape_of(type), strict=True))
        assert set(layout.axes()) <= set(sizes), type
        assert all(layout.extent(axis) >= size for axis, size in sizes.items()), type
        found = holders(layout)
        assert len(set(found.values())) == 1, type
        assert len(found) == prod(layout.extent(axis) for axis in layout.axes()), type


def test_no_warp_is_idle_along_its_axis() -> None:
    """Loaded keys of linear attention, 64 columns over four warps: each has 16, and its other lanes have other rows."""
    for type in types_of(Path("examples/linear_attention.mlir")):
        if is_fragment(type) and "x" in axes_of(type):
            layout, sizes = layout_of(type), dict(zip(axes_of(type), shape_of(type), strict=True))
            assert layout.extent("d") == sizes["d"], type


# -- against CuTe ----------------------------------------------------------------------------------

CUTE = """
#include <cstdio>
#include <cute/atom/mma_traits_sm80.hpp>
#include <cute/atom/mma_traits_sm89.hpp>
using namespace cute;
template <class L> void show(const char* name, L layout) {
  for (int t = 0; t < size<0>(layout); ++t)
    for (int v = 0; v < size<1>(layout); ++v) printf("%s %d %d %d\\n", name, t, v, int(layout(t, v)));
}
int main() {
  using Half = MMA_Traits<SM80_16x8x16_F32F16F16F32_TN>;
  using Single = MMA_Traits<SM80_16x8x8_F32TF32TF32F32_TN>;
  using Byte = MMA_Traits<SM89_16x8x32_F32E4M3E4M3F32_TN>;
  show("operand", Half::ALayout{});
  show("operand_of_bytes", Byte::ALayout{});
  show("accumulator", Half::CLayout{});
  show("accumulator_tf32", Single::CLayout{});
}
"""


@pytest.fixture(scope="module")
def cute() -> dict[str, dict[tuple[int, int], int]]:
    """CuTe's layouts: the index, down the columns, of each lane's values in order."""
    found: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
    for line in printed_with_cute(CUTE):
        name, lane, value, index = line.split()
        found[name][int(lane), int(value)] = int(index)
    return found


@pytest.mark.parametrize("name", ["accumulator", "accumulator_tf32", "operand", "operand_of_bytes"])
def test_fragments_are_cutes(cute: dict[str, dict[tuple[int, int], int]], name: str) -> None:
    pack = 4 if name == "operand_of_bytes" else 2
    layout = row_operand("m", "k", 1, 1, (), pack) if "operand" in name else accumulator("m", "k", 1, 1, (1, 1))
    table = cute[name]
    strides = [prod(layout.register_shape[i + 1 :]) for i in range(len(layout.register_shape))]
    count = 0
    for registers, lane, _, place in layout.elements():
        value = sum(digit * stride for digit, stride in zip(registers, strides, strict=True))
        assert table[lane, value] == place["m"] + 16 * place["k"]
        count += 1
    assert count == len(table)


# -- the printed expressions -----------------------------------------------------------------------


def evaluate(text: str, **variables: int) -> int:
    """A C expression of non-negative integers: `/` divides as `//` does."""
    swizzled = re.sub(r"swizzled<(\d+), (\d+), (\d+), (\d+)>\(", r"swizzled(\1, \2, \3, \4, ", text)
    python = swizzled.replace("/", "//").replace("&&", "and")
    return int(eval(python, {"swizzled": swizzle}, variables))


def swizzle(pitch: int, bits: int, shift: int, chunk: int, row: int, column: int) -> int:
    """What the primitive `swizzled` computes."""
    mask = row >> shift & (1 << bits) - 1
    return row * pitch + (column // chunk ^ mask) * chunk + column % chunk


def loops_of(layout: LayoutAttr) -> list[Loop]:
    return [Loop(mode, f"i{i}") for i, mode in enumerate(layout.register)]


BLOCKED = LayoutAttr(
    (Mode("a", 3, 16), Mode("b", 2, 16), Mode("b", 4, 1)),
    (Mode("", 2, 0), Mode("a", 4, 1), Mode("b", 4, 4)),
    (Mode("", 2, 0), Mode("a", 4, 4)),
)


@pytest.mark.parametrize("layout", [ACCUMULATORS[5], ACCUMULATORS[30], OPERANDS[4], BLOCKED], ids=str)
def test_printed_coordinates_are_the_layouts(layout: LayoutAttr) -> None:
    loops = loops_of(layout)
    texts = {axis: coordinate(layout, axis, loops) for axis in layout.axes()}
    for registers, lane, warp, place in layout.elements():
        digits = {loop.variable: digit for loop, digit in zip(loops, registers, strict=True)}
        for axis, text in texts.items():
            assert evaluate(text, lane=lane, warp=warp, **digits) == place[axis]


@pytest.mark.parametrize("layout", [BLOCKED, ACCUMULATORS[20].slice("m"), ACCUMULATORS[20].slice("n")], ids=str)
def test_one_thread_is_picked_of_those_with_copies(layout: LayoutAttr) -> None:
    test = replicas(layout)
    assert test is not None
    found = Counter(
        tuple(sorted(place.items()))
        for _, lane, warp, place in layout.elements()
        if evaluate(test, lane=lane, warp=warp)
    )
    assert set(found.values()) == {1}
    assert len(found) == prod(layout.extent(axis) for axis in layout.axes())


@pytest.mark.parametrize("pack", [2, 4])
@pytest.mark.parametrize(("rows", "depth"), [(1, 1), (2, 4), (1, 3)])
def test_an_accumulator_is_found_in_a_left_operand(rows: int, depth: int, pack: int) -> None:
    """The digits that find, for the registers of the one, the same element in those of the other; of 8-bit numbers in
    those of an accumulator whose columns are interleaved."""
    one = accumulator("m", "k", rows, pack * depth, (1, 1), interleaved=pack == 4)
    other = row_operand("m", "k", rows, depth, (), pack)
    for here, there in ((one, other), (other, one)):
        loops = loops_of(here)
        text = subscripts(there, loops)
        for registers, lane, warp, place in here.elements():
            digits = {loop.variable: digit for loop, digit in zip(loops, registers, strict=True)}
            found = [evaluate(digit, **digits) for digit in re.findall(r"\[([^]]*)\]", text)]
            assert there.coordinates(found, lane, warp) == place


# -- shared memory ---------------------------------------------------------------------------------

WIDTHS = range(16, 257, 8)


@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("width", WIDTHS)
def test_rows_of_a_tile(width: int, bytes: int) -> None:
    """Elements lie apart; chunks of 16 bytes stay whole and aligned; a chunk of each of eight neighbouring rows, which
    is what `ldmatrix` reads at a time, lies in eight different groups of four banks."""
    chunk = 16 // bytes
    rows = rows_layout((32, width), chunk)
    places = {(i, j): rows.offset((i, j), chunk) for i in range(32) for j in range(width)}
    assert len(set(places.values())) == len(places)
    assert max(places.values()) < rows.elements
    for (i, j), at in places.items():
        assert at % chunk == j % chunk
        assert places[i, j - j % chunk] == at - at % chunk
    for first, j in product(range(0, 32, 8), range(0, width, chunk)):
        assert len({places[i, j] // chunk % 8 for i in range(first, first + 8)}) == 8


@pytest.mark.parametrize(
    ("extents", "is_swizzled"), [((256,), False), ((1, 64), False), ((4, 24), False), ((4, 64), True)]
)
def test_few_rows_need_no_swizzle(extents: tuple[int, ...], is_swizzled: bool) -> None:
    """None of a line, and of rows that have not gone through all groups of banks: their XOR would be with 0."""
    assert bool(rows_layout(extents, 4).swizzle_bits) == is_swizzled


@pytest.mark.parametrize("extents", [(16, 24), (1, 16, 40), (4, 8, 64), (2, 3, 1, 128), (20,), (1, 1), ()])
def test_printed_places_are_the_tiles(extents: tuple[int, ...]) -> None:
    for chunk in (4, 8):
        rows = rows_layout(extents, chunk)
        text = tile_offset(rows, chunk, [f"c{i}" for i in range(len(extents))])
        for place in product(*(range(extent) for extent in extents)):
            variables = {f"c{i}": index for i, index in enumerate(place)}
            assert evaluate(text, **variables) == rows.offset(place, chunk)


@pytest.mark.sample(4)
@pytest.mark.parametrize("program", range(len(PROGRAMS)))
def test_tiles_of_a_kernel(program: int) -> None:
    """Every tile that the compiler makes holds its array and the padding, each element in a place of its own."""
    for type in types_of(PROGRAMS[program]):
        if not is_shared(type):
            continue
        rows: RowsAttr = rows_of(type)
        assert all(extent >= size for extent, size in zip(rows.shape, shape_of(type), strict=True)), type
        chunk = 8 if str(format_of(type)) in ("f16", "bf16") else 4
        places = {rows.offset(place, chunk) for place in product(*(range(extent) for extent in rows.shape))}
        assert len(places) == prod(rows.shape), type
        assert max(places) < rows.elements, type
