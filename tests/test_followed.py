"""Whether reductions can follow others in their stream, kept by structure: what is kept is what is found anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.pipeline import Options, run_pipeline
from treadle.derive import module_of
from treadle.passes._functions import functions
from treadle.passes._parts import Part, Reducing, part_of
from treadle.passes.streams import followed
from treadle.passes.streams.followed import Followed, safe_of
from treadle.passes.streams.stages import StreamPlan

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = (
    "attention",
    "attention_causal",
    "attention_sink",
    "layer_norm",
    "cross_entropy",
    "variance",
    "attention_spherical",
)


@pytest.fixture(autouse=True)
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "_KNOWN", {})


def parts(text: str) -> Iterator[Part]:
    """All operations of each function, after the passes on diagrams."""
    module = module_of(text)
    run_pipeline(module, Options(), last="diagram-compose-maps")
    yield from (whole(module, i) for i, _ in enumerate(functions(module)))


def whole(module: ModuleOp, place: int) -> Part:
    function = list(functions(module))[place]
    return part_of(op for op in function.body.block.ops if op.name.startswith("diagram."))


def plans(part: Part) -> list[StreamPlan]:
    """Along every axis that is reduced."""
    axes = dict.fromkeys(axis for op in part.ops if isinstance(op, Reducing) for axis in op.over_axes)
    return [StreamPlan(part, axis) for axis in axes]


def told(plan: StreamPlan) -> list[object]:
    """The stage of every value, in the order of the program, and what is guarded."""
    results = [op.results[0] for op in plan.part.ops]
    return [(plan.stage_of(value), value in plan.guarded) for value in results]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_is_what_is_found_anew(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another copy of the program, which has no value of the first, under other names."""
    text = (EXAMPLES / f"{name}.mlir").read_text()
    with monkeypatch.context() as forgetting:
        forgetting.setattr(Followed, "safe", property(lambda self: safe_of(self.repair)))
        fresh = [told(plan) for part in parts(text) for plan in plans(part)]
    first = [told(plan) for part in parts(text) for plan in plans(part)]
    assert first == fresh

    def unexpected(*_: object) -> None:
        raise AssertionError("a repair is looked for again")

    monkeypatch.setattr(followed, "Cascade", unexpected)
    assert [told(plan) for part in parts(renamed(text)) for plan in plans(part)] == fresh


def renamed(text: str) -> str:
    """The same program, with other names of values."""
    return text.replace("%", "%z_")


def test_what_is_asked_is_in_the_key() -> None:
    """Equal operations along another axis, or after reductions that run in another stream, are another question."""
    (part,) = parts((EXAMPLES / "attention.mlir").read_text())
    for plan in plans(part):
        assert told(plan) == told(StreamPlan(part, plan.axis))
    kept = len(followed._KNOWN)  # pyright: ignore[reportPrivateUsage]
    assert kept
    for plan in plans(part):
        assert told(plan) == told(StreamPlan(part, plan.axis))
    assert len(followed._KNOWN) == kept  # pyright: ignore[reportPrivateUsage]
