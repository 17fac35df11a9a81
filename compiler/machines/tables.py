"""Tables of a machine file: checked values, and messages that name the key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, cast

from treadle.compiler.errors import TreadleError


@dataclass(frozen=True)
class Bounds:
    """Between which a number of a machine can be right."""

    unit: str
    """Of what it counts, as in `bytes a second`."""
    low: float
    high: float
    why: str
    """What lies at or beyond the bounds."""

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.unit}, from {_figure(self.low)} to {_figure(self.high)} ({self.why})"


def _figure(value: float) -> str:
    """Small whole numbers in full: 65536, and 2e+09."""
    return str(int(value)) if value == int(value) and abs(value) < 10**7 else f"{value:g}"


class Table:
    """A table of a machine file: hands out checked values and notices keys that nobody asked for."""

    def __init__(self, source: str, path: str, data: Mapping[str, Any]):
        self.source = source
        self.path = path
        self.data = data
        self.used: list[str] = []
        self.unread: Mapping[str, str] = {}
        """Keys that a file may well have, of which nothing depends, and why."""

    def error(self, key: str, what: str) -> TreadleError:
        return TreadleError(f"machine: '{self._full(key)}' {what}", self.source)

    def has(self, key: str) -> bool:
        if key not in self.used:
            self.used.append(key)
        return key in self.data

    def close(self) -> None:
        """Refuse keys that nothing reads (TreadleError)."""
        for key in self.data:
            if key in self.used:
                continue
            if key in self.unread:
                raise self.error(key, f"is a key that nothing reads: {self.unread[key]}; leave it out")
            near = get_close_matches(key, self.used, 1) or get_close_matches(key, self.used, 1, cutoff=0)
            hint = f"did you mean '{near[0]}'? " if near else ""
            known = f"known here are {', '.join(self.used)}" if self.used else "nothing is known here"
            raise self.error(key, f"is not a key of a machine: {hint}Rename it or leave it out; {known}")

    def table(self, key: str) -> Table:
        value = self._get(key, "a table")
        if not isinstance(value, Mapping):
            raise self.error(key, f"is {value!r}: expected a table")
        return Table(self.source, self._full(key), cast(Mapping[str, Any], value))

    def text(self, key: str, pattern: str, expected: str) -> str:
        value = self._get(key, expected)
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise self.error(key, f"is {value!r}: expected {expected}")
        return value

    def whole(self, key: str, bounds: Bounds) -> int:
        expected = f"a whole number of {bounds}"
        value = self._get(key, expected)
        if not isinstance(value, int) or isinstance(value, bool) or not bounds.holds(value):
            raise self.error(key, f"is {value!r}: expected {expected}")
        return value

    def number(self, key: str, bounds: Bounds) -> float:
        value = self._get(key, str(bounds))
        if not isinstance(value, int | float) or isinstance(value, bool) or not bounds.holds(value):
            raise self.error(key, f"is {value!r}: expected {bounds}")
        return float(value)

    def _get(self, key: str, expected: str) -> object:
        if not self.has(key):
            near = get_close_matches(key, [each for each in self.data if each not in self.used], 1)
            hint = f"; '{near[0]}' stands there: did you mean it?" if near else ""
            raise self.error(key, f"is missing: expected {expected}{hint}")
        return self.data[key]

    def _full(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
