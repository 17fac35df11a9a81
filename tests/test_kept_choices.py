"""Choices of sizes are kept by structure: what is kept is what is chosen anew, and another question is asked anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.pipeline import Options, run_pipeline
from treadle.derive import module_of
from treadle.passes import fusion, hierarchy_choose_sizes

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("attention", "attention_paged", "matmul", "layer_norm", "softmax")


@pytest.fixture(autouse=True)
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchy_choose_sizes, "_CHOSEN", {})
    monkeypatch.setattr(fusion, "_TIMES", {})


def chosen(text: str, machine: str = "a100") -> str:
    module: ModuleOp = module_of(text)
    run_pipeline(module, Options(machine=machine), last="hierarchy-choose-sizes")
    return str(module)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_what_is_chosen_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLES / f"{name}.mlir").read_text()
    first = chosen(text)
    assert hierarchy_choose_sizes._CHOSEN  # pyright: ignore[reportPrivateUsage]

    def unexpected(*_: object) -> None:
        raise AssertionError("sizes are chosen again")

    monkeypatch.setattr(hierarchy_choose_sizes, "choose", unexpected)
    assert chosen(text) == first


def test_another_size_and_another_machine_are_asked_anew() -> None:
    """Whatever was kept before, the choice is that of a process that kept nothing."""
    text = (EXAMPLES / "attention.mlir").read_text()
    programs = [(text, "a100"), (text, "h100"), (text.replace("x = 333", "x = 30000"), "a100")]
    after_others = [chosen(*program) for program in programs]
    assert len({*after_others}) == len(programs)
    for program, found in zip(programs, after_others, strict=True):
        hierarchy_choose_sizes._CHOSEN.clear()  # pyright: ignore[reportPrivateUsage]
        fusion._TIMES.clear()  # pyright: ignore[reportPrivateUsage]
        assert chosen(*program) == found
