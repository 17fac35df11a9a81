"""A schedule that a program states already goes through the whole pipeline: what it holds whole is not streamed,
and pieces and warps that it decides are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from treadle.compiler.errors import TreadleError
from treadle.compiler.main import main
from treadle.compiler.pipeline import Options, run_passes, run_pipeline
from treadle.compiler.source import load_module, parse_module
from treadle.dialects.hierarchy import KernelOp
from treadle.passes.streaming import StreamingPass

DECORATED = Path(__file__).parent / "decorated"


@pytest.mark.parametrize("name", ["many_columns", "whole_rows"])
def test_what_is_held_whole_stays_whole(name: str, capsys: pytest.CaptureFixture[str]):
    path = DECORATED / f"{name}.mlir"
    module = load_module(path)
    (stated,) = (op.schedule for op in module.walk() if isinstance(op, KernelOp))
    run_pipeline(module, Options(), last="tiling")
    (kept,) = (op.schedule for op in module.walk() if isinstance(op, KernelOp))
    assert stated is not None
    assert kept is not None
    assert (kept.whole, kept.stream) == (stated.whole, stated.stream)
    assert main(["run", str(path)]) == 0
    assert "verified" in capsys.readouterr().out


def test_streaming_it_may_be_asked_for_and_is_refused():
    with pytest.raises(TreadleError, match="its schedule holds axis 'n' whole"):
        run_passes(load_module(DECORATED / "whole_rows.mlir"), [StreamingPass(axis="n").spec()])


def test_the_pieces_and_warps_that_it_decides_are_kept():
    text = (DECORATED / "attention.mlir").read_text(encoding="utf-8")
    left_open = "group = [b = ?, h = ?, q = ?], stream = [x = ?], whole = [d = 64, e = 64]"
    assert left_open in text
    decided = "group = [b = 1, h = 1, q = 32], stream = [x = 16], whole = [d = 64, e = 64], warps = [q = 1]"
    module = parse_module(text.replace(left_open, decided))
    run_pipeline(module, Options(), last="hierarchy-choose-sizes")
    (kept,) = (op.schedule for op in module.walk() if isinstance(op, KernelOp))
    assert kept is not None
    assert (kept.group.as_dict(), kept.stream.as_dict(), kept.warps.as_dict()) == (
        {"b": 1, "h": 1, "q": 32},
        {"x": 16},
        {"q": 1},
    )
