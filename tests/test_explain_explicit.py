"""Programs whose streams are explicit already: explained, compared and drawn as those that were just derived."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.compiler.main import main

EXPLICIT = sorted((Path(__file__).parent / "explicit").glob("*.mlir"))
SOFTMAX_MATMUL = str(Path(__file__).parents[1] / "examples" / "softmax_matmul.mlir")
explicit = pytest.mark.parametrize("path", EXPLICIT, ids=lambda path: path.stem)


@explicit
def test_it_is_explained(path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["explain", str(path)]) == 0
    assert "time (estimate)" in capsys.readouterr().out


@explicit
def test_its_pipeline_is_drawn(path: Path, capsys: pytest.CaptureFixture[str]):
    """Also of an array that every step of the stream reads as it is."""
    assert main(["draw", str(path), "--pipeline"]) == 0
    assert "</svg>" in capsys.readouterr().out


def test_what_compile_leaves_after_the_streams_costs_what_the_program_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    stopped = str(tmp_path / "stopped.mlir")
    assert main(["compile", SOFTMAX_MATMUL, "--stop-after", "hierarchy-expand-streams", "-o", stopped]) == 0
    told: list[str] = []
    for path in (SOFTMAX_MATMUL, stopped):
        assert main(["explain", path]) == 0
        told.append(capsys.readouterr().out)
    # What would move it is known of what was not expanded yet, whose sizes can be chosen again.
    head, _, rest = told[0].partition("what would move it")
    assert told[1] == head + rest[rest.index("H of device memory, where sizes divide") :]


def test_its_sizes_are_not_chosen_again_in_f8(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", str(EXPLICIT[0]), "--machine", "h100", "--against", "f8"]) == 2
    assert "are explicit, and f8 chooses sizes anew" in capsys.readouterr().err


def test_costs_are_not_read_off_cuda(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    lowered = str(tmp_path / "lowered.mlir")
    assert main(["compile", SOFTMAX_MATMUL, "--stop-after", "convert-hierarchy-to-cuda", "-o", lowered]) == 0
    assert main(["explain", lowered]) == 2
    assert "explain what comes before convert-hierarchy-to-cuda" in capsys.readouterr().err
