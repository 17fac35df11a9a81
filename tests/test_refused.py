"""What cannot stream is refused with the reason, at the operation: never computed wrongly, never half."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import refused

REFUSED = Path(__file__).parents[1] / "examples" / "refused"
LINES = {"median": 8, "sort": 6}


def test_each_is_tried() -> None:
    assert {path.stem for path in REFUSED.glob("*.mlir")} == LINES.keys()


@pytest.mark.parametrize("command", ["run", "compile", "explain", "check"])
@pytest.mark.parametrize("name", LINES)
def test_no_law(name: str, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, command, str(REFUSED / f"{name}.mlir"))
    assert f"no law for '{name}' on axis 'x'" in said
    assert f"{name}.mlir:{LINES[name]}:3" in said
