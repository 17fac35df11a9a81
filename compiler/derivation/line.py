"""A line of a derivation: a pass, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.utils.arg_spec import ArgSpec

from treadle.compiler.errors import TreadleError


@dataclass(frozen=True, eq=False)
class Line(ArgSpec):
    """A pass with its options, as a file states it. It is equal to any that has the same options: where they are stated
    changes nothing that they do. `dataclasses.replace` gives other options to a line without losing its place."""

    location: str
    """`mine.derivation:3:1`"""
    excerpt: str
    """The line, as messages show it."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArgSpec) and (self.name, self.parameters) == (other.name, other.parameters)


def at_line(spec: ArgSpec, error: TreadleError) -> TreadleError:
    """What went wrong in a pass, at its line of a derivation if it is one, with the place in the program behind it."""
    if not isinstance(spec, Line):
        return error
    said = error.message if error.location is None else f"{error.location}: {error.message}"
    return type(error)(said, spec.location, error.excerpt or spec.excerpt)
