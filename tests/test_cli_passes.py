"""The pipeline in the terminal: passes and their options, stopping after one, and what one changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.compiler.main import main
from treadle.compiler.pipeline import Options, pipeline
from treadle.compiler.source import parse_module
from treadle.compiler.universe import PASSES

MATMUL = str(Path(__file__).parents[1] / "examples" / "matmul.mlir")


def test_every_pass_is_listed_in_order_with_its_options(capsys: pytest.CaptureFixture[str]):
    assert main(["passes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    order = [spec.name for spec in pipeline(Options())]
    assert names[: len(order)] == order
    assert set(names) == set(PASSES)
    assert all(len(line) <= 110 for line in lines)
    assert any(line.strip() == "stages=2" for line in lines)


def test_all_about_one_pass(capsys: pytest.CaptureFixture[str]):
    assert main(["passes", "streaming"]) == 0
    said = capsys.readouterr().out
    assert said.index("Before:") < said.index("After:") < said.index("Options:") < said.index("whole-limit=256")


def test_an_unknown_pass_is_refused_with_a_guess(capsys: pytest.CaptureFixture[str]):
    assert main(["passes", "streeming"]) == 2
    assert "did you mean 'streaming'?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["passes", "all"], ["compile", MATMUL, "--stop-after", "all"]])
def test_all_passes_are_not_one(command: list[str], capsys: pytest.CaptureFixture[str]):
    assert main(command) == 2
    assert "the pipeline has no pass 'all'" in capsys.readouterr().err


def test_stop_after_a_pass_gives_its_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["compile", MATMUL, "--stop-after", "tiling"]) == 0
    text = capsys.readouterr().out
    module = parse_module(text, "out.mlir")
    assert "group = [m = ?, n = ?]" in str(module)
    assert main(["compile", MATMUL, "--stop-after", "tiling", "-o", str(tmp_path / "out.mlir")]) == 0
    assert (tmp_path / "out.mlir").read_text() == text


@pytest.mark.parametrize("option", [["--report"], ["--cubin", "out.cubin"], ["--html", "out.html"]])
def test_what_needs_the_whole_pipeline_refuses_to_stop(
    option: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["compile", MATMUL, "--stop-after", "tiling", *option]) == 2
    assert f"{option[0]} needs the whole pipeline" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_unified_diff_of_one_pass(capsys: pytest.CaptureFixture[str]):
    assert main(["compile", MATMUL, "--stop-after", "tiling", "--print-diff", "tiling"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == ["--- before tiling", "+++ after tiling"]
    (gone,) = [line for line in lines if line.startswith("-    %C16 = hierarchy.kernel")]
    (new,) = [line for line in lines if line.startswith("+    %C16 = hierarchy.kernel")]
    assert "schedule<stream = [k = ?]>" in gone
    assert "schedule<group = [m = ?, n = ?], stream = [k = ?]>" in new
    assert "\x1b" not in "".join(lines), "colours are for terminals"


def test_options_are_listed_as_they_are_given(capsys: pytest.CaptureFixture[str]):
    assert main(["passes", "set-machine"]) == 0
    options = capsys.readouterr().out.partition("Options:")[2]
    assert "name=<str>" in options
    assert "machine=" not in options
