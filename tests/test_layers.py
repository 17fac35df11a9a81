"""Which part of treadle may use which. What is below knows nothing of what is above it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

ALLOWED = {
    "dialects": {"dialects"},
    "runtime": {
        "compiler.counting",
        "compiler.errors",
        "compiler.laws",
        "compiler.sizes",
        "compiler.told_sizes",
        "dialects",
        "runtime",
    },
    "compiler/printer": {
        "compiler.errors",
        "compiler.execution",
        "compiler.layouts",
        "compiler.primitives",
        "compiler.printer",
        "dialects",
    },
    "compiler/layouts": {"compiler.layouts", "dialects"},
    "treadle/language": {"compiler.errors", "dialects", "language", "runtime", "treadle"},
}
"""Folders, and the parts that their files may import."""

COMMAND_LINE = ("compiler/cli/", "compiler/main.py")


@pytest.mark.parametrize("folder", ALLOWED)
def test_a_folder_uses_what_is_below_it(folder: str) -> None:
    used = {part for path in (ROOT / folder).rglob("*.py") for part in parts_used(path)}
    assert used, "nothing was found"
    assert used <= ALLOWED[folder]


def test_only_the_command_line_uses_the_command_line() -> None:
    files = [path for folder in ("compiler", "passes", "runtime", "dialects") for path in (ROOT / folder).rglob("*.py")]
    files += [
        path for folder in ("treadle", "treadle/torch", "treadle/language") for path in (ROOT / folder).glob("*.py")
    ]
    users = {str(path.relative_to(ROOT)) for path in files if "compiler.cli" in parts_used(path)}
    assert "compiler/cli/run.py" in users
    assert {name for name in users if not name.startswith(COMMAND_LINE)} == set()


@cache
def parts_used(path: Path) -> frozenset[str]:
    """The parts that a file imports, wherever it does."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("treadle")]
    return frozenset(part_of(f"{node.module}.{name.name}") for node in imports for name in node.names)


def part_of(module: str) -> str:
    """`treadle.compiler.cost.timing.time` is of `compiler.cost`, `treadle.passes.fusion` of `passes`."""
    names = module.split(".")[1:]
    if names[0] == "compiler":
        return ".".join(names[:2])
    return names[0] if names[0] in ("dialects", "language", "passes", "runtime", "torch") else "treadle"
