"""The command line as a test calls it: a small program in the current folder, and what a refusal must look like."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from treadle.compiler import main as cli

PRODUCT = """!A = tensor<?x16xFORMAT, #diagram.array<[m, k]>>
!B = tensor<16x?xFORMAT, #diagram.array<[k, n]>>
!C = tensor<?x?xf32, #diagram.array<[m, n]>>
func.func @NAME(%A: !A, %B: !B) -> !C attributes {sizes = #diagram.sizes<m = 5, n = 7>} {
  %C = diagram.contract %A, %B over [k] accumulate f32 : !A, !B -> !C
  func.return %C : !C
}
"""


def program(**replacements: str) -> str:
    """The name of a small program in the current folder, with pieces of its text replaced."""
    text = PRODUCT
    for old, new in {"FORMAT": "f16", "NAME": "product", **replacements}.items():
        text = text.replace(old, new)
    return written(text)


def written(text: str) -> str:
    Path("p.mlir").write_text(text)
    return "p.mlir"


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a command that must be refused; nothing is left behind, nothing goes to stdout."""
    before = _folder()
    code = _exit_code(arguments)
    captured = capsys.readouterr()
    assert code == 2, captured.err
    assert captured.out == ""
    assert "Traceback" not in captured.err
    assert "builtin.module" not in captured.err
    assert _folder() == before
    return captured.err


def _exit_code(arguments: Sequence[str]) -> int | str | None:
    try:
        return cli.main(arguments)
    except SystemExit as exit:
        return exit.code


def _folder() -> list[tuple[Path, bytes]]:
    return [(path, path.read_bytes() if path.is_file() else b"") for path in sorted(Path().iterdir())]
