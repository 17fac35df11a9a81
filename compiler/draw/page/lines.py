"""The printed IR line by line: which operation a line begins, and where in the program that came from."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from io import StringIO
from itertools import accumulate
from typing import TypeAlias

from xdsl.dialects.builtin import FileLineColLoc, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation
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


@dataclass(frozen=True)
class Printed:
    """A module as it prints, and where in that text its operations begin."""

    text: str
    begins: Mapping[int, Operation]
    """By the number of letters before it; of several that begin at one, the outermost."""


Known: TypeAlias = dict[int, tuple[Attribute, str]]
"""Attributes as they print, by identity; each is kept, so that no other takes its identity."""


class _Noting(Printer):
    """A printer that notes where operations begin."""

    def __init__(self, stream: StringIO, known: Known):
        super().__init__(stream=stream)
        self.written = stream
        self.known = known
        self.begins: dict[int, Operation] = {}

    def print_op(self, op: Operation) -> None:
        self.begins.setdefault(self.written.tell(), op)
        super().print_op(op)

    def print_attribute(self, attribute: Attribute) -> None:
        """An attribute never changes, so its text is looked up: attributes are most of a module's text, and most
        stand in many operations and are there after many passes."""
        if (known := self.known.get(id(attribute))) is not None:
            self.print_string(known[1])
            return
        begin = self.written.tell()
        super().print_attribute(attribute)
        self.written.seek(begin)
        text = self.written.read()
        if "\n" not in text:  # else it depends on how far it is indented
            self.known[id(attribute)] = attribute, text


def printed(module: ModuleOp, known: Known | None = None) -> Printed:
    """The text of a module; `known` is for who prints it again and again."""
    stream = StringIO()
    printer = _Noting(stream, {} if known is None else known)
    printer.print_op(module)
    return Printed(stream.getvalue(), printer.begins)


def lines_of(module: Printed) -> list[Line]:
    """The lines of a printed module, each with the origin of the operation that it begins with."""
    texts = module.text.split("\n")
    ends = list(accumulate(len(text) + 1 for text in texts))
    first: dict[int, Operation] = {}
    for at, op in module.begins.items():
        first.setdefault(bisect_right(ends, at), op)
    return [_line(text, first.get(i)) for i, text in enumerate(texts)]


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
