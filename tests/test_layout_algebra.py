"""The laws of maps, by enumerating every index and by random maps."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treadle.compiler.layouts import (
    LayoutError,
    Map,
    as_layout,
    digit_of,
    fragment,
    meets,
    refine,
    register_digits,
    same_elements,
)
from treadle.compiler.layouts.bits import BitMatrix, identity, is_binary, matrix, places_of
from treadle.compiler.layouts.digits import cut, joined, ordered, overlap
from treadle.compiler.layouts.fragments import accumulator_atom, left_atom, place_of, right_atom
from treadle.dialects.cuda.layout import LayoutAttr, Mode, accumulator, digits_of, row_operand

INDICES = ("register", "lane", "warp")


MOST = 256
"""Elements of a random map: each is enumerated."""


@st.composite
def bijections(draw: st.DrawFn, sizes: tuple[int, ...] = (2, 3, 4, 5, 8), copies: bool = False) -> Map:
    """Maps that hold every coordinate of a box exactly once (or in copies): digits of the axes, dealt to indices."""
    digits: list[Mode] = []
    room = MOST
    strides = {"q": 1, "x": 1, "d": 1, "": 0}
    for axis in draw(st.lists(st.sampled_from(["q", "x", "d", ""] if copies else ["q", "x", "d"]), max_size=6)):
        size = draw(st.sampled_from(sizes))
        if size <= room:
            digits.append(Mode(axis, size, strides[axis]))
            strides[axis] *= size
            room //= size
    digits = draw(st.permutations(digits))
    homes = [draw(st.sampled_from(INDICES)) for _ in digits]
    return Map.of(**{name: [d for d, home in zip(digits, homes, strict=True) if home == name] for name in INDICES})


def function(map: Map) -> dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """A map by enumeration, without coordinates that are 0."""
    return {
        tuple(sorted(at.items())): tuple(sorted((axis, c) for axis, c in found.items() if c))
        for at, found in map.everywhere()
    }


def box(map: Map) -> list[dict[str, int]]:
    ranges = (range(extent) for extent in map.extents().values())
    return [dict(zip(map.extents(), values, strict=True)) for values in product(*ranges)]


# -- digits ---------------------------------------------------------------------------------------


@given(st.integers(1, 24), st.integers(1, 6), st.integers(1, 150))
@settings(deadline=None)
def test_a_cut_digit_counts_the_same(size: int, stride: int, place: int) -> None:
    mode = Mode("q", size, stride)
    try:
        pieces = cut(mode, place)
    except LayoutError:
        assert stride < place < size * stride
        assert place % stride or size % (place // stride)
        return
    whole, parts = Map.of(i=[mode]), Map.of(i=pieces)
    assert whole.same_as(parts)
    assert [whole(i=i) for i in range(size)] == [parts(i=i) for i in range(size)]


modes = st.builds(Mode, st.sampled_from(["q", "x"]), st.integers(2, 4), st.sampled_from([1, 2, 3, 4, 6, 8]))


@given(st.lists(modes, max_size=4), st.lists(modes, max_size=4))
@settings(deadline=None, max_examples=400)
def test_joined_is_a_normal_form(left: list[Mode], right: list[Mode]) -> None:
    """Two sequences of digits are the same function of the index exactly if their joined forms are equal."""
    one, other = Map.of(i=left), Map.of(i=right)
    same = one.size("i") == other.size("i") and function(one) == function(other)
    assert (joined(left) == joined(right)) == same
    assert function(Map.of(i=joined(left))) == function(one)


@given(bijections(), st.randoms())
@settings(deadline=None)
def test_ordered_is_a_normal_form_of_sets(map: Map, random: object) -> None:
    digits = list(map.all_modes())
    reached = {tuple(sorted(found.items())) for _, found in Map.of(i=digits).everywhere()}
    assert len(reached) == prod(mode.size for mode in digits)
    assert ordered(digits) == ordered(reversed(digits))
    assert overlap(digits) is None


def test_overlapping_digits_are_found() -> None:
    assert overlap([Mode("q", 4, 1), Mode("q", 2, 2)]) == (Mode("q", 4, 1), Mode("q", 2, 2))
    assert overlap([Mode("q", 4, 1), Mode("x", 2, 2), Mode("q", 2, 4)]) is None


@given(bijections(), bijections())
@settings(deadline=None, max_examples=300)
def test_a_digit_is_read_off_others(one: Map, other: Map) -> None:
    """Wherever `digit_of` answers, its terms give the digit, for every coordinate of the axis."""
    given_modes = [mode for mode in one.all_modes() if mode.axis == "q"]
    for wanted in other.all_modes():
        if wanted.axis != "q":
            continue
        try:
            terms = digit_of(wanted, given_modes)
        except LayoutError:
            continue
        for digits in product(*(range(mode.size) for mode in given_modes)):
            coordinate = sum(digit * mode.stride for digit, mode in zip(digits, given_modes, strict=True))
            assert sum(term.value(digits) for term in terms) == coordinate // wanted.stride % wanted.size


# -- the algebra ----------------------------------------------------------------------------------


@given(bijections())
@settings(deadline=None)
def test_a_bijection_reaches_every_coordinate_once(map: Map) -> None:
    reached = [tuple(found.values()) for _, found in map.everywhere()]
    assert len(set(reached)) == len(reached) == prod(map.extents().values())


@given(bijections(copies=True))
@settings(deadline=None)
def test_the_inverse_finds_every_element(map: Map) -> None:
    inverse = map.inverse()
    assert inverse.then(map).same_as(Map.of(**{axis: [Mode(axis, n, 1)] for axis, n in map.extents().items()}))
    for coordinates in box(map):
        assert map(**inverse(**coordinates)) == coordinates


@given(bijections())
@settings(deadline=None)
def test_the_inverse_of_a_bijection_undoes_it(map: Map) -> None:
    round_trip = map.then(map.inverse())
    for at, _ in map.everywhere():
        assert {name: value for name, value in round_trip(**at).items() if value} == {k: v for k, v in at.items() if v}
    if not map.has_copies:
        back = map.inverse().inverse()
        assert function(back) == function(Map.of(**{name: map.modes(name) for name in back.indices}))


def test_no_inverse_is_said_so() -> None:
    with pytest.raises(LayoutError, match="coordinate 1 of 'q' is held nowhere"):
        Map.of(lane=[Mode("q", 4, 2)]).inverse()
    with pytest.raises(LayoutError, match="'q' is held twice"):
        Map.of(lane=[Mode("q", 4, 1)], warp=[Mode("q", 2, 2)]).inverse()


@given(bijections(), st.data())
@settings(deadline=None, max_examples=300)
def test_composition_is_one_after_the_other(inner: Map, data: st.DataObject) -> None:
    """With any outer map of the inner's coordinates: linear ones always compose, others where digits meet."""
    outer_digits: dict[str, list[Mode]] = {}
    for axis, extent in inner.extents().items():
        if data.draw(st.booleans()):
            outer_digits[axis] = [Mode("o", extent + data.draw(st.integers(0, 3)), data.draw(st.integers(1, 99)))]
        else:
            sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
            room = -(-extent // prod(sizes))
            outer_digits[axis] = [Mode("o", n, data.draw(st.integers(1, 99))) for n in (room, *sizes)]
    outer = Map.of(**outer_digits)
    try:
        both = inner.then(outer)
    except LayoutError:
        assert any(len(joined(outer.modes(axis))) > 1 for axis in inner.axes)
        return
    for at, coordinates in inner.everywhere():
        assert both(**at).get("o", 0) == outer(**coordinates).get("o", 0)


@given(bijections((2, 4)), bijections((2, 4)), bijections((2, 4)))
@settings(deadline=None)
def test_composition_is_associative(a: Map, b: Map, c: Map) -> None:
    def over(map: Map, indices: tuple[str, ...]) -> Map:
        return Map(tuple(zip(indices, (modes for _, modes in map.digits), strict=False)))

    a = a.renamed({"q": "i", "x": "j", "d": "k"})
    b, c = over(b, ("i", "j", "k")).renamed({"q": "l", "x": "m", "d": "n"}), over(c, ("l", "m", "n"))
    try:
        left, right = a.then(b).then(c), a.then(b.then(c))
    except LayoutError:
        return
    assert function(left) == function(right)


def test_composition_refuses_what_does_not_fit() -> None:
    inner = Map.of(lane=[Mode("q", 8, 1)])
    with pytest.raises(LayoutError, match="no index of the next map"):
        inner.then(Map.of(x=[Mode("o", 8, 1)]))
    with pytest.raises(LayoutError, match="reaches 8, the next map takes 4"):
        inner.then(Map.of(q=[Mode("o", 4, 1)]))
    with pytest.raises(LayoutError, match="cannot be cut"):
        inner.then(Map.of(q=[Mode("o", 3, 10), Mode("o", 3, 1)]))


@given(bijections(), st.data())
@settings(deadline=None)
def test_division_by_a_tile_and_back(map: Map, data: st.DataObject) -> None:
    tile = {axis: data.draw(st.sampled_from([1, 2, 4, 6, 8, 12, 16])) for axis in map.axes}
    try:
        inside, across = map.divide(tile)
    except LayoutError:
        return
    assert all(inside.extent(axis) <= size for axis, size in tile.items())
    again = inside.tiled(across, tile)
    for name in map.indices:
        assert ordered(again.modes(name)) == ordered(map.modes(name))
    for (_, near), (_, far) in product(inside.everywhere(), across.everywhere()):
        total = {axis: near.get(axis, 0) + far.get(axis, 0) * tile[axis] for axis in map.axes}
        assert map(**map.inverse()(**total)) == total


@given(bijections((2, 4, 8)), bijections((2, 4, 8)))
@settings(deadline=None)
def test_refined_maps_have_common_digits(one: Map, other: Map) -> None:
    left, right = refine(one, other)
    assert left.same_as(one)
    assert right.same_as(other)
    for axis in one.axes:
        if one.extent(axis) == other.extent(axis):
            assert {m for m in left.all_modes() if m.axis == axis} == {m for m in right.all_modes() if m.axis == axis}


def test_slices_hold_what_the_whole_meets() -> None:
    layout = accumulator("q", "x", 2, 4, (2, 2))
    for axes in (["q"], ["x"], ["q", "x"], []):
        assert fragment(layout).slice(axes).same_as(fragment(layout.slice(axes)))
        assert meets(layout, layout.slice(axes))
    assert not meets(layout, accumulator("q", "x", 2, 4, (4, 1)).slice(["q"]))


# -- fragments ------------------------------------------------------------------------------------


@pytest.mark.parametrize("warps", [(1, 1), (4, 1), (2, 2)])
@pytest.mark.parametrize("tiles", [(1, 1), (1, 8), (2, 6), (3, 5)])
def test_the_accumulator_is_its_atom_tiled(tiles: tuple[int, int], warps: tuple[int, int]) -> None:
    layout = accumulator("q", "x", *tiles, warps)
    by = Map.of(register=[Mode("q", tiles[0], 1), Mode("x", tiles[1], 1)])
    built = accumulator_atom("q", "x").tiled(by)
    built = built.tiled(Map.of(warp=[Mode("q", warps[0], 1), Mode("x", warps[1], 1)]))
    assert built.same_as(fragment(layout))
    assert as_layout(built) == layout
    inside, across = fragment(layout).divide({"q": 16, "x": 8})
    assert inside.same_as(accumulator_atom("q", "x"))
    assert across.extents() == {a: n for a, n in (("q", tiles[0] * warps[0]), ("x", tiles[1] * warps[1])) if n > 1}


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("row_tiles", [1, 2])
@pytest.mark.parametrize("depth", [1, 3, 4])
def test_an_accumulator_is_the_next_left_operand(depth: int, row_tiles: int, warps: int) -> None:
    """What one product leaves in registers is what the next takes as left operand: nothing moves between threads, and
    nothing between registers either if there is one tile of rows."""
    made = accumulator("q", "x", row_tiles, 2 * depth, (warps, 1))
    taken = row_operand("q", "x", row_tiles, depth, [Mode("q", warps, 16 * row_tiles)])
    assert same_elements(made, taken)
    assert fragment(made).same_as(fragment(taken))
    assert not same_elements(made, accumulator("q", "x", row_tiles, 2 * depth, (1, warps))) or warps == 1
    for wanted, terms in zip(taken.register, register_digits(taken, made.register), strict=True):
        for registers, lane, warp, coordinates in made.elements():
            found = sum(term.value(registers) for term in terms)
            own = coordinates[wanted.axis] - fragment(made).without("register")(lane=lane, warp=warp)[wanted.axis]
            assert found == own // wanted.stride % wanted.size


def test_the_atoms_of_a_product_cover_it() -> None:
    for atom, extents in (
        (accumulator_atom("m", "n"), {"m": 16, "n": 8}),
        (left_atom("m", "k"), {"m": 16, "k": 16}),
        (right_atom("k", "n"), {"k": 16, "n": 8}),
    ):
        assert atom.extents() == extents
        reached = [tuple(sorted(found.items())) for _, found in atom.everywhere()]
        assert len(set(reached)) == len(reached) == prod(extents.values())
    assert accumulator_atom("n", "m").slice(["n"]).same_as(accumulator_atom("n", "m").slice(["n"]))


def test_the_place_of_an_element() -> None:
    layout = accumulator("q", "x", 1, 4, (2, 1))
    for registers, lane, warp, coordinates in layout.elements():
        register = 0
        for mode, digit in zip(layout.register, registers, strict=True):
            register = register * mode.size + digit
        assert place_of(layout, coordinates) == {"register": register, "lane": lane, "warp": warp}


def test_layouts_of_fragments_round_trip() -> None:
    layout = LayoutAttr([Mode("q", 3, 8)], [Mode("q", 8, 1), Mode("", 4, 0)], [Mode("q", 2, 24)])
    assert as_layout(fragment(layout)) == layout
    for registers, lane, warp, coordinates in layout.elements():
        assert fragment(layout)(register=registers[0], lane=lane, warp=warp) == coordinates
    with pytest.raises(LayoutError, match="no index 'item'"):
        as_layout(Map.of(item=[Mode("q", 4, 1)]))


# -- bits -----------------------------------------------------------------------------------------

matrices = st.lists(st.integers(0, 63), max_size=7).map(lambda columns: BitMatrix(tuple(columns)))


@given(matrices)
@settings(deadline=None)
def test_rank_kernel_and_image_by_enumeration(given_matrix: BitMatrix) -> None:
    inputs = range(1 << len(given_matrix.columns))
    outputs = {given_matrix(i) for i in inputs}
    assert 1 << given_matrix.rank() == len(outputs)
    assert all(given_matrix(i) == 0 for i in given_matrix.kernel())
    assert len(given_matrix.kernel()) == len(given_matrix.columns) - given_matrix.rank()
    spanned = {0}
    for vector in given_matrix.kernel():
        spanned |= {each ^ vector for each in spanned}
    assert spanned == {i for i in inputs if given_matrix(i) == 0}
    assert all(vector in outputs for vector in given_matrix.image())


@given(matrices)
@settings(deadline=None)
def test_the_inverse_of_a_matrix(given_matrix: BitMatrix) -> None:
    size = len(given_matrix.columns)
    square = given_matrix.masked((1 << size) - 1)
    if square.rank() < size:
        with pytest.raises(LayoutError, match="no inverse"):
            square.inverse()
        return
    assert square.then(square.inverse()) == identity(size) == square.inverse().then(square)


@given(bijections((2, 4, 8), copies=True))
@settings(deadline=None)
def test_the_matrix_of_a_map_is_the_map(map: Map) -> None:
    map = Map.of(**{name: [m for m in map.modes(name) if m.axis or m.size & (m.size - 1) == 0] for name in INDICES})
    assert is_binary(map)
    place = places_of(map)
    bits = matrix(map, INDICES, place)
    below = {name: prod(map.size(other) for other in INDICES[:i]) for i, name in enumerate(INDICES)}
    for at, found in map.everywhere():
        word = sum(at[name] * below[name] for name in INDICES)
        assert bits(word) == sum(position << place[axis] for axis, position in found.items())
    copies = prod(mode.size for mode in map.all_modes() if not mode.axis)
    assert 1 << len(bits.kernel()) == copies


def test_what_has_no_matrix() -> None:
    for digits in ([Mode("q", 3, 1)], [Mode("q", 4, 3)], [Mode("q", 4, 1), Mode("q", 2, 2)]):
        assert not is_binary(Map.of(lane=digits))
        with pytest.raises(LayoutError, match="no matrix"):
            matrix(Map.of(lane=digits), ["lane"], {"q": 0})


def test_digits_of_is_what_maps_assume() -> None:
    assert digits_of(29, [Mode("q", 4, 1), Mode("q", 8, 1)]) == [3, 5]
