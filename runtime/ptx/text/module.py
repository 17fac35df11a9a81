"""What a PTX file declares."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from treadle.runtime.ptx.text.body import Body, Variable


@dataclass(frozen=True)
class Parameter:
    """A parameter of an entry: `nbytes` from `offset` of the parameter space on."""

    name: str
    offset: int
    nbytes: int


@dataclass
class Entry:
    """A kernel; its body is parsed when it is asked for."""

    name: str
    parameters: tuple[Parameter, ...]
    directives: dict[str, tuple[int, ...]]
    """maxntid, reqntid, minnctapersm, maxnreg, reqnctapercluster, ..."""
    text: str = field(repr=False)
    first_line: int
    module_variables: tuple[Variable, ...]
    """Of the file."""

    @cached_property
    def body(self) -> Body:
        from treadle.runtime.ptx.text.parser import parse_body

        return parse_body(
            self.text, self.first_line, {each.name for each in (*self.parameters, *self.module_variables)}
        )


@dataclass(frozen=True)
class Module:
    """A PTX file."""

    target: str
    entries: dict[str, Entry]
    variables: tuple[Variable, ...]
