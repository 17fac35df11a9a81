"""What cannot stream is refused with the reason, at the operation: never computed wrongly, never half."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refused
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.pipeline import Options, pipeline, run_passes
from treadle.compiler.source import load_module

EXAMPLES = Path(__file__).parents[1] / "examples"
REFUSED = EXAMPLES / "refused"
LINES = {"median": 8, "sort": 6}
NO_KERNEL = "there is no kernel @f (kernels are @matmul)"


def test_each_is_tried() -> None:
    assert {path.stem for path in REFUSED.glob("*.mlir")} == LINES.keys()


@pytest.mark.parametrize("command", ["run", "compile", "explain", "check"])
@pytest.mark.parametrize("name", LINES)
def test_no_law(name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, str(REFUSED / f"{name}.mlir"))
    assert f"no law for '{name}' on axis 'x'" in said
    assert f"{name}.mlir:{LINES[name]}:3" in said


ASKED: dict[str, tuple[str, str, str, dict[str, tuple[str | int, ...]], str]] = {
    "no such value": ("matmul", "fusion", "", {"operations": ("Z",)}, "there is no operation %Z"),
    "a reduced axis in groups": ("matmul", "tiling", "%C", {"axis": ("k",)}, "axis 'k' is reduced by %C"),
    "an unknown axis in groups": ("matmul", "tiling", "@matmul", {"axis": ("z",)}, "there is no axis 'z'"),
    **{
        f"{name} of no kernel": ("matmul", name, "", {**axis, "kernel": ("f",)}, NO_KERNEL)
        for name, axis in {
            "hierarchy-promote-sums": {},
            "hierarchy-split-streams": {},
            "hierarchy-subloop": {"axis": ("k",)},
            "hierarchy-transpose-arrays": {},
            "streaming": {},
            "tiling": {"axis": ("m",)},
        }.items()
    },
    "sizes of no kernel": ("matmul", "hierarchy-choose-sizes", "", {"kernel": ("f",)}, "chosen (kernels are @matmul)"),
    "a weaved axis as a stream": (
        "matmul",
        "streaming",
        "@matmul",
        {"axis": ("m",)},
        "axis 'm' is reduced in no kernel",
    ),
    "two streams": ("attention", "streaming", "%S", {"axis": ("d",)}, "@attention cannot stream 'd'"),
    "parts of a weaved axis": (
        "matmul",
        "hierarchy-split-streams",
        "@matmul",
        {"axis": ("m",), "parts": (2,)},
        "axis 'm' is reduced by nothing in it",
    ),
    "parts of no length": (
        "matmul",
        "hierarchy-split-streams",
        "@matmul",
        {"axis": ("k",), "length": (-1,)},
        "'k' has 333 positions, which cannot be cut into parts of -1",
    ),
    "a state that every group would save": (
        "variance",
        "hierarchy-split-streams",
        "@mean_and_variance",
        {"length": (128,)},
        "'x' cannot be cut into parts: axis 'row' is not in %t_count",
    ),
    "pieces of an odd size": (
        "matmul",
        "hierarchy-choose-sizes",
        "@matmul",
        {"group": ("m=24",)},
        "axis 'm' cannot have",
    ),
    "a subloop over no sum": ("matmul", "hierarchy-subloop", "@matmul", {"axis": ("n",)}, "no contraction of @matmul"),
}
"""An example, a pass, what the message names, what is asked, and the reason."""


@pytest.mark.parametrize("case", ASKED)
def test_what_is_asked_and_cannot_be_is_refused_at_the_operation(case: str) -> None:
    example, name, subject, asked, reason = ASKED[case]
    module = load_module(EXAMPLES / f"{example}.mlir")
    specs = [ArgSpec(each.name, asked) if each.name == name else each for each in pipeline(Options())]
    with pytest.raises(TreadleError) as refused:
        run_passes(module, specs)
    assert not isinstance(refused.value, InternalError)
    assert f"pass '{name}'" in refused.value.message
    assert reason in refused.value.message
    if subject:  # a place, too: a line of the file, with the operation there
        assert f" {subject}: " in refused.value.message
        assert (refused.value.location or "").count(":") == 2
