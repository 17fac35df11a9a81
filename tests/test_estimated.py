"""What the kernels of a program will take, found before they are made: what they then take; found once for kernels that
differ in names alone, and never taken for one that differs in more."""

from __future__ import annotations

from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import treadle
import treadle.language as tl
from treadle import estimated
from treadle.compiler.errors import InternalError, TreadleError
from treadle.compiler.pipeline import Options, run_pipeline
from treadle.derive import module_of
from treadle.estimated import estimate
from treadle.passes._functions import functions, kernels
from treadle.passes._structure import Structure, structure_of

EXAMPLES = Path(__file__).parent.parent / "examples"

PROGRAM = """
!X = tensor<64x{size}xf32, #diagram.array<[{row}, {column}]>>
!S = tensor<64xf32, #diagram.array<[{row}]>>
func.func @f({x}: !X) -> !S {{
  {m} = diagram.reduce {kind} {x} over [{column}] : !X -> !S
  func.return {m} : !S
}}
"""
NAMES = {"size": "100", "row": "i", "column": "k", "x": "%X", "m": "%M", "kind": "max"}


@pytest.fixture(autouse=True)
def unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TREADLE_CACHE", str(tmp_path))
    for known in ("_PROGRAMS", "_KERNELS"):
        monkeypatch.setattr(estimated, known, {})


def program(**names: str) -> ModuleOp:
    return module_of(PROGRAM.format(**{**NAMES, **names}))


def structure(module: ModuleOp, sizes: dict[str, int] | None = None, asked: tuple[str, ...] = ()) -> Structure | None:
    """Of the only kernel of a program."""
    run_pipeline(module, Options(), last="fusion")
    ((kernel,),) = (kernels(function) for function in functions(module))
    return structure_of(kernel, module.attributes, sizes or {}, asked)


@pytest.mark.parametrize("machine", ["a100", "h100"])
@pytest.mark.parametrize("name", ["attention_bias", "cross_entropy", "mlp", "attention_decode"])
def test_it_is_what_the_kernels_have(name: str, machine: str) -> None:
    module = module_of(EXAMPLES / f"{name}.mlir")
    assert estimate(module, machine=machine) == treadle.compile(module, machine=machine).estimate


def test_axes_that_are_one_have_the_length_of_all() -> None:
    """`b s` are one axis, whose length the arrays around a kernel tell: of the kernel alone it would be known at
    launch."""

    def mixed(X: tl.Array, W: tl.Array, g: tl.Array) -> tl.Array:
        return tl.sum(tl.contract(X, W, over="i") * g, over="r").to("f16")

    sizes = {"b": 8, "s": 2048, "i": 1024, "o": 1024, "r": 16}
    made = treadle.kernel("b s i, i o r, b r -> b s o", machine="h100", static="i o r")(mixed)
    module = made.trace(["f16"] * 3, sizes, ["i", "o", "r"])
    assert "diagram.collapse" in treadle.compile(module, machine="h100").hierarchy
    assert estimate(module, machine="h100") == treadle.compile(module, machine="h100").estimate


def test_it_is_found_once_for_all_names(monkeypatch: pytest.MonkeyPatch) -> None:
    first = estimate(program())

    def unexpected(*_: object) -> None:
        raise AssertionError("the kernel is read again")

    monkeypatch.setattr(estimated, "_read", unexpected)
    assert estimate(program(row="r", column="c", x="%given", m="%top")) == first
    monkeypatch.setattr(estimated, "_PROGRAMS", {})
    monkeypatch.setattr(estimated, "_KERNELS", {})
    assert estimate(program()) == first, "it is kept on disk"
    with pytest.raises(InternalError, match="the kernel is read again"):
        estimate(program(size="101"))


def test_a_refusal_is_told() -> None:
    module = module_of((EXAMPLES / "matmul.mlir").read_text().replace("accumulate f32", "accumulate f16"))
    with pytest.raises(TreadleError, match="it accumulates in f16"):
        estimate(module)


def test_names_make_no_structure() -> None:
    assert structure(program()) == structure(program(row="k", column="i", x="%k", m="%i"))


@pytest.mark.parametrize("other", [{"size": "101"}, {"kind": "min"}])
def test_all_else_makes_it(other: dict[str, str]) -> None:
    assert structure(program()) != structure(program(**other))


def test_what_is_asked_of_an_axis_is_in_it() -> None:
    assert structure(program(), asked=("k",)) == structure(program(column="c"), asked=("c",))
    assert structure(program(), asked=("k",)) != structure(program(), asked=("i",))


def test_stated_sizes_are_in_it() -> None:
    found = [structure(program(size="?"), {"k": size}) for size in (8, 16)]
    assert found[0] != found[1]
    assert found[0] == structure(program(size="?", column="c"), {"c": 8})


def test_a_word_that_may_be_an_axis_makes_none() -> None:
    """An axis that is called as a reduction is: `reduce max` might be one of it."""
    assert structure(program(column="max")) is None
    assert estimate(program(column="max")) == estimate(program())


def test_a_kernel_that_is_known_to_fit_leaves_nothing_behind() -> None:
    """A trial that uses the program's values would make them be saved for nobody."""
    for _ in range(2):
        module = module_of(EXAMPLES / "attention_causal.mlir")
        run_pipeline(module, Options(), last="fusion")
        for function in functions(module):
            values = [*function.body.block.args, *(result for op in function.walk() for result in op.results)]
            assert all(use.operation.parent is not None for value in values for use in value.uses)
