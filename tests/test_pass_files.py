"""A pass is a file, a class, a docstring whose IR is true, and a FileCheck test, all of one name."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.arg_spec import parse_pipeline

from treadle.compiler.pipeline import Options, pipeline
from treadle.compiler.source import make_context, parse_module
from treadle.compiler.universe import DIALECTS, PASSES, TARGETS, loader

ROOT = Path(__file__).parents[1]

NAMES = sorted(PASSES)
MISSION = ("fusion", "streaming", "tiling", "coalescing", "warp-specialization")
DOORS = ("convert-diagram-to-linalg", "convert-linalg-to-diagram", "diagram-differentiate")
"""To and from the dialects of others, and to the gradient: no part of the road from a diagram to a kernel."""


@pytest.mark.parametrize("name", NAMES)
def test_file_class_and_test_have_the_name_of_the_pass(name: str) -> None:
    path = PASSES[name]
    snake = name.replace("-", "_")
    camel = "".join(part.capitalize() for part in name.split("-"))
    assert path == f"treadle.passes.{snake}:{camel}Pass"
    assert loader(path)().name == name
    assert (ROOT / "lit_tests" / "passes" / f"{name}.mlir").exists()


def test_every_file_of_passes_is_a_pass() -> None:
    files = {path.stem for path in (ROOT / "passes").glob("[!_]*.py")}
    assert files == {name.replace("-", "_") for name in NAMES}


LAYERS = [
    [
        "axes",
        "expressions",
        "factors",
        "streams",
        "conditions",
        "kernels",
        "reads",
        "products",
        "recurrences",
        "orders",
        "swaps",
    ],
    ["staging", "loops", "warps", "grids"],
    ["expressions", "staging", "loops", "warps", "speculation"],
    ["expressions", "masks"],
    ["linalg"],
    ["expressions", "gradients"],
]
"""The folders that passes share: each uses those before it in its row."""


def test_folders_use_those_before_them() -> None:
    passes = ROOT / "passes"
    folders = {path.parent.name for path in passes.glob("*/__init__.py")}
    assert folders == {folder for row in LAYERS for folder in row}
    for row in LAYERS:
        for index, folder in enumerate(row):
            text = "".join(path.read_text(encoding="utf-8") for path in (passes / folder).glob("*.py"))
            assert set(re.findall(r"treadle\.passes\.(\w+)\.", text)) <= set(row[: index + 1]), folder


def test_names_say_what_a_pass_works_on() -> None:
    for name in set(NAMES) - {*MISSION, "pipelining", "treadle", "set-machine"}:
        assert name.startswith(("diagram-", "hierarchy-", "cuda-", "convert-")), name


def test_the_pipeline_has_every_pass() -> None:
    assert {spec.name for spec in pipeline(Options())} == set(NAMES) - {"treadle", *DOORS}


@pytest.mark.parametrize("name", NAMES)
def test_options_have_defaults(name: str) -> None:
    assert not loader(PASSES[name])().required_fields()


def documented(name: str) -> tuple[str, str, str]:
    """The IR before, the pass with its options, and the IR after, as the docstring has them."""
    text = inspect.getdoc(loader(PASSES[name])()) or ""
    blocks = re.findall(r"```\n(.*?)```", text, re.S)
    assert len(blocks) == 2, "IR before and after, each between ```"
    options = re.search(rf"(?:with|[Aa]fter)\s+`({name}\{{[^`]*\}})`", text)
    return blocks[0], options[1] if options else name, blocks[1]


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_is_true(name: str) -> None:
    before, text, after = documented(name)
    machine = re.search(r"for `(set-machine\{[^`]*\})`:", inspect.getdoc(loader(PASSES[name])()) or "")
    module = parse_module(before, f"docstring of {name}, before")
    for spec in parse_pipeline(f"{machine[1]},{text}" if machine else text):
        loader(PASSES[spec.name])().from_spec(spec).apply(make_context(), module)
    module.verify()
    wanted = parse_module(after, f"docstring of {name}, after")
    for each in (module, wanted):
        forget(each)
    assert module.is_structurally_equivalent(wanted), f"{text} gives\n{module}"


def forget(module: ModuleOp) -> None:
    """What docstrings leave out because it is long: the machine, and how it was derived."""
    module.attributes.pop("machine", None)
    for operation in module.walk():
        operation.attributes.pop("derivation", None)


@pytest.mark.parametrize("table", [DIALECTS, PASSES, TARGETS], ids=["dialects", "passes", "targets"])
def test_everything_registered_can_be_loaded(table: dict[str, str]) -> None:
    for name, path in table.items():
        assert loader(path)().name == name


def test_the_stock_driver_sees_everything() -> None:
    from xdsl.universe import Universe

    multiverse = Universe.get_multiverse()
    assert set(PASSES) <= set(multiverse.all_passes)
    assert set(DIALECTS) <= set(multiverse.all_dialects)
    assert set(TARGETS) <= set(multiverse.all_targets)


COST = ["kernel", "levels", "reading", "timing", "choice"]
"""The folders of the cost model, in order; `symbolic` is beside `timing` and `choice`."""


def test_folders_of_the_cost_model_use_those_before_them() -> None:
    cost = ROOT / "compiler" / "cost"
    assert {path.parent.name for path in cost.glob("*/__init__.py")} == {*COST, "symbolic"}
    for order in (COST, [*COST[:3], "symbolic"]):
        for index, folder in enumerate(order):
            text = "".join(path.read_text(encoding="utf-8") for path in (cost / folder).glob("*.py"))
            assert set(re.findall(r"treadle\.compiler\.cost\.(\w+)[. ]", text)) <= set(order[: index + 1]), folder
