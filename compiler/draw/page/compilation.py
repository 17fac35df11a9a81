"""The page of a compilation: one file that opens from disk and can be walked by keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from treadle.compiler.draw.page.record import Record
from treadle.compiler.draw.theme import stylesheet

_ENDS = re.compile(r"<(?=[/!]|script)", re.IGNORECASE)
"""What no text of the data may say, for it would end the element that holds it or hide that end (HTML standard,
4.12.1.3, restrictions for contents of script elements); `<` elsewhere costs one letter, not six."""


@dataclass(frozen=True)
class Ending:
    """What a compilation came to."""

    title: str
    file: str
    source: str
    """The text of the program."""
    cuda: str
    code: Sequence[str]
    """Lines on registers, shared memory and the main loop."""


def compilation_page(record: Record, ending: Ending) -> str:
    """The HTML; nothing in it is fetched."""
    source: Mapping[str, object] = {"title": ending.title, "file": ending.file, "source": ending.source.splitlines()}
    data = json.dumps({**record.as_data(), **source}, separators=(",", ":"), ensure_ascii=False)
    parts = {
        "TITLE": escape(ending.title),
        "STYLE": f"{_part('page.css')}\n{stylesheet()}",
        "DATA": _ENDS.sub(r"\\u003c", data),
        "SCRIPT": _part("page.js"),
        "CUDA": escape(ending.cuda),
        "CODE": escape("\n".join(ending.code)),
        "EXPLAIN": escape(record.explanation or "nothing to explain: no operation became a kernel"),
    }
    page = _part("page.html")
    for name, text in parts.items():
        head, mark, tail = page.partition(f"<!--{name}-->")
        assert mark, name
        page = head + text + tail
    return page


def _part(name: str) -> str:
    return files("treadle.compiler.draw.page").joinpath(name).read_text()
