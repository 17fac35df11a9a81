"""Tables of a machine file: checked values, and messages that name the key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, cast

from treadle.compiler.errors import TreadleError


class Table:
    """A table of a machine file: hands out checked values and notices keys that nobody asked for."""

    def __init__(self, source: str, path: str, data: Mapping[str, Any]):
        self.source = source
        self.path = path
        self.data = data
        self.used: list[str] = []

    def error(self, key: str, what: str) -> TreadleError:
        return TreadleError(f"machine: '{self._full(key)}' {what}", self.source)

    def has(self, key: str) -> bool:
        if key not in self.used:
            self.used.append(key)
        return key in self.data

    def close(self) -> None:
        for key in self.data:
            if key not in self.used:
                near = get_close_matches(key, self.used, 1)
                hint = f"did you mean '{near[0]}'?" if near else f"known here are {', '.join(self.used)}"
                raise self.error(key, f"is not a key of a machine: {hint}")

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

    def whole(self, key: str, low: int, high: int) -> int:
        expected = f"a whole number from {low} to {high}"
        value = self._get(key, expected)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, f"is {value!r}: expected {expected}")
        return value

    def number(self, key: str, low: float, high: float, what: str) -> float:
        expected = f"{what}, from {low:g} to {high:g}"
        value = self._get(key, expected)
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise self.error(key, f"is {value!r}: expected {expected}")
        return float(value)

    def grid(self, key: str) -> tuple[int, int, int]:
        expected = "three whole numbers, the largest grid along x, y and z"
        value = self._get(key, expected)
        values = cast(list[Any], value) if isinstance(value, list) else []
        if len(values) != 3 or not all(type(v) is int and 1 <= v < 2**31 for v in values):
            raise self.error(key, f"is {value!r}: expected {expected}")
        return values[0], values[1], values[2]

    def _get(self, key: str, expected: str) -> object:
        if not self.has(key):
            raise self.error(key, f"is missing: expected {expected}")
        return self.data[key]

    def _full(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
