"""Pictures of conditions and of affine reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from test_draw import check_picture, lowered
from treadle.compiler.draw.diagram import Node
from treadle.compiler.draw.layout import weaved_axes
from treadle.compiler.draw.program import draw_module
from treadle.compiler.draw.read import read_program
from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, Options, run_pipeline
from treadle.compiler.source import load_module


def nodes(name: str, last: str | None, what: str) -> list[Node]:
    diagram = read_program(lowered(name, last))
    return [node for node in diagram.nodes if node.glyph.about.startswith(what)]


def test_an_affine_read_says_where_it_reads_and_is_weaved_over_the_rest():
    (read,) = nodes("conv1d", None, "read")
    assert (read.glyph.label, read.glyph.about) == ("t + r", "read at l = t + r")
    assert weaved_axes(read) == ("b", "c")


@pytest.mark.parametrize(
    ("name", "entering"),
    [("attention_causal", {"q", "x"}), ("attention_lengths", {"b", "x"}), ("attention_segments", {"q", "x"})],
)
def test_axes_whose_positions_matter_enter_a_condition(name: str, entering: set[str]):
    (where,) = nodes(name, None, "where")
    assert set(where.outputs[0].axes) - set(weaved_axes(where)) == entering


@pytest.mark.parametrize("name", ["attention_causal", "attention_window", "attention_prefix", "attention_segments"])
def test_a_stream_shows_its_condition_and_that_it_does_not_take_every_turn(name: str):
    picture = draw_module(lowered(name, LAST_HIERARCHY_PASS))
    check_picture(picture)
    texts = [text.text for text in picture.texts()]
    assert any("tested only in pieces in which it may fail" in text for text in texts)
    assert any(text.startswith("\\rm{at most} ⌈x/s_{x}⌉") for text in texts)


def test_a_stream_without_a_condition_takes_every_turn():
    texts = [text.text for text in draw_module(lowered("attention", LAST_HIERARCHY_PASS)).texts()]
    assert any(text.startswith("⌈x/s_{x}⌉") for text in texts)
    assert not any("at most" in text for text in texts)


def test_pieces_that_a_table_leaves_are_drawn_before_the_stream():
    module = load_module(Path(__file__).parent / "programs" / "blocks_of_a_table.mlir")
    run_pipeline(module, Options(), last=LAST_HIERARCHY_PASS)
    (pieces,) = [node for node in read_program(module).nodes if node.glyph.label == "pieces"]
    assert pieces.glyph.about.startswith(
        "x in pieces in which '1 <= M[q, x]' may hold: one value for each cell of q = 64"
    )
    picture = draw_module(module)
    check_picture(picture)
    texts = [text.text for text in picture.texts()]
    assert any("x in pieces in which" in text for text in texts)
    assert any(text.startswith("\\rm{at most} ⌈x/s_{x}⌉") for text in texts)
