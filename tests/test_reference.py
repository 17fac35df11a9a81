"""docs/reference is what the docstrings say, and says it of everything that is registered."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from treadle.compiler.universe import DIALECTS, PASSES, TARGETS, loader

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    pytest.importorskip("torch")  # one of the pages is about treadle.torch, too
    spec = spec_from_file_location("make_reference", DOCS / "make_reference.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules["make_reference"] = module
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date(reference: ModuleType) -> None:
    made = reference.pages()
    kept = {path.name: path.read_text(encoding="utf-8") for path in (DOCS / "reference").iterdir()}
    stale = [name for name in {*made, *kept} if made.get(name) != kept.get(name)]
    assert not stale, f"{', '.join(sorted(stale))} in docs/reference: run 'make reference'"


def test_every_property_has_a_type(reference: ModuleType) -> None:
    said = "properties: `padded` (flag, optional), `place` (`#diagram.place`), `names` (list of strings, optional)."
    assert said in reference.pages()["diagram.md"]
    for page in ("diagram.md", "hierarchy.md", "cuda.md"):
        for found in re.findall(r"properties: ([^;\n]*)[;.]", reference.pages()[page]):
            assert all(re.fullmatch(r"`\w+` \(.+\)", each) for each in re.split(r"(?<=\)), ", found)), found


def test_all_that_is_registered_is_described(reference: ModuleType) -> None:
    pages = reference.pages()
    heads = {name: re.findall(r"^## `[#!]?(.+)`$", text, re.M) for name, text in pages.items()}
    assert sorted(heads["passes.md"]) == sorted([*PASSES, *TARGETS])
    for name, path in DIALECTS.items():
        dialect = loader(path)()
        wanted = [each.name for each in (*dialect.operations, *dialect.attributes)]
        assert sorted(heads[f"{name}.md"]) == sorted(wanted)


def test_all_that_python_may_import_is_described(reference: ModuleType) -> None:
    heads = re.findall(r"^## `(.+)`$", reference.pages()["python.md"], re.M)
    offered = {name: import_module(name).__all__ for name in ("treadle", "treadle.language", "treadle.torch")}
    wanted = [f"{module}.{name}" for module, names in offered.items() for name in names if name != "__version__"]
    assert sorted(heads) == sorted(wanted)


def test_the_pages_are_well_made(reference: ModuleType) -> None:
    """Blocks are closed, options of tables stand in the classes, and no path of a machine is in them."""
    for name, text in reference.pages().items():
        fences = re.findall(r"^```\w*$", text, re.M)
        assert len(fences) % 2 == 0, name
        assert all(fence == "```" for fence in fences[1::2]), name
        assert str(DOCS.parent) not in text
        assert not re.search(r"(?<![\w.)\]])/(?:home|root|tmp|work|usr)/", text), name
        assert "object at 0x" not in text
    rows = re.findall(r"^\| (?:\[`([\w-]+)`\])?.*?\| `(\w+)` \|", reference.pages()["passes.md"], re.M)
    assert ("streaming", "axis") in rows or any(option for _, option in rows)
