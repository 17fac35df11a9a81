"""Shared memory: wavefronts and swizzles, against a model of the banks that knows nothing of the algebra."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from treadle.compiler.layouts import (
    Access,
    LayoutError,
    Map,
    Tile,
    choose_rows,
    fragment_access,
    is_conflict_free,
    matrix_rows,
    natural_swizzle,
    right_tf32,
    row_copy,
    tile_rows,
    wavefronts,
)
from treadle.compiler.layouts.accesses import lanes_of, without_vector
from treadle.compiler.layouts.conflicts import Wavefronts, by_enumeration, by_rank
from treadle.dialects.cuda.layout import LayoutAttr, Mode, RowsAttr, accumulator, row_operand

WIDTHS = range(16, 257, 8)


def brute(addresses: list[list[int | None]], bytes: int) -> Wavefronts:
    """Instructions as byte addresses of 32 lanes, None for an idle one: the banks, word by word."""
    lanes = {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}[bytes]
    phases = passes = 0
    for request in addresses:
        for first in range(0, len(request), lanes):
            active = [address for address in request[first : first + lanes] if address is not None]
            words = {(address + byte) // 4 for address in active for byte in range(bytes)}
            if words:
                phases += 1
                passes += max(sum(word % 32 == bank for word in words) for bank in range(32))
    return Wavefronts(phases, passes)


def every_address(access: Access, tile: Tile) -> list[list[int | None]]:
    """The addresses of an access by evaluating its map at every index."""
    places, found = access.places, list[list[int | None]]()

    def address(coordinates: Mapping[str, int]) -> int | None:
        if any(coordinates.get(axis, 0) >= extent for axis, extent in tile.extents.items()):
            return None
        return tile.address(coordinates)

    if access.is_dealt:
        every = [address(places(item=i)) for i in range(places.size("item"))]
        return [every[i : i + 32] for i in range(0, len(every), 32)]
    for warp in range(places.size("warp")):
        for register in range(places.size("register")):
            found.append([address(each) for each in lanes_of(places, warp, register)])
    return found


def check(access: Access, tile: Tile) -> Wavefronts:
    """Enumeration and proof agree with the model."""
    expected = brute(every_address(access, tile), access.width * tile.element_bytes)
    assert by_enumeration(access, tile) == expected
    proved = by_rank(access, tile)
    assert proved is None or proved == expected
    return expected


# -- tiles ----------------------------------------------------------------------------------------

tiles = st.builds(
    lambda rows, columns, pad, swizzle, bytes: (rows, columns, pad, swizzle, bytes),
    st.sampled_from([8, 16, 24]),
    st.sampled_from([*WIDTHS][:12]),
    st.integers(0, 7),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from([2, 4]),
)


def tile_of(parameters: tuple[int, int, int, tuple[int, int], int]) -> Tile:
    rows, columns, pad, swizzle, bytes = parameters
    layout = tile_rows((rows, 1, columns), bytes, pad, swizzle)
    assume(layout.pitch.data * bytes // 16 % (1 << swizzle[0]) == 0)
    return Tile(("q", "h", "d"), layout, bytes)


@given(tiles)
@settings(deadline=None, max_examples=30)
def test_a_tile_gives_every_element_its_own_place(parameters: tuple[int, int, int, tuple[int, int], int]) -> None:
    """Where the swizzle's power of two divides the chunks of a row: bijective, within the tile, chunks kept whole."""
    tile = tile_of(parameters)
    extents = tile.extents
    every = {(q, d): tile.offset({"q": q, "d": d}) for q in range(extents["q"]) for d in range(extents["d"])}
    assert len(set(every.values())) == len(every)
    assert max(every.values()) < tile.rows.elements
    assert all(every[q, d] == every[q, d - d % tile.chunk] + d % tile.chunk for q, d in every)
    assert all(every[q, d] // tile.rows.pitch.data == q for q, d in every)


@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("swizzle", [(), (3, 0), (2, 1), (1, 2)])
@pytest.mark.parametrize("extents", [(64, 64), (16, 128), (2, 1, 8, 32)])
def test_the_matrix_of_a_tile_is_the_tile(extents: tuple[int, ...], swizzle: tuple[int, ...], bytes: int) -> None:
    axes = ("a", "b", "c", "d")[-len(extents) :]
    if swizzle and extents[-1] * bytes // 16 % (1 << swizzle[0]):
        pytest.skip("this swizzle leaves the row")
    tile = Tile(axes, tile_rows(extents, bytes, 0, swizzle), bytes)
    matrix, place = tile.matrix(), tile.place()
    for word in range(prod(extents)):
        coordinates = {axis: word >> place[axis] & (extent - 1) for axis, extent in tile.extents.items()}
        assert matrix(word) == tile.address(coordinates)
    assert matrix.rank() == len(matrix.columns)  # every element its own address


def test_a_tile_that_is_not_binary_has_no_matrix() -> None:
    tile = Tile(("q", "d"), tile_rows((64, 48), 2), 2)
    assert not tile.is_binary
    with pytest.raises(LayoutError, match="no power of two"):
        tile.matrix()


# -- wavefronts -----------------------------------------------------------------------------------


@given(tiles, st.sampled_from([1, 2, 4, 8]))
@settings(deadline=None, max_examples=40)
def test_copies_by_rows(parameters: tuple[int, int, int, tuple[int, int], int], width: int) -> None:
    tile = tile_of(parameters)
    assume(width * tile.element_bytes <= 16)
    check(row_copy(tile.extents, width), tile)


@given(tiles)
@settings(deadline=None, max_examples=30)
def test_matrix_loads(parameters: tuple[int, int, int, tuple[int, int], int]) -> None:
    tile = tile_of(parameters)
    check(matrix_rows("q", "d", tile.extents, tile.element_bytes), tile)


@given(tiles, st.booleans(), st.booleans(), st.booleans())
@settings(deadline=None, max_examples=40)
def test_fragments(
    parameters: tuple[int, int, int, tuple[int, int], int], transposed: bool, pairs: bool, operand: bool
) -> None:
    tile = tile_of(parameters)
    rows, columns = ("d", "q") if transposed else ("q", "d")
    counts = -(-tile.extents[rows] // 16), -(-tile.extents[columns] // 16)
    layout = (
        row_operand(rows, columns, counts[0], counts[1], ())
        if operand
        else accumulator(rows, columns, counts[0], 2 * counts[1], (1, 1))
    )
    check(fragment_access(layout, columns, 2 if pairs and not transposed else 1), tile)


digits = st.lists(st.tuples(st.sampled_from(["q", "d"]), st.integers(0, 6)), min_size=5, max_size=5)


@given(digits, st.sampled_from([1, 2, 4, 8]), st.sampled_from([(3, 0), (2, 1), (1, 2), (0, 0), (2, 0)]))
@settings(deadline=None, max_examples=300)
def test_rank_counts_wavefronts_of_any_binary_layout(
    lanes: list[tuple[str, int]], width: int, swizzle: tuple[int, int]
) -> None:
    """Lanes laid out in any way over a tile of 128 x 128 16-bit elements: the proof says what the banks do."""
    used: set[tuple[str, int]] = set()
    modes: list[Mode] = []
    for axis, bit in lanes:
        bit = max(bit, (width - 1).bit_length()) if axis == "d" else bit
        modes.append(Mode("", 2, 0) if (axis, bit) in used else Mode(axis, 2, 1 << bit))
        used.add((axis, bit))
    tile = Tile(("q", "d"), tile_rows((128, 128), 2, 0, swizzle), 2)
    access = Access(Map.of(register=[], lane=modes, warp=[]), "d", width)
    assert by_rank(access, tile) is not None
    check(access, tile)


@pytest.mark.parametrize(("pitch", "conflicts"), [(64, 7), (72, 0), (128, 7), (40, 0)])
def test_pitches_whose_conflicts_the_emulator_counts_too(pitch: int, conflicts: int) -> None:
    """The same numbers as in test_emulator_counts.py: eight rows of 16 bytes."""
    tile = Tile(("q", "d"), RowsAttr((8, 8), pitch), 2)
    assert wavefronts(matrix_rows("q", "d", tile.extents, 2), tile).conflicts == conflicts


def test_copies_take_no_part_where_only_the_first_does() -> None:
    layout = LayoutAttr([], [Mode("", 4, 0), Mode("q", 8, 1)], [Mode("", 2, 0)])
    tile = Tile(("q", "d"), tile_rows((8, 64), 2), 2)
    every, first = (Access(Map.of(register=[], lane=layout.lane, warp=layout.warp), "d", 1, once) for once in (0, 1))
    assert (by_enumeration(every, tile), by_enumeration(first, tile)) == (Wavefronts(2, 16), Wavefronts(1, 8))


def test_vectors_must_lie_along_the_rows() -> None:
    tile = Tile(("q", "d"), tile_rows((16, 64), 2), 2)
    with pytest.raises(LayoutError, match="not neighbours in rows along 'd'"):
        by_enumeration(fragment_access(accumulator("d", "q", 4, 2, (1, 1)), "q", 2), tile)
    with pytest.raises(LayoutError, match="no vectors of 4"):
        without_vector(Map.of(register=[Mode("q", 2, 1)]), "q", 4)
    with pytest.raises(LayoutError, match="do not fill rows"):
        row_copy({"q": 4, "d": 12}, 8)


# -- swizzles -------------------------------------------------------------------------------------


@pytest.mark.sample(14)
@pytest.mark.parametrize("bytes", [2, 4])
@pytest.mark.parametrize("columns", WIDTHS)
def test_copies_and_matrix_loads_need_no_padding(columns: int, bytes: int) -> None:
    """Copies by 16 bytes and `ldmatrix`, plain and transposed, are conflict-free without a byte of padding, for every
    width: what `natural_swizzle` argues, held against the banks."""
    extents = {"q": 32, "d": columns}
    accesses = (row_copy(extents, 16 // bytes), matrix_rows("q", "d", extents, bytes))
    choice = choose_rows(("q", "d"), (32, columns), bytes, *accesses)
    assert choice.conflicts == 0
    assert choice.bytes == 32 * columns * bytes
    natural = Tile(("q", "d"), tile_rows((32, columns), bytes, 0, natural_swizzle(columns * bytes // 16) or ()), bytes)
    for access in accesses:
        assert check(access, choice.tile).conflicts == 0
        assert check(access, natural).conflicts == 0


@pytest.mark.parametrize("columns", WIDTHS)
def test_sixteen_bit_results_pass_without_conflicts(columns: int) -> None:
    """The epilogue: pairs of an accumulator written, rows read by 16 bytes, still without padding."""
    extents = {"q": 32, "d": columns}
    pairs = fragment_access(accumulator("q", "d", 1, columns // 8, (2, 1)), "d", 2)
    accesses = (pairs, row_copy(extents, 8))
    choice = choose_rows(("q", "d"), (32, columns), 2, *accesses)
    assert (choice.conflicts, choice.bytes) == (0, 64 * columns)
    assert all(check(access, choice.tile).conflicts == 0 for access in accesses)


@pytest.mark.sample(6)
@pytest.mark.parametrize("columns", WIDTHS)
def test_wide_results_are_conflict_free_or_the_cost_is_told(columns: int) -> None:
    """32-bit pairs are two chunks of four rows at once: free with at most 32 bytes of padding a row. Asked for one
    chunk of eight rows besides, rows of 4 chunks more than a multiple of 8 pay, and it is told how much."""
    extents = {"q": 32, "d": columns}
    pairs = fragment_access(accumulator("q", "d", 1, columns // 8, (2, 1)), "d", 2)
    accesses = (pairs, row_copy(extents, 4))
    choice = choose_rows(("q", "d"), (32, columns), 4, *accesses)
    assert [check(access, choice.tile).conflicts for access in accesses] == [0, 0]
    assert choice.bytes - 128 * columns in (0, 32 * 16, 32 * 32)
    accesses = (*accesses, matrix_rows("q", "d", extents, 4))
    choice = choose_rows(("q", "d"), (32, columns), 4, *accesses)
    assert list(choice.accesses) == [check(access, choice.tile) for access in accesses]
    assert choice.conflicts == (16 if columns % 32 == 16 else 0)


@pytest.mark.parametrize("columns", [32, 64, 128, 96])
def test_tf32_operands(columns: int) -> None:
    """The right operand of tf32 from rows along its depth: as `ldmatrix`. Across the rows: four rows of 32 bytes."""
    extents = {"n": 64, "k": columns}
    along = right_tf32("n", "k", extents, "k")
    choice = choose_rows(("n", "k"), (64, columns), 4, row_copy(extents, 4), along)
    assert (choice.conflicts, choice.bytes) == (0, 256 * columns)
    across = right_tf32("k", "n", extents, "k")
    assert choose_rows(("n", "k"), (64, columns), 4, row_copy(extents, 4), across).conflicts == 0


def test_what_no_layout_serves_is_given_with_its_cost() -> None:
    """Columns and rows of single elements at once: 32 lanes down a column and 16 bytes along a row."""
    down = Access(Map.of(register=[Mode("d", 64, 1)], lane=[Mode("q", 32, 1)], warp=[]), "d", 1)
    along = row_copy({"q": 32, "d": 64}, 4)
    choice = choose_rows(("q", "d"), (32, 64), 4, down, along)
    assert choice.conflicts > 0
    assert choice.conflicts == sum(
        check(access, choice.tile).conflicts for access in (down, row_copy({"q": 32, "d": 64}, 4))
    )


def test_the_natural_swizzle_is_that_of_cutlass() -> None:
    """Rows of 128, 64 and 32 bytes: Swizzle<3, 3, 3>, <2, 3, 3>, <1, 3, 3> of CUTLASS's swizzle.hpp, on bytes / 2."""
    for chunks, bits in ((8, 3), (4, 2), (2, 1)):
        tile = Tile(("q", "d"), tile_rows((64, 8 * chunks), 2, 0, natural_swizzle(chunks) or ()), 2)
        for q in range(64):
            for d in range(8 * chunks):
                plain = q * 8 * chunks + d
                mask = ((1 << bits) - 1) << 6
                assert tile.offset({"q": q, "d": d}) == plain ^ (plain & mask) >> 3


def test_proof_of_the_swizzle_in_one_line() -> None:
    """Eight rows of one chunk: rank of the bank bits equals rank of the address bits."""
    tile = Tile(("q", "d"), tile_rows((64, 64), 2, 0, (3, 0)), 2)
    plain = Tile(("q", "d"), tile_rows((64, 64), 2), 2)
    eight = Access(Map.of(register=[], lane=[Mode("q", 8, 1)], warp=[]), "d", 8)
    assert is_conflict_free(eight, tile)
    assert wavefronts(eight, plain) == Wavefronts(1, 8)
