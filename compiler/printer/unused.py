"""Leave out numbers that nothing reads: a stage is known by name, or a ring has one, so that its turn is not asked for.
nvcc would complain of each."""

from __future__ import annotations

import re
from collections.abc import Sequence

_NUMBER = re.compile(r"( *)const (?:int64_t|uint32_t|int|bool) (\w+) = ([^;,]*);")
"""A constant that stands alone: of several in one line, others may be read."""
_CALL = re.compile(r"(?!(?:int64_t|uint32_t|int)\b)\b[a-zA-Z_]\w*[(<\[]")
"""What is not plain arithmetic."""


def without_unused(lines: Sequence[str]) -> list[str]:
    """The lines of a function without constants of index arithmetic that nothing behind them in their block reads."""
    kept: list[str] = []  # from the last on, so that what only they read goes with them
    for line in reversed(lines):
        if (number := _NUMBER.fullmatch(line)) and not _CALL.search(number[3]) and not _is_read(number, kept):
            continue
        kept.append(line)
    return kept[::-1]


def _is_read(number: re.Match[str], behind: Sequence[str]) -> bool:
    """Whether a line of the block behind a constant has its name. `behind` begins with the last line."""
    depth, name = len(number[1]), re.compile(rf"\b{number[2]}\b")
    for line in reversed(behind):
        if line and len(line) - len(line.lstrip()) < depth:
            return False
        if name.search(line):
            return True
    return False
