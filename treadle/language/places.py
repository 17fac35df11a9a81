"""Inputs of conditions at other positions than along their axes: `table[q // 64, x // 64] == 1`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import count

from treadle.compiler.errors import TreadleError
from treadle.dialects.diagram.condition import parsed, read_condition
from treadle.dialects.diagram.place import PlaceAttr, axes_of_forms


@dataclass(frozen=True)
class Elsewhere:
    """An input, the position along each of its axes, and the axes of these positions."""

    name: str
    places: tuple[str, ...]
    axes: tuple[str, ...]


@dataclass(frozen=True)
class Divided:
    """The whole part of the positions along an axis over a number, under a name of its own."""

    axis: str
    divisor: int


def with_quotients(text: str, inputs: Iterable[str], axes: Sequence[str]) -> tuple[str, dict[str, Divided]]:
    """The same condition, with an input for a quotient of positions that stands beside another one in a comparison,
    `x // 16 <= q // 16`, or has a factor. One may stay, for a comparison with one is a comparison of positions: that
    along the last axis, which reductions mostly walk."""
    naming = _Comparisons(frozenset(inputs), axes)
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError):
        return text, {}
    tree = naming.visit(tree)
    return (ast.unparse(tree), naming.found) if naming.found else (text, {})


@dataclass(frozen=True)
class Placed:
    """A condition whose inputs are all indexed by axes: the new ones, and the old ones that are left."""

    text: str
    reads: Mapping[str, Elsewhere]
    left: frozenset[str]


def at_axes(text: str, inputs: Iterable[str], axes: Iterable[str]) -> Placed:
    """The same condition, with an input of its own for each that is read elsewhere (TreadleError)."""
    reading = _Reading(frozenset(inputs), frozenset(axes))
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


def not_given(name: str) -> str:
    """What is wrong with an input that a condition names and a call does not."""
    return f"'{name}' is not given: name the array that it is, keep(..., {name}={name})"


class _Comparisons(ast.NodeTransformer):
    """Names quotients, in each comparison as few as let it be read."""

    def __init__(self, inputs: frozenset[str], axes: Sequence[str]):
        self.taken = inputs | {*axes}
        self.axes = axes
        self.found: dict[str, Divided] = {}

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        quotients = {each for part in ast.walk(node) if (each := _divided(part, self.axes)) is not None}
        if not quotients or _is_read(node):
            return node
        last = max(quotients, key=lambda each: (self.axes.index(each.axis), each.divisor))
        for named in (quotients - {last}, quotients):
            names = {each: self._name(each) for each in sorted(named, key=str)}
            told = _Naming(names, self.axes).visit(deepcopy(node))
            if _is_read(told):
                self.found |= {name: each for each, name in names.items()}
                return told
        return node

    def _name(self, divided: Divided) -> str:
        name = f"{divided.axis}_over_{divided.divisor}"
        while name in self.taken:
            name += "_"
        return name


@dataclass
class _Naming(ast.NodeTransformer):
    """Puts inputs of these names in the place of quotients."""

    names: Mapping[Divided, str]
    axes: Sequence[str]

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        found = _divided(node, self.axes)
        if found is None:
            return ast.BinOp(self.visit(node.left), node.op, self.visit(node.right))
        return ast.parse(f"{self.names[found]}[{found.axis}]", mode="eval").body if found in self.names else node


def _divided(node: ast.AST, axes: Iterable[str]) -> Divided | None:
    """The quotient of positions that an expression is."""
    match node:
        case ast.BinOp(left=ast.Name(id=axis), op=ast.FloorDiv(), right=ast.Constant(value=int() as divisor)) if (
            axis in axes and divisor > 1
        ):
            return Divided(axis, divisor)
        case _:
            return None


def _is_read(node: ast.expr) -> bool:
    from xdsl.utils.exceptions import VerifyException

    try:
        read_condition(ast.unparse(node))
    except VerifyException:
        return False
    return True


class _Reading(ast.NodeTransformer):
    def __init__(self, inputs: frozenset[str], axes: frozenset[str]):
        self.inputs = inputs
        self.axes = axes
        self.found: dict[str, Elsewhere] = {}

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        entries = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if not isinstance(node.value, ast.Name) or all(isinstance(entry, ast.Name) for entry in entries):
            return node
        names = [name.id for entry in entries for name in ast.walk(entry) if isinstance(name, ast.Name)]
        if node.value.id not in self.inputs:
            raise TreadleError(not_given(node.value.id))
        if unknown := [name for name in names if name not in self.axes]:
            raise TreadleError(f"'{unknown[0]}' of '{ast.unparse(node)}' is no axis of the array")
        axes = tuple(dict.fromkeys(names))
        name = self._name(Elsewhere(node.value.id, tuple(map(ast.unparse, entries)), axes))
        return ast.parse(f"{name}[{', '.join(axes)}]" if axes else name, mode="eval").body

    def _name(self, read: Elsewhere) -> str:
        known = next((name for name, other in self.found.items() if other == read), None)
        taken = self.inputs | self.axes | self.found.keys()
        name = known or next(free for i in count(1) if (free := f"{read.name}_{i}") not in taken)
        self.found[name] = read
        return name
