"""What the README shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from treadle.compiler import main as cli
from treadle.compiler.cli.arguments import make_parser

ROOT = Path(__file__).parents[1]
SHOWN = "```\n$ make demo\n"
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_demo_prints_what_is_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Line by line but for numbers, which depend on the machine at hand and on the cost model. `pytest --update
    tests/test_readme.py` writes it anew."""
    monkeypatch.chdir(ROOT)
    assert cli.main(["run", "examples/attention.mlir", "--verbose", "--backend", "emulator"]) == 0
    told = capsys.readouterr().out
    if request.config.getoption("--update"):
        before, rest = README.split(SHOWN, 1)
        page = before + SHOWN + told + rest[rest.index("```") :]
        (ROOT / "README.md").write_text(page, encoding="utf-8")
        return
    shown = README.split(SHOWN, 1)[1].split("```", 1)[0]
    assert heads(shown) == heads(told)


def heads(text: str) -> list[str]:
    """The first word of each line that begins something."""
    return [line.split()[0] for line in text.splitlines() if line and not line.startswith(" " * 6)]


def test_the_commands_that_are_shown_are_understood() -> None:
    commands = re.findall(r"^(treadle (?:run|compile|explain) +\S+(?: \S+)*)", README, re.M)
    assert len(commands) >= 6
    for command in commands:
        parsed = make_parser().parse_args(shlex.split(command)[1:])
        assert parsed.file == "wrong.mlir" or (ROOT / parsed.file).exists()


def test_the_python_that_is_shown_runs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    snippets = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(snippets) == 2
    for snippet in snippets:
        exec(snippet, {})
        assert "__global__" in capsys.readouterr().out


def test_every_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for link, heading in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", page.read_text(encoding="utf-8")):
            if link.startswith("https://"):
                continue
            target = page.parent / link if link else page
            assert target.exists(), f"{page}: {link}"
            assert not heading or heading in anchors(target), f"{page}: {link}#{heading}"


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_in_the_index() -> None:
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {link for link in re.findall(r"\]\(([^)#]+\.md)\)", index) if not link.startswith("../")}
    assert pages - {"README.md"} == linked


def test_every_folder_is_in_the_table() -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")}
    named = set(re.findall(r"`(\w+)/`", README))
    assert folders - named - {"build", "dist", "__pycache__", "treadle.egg-info", "shared"} == set()
