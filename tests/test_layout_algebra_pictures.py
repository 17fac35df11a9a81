"""The pictures of docs/layouts.md are what the script draws from the layouts."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

DOCS = Path(__file__).parents[1] / "docs"


def test_pictures_are_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("make_pictures", DOCS / "make_pictures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_pictures"] = module
    spec.loader.exec_module(module)
    pictures = module.pictures()
    assert {path.name for path in (DOCS / "pictures").glob("*.svg")} >= set(pictures)
    for name, text in pictures.items():
        assert (DOCS / "pictures" / name).read_text() == text, f"{name}: run python docs/make_pictures.py"
        ElementTree.fromstring(text)


def test_the_page_shows_every_picture() -> None:
    page = (DOCS / "layouts.md").read_text()
    shown = set(re.findall(r"\]\(pictures/([\w.]+)\)", page))
    assert shown == {path.name for path in (DOCS / "pictures").glob("*.svg")}
