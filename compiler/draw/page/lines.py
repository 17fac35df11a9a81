"""The printed IR line by line: which operation a line begins, and where in the program that came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from io import StringIO

from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.printer import Printer

LONGEST = 400
"""Letters of the line of a module or a function: the machine and the derivation in it are told elsewhere."""


@dataclass(frozen=True)
class Line:
    """One line of printed IR."""

    text: str
    origin: str = ""
    """`line:column` in the program of the operation that begins here; empty where none does."""
    defines: str = ""
    """Name of its first result."""


class _Counting(StringIO):
    """Knows in which line it is."""

    lines = 0

    def write(self, text: str, /) -> int:
        self.lines += text.count("\n")
        return super().write(text)


class _Noting(Printer):
    """A printer that notes where operations begin."""

    def __init__(self, stream: _Counting):
        super().__init__(stream=stream)
        self.counting = stream
        self.begins: dict[int, Operation] = {}

    def print_op(self, op: Operation) -> None:
        self.begins.setdefault(self.counting.lines, op)
        super().print_op(op)


def lines_of(module: ModuleOp) -> list[Line]:
    """The module as it prints, with the origin of each operation."""
    stream = _Counting()
    printer = _Noting(stream)
    printer.print_op(module)
    texts = stream.getvalue().split("\n")
    return [_line(text, printer.begins.get(i)) for i, text in enumerate(texts)]


def _line(text: str, op: Operation | None) -> Line:
    if isinstance(op, ModuleOp | FuncOp) and len(text) > LONGEST:
        text = f"{text[:LONGEST]} …"
    if op is None or isinstance(op, ModuleOp):
        return Line(text)
    location = op.location
    origin = f"{location.line.data}:{location.column.data}" if isinstance(location, FileLineColLoc) else ""
    return Line(text, origin, op.results[0].name_hint or "" if op.results else "")


def marked(before: Sequence[Line], after: Sequence[Line]) -> Iterator[tuple[str, Line]]:
    """Lines of both as a diff: `=` for what stayed, `+` for what is new, `-` for what is gone."""
    matcher = SequenceMatcher(None, [line.text for line in before], [line.text for line in after], autojunk=False)
    for tag, i0, i1, j0, j1 in matcher.get_opcodes():
        if tag == "equal":
            yield from (("=", line) for line in after[j0:j1])
            continue
        yield from (("-", line) for line in before[i0:i1])
        yield from (("+", line) for line in after[j0:j1])
