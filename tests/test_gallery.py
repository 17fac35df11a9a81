"""The pictures and the gallery of the documentation."""

from __future__ import annotations

import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from test_draw import check_picture

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    spec = spec_from_file_location("make_gallery", DOCS / "make_gallery.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    sys.modules["make_gallery"] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_all_that_the_command_draws_and_nothing_else(gallery: ModuleType):
    shown = re.findall(r"\(pictures/drawn/(\w+)\.svg\)", (DOCS / "drawing.md").read_text())
    assert sorted(shown) == sorted(gallery.PICTURES)
    assert sorted(path.stem for path in (DOCS / "pictures" / "drawn").iterdir()) == sorted(gallery.PICTURES)


@pytest.mark.parametrize(
    "name",
    ["product_schedule", "softmax_product_regions", "softmax_product_costs", "grouped_query_attention"],
)
def test_pictures_of_the_page_are_well_made(gallery: ModuleType, name: str):
    check_picture(gallery.PICTURES[name]())


def test_the_hopper_picture_has_the_clocks_of_the_paper(gallery: ModuleType):
    picture = gallery.hopper_pipeline()
    texts = [text.text for text in picture.texts()]
    assert "2,304 clocks for one step of all; tensor 100% busy, special 76% busy" in texts


def test_the_gallery_of_an_example_links_what_it_wrote(gallery: ModuleType, tmp_path: Path):
    examples = DOCS.parent / "examples"
    assert list(gallery.make_gallery([examples / "sin2cos2.mlir"], tmp_path)) == ["sin2cos2"]
    for name in ("index.html", "sin2cos2.html"):
        for link in re.findall(r'(?:href|src)="([^"]+)"', (tmp_path / name).read_text()):
            assert (tmp_path / link).is_file(), link
    page = (tmp_path / "sin2cos2.html").read_text()
    for head in ("Diagram", "Schedule", "Loops", "Costs", "Derivation", "Kernel"):
        assert f"<h2>{head}</h2>" in page
    assert "__global__" in page
