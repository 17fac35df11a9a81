"""Every code block of the pages for newcomers is executed, in order, and prints what the page shows.

A page's blocks share a folder, in which `examples` lies, and its Python shares its names. By the language of a block:

- `python` runs, and what it prints is the `text` block that follows, if one does;
- `console` runs each line that begins with `$ treadle` or `$ xdsl-opt`, and what follows it is what the command prints;
- `mlir`, `toml` and `derivation` are files, named at the end of the paragraph before: "... `first.mlir`:";
- no language: nothing runs;
- `sh` installs: only what it names is checked, for tests/test_install.py installs.

In what is shown, `...` stands for any text, and alone on a line for any lines. Numbers of `console` may be others,
those of `text` not."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from xdsl.xdsl_opt_main import xDSLOptMain

from foreign_package import install
from treadle.compiler import main as cli
from treadle.compiler import opt_main

ROOT = Path(__file__).parents[1]
PAGES = ("start", "attention", "pytorch", "machines", "xdsl", "laws", "gradients", "derivations", "debugging")
NUMBER = re.compile(r"(?<![\w@])-?\d[\d,]*(\.\d+)?(e[+-]?\d+)?")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int
    before: str
    """The paragraph before it."""


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)
    made = [
        Block(match[1], match[2], text[: match.start()].count("\n") + 1, text[: match.start()].rstrip())
        for match in found
    ]
    assert 2 * len(made) == len(re.findall(r"^```", text, re.M)), "a block is not closed"
    return made


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def registered() -> Iterator[None]:
    """PyTorch finds the backend by treadle's entry point where treadle is installed, and not where it is only on the
    path; tests/test_install.py looks at the entry point."""
    torch = pytest.importorskip("torch")
    from treadle.torch import backend

    torch._dynamo.reset()
    if "treadle" not in torch._dynamo.list_backends():
        torch._dynamo.register_backend(backend, "treadle")
    yield
    torch._dynamo.reset()


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page about xDSL installs; the stock driver finds both compilers by their entry points."""
    if "treadle" not in entry_points(group="xdsl.universe").names:
        pytest.skip("treadle is only on the path here, not installed")
    monkeypatch.syspath_prepend(install(tmp_path_factory.mktemp("net")))


NEEDS = {"pytorch": "registered", "xdsl": "installed"}
"""What a page needs, as the name of a fixture."""


@pytest.mark.whole
@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.full] if page == "pytorch" else []) for page in PAGES]
)
def test_every_block_runs(
    page: str, folder: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """On an ordinary day tests/test_torch.py and others beside it check what the page about PyTorch shows: its blocks,
    one of which derives the gradient of a block of a transformer, take as long as those of four other pages."""
    if page in NEEDS:
        request.getfixturevalue(NEEDS[page])
    names: dict[str, Any] = {}
    printed = ""
    for block in blocks(ROOT / "docs" / f"{page}.md"):
        where = f"docs/{page}.md:{block.line}"
        if block.language == "python":
            exec(compile("\n" * block.line + block.text, str(ROOT / "docs" / f"{page}.md"), "exec"), names)
            printed = capsys.readouterr().out
        elif block.language == "text":
            assert_shown(block.text, printed, where, numbers=True)
        elif block.language == "console":
            run_console(block.text, capsys, where)
        elif block.language == "sh":
            assert_installs(block.text)
        elif block.language:
            write_file(block, folder)


def run_console(text: str, capsys: pytest.CaptureFixture[str], where: str) -> None:
    commands = re.split(r"^\$ ", text, flags=re.M)[1:]
    assert commands, where
    for command in commands:
        line, _, shown = command.partition("\n")
        program, *arguments = shlex.split(line)
        assert program in PROGRAMS, f"{where}: {line}"
        arguments += FEWER.get(arguments[0], [])
        try:
            code = PROGRAMS[program](arguments)
        except SystemExit as stop:
            code = stop.code or 0
        said = capsys.readouterr()
        refused = shown.startswith(f"{program}: ")
        wanted = 2 if refused else 1 if shown.startswith("WRONG") else 0
        assert code == wanted, f"{where}: {line}\n{said.err}"
        assert_shown(shown, said.err if refused else said.out, where)


def stock_driver(arguments: list[str]) -> int:
    xDSLOptMain("", arguments).run()
    return 0


FEWER = {"check": ["--cases", "20"]}
"""What a command is told beside what the page shows, so that it is soon done and says the same."""

PROGRAMS = {"treadle": cli.main, "treadle-opt": opt_main.main, "xdsl-opt": stock_driver}


def assert_shown(shown: str, printed: str, where: str, numbers: bool = False) -> None:
    """Both without numbers, if these may differ, blanks at the end, and differences in how many blanks there are."""
    lines = [plain(line, numbers) for line in shown.splitlines()]
    texts = [re.escape(line).replace(r"\.\.\.", ".*") for line in lines]
    pattern = "".join(
        "(?:.*\n)*" if line.strip() == "..." else f"{text}\n" for line, text in zip(lines, texts, strict=True)
    )
    said = "".join(f"{plain(line, numbers)}\n" for line in printed.rstrip().splitlines())
    assert re.fullmatch(pattern, said), f"{where} shows\n{shown}\nbut it is\n{printed}"


def plain(line: str, numbers: bool = False) -> str:
    return re.sub(r"\s+", " ", line if numbers else NUMBER.sub("0", line)).rstrip()


def write_file(block: Block, folder: Path) -> None:
    named = re.search(r"`([\w-]+\.(?:mlir|toml|derivation))`:$", block.before)
    assert named, f"line {block.line}: a block of {block.language or 'no language'} that is neither run nor named"
    assert named[1].endswith(f".{block.language}")
    (folder / named[1]).write_text(block.text, encoding="utf-8")


def assert_installs(text: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for line in text.splitlines():
        assert line.startswith("pip install "), line
        assert set(re.findall(r"\[(\w+)\]", line)) <= set(extras)
        folder = line.split()[-1].split("[")[0].strip("'")
        assert (ROOT / folder / "pyproject.toml").exists(), line


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_extra_is_there(page: str) -> None:
    text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (ROOT / "docs" / link).exists(), link
    for extra in re.findall(r"`'\.\[(\w+)\]'`", text):
        assert_installs(f"pip install '.[{extra}]'")


@pytest.mark.parametrize(
    ("shown", "printed", "fits"),
    [
        ("a 1.5 b\n", "a  27 b\n", True),
        ("a ... b\n", "a x y b\n", True),
        ("a\n...\nb\n", "a\nx\ny\nb\n", True),
        ("a\n...\nb\n", "a\nx\ny\n", False),
        ("a\n", "a\nb\n", False),
        ("f16\n", "f32\n", False),
        ("", "a\n", False),
    ],
)
def test_what_fits_what_is_shown(shown: str, printed: str, fits: bool) -> None:
    if fits:
        assert_shown(shown, printed, "here")
        return
    with pytest.raises(AssertionError):
        assert_shown(shown, printed, "here")


def test_numbers_fit_where_they_are_asked_for() -> None:
    assert_shown("4 entries\n", "4 entries\n", "here", numbers=True)
    with pytest.raises(AssertionError):
        assert_shown("1 entries\n", "4 entries\n", "here", numbers=True)
