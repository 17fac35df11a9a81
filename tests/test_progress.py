"""The line on a terminal that says what takes long: it comes, names the innermost, and leaves nothing behind."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from roads import compiled, matmul
from treadle.compiler import progress as module
from treadle.compiler.counting import Count, counted, counting, going_on
from treadle.compiler.progress import clear, progress
from treadle.runtime.emulator import module as emulated


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True

    def seen(self) -> str:
        """What stands in the line that was written last."""
        return self.getvalue().split("\r")[-1].strip()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    made = Terminal()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=made))  # pytest sets that of sys anew
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "TICK", 0.01)
    return made


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_the_innermost_is_told_and_all_is_taken_back(terminal: Terminal) -> None:
    with progress("outer"):
        until(lambda: terminal.seen().startswith("outer ... 0 s"))
        with progress("inner, which is longer"):
            until(lambda: terminal.seen().startswith("inner, which is longer ... 0 s"))
        until(lambda: terminal.seen().startswith("outer"))
    assert terminal.seen() == ""
    said = terminal.getvalue()
    time.sleep(0.05)
    assert terminal.getvalue() == said


def test_how_far_it_is(terminal: Terminal) -> None:
    with progress("searching"):
        for i, _ in enumerate(counted("abc", "candidates")):
            until(lambda i=i: terminal.seen().startswith(f"searching, {i} of 3 candidates ... 0 s"))
        until(lambda: terminal.seen().startswith("searching ... 0 s"))


def test_a_count_within_another_and_none_from_around(terminal: Terminal) -> None:
    with counting("rows", 2_000, lambda: 1_500), progress("measuring"):
        until(lambda: terminal.seen().startswith("measuring ... 0 s"))
        with counting("passes", 16, lambda: 3), counting("candidates", 24, lambda: 99):
            until(lambda: terminal.seen().startswith("measuring, 3 of 16 passes, 24 of 24 candidates ... 0 s"))
    with progress("measuring"), counting("rows", 2_000, lambda: 1_500):
        until(lambda: terminal.seen().startswith("measuring, 1,500 of 2,000 rows ... 0 s"))
    assert going_on() == ()


def test_the_emulator_counts_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Count] = []

    @contextmanager
    def noted(unit: str, total: int, done: Callable[[], int]) -> Generator[None]:
        count = Count(unit, total, done)
        assert done() == 0
        yield
        seen.append(count)

    monkeypatch.setattr(emulated, "counting", noted)
    compiled(matmul("mk", "kn", "f16")).check({"m": 200, "n": 200, "k": 8})
    (count,) = (each for each in seen if each.unit == "blocks")
    assert count.total > 1
    assert count.done() == count.total


def test_it_gives_way_to_what_is_printed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    with progress("at work"):
        until(lambda: terminal.seen().startswith("at work"))
        monkeypatch.setattr(module, "PATIENCE", 1e9)
        clear()
        assert terminal.seen() == ""


def test_an_error_takes_it_back(terminal: Terminal) -> None:
    def fail() -> None:
        with progress("at work"):
            until(lambda: terminal.seen().startswith("at work"))
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert terminal.seen() == ""


def test_nothing_is_told_before_it_takes_long_nor_elsewhere(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 1e9)
    with progress("quick"):
        time.sleep(0.03)
    assert terminal.getvalue() == ""
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    pipe = io.StringIO()
    monkeypatch.setattr(module, "sys", SimpleNamespace(stderr=pipe))
    with progress("to a file"):
        time.sleep(0.03)
    assert pipe.getvalue() == ""
