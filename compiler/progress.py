"""What is being done, on a terminal, while it takes long, and how far it is: one line of standard error, taken back
afterwards. nvcc and the C++ compiler say nothing until they are done, so of them only the seconds are told."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from time import monotonic

from treadle.compiler.counting import Count, going_on

PATIENCE = 0.5
"""Seconds that something may take before it is told."""
TICK = 0.5
"""Seconds between two versions of the line."""


@contextmanager
def progress(what: str) -> Generator[None]:
    """Say on a terminal what goes on, how far it is where somebody counts, and for how long, once it has taken a
    moment; nothing elsewhere.

    Within another, the inner one is told while it lasts."""
    if not getattr(sys.stderr, "isatty", bool)():  # None where standard error is closed
        yield
        return
    _LINE.begin(what)
    try:
        yield
    finally:
        _LINE.end()


def clear() -> None:
    """Take the line back, so that something else can be printed."""
    _LINE.clear()


class _Line:
    """The line, and the thread that writes it while anything goes on."""

    def __init__(self) -> None:
        self._going_on: list[tuple[str, float, tuple[Count, ...]]] = []
        self._shown = 0
        self._lock = threading.Lock()
        self._changed = threading.Event()

    def begin(self, what: str) -> None:
        with self._lock:
            self._going_on.append((what, monotonic(), going_on()))
            first = len(self._going_on) == 1
        if first:
            self._changed.clear()
            threading.Thread(target=self._tell, args=(self._changed,), daemon=True).start()

    def end(self) -> None:
        with self._lock:
            self._going_on.pop()
            if not self._going_on:
                self._changed.set()
                self._changed = threading.Event()
        self.clear()

    def clear(self) -> None:
        with self._lock:
            if self._shown:
                self._write(f"\r{' ' * self._shown}\r")
                self._shown = 0

    def _tell(self, over: threading.Event) -> None:
        while not over.wait(TICK):
            with self._lock:
                if over.is_set() or not self._going_on:
                    return
                what, since, around = self._going_on[-1]
                seconds = monotonic() - since
                if seconds >= PATIENCE:
                    text = f"{what}{_share(around)} ... {seconds:.0f} s"
                    self._write(f"\r{text:{self._shown}}")
                    self._shown = max(self._shown, len(text))

    def _write(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)


def _share(around: tuple[Count, ...]) -> str:
    """How far it is: the outermost count that began within it, and the next one while that has nothing done yet."""
    inside = [count for count in going_on() if count not in around]
    return "".join(f", {count}" for count in inside[:2])


_LINE = _Line()
