"""Choices of sizes are kept by structure: what is kept is what is chosen anew, and another question is asked anew."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.pipeline import Observer, Options, run_pipeline
from treadle.derive import module_of
from treadle.dialects.diagram.array import SizesAttr
from treadle.passes import fusion, hierarchy_choose_sizes, hierarchy_split_streams
from treadle.passes._functions import functions, kernels
from treadle.passes._structure import Structure, structure_of
from treadle.passes.kernels import function_trial
from treadle.passes.kernels.function_trial import FunctionTrial

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = ("attention", "attention_paged", "matmul", "layer_norm", "softmax")


@pytest.fixture(autouse=True)
def unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hierarchy_choose_sizes, "_CHOSEN", {})
    monkeypatch.setattr(fusion, "_TIMES", {})
    monkeypatch.setattr(hierarchy_split_streams, "_TIMED", {})
    monkeypatch.setattr(function_trial, "_TIMES", {})


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


@pytest.mark.parametrize(("machine", "keys"), [("h100", 333), ("a100", 30000)])
def test_another_size_and_another_machine_are_asked_anew(machine: str, keys: int) -> None:
    """Whatever was kept before, the choice is that of a process that kept nothing."""
    text = (EXAMPLES / "attention.mlir").read_text()
    programs = [(text, "a100"), (text.replace("x = 333", f"x = {keys}"), machine)]
    after_others = [chosen(*program) for program in programs]
    assert len({*after_others}) == len(programs)
    for program, found in zip(programs, after_others, strict=True):
        hierarchy_choose_sizes._CHOSEN.clear()  # pyright: ignore[reportPrivateUsage]
        fusion._TIMES.clear()  # pyright: ignore[reportPrivateUsage]
        hierarchy_split_streams._TIMED.clear()  # pyright: ignore[reportPrivateUsage]
        function_trial._TIMES.clear()  # pyright: ignore[reportPrivateUsage]
        assert chosen(*program) == found


@pytest.mark.parametrize("axis", ["x", "another"])
def test_parts_are_tried_once_whatever_an_axis_is_called(axis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (EXAMPLES / "attention_decode.mlir").read_text()
    first = chosen(text)
    assert "into @" in first
    assert any(hierarchy_split_streams._TIMED.values())  # pyright: ignore[reportPrivateUsage]

    def unexpected(*_: object) -> None:
        raise AssertionError("parts are tried again")

    monkeypatch.setattr(hierarchy_split_streams, "_in_parts", unexpected)
    renamed = re.sub(r"(?<![?\w%])x(?!\w|\?)", axis, text)
    assert chosen(renamed) == re.sub(r"(?<![?\w%])x(?=\b|_part|_in)|(?<=%extent_)x", axis, first)


GATED = """
!A = tensor<{rows}x4096xf16, #diagram.array<[m, k]>>
!W = tensor<2x8192x4096xf16, #diagram.array<[s, n, k]>>
!P = tensor<{rows}x2x8192xf32, #diagram.array<[m, s, n]>>
func.func @f(%A: !A, %W: !W) -> !P attributes {{sizes = #diagram.sizes<m = 64>}} {{
  %P = diagram.contract %A, %W over [k] accumulate f32 : !A, !W -> !P
  func.return %P : !P
}}"""


def test_functions_are_tried_once_whatever_their_axes_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether `s n` become one axis, the model tells by all kernels of the function."""
    first = chosen(GATED.format(rows=64))
    assert function_trial._TIMES  # pyright: ignore[reportPrivateUsage]

    def unexpected(*_: object) -> None:
        raise AssertionError("a function is tried again")

    monkeypatch.setattr(FunctionTrial, "_tried", unexpected)
    renamed = (
        GATED.format(rows=64).replace("[m,", "[row,").replace("s, n", "part, column").replace("m = 64", "row = 64")
    )
    assert len(chosen(renamed).splitlines()) == len(first.splitlines())


@pytest.mark.parametrize("rows", ["128", "?"])
@pytest.mark.parametrize("machine", ["a100", "h100"])
def test_functions_of_other_sizes_are_tried_anew(rows: str, machine: str) -> None:
    texts = [GATED.format(rows=rows), GATED.format(rows=rows).replace("m = 64", "m = 5000")]
    chosen(GATED.format(rows=64))
    for text in texts:
        found = chosen(text, machine)
        function_trial._TIMES.clear()  # pyright: ignore[reportPrivateUsage]
        assert chosen(text, machine) == found


class WithoutTrials(Observer):
    """Lets fusion try nothing, from where the pipeline itself makes kernels."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.monkeypatch = monkeypatch

    def before_pass(self, spec: ArgSpec, module: ModuleOp) -> None:
        if spec.name == "fusion":
            self.monkeypatch.setattr(fusion, "_tried", self.unexpected)
            self.monkeypatch.setattr(fusion, "_tried_time", self.unexpected)

    def unexpected(self, *_: object, **named: object) -> None:
        raise AssertionError("fusion tries again what was tried with all of the function")


def test_what_fusion_asks_was_asked_where_all_of_a_function_was_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of keys that say of which sequence they are, whose ranges are found before."""
    monkeypatch.setattr(fusion, "_FIT", {})
    module = module_of((EXAMPLES / "attention_packed.mlir").read_text())
    sizes = {"b": 2, "h": 16, "q": 4096, "x": 4096}
    (function,) = functions(module)
    function.attributes["sizes"] = SizesAttr(sizes)
    run_pipeline(module, Options(machine="h100"), WithoutTrials(monkeypatch), last="hierarchy-choose-sizes")
    assert "decline diagram-find-ranges" not in str(module)
    assert len(kernels(function)) > 1


def test_kernels_of_views_have_structures_of_their_own() -> None:
    """A view says where elements lie, of which the cost model knows."""
    plain = """func.func @f(%x: tensor<64x64xf32, #diagram.array<[i, j]>>) -> tensor<64xf32, #diagram.array<[i]>> {
      %s = diagram.reduce add %x over [j] : tensor<64x64xf32, #diagram.array<[i, j]>>
        -> tensor<64xf32, #diagram.array<[i]>>
      func.return %s : tensor<64xf32, #diagram.array<[i]>>
    }"""
    viewed = """func.func @f(%v: tensor<127x64xf32, #diagram.array<[i, j]>>) -> tensor<64xf32, #diagram.array<[i]>> {
      %x = diagram.read %v at "(2 * i), j"
        : tensor<127x64xf32, #diagram.array<[i, j]>> -> tensor<64x64xf32, #diagram.array<[i, j]>>
      %s = diagram.reduce add %x over [j] : tensor<64x64xf32, #diagram.array<[i, j]>>
        -> tensor<64xf32, #diagram.array<[i]>>
      func.return %s : tensor<64xf32, #diagram.array<[i]>>
    }"""
    assert structure(plain) != structure(viewed)


def structure(text: str) -> Structure | None:
    """Of the only kernel of a program."""
    module = module_of(text)
    run_pipeline(module, Options(), last="fusion")
    ((kernel,),) = (kernels(function) for function in functions(module))
    return structure_of(kernel, module.attributes, {})
