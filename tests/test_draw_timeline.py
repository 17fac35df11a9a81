"""The pipeline picture: bars as wide as their clocks, on their rows, with barriers where a unit is handed over."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from test_draw import check_apart, overlap
from treadle.compiler.cost.timing.schedule import Stage, Timeline, schedule
from treadle.compiler.draw.svg import Area, Line, Picture, Text
from treadle.compiler.draw.timeline import STEPS, Labels, draw_timeline
from treadle.compiler.main import main

ATTENTION = str(Path(__file__).parents[1] / "examples" / "attention.mlir")


def of_three_warpgroups() -> Timeline:
    """The worked configuration: clocks of 128 rows."""
    stages = [
        Stage("scores", "tensor", 256.0, (("softmax", 1),)),
        Stage("softmax", "special", 584.0, (("scores", 0),)),
        Stage("values", "tensor", 512.0, (("softmax", 0), ("scores", -1))),
    ]
    return schedule(stages, 3)


def bounds(bar: Area) -> tuple[float, float, float, float]:
    return (bar.x, bar.y, bar.x + bar.width, bar.y + bar.height)


def bars(picture: Picture) -> list[Area]:
    return [shape for shape in picture.shapes if isinstance(shape, Area) and shape.about]


def test_widths_are_clocks():
    timeline = of_three_warpgroups()
    picture = draw_timeline(timeline, Labels("attention", "warpgroup"))
    left = min(bar.x for bar in bars(picture))
    right = max(bar.x + bar.width for bar in bars(picture))
    scale = (right - left) / (STEPS * timeline.clocks_of_step)
    inner = [bar for bar in bars(picture) if bar.x > left and bar.x + bar.width < right]
    for bar in inner:
        clocks = int(bar.about.split(": ")[1].split(" clocks")[0])
        assert bar.width == pytest.approx(clocks * scale)
    assert {bar.about.split(" of ")[0] for bar in inner} == {"scores", "softmax", "values"}


def test_every_worker_has_a_row_for_every_unit_and_no_bars_overlap():
    picture = draw_timeline(of_three_warpgroups(), Labels("attention", "warpgroup"))
    names = [text.text for text in picture.texts() if text.kind == "end"]
    assert names == [f"warpgroup {i}, {unit}" for i in (1, 2, 3) for unit in ("tensor", "special")]
    assert len({bar.y for bar in bars(picture)}) == 6
    for one, other in combinations(bars(picture), 2):
        assert not overlap(bounds(one), bounds(other)), f"'{one.about}' on '{other.about}'"
    check_apart(Picture(0, 0, "", [text for text in picture.shapes if isinstance(text, Text)]))


def test_barriers_stand_where_a_unit_is_handed_over():
    timeline = of_three_warpgroups()
    picture = draw_timeline(timeline, Labels("attention"))
    barriers = [line for line in picture.shapes if isinstance(line, Line) and line.kind == "barrier"][:-1]
    assert barriers, "three warpgroups share the tensor cores"
    edges = [x for bar in bars(picture) for x in (bar.x, bar.x + bar.width)]
    for barrier in barriers:
        assert sum(abs(barrier.points[0][0] - x) < 0.01 for x in edges) >= 2, "one ends and another begins"


def test_a_worker_alone_waits_for_nobody():
    timeline = schedule([Stage("product", "tensor", 4.0)], 1)
    picture = draw_timeline(timeline, Labels("one"))
    assert len([line for line in picture.shapes if isinstance(line, Line) and line.kind == "barrier"]) == 1, (
        "the legend"
    )


def test_of_a_program_on_hopper(tmp_path: Path):
    output = tmp_path / "pipeline.svg"
    assert main(["draw", ATTENTION, "--pipeline", "--machine", "h100", "-o", str(output)]) == 0
    assert "@attention on h100" in output.read_text()


def test_every_stream_has_a_picture_of_its_own(tmp_path: Path):
    output = tmp_path / "pipeline.svg"
    packed = str(Path(ATTENTION).parent / "attention_packed.mlir")
    assert main(["draw", packed, "--pipeline", "-o", str(output)]) == 0
    drawn = output.read_text()
    assert all(f"@attention_packed on a100, stream {number} (x)" in drawn for number in (1, 2))


def test_a_program_without_streams_has_none(capsys: pytest.CaptureFixture[str]):
    assert main(["draw", str(Path(ATTENTION).parent / "sin2cos2.mlir"), "--pipeline"]) == 2
    assert "no kernel streams" in capsys.readouterr().err
