"""Inputs of conditions at other positions than along their axes: `table[q // 64, x // 64] == 1`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.condition import parsed
from treadle.dialects.diagram.linear import spelled
from treadle.dialects.diagram.place import PlaceAttr, axes_of_forms, entries_in


@dataclass(frozen=True)
class Elsewhere:
    """An input, the position along each of its axes, and the axes of these positions."""

    name: str
    places: tuple[str, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Placed:
    """A condition whose inputs are all indexed by axes: the new ones, and the old ones that are left."""

    text: str
    reads: Mapping[str, Elsewhere]
    left: frozenset[str]


def at_axes(text: str, inputs: Mapping[str, Sequence[str]], axes: Iterable[str]) -> Placed:
    """The same condition, with an input of its own for each that is read elsewhere than along its axes, of which
    `inputs` tells: `of[q] == of[x]` of one array is read twice (TreadleError)."""
    reading = _Reading(inputs, frozenset(axes))
    try:
        tree = reading.visit(parsed(text))
    except (SyntaxError, ValueError):
        return Placed(text, {}, reading.inputs)
    except TreadleError as error:
        raise TreadleError(f"condition '{text}': {error}") from error
    if not reading.found:
        return Placed(text, {}, reading.inputs)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    elsewhere = {read.name for read in reading.found.values()}
    return Placed(ast.unparse(tree), reading.found, reading.inputs - (elsewhere - names))


def axes_at(text: str) -> tuple[str, ...]:
    """The axes of the positions that a place says, in the order in which it does (TreadleError)."""
    from xdsl.utils.exceptions import VerifyException

    try:
        return axes_of_forms(PlaceAttr(text).forms)
    except VerifyException as error:
        raise TreadleError(str(error)) from error


def check_entries(text: str, axes: Mapping[str, Sequence[str]]) -> None:
    """(TreadleError for an array that stands where its entry is meant, and for an entry that names just the axes of its
    array, in another order than it has them: the order of what is computed is easily mistaken, and an array that is
    turned over is seldom meant)"""
    forms = PlaceAttr(text).forms
    entries = entries_in(forms)
    named = {entry.name for entry in entries}
    if alone := [axis for axis in axes_of_forms(forms) if axis in axes and axis not in named]:
        entry = f"{alone[0]}[{', '.join(axes[alone[0]])}]"
        raise TreadleError(f"place '{text}': '{alone[0]}' is an array, not an axis: its entries are '{entry}'")
    for entry in entries:
        own, said = tuple(axes.get(entry.name, ())), tuple(map(spelled, entry.places))
        if said != own and sorted(said) == sorted(own):
            raise TreadleError(
                f"place '{text}': '{entry.name}' has the axes [{', '.join(own)}], in this order: write "
                f"'{entry.name}[{', '.join(own)}]'"
            )


def not_given(name: str) -> str:
    """What is wrong with an input that a condition names and a call does not."""
    return f"'{name}' is not given: name the array that it is, keep(..., {name}={name})"


class _Reading(ast.NodeTransformer):
    def __init__(self, inputs: Mapping[str, Sequence[str]], axes: frozenset[str]):
        self.own = inputs
        self.inputs = frozenset(inputs)
        self.axes = axes
        self.found: dict[str, Elsewhere] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not isinstance(node.value, ast.Name) or self._is_along(node.value.id, entries):
            return node
        names = [name.id for entry in entries for name in ast.walk(entry) if isinstance(name, ast.Name)]
        if node.value.id not in self.inputs:
            raise TreadleError(not_given(node.value.id))
        if unknown := [name for name in names if name not in self.axes]:
            raise TreadleError(f"'{unknown[0]}' of '{ast.unparse(node)}' is no axis of the array")
        axes = tuple(dict.fromkeys(names))
        name = self._name(Elsewhere(node.value.id, tuple(map(ast.unparse, entries)), axes))
        return ast.parse(f"{name}[{', '.join(axes)}]" if axes else name, mode="eval").body

    def _is_along(self, name: str, entries: Sequence[ast.expr]) -> bool:
        """Whether entries are asked for along the axes of the array; of axes that there are not, others complain."""
        said = [entry.id for entry in entries if isinstance(entry, ast.Name)]
        own = self.own.get(name, said)
        return len(said) == len(entries) and (len(said) != len(own) or {*said} == {*own} or not {*said} <= self.axes)

    def _name(self, read: Elsewhere) -> str:
        known = next((name for name, other in self.found.items() if other == read), None)
        taken = self.inputs | self.axes | self.found.keys()
        name = known or next(free for i in count(1) if (free := f"{read.name}_{i}") not in taken)
        self.found[name] = read
        return name
