"""Pictures: that each is well made, at every level of every example, and what some of them show."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.draw.columns import Columns, columns_of
from treadle.compiler.draw.costs import bytes_text
from treadle.compiler.draw.layout import Layout, axes_shown, lay_out
from treadle.compiler.draw.legend import SAMPLE
from treadle.compiler.draw.program import draw_module
from treadle.compiler.draw.read import read_program
from treadle.compiler.draw.spacing import spaced
from treadle.compiler.draw.svg import Box, Line, Picture, Text, Wire
from treadle.compiler.draw.table import table_of
from treadle.compiler.explain import explain
from treadle.compiler.machines import machine_of
from treadle.compiler.pipeline import Observer, Options, PassRun, run_pipeline
from treadle.compiler.source import load_module

EXAMPLES = Path(__file__).parents[1] / "examples"
DECORATED, EXPLICIT = "hierarchy-choose-sizes", "hierarchy-expand-streams"


def lowered(name: str, last: str | None) -> ModuleOp:
    module = load_module(EXAMPLES / f"{name}.mlir")
    if last is not None:
        run_pipeline(module, Options(), last=last)
    return module


def laid_out(module: ModuleOp) -> tuple[Columns, Layout]:
    columns = columns_of(read_program(module))
    return columns, lay_out(columns)


# -- what every picture keeps ----------------------------------------------------------------------


class Checking(Observer):
    """Draws after every pass, and checks the picture."""

    def __init__(self, module: ModuleOp):
        self.text = ""
        self.check(module)

    def check(self, module: ModuleOp) -> None:
        picture = draw_module(module)
        if (text := picture.svg()) == self.text:
            return
        self.text = text
        check_columns(*laid_out(module))
        check_picture(picture)

    def after_pass(self, run: PassRun, module: ModuleOp) -> None:
        try:
            self.check(module)
        except AssertionError as error:
            raise AssertionError(f"after {run.name}: {error}") from error


def check_columns(columns: Columns, layout: Layout) -> None:
    """Every axis of every array stands once in each column where the array is alive, from top to bottom."""
    states = [columns.inputs, *(step.after for step in columns.steps)]
    assert len(layout.arrays) == len(states)
    for placed, wires in zip(layout.arrays, states, strict=True):
        wanted = [(wire, axis) for wire in wires for axis in axes_shown(wire)]
        assert list(placed.rows) == wanted
        assert len(set(wanted)) == len(wanted)
        ys = list(placed.rows.values())
        assert all(upper < lower for upper, lower in pairwise(ys)), "axes out of order"


def check_picture(picture: Picture) -> None:
    root = ElementTree.fromstring(picture.svg())
    assert root.tag.endswith("svg")
    check_apart(picture)
    check_ends(picture)
    for text in picture.texts():
        left, top, right, bottom = text.bounds
        inside = left >= 0 and top >= 0 and right <= picture.width and bottom <= picture.height
        assert inside, f"'{text.text}' is cut"


Bounds = tuple[float, float, float, float]


def overlap(one: Bounds, other: Bounds) -> bool:
    """By more than touching."""
    return min(one[2], other[2]) - max(one[0], other[0]) > 0.5 and min(one[3], other[3]) - max(one[1], other[1]) > 0.5


def bounds_of(shape: Box | Text) -> Bounds:
    if isinstance(shape, Text):
        return shape.bounds
    box = shape
    return (box.x, box.y, box.x + box.width, box.y + box.height)


def check_apart(picture: Picture) -> None:
    """No two texts meet, no two boxes, and a text that meets a box stands in it."""
    for one, other in meetings(picture.texts()):
        raise AssertionError(f"'{one.text}' on '{other.text}'")
    for one, other in meetings(picture.boxes()):
        raise AssertionError(f"box '{one.about}' on '{other.about}'")
    for one, other in meetings([*picture.texts(), *picture.boxes()]):
        text, box = (one, other) if isinstance(one, Text) else (other, one)
        inside = text.bounds[0] >= box.x and text.bounds[2] <= box.x + box.width
        assert inside, f"'{text.text}' leaves its box"


def meetings(shapes: Sequence[Text] | Sequence[Box] | Sequence[Text | Box]) -> Iterator[tuple[Any, Any]]:
    """Pairs that overlap, found from left to right."""
    placed = sorted(((bounds_of(shape), i) for i, shape in enumerate(shapes)))
    for i, (one, a) in enumerate(placed):
        for other, b in placed[i + 1 :]:
            if other[0] > one[2]:
                break
            if overlap(one, other):
                yield shapes[a], shapes[b]


def check_ends(picture: Picture) -> None:
    """A wire ends at another wire, at a box, at a label, or at the border of the program."""
    wires = [wire for wire in picture.wires() if not is_sample(wire)]
    ends = [point for wire in wires for point in (wire.points[0], wire.points[-1])]
    joins = Counter((round(x, 1), round(y, 1)) for wire in wires for x, y in wire.points)
    borders = {min(x for x, _ in ends), max(x for x, _ in ends)}
    for x, y in ends:
        near = [(round(x + dx, 1), round(y + dy, 1)) for dx in (-0.1, 0, 0.1) for dy in (-0.1, 0, 0.1)]
        joined = x in borders or sum(joins[point] for point in near) > 1
        assert joined or meets_box(picture, x, y) or meets_label(picture, x, y), f"loose end at {x}, {y}"


def meets_box(picture: Picture, x: float, y: float) -> bool:
    return any(
        min(abs(x - box.x), abs(x - box.x - box.width)) < 0.2 and box.y <= y <= box.y + box.height
        for box in picture.boxes()
    )


def meets_label(picture: Picture, x: float, y: float) -> bool:
    return any(min(abs(x - b[0]), abs(x - b[2])) <= 3 and b[1] <= y <= b[3] for b in map(bounds_of, picture.texts()))


def is_sample(wire: Wire) -> bool:
    """Of the legend."""
    (x0, y0), *_, (x1, y1) = wire.points
    return len(wire.points) == 2 and y0 == y1 and abs(x1 - x0 - SAMPLE) < 0.01


EVERY_DAY = ("attention_sink", "layer_norm", "matmul", "mlp", "softmax", "two_kernels")
"""Level changes of one element, several inputs, two streams, two kernels; the others run with --all."""


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=() if path.stem in EVERY_DAY else pytest.mark.full)
        for path in sorted(EXAMPLES.glob("*.mlir"))
    ],
)
def test_every_picture_of_an_example_is_well_made(path: Path):
    module = load_module(path)
    run_pipeline(module, Options(), Checking(module))


# -- what pictures show ----------------------------------------------------------------------------


def mathematics(picture: Picture) -> list[str]:
    return [text.text for text in picture.texts() if "m" in text.kind.split()]


def labels(picture: Picture, level: str) -> list[str]:
    return [text.text for text in picture.texts() if f"l-{level}" in text.kind]


def test_a_product_is_two_arrays_a_box_and_an_array():
    columns, layout = laid_out(lowered("matmul", None))
    (first, *_) = columns.steps
    assert [axes_shown(wire) for wire in columns.inputs] == [("m", "k"), ("k", "n")]
    (node,) = [slot.node for slot in first.slots if slot.node]
    assert node.glyph.shape == "contract"
    box = layout.steps[0].boxes[node]
    assert [axis for _, axis in box.enters] == ["k", "k"], "the axes that are summed enter the box"
    assert {axis for _, axis in layout.steps[0].lanes} == {"m", "n"}, "the others pass over it"


def test_weaved_axes_pass_above_the_box():
    _, layout = laid_out(lowered("attention", None))
    for step in layout.steps:
        for (node, _), y in step.lanes.items():
            box = step.boxes[node]
            assert y < box.y - box.height / 2


def test_levels_are_colours_from_load_to_save():
    picture = draw_module(lowered("softmax_matmul", "fusion"))
    assert "e" in labels(picture, "shared")
    assert "x" in labels(picture, "register")
    assert "t-register" in picture.svg()


def test_group_and_stream_sizes_stand_where_the_level_changes():
    module = lowered("matmul", DECORATED)
    diagram = read_program(module)
    tags = {node.glyph.about: dict(node.tags) for node in diagram.nodes if node.kind != "function"}
    assert tags["load A"] == {"m": "g_{m}", "k": "s_{k}"}
    assert tags["load B"] == {"k": "s_{k}", "n": "g_{n}"}
    assert tags["save C16"] == {"m": "g_{m}", "n": "g_{n}"}


def test_divisibility_is_a_superscript():
    picture = draw_module(lowered("matmul", DECORATED))
    assert {"m^{16}", "k^{16}", "n^{16}"} <= set(labels(picture, "shared"))


def test_the_table_counts_what_the_theory_counts():
    """The closed form of a product: abc (1/g_a + 1/g_c) + ac."""
    texts = mathematics(draw_module(lowered("matmul", DECORATED)))
    assert "m k ⌈n/g_{n}⌉" in texts
    assert "+ k n ⌈m/g_{m}⌉" in texts
    assert "m n" in texts
    assert {"g_{m} s_{k}", "+ s_{k} g_{n}"} <= set(texts), "M of shared memory"
    assert "g_{m} g_{n}" in texts, "M of registers"


def test_totals_are_those_of_the_model():
    module = lowered("matmul", EXPLICIT)
    (kernel,) = explain(module, machine_of(module)).kernels
    texts = [text.text for text in draw_module(module).texts()]
    by_name = {level.name: level for level in kernel.levels}
    assert bytes_text(by_name["device"].transfer_bytes) in texts
    shared = by_name["shared"]
    assert f"{bytes_text(shared.memory_bytes)} of {bytes_text(shared.capacity_bytes)}" in texts


def test_streams_are_initialise_loop_finish():
    picture = draw_module(lowered("attention", EXPLICIT))
    bold = [text.text for text in picture.texts() if "bold" in text.kind and "m" not in text.kind.split()]
    assert bold == ["initialise", "loop x", "finish"]
    assert any("⌈x/s_{x}⌉" in text for text in mathematics(picture))


def test_levels_have_capacities_in_the_legend():
    texts = [text.text for text in draw_module(lowered("matmul", EXPLICIT)).texts()]
    assert "shared memory (163 KiB a block)" in texts


def test_grouped_queries_share_keys():
    columns, _ = laid_out(lowered("attention_gqa", None))
    axes = {wire.name: axes_shown(wire) for wire in columns.inputs}
    assert "g" in axes["Q"]
    assert "g" not in axes["K"]
    assert "g" not in axes["V"]


def test_an_operation_of_another_dialect_is_a_box_with_its_name():
    module = load_module(EXAMPLES / "matmul.mlir")
    (node,) = [node for node in read_program(module).nodes if node.glyph.shape == "contract"]
    from xdsl.dialects.test import TestOp

    from treadle.compiler.draw.glyphs import glyph_of

    glyph = glyph_of(TestOp([node.op.results[0]], result_types=[]))
    assert (glyph.label, glyph.acts_on) == ("op", None)


def test_nothing_is_fetched():
    text = draw_module(lowered("matmul", EXPLICIT)).svg()
    assert "http" not in text.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "@import" not in text
    assert "url(" not in text


# -- spacing ---------------------------------------------------------------------------------------


def test_spaced_keeps_gaps_and_moves_least():
    assert spaced([0, 10, 20], [5, 5]) == [0, 10, 20]
    assert spaced([0, 0], [10]) == [-5, 5]
    assert spaced([10, 0, 30], [4, 4]) == [3, 7, 30]
    assert spaced([], []) == []


def test_the_checks_of_this_file_can_fail():
    cut = Picture(10, 10, "", [Text(0, 8, "long text")])
    with pytest.raises(AssertionError, match="is cut"):
        check_picture(Picture(10, 10, "", [Wire(((0, 5), (10, 5))), *cut.shapes]))
    with pytest.raises(AssertionError, match="'a' on 'b'"):
        check_apart(Picture(99, 99, "", [Text(0, 10, "a"), Text(1, 10, "b")]))
    with pytest.raises(AssertionError, match="loose end"):
        check_ends(
            Picture(99, 99, "", [Wire(((0, 0), (50, 0))), Wire(((60, 0), (99, 0))), Line(((0, 0), (1, 1)), "rule")])
        )


# -- the table and the model -----------------------------------------------------------------------


def amount(term: str, sizes: Mapping[str, int], pieces: Mapping[str, int]) -> int:
    """A term of the table in numbers: `2 k n ⌈m/g_{m}⌉`."""
    repeats = re.findall(r"⌈(\w+)/g_\{\w+\}⌉", term)
    factors = re.sub(r"⌈[^⌉]*⌉", "", term).split()
    whole = prod(int(factor) if factor.isdigit() else sizes[factor] for factor in factors)
    return whole * prod(-(-sizes[axis] // pieces[axis]) for axis in repeats)


@pytest.mark.parametrize("last", [DECORATED, EXPLICIT])
@pytest.mark.parametrize("name", ["attention", "layer_norm", "swiglu", "softmax", "two_kernels", "variance"])
def test_the_terms_of_h_come_to_what_the_model_counts(name: str, last: str):
    """Also where one array is read by several streams."""
    module = lowered(name, last)
    kernels = explain(module, machine_of(module)).kernels
    sizes = {axis: size for kernel in kernels for axis, size in kernel.sizes.items()}
    pieces = {axis: size for kernel in kernels for axis, size in kernel.group.items()}
    (row,) = [row for row in table_of(columns_of(read_program(module)), {}).rows if row.is_transfer]
    drawn = sum(amount(term, sizes, pieces) for term in row.total)
    assert drawn == sum(
        level.transfer_values for kernel in kernels for level in kernel.levels if level.name == "device"
    )


def test_pieces_that_a_condition_leaves_out_are_not_counted():
    module = lowered("attention_causal", DECORATED)
    assert "+ b h d \\rm{visited}(x, q)" in mathematics(draw_module(module))
