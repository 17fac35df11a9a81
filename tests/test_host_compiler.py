"""The host's C++ compiler: a wrong one is named and never leads to another backend in silence."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from commands import program, refused

from treadle.compiler import main as cli
from treadle.runtime.emulator import compiler
from treadle.runtime.emulator.errors import CompileFailure, EmulatorUnavailable
from treadle.runtime.processes import trouble_around


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ("false", "it does not answer to --version"),
        ("no-such-compiler", "it was not found"),
        ('g++ "', "no closing quotation"),
        ("true", "is it a C++ compiler?"),
    ],
)
def test_a_chosen_compiler_that_is_none_is_refused(
    chosen: str, why: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", chosen)
    monkeypatch.setenv("TREADLE_CACHE", str(Path("cache").absolute()))
    Path("cache/emulator").mkdir(parents=True)
    Path("cache").chmod(0o700)
    assert why in refused(capsys, "run", program())


def test_a_path_with_spaces_and_a_command_with_options(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Path("my tools") / "g++"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o700)
    monkeypatch.setenv("CXX", str(tool))
    assert compiler.host_compiler() == (str(tool),)
    monkeypatch.setenv("CXX", "env -u X g++")
    assert compiler.host_compiler() == ("env", "-u", "X", "g++")
    monkeypatch.setenv("CXX", " ")
    assert compiler.host_compiler()[0].endswith(("g++", "clang++", "c++"))


def test_an_empty_choice_is_none(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "")
    assert cli.main(["run", program(), "--size", "m=3"]) == 0
    assert capsys.readouterr().out.startswith("verified (emulator)")


def _failed(code: int, said: str) -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(["g++"], code, "", said)


def test_a_full_disk_is_not_the_fault_of_the_text() -> None:
    full = "x.cpp: note\n/tmp/ccX.s: fatal error: No space left on device\n"
    said = str(trouble_around(_failed(1, full)))
    assert said.startswith("/tmp/ccX.s: fatal error: No space left on device; make room: ")
    assert "$TREADLE_CACHE" in said
    assert "killed (signal 9)" in str(trouble_around(_failed(-9, "")))
    assert trouble_around(_failed(1, "error: 'x' was not declared")) is None
    assert trouble_around(_failed(0, "No space left on device")) is None


@pytest.mark.parametrize(("said", "error"), [("No space left on device", EmulatorUnavailable), ("", CompileFailure)])
def test_whose_fault_it_is(said: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "run_process", lambda command: _failed(1, said))
    with pytest.raises(error):
        compiler.run_compiler(["g++", "x.cpp"])


@pytest.mark.usefixtures("ready_cache")
def test_a_fast_linker_is_taken_unless_it_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the compiler takes for `gold` says what it was given, and links nothing."""
    tools = Path("tools").absolute()
    tools.mkdir()
    linker = tools / "ld.gold"
    linker.write_text(f"#!/bin/sh\necho tried >> {tools}/said\nexit 1\n")
    linker.chmod(0o700)
    monkeypatch.setattr(compiler, "LINKERS", ("gold",))
    monkeypatch.setenv("COMPILER_PATH", str(tools))  # where g++ looks first
    monkeypatch.setenv("CXX", shutil.which("g++") or "g++")  # as it is found unasked, so that what is ready fits
    compiler.linker_flags.cache_clear()
    assert cli.main(["run", program(), "--size", "m=3"]) == 0
    assert capsys.readouterr().out.startswith("verified (emulator)")
    assert (tools / "said").read_text() == "tried\n"
    monkeypatch.setattr(compiler, "LINKERS", ("no-such-linker",))
    compiler.linker_flags.cache_clear()
    assert compiler.linker_flags() == ()
    compiler.linker_flags.cache_clear()
