# pyright: standard
"""Sizes of a graph that are symbols: numbers that stand for a whole class of lengths.

A program is made once for all lengths of a class (`class_of`). Whatever is asked of its sizes meanwhile is answered by
algebra, or by the range of the class; where neither says, by the sizes that are there, and the answer is a condition
that other lengths have to meet as well. Two symbols that are equal by chance are thus never taken for one."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import floor, inf, prod
from typing import Any, TypeAlias

import sympy
import torch
from torch.fx import Node

Values: TypeAlias = Mapping[sympy.Symbol, int]

Range: TypeAlias = "tuple[Any, Any]"

ANY = -inf, inf


def class_of(size: int) -> tuple[int, int]:
    """The smallest and the largest number that has the same kernels, a power of two, for which they are made. None and
    one are classes of their own, as they are for PyTorch."""
    if size < 2:
        return size, size
    most = 1 << (size - 1).bit_length()
    return most // 2 + 1, most


@dataclass(frozen=True)
class Condition:
    """What was asked of sizes: how a formula compares with zero, and the answer."""

    formula: sympy.Expr
    relation: str
    holds: bool = True

    def is_met(self, values: Values) -> bool:
        return _RELATIONS[self.relation](_value(self.formula, values)) is self.holds


_RELATIONS = {"==": lambda a: bool(a == 0), "<": lambda a: bool(a < 0)}


class Symbols:
    """The symbols of one graph, each with the number that is there, and its class; those that are `exact` are alone in
    theirs."""

    def __init__(self, values: Values, exact: Container[sympy.Symbol] = ()):
        self.values = dict(values)
        self.classes = {
            symbol: (value, value) if symbol in exact else class_of(value) for symbol, value in values.items()
        }
        self._exact = {symbol: sympy.Integer(least) for symbol, (least, most) in self.classes.items() if least == most}
        self.required: dict[Condition, None] = {}
        """What other sizes have to meet, of the same classes, to be served by what was made."""
        self._conditions: dict[Condition, None] = {}
        self._fixed: dict[sympy.Symbol, sympy.Integer] = {}
        self.why_fixed = ""
        """Why symbols were fixed since the recording began; nothing if none was."""
        self._normal: dict[Any, Any] = {}
        self._signs: dict[sympy.Expr, Range] = {}

    def are_met(self, values: Values) -> bool:
        """Whether what was made for the sizes that are there is right for these."""
        alike = all(least <= values[symbol] <= most for symbol, (least, most) in self.classes.items())
        return alike and all(condition.is_met(values) for condition in self.required)

    # -- numbers ---------------------------------------------------------------------------------

    def number(self, given: Any) -> Any:
        """A number of PyTorch's: itself, or what stands for it where it depends on symbols."""
        if not isinstance(given, torch.SymInt | torch.SymFloat | torch.SymBool):
            return given
        formula = given.node.expr
        if isinstance(given, torch.SymInt):
            return self.size(formula)
        return Computed(self, formula, bool if isinstance(given, torch.SymBool) else float)

    def size(self, formula: Any) -> int | Size:
        normal = self.normal(formula)
        return int(normal) if normal.is_Integer else Size(self, normal)

    def normal(self, formula: Any) -> Any:
        """Equal formulas look alike, as far as they are polynomials."""
        if (known := self._normal.get(formula)) is None:
            plain = formula.xreplace(self._exact)
            known = self._normal[formula] = sympy.expand(plain.replace(_is_function, self._plain))
        return known

    def _plain(self, function: Any) -> Any:
        """Quotients that come out even, and maxima of what the classes tell apart."""
        name = type(function).__name__
        if name in ("FloorDiv", "CleanDiv"):
            left, right = function.args
            even = _quotient(left, right)
            return sympy.floor(left / right) if even is None else even
        left, *rest = function.args
        for right in rest:
            least, most = self.range(left - right)
            if least < 0 < most:
                return function
            left = left if (least >= 0) == (name == "Max") else right
        return left

    # -- what is known ---------------------------------------------------------------------------

    def range(self, formula: sympy.Expr) -> Range:
        """No number of the class is smaller or larger than these."""
        if (known := self._signs.get(formula)) is None:
            expanded = self._range(self.normal(formula))
            factored = self._range(sympy.factor_terms(self.normal(formula)))
            known = self._signs[formula] = max(expanded[0], factored[0]), min(expanded[1], factored[1])
        return known

    def _range(self, formula: Any) -> Range:
        if formula.is_Rational:
            number = Fraction(int(formula.p), int(formula.q))
            return number, number
        if formula.is_Symbol:
            return self.classes.get(formula, ANY)
        parts = [self._range(each) for each in formula.args]
        if formula.is_Add:
            return sum(least for least, _ in parts), sum(most for _, most in parts)
        if formula.is_Mul and ANY not in parts:
            return reduce(_product, parts)
        if formula.is_Pow and formula.exp.is_Integer and parts[0][0] > 0:
            least, most = (Fraction(end) ** int(formula.exp) for end in parts[0])
            return min(least, most), max(least, most)
        if isinstance(formula, sympy.floor) and parts[0] != ANY:
            return floor(parts[0][0]), floor(parts[0][1])
        return ANY

    def compare(self, formula: sympy.Expr, relation: str) -> bool:
        """How it compares with zero: for the whole class, or, as a condition, for the sizes that are there."""
        formula = self.normal(formula.xreplace(self._fixed))
        least, most = self.range(formula)
        if relation == "<" and (most < 0 or least >= 0):
            return most < 0
        if relation == "==" and (least == most or most < 0 or least > 0):
            return least == most == 0
        holds = _RELATIONS[relation](_value(formula, self.values))
        self._conditions[Condition(formula, relation, holds)] = None
        return holds

    def is_zero(self, formula: sympy.Expr) -> bool:
        """Whether it is, at all sizes of the class: nothing is asked of those that are there."""
        return self.normal(formula.xreplace(self._fixed)) == 0

    def quotient(self, left: Any, right: Any) -> Any:
        """By what divides it at all sizes of the class; None where nothing says that it does."""
        even = _quotient(*(_formula(self.settled(each)) for each in (left, right)))
        return None if even is None else self.size(even)

    # -- what is asked ---------------------------------------------------------------------------

    @contextmanager
    def recording(self) -> Iterator[Symbols]:
        """What is made inside has conditions of its own (`found`)."""
        before = self._conditions, self._fixed, self.why_fixed
        self._conditions, self._fixed, self.why_fixed = {}, {}, ""
        try:
            yield self
        finally:
            self._conditions, self._fixed, self.why_fixed = before

    @property
    def found(self) -> tuple[Condition, ...]:
        """All that was asked since the recording began."""
        return tuple(self._conditions)

    def fix_all(self) -> None:
        for symbol in self.values:
            self.fix(symbol)

    def fix(self, formula: Any, why: str = "it takes a size for a constant") -> Any:
        """Its value; what is made from here on is for this size of its symbols alone."""
        self.why_fixed = self.why_fixed or why
        for symbol in formula.free_symbols:
            value = sympy.Integer(self.values[symbol])
            self._fixed[symbol] = value
            self._conditions[Condition(symbol - value, "==")] = None
        return _value(formula, self.values)

    def settled(self, size: Any) -> Any:
        """A number, where the symbols of a size are fixed."""
        return self.size(size.formula.xreplace(self._fixed)) if isinstance(size, Size) else size


class Size:
    """A whole number, as far as it is known: arithmetic gives others, comparisons answer as `Symbols.compare` does."""

    __slots__ = ("formula", "symbols")

    def __init__(self, symbols: Symbols, formula: sympy.Expr):
        self.symbols = symbols
        self.formula = formula

    def at(self, values: Values) -> int:
        return int(_value(self.formula, values))

    @property
    def likely(self) -> int:
        """The largest of the class: what kernels are made for."""
        return self.at({symbol: most for symbol, (_, most) in self.symbols.classes.items()})

    def fix(self, why: str) -> int:
        """Its value, for which alone a program is now made."""
        return int(self.symbols.fix(self.formula, why))

    def __int__(self) -> int:
        return int(self.symbols.fix(self.formula))

    __index__ = __int__

    def __float__(self) -> float:
        return float(int(self))

    # -- arithmetic ------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        return self._made(other, lambda a, b: a + b)

    def __sub__(self, other: Any) -> Any:
        return self._made(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._made(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return self._made(other, lambda a, b: a * b)

    def __floordiv__(self, other: Any) -> Any:
        return self._made(other, lambda a, b: sympy.floor(a / b) if (q := _quotient(a, b)) is None else q)

    def __mod__(self, other: Any) -> Any:
        return self._made(other, lambda a, b: sympy.Mod(a, b) if _quotient(a, b) is None else sympy.Integer(0))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Any:
        return self.symbols.size(-self.formula)

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def _made(self, other: Any, function: Any) -> Any:
        if not _is_whole(other):
            return NotImplemented
        return self.symbols.size(function(self.formula, _formula(other)))

    # -- comparisons -----------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return self._compare(other, "==", 1)

    def __lt__(self, other: Any) -> bool:
        return self._compare(other, "<", 1)

    def __gt__(self, other: Any) -> bool:
        return self._compare(other, "<", -1)

    def __le__(self, other: Any) -> bool:
        return not self > other

    def __ge__(self, other: Any) -> bool:
        return not self < other

    def __bool__(self) -> bool:
        return self != 0

    def __hash__(self) -> int:
        return hash(self.formula)

    def _compare(self, other: Any, relation: str, sign: int) -> Any:
        if not _is_whole(other):
            return NotImplemented
        return self.symbols.compare(sign * (self.formula - _formula(other)), relation)

    def __repr__(self) -> str:
        return str(self.formula)


@dataclass(frozen=True)
class Computed:
    """A fraction or a truth value that is computed from sizes."""

    symbols: Symbols
    formula: Any
    kind: type

    def fix(self) -> Any:
        return self.kind(self.symbols.fix(self.formula))


@dataclass(frozen=True)
class Described:
    """What a graph knows of a tensor, its sizes as `Symbols.number` has them."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype
    device: torch.device

    @staticmethod
    def of(symbols: Symbols, value: Any) -> Any:
        """In place of a tensor, of several, and of a number."""
        if isinstance(value, list | tuple):
            return [Described.of(symbols, each) for each in value]
        if not isinstance(value, torch.Tensor):
            return symbols.number(value)
        shape, strides = (tuple(map(symbols.number, each)) for each in (value.shape, value.stride()))
        return Described(shape, strides, value.dtype, value.device)

    def stride(self) -> tuple[Any, ...]:
        return self.strides

    def numel(self) -> Any:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return likely(self.numel()) * self.dtype.itemsize


def symbols_of(nodes: Iterable[Node]) -> Symbols | None:
    """What the sizes of these are made of, which belong to one graph; None if they are numbers."""
    return next((node.meta.get("symbols") for node in nodes), None)


def recording(nodes: Iterable[Node]) -> AbstractContextManager[Symbols | None]:
    """What is made of these nodes inside has conditions of its own."""
    symbols = symbols_of(nodes)
    return nullcontext() if symbols is None else symbols.recording()


def likely(number: Any) -> Any:
    """A number that costs are told by."""
    return number.likely if isinstance(number, Size) else number


def most(number: Any) -> float:
    """As far from zero as it may be."""
    if not isinstance(number, Size):
        return abs(int(number))
    return max(map(abs, number.symbols.range(number.formula)))


def spelled(size: Any) -> Any:
    """Equal for sizes that are written alike, and no question about symbols."""
    return size.formula if isinstance(size, Size) else size


def same(left: Any, right: Any) -> bool:
    """Whether two sizes are one, whatever the symbols are."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Size):
            return one.symbols.is_zero(one.formula - _formula(other))
    return left == right


def quotient(left: Any, right: Any) -> Any:
    """What the one is of the other, whatever the symbols are; None where it is no whole number."""
    for each in (left, right):
        if isinstance(each, Size):
            return each.symbols.quotient(left, right)
    return None if not left or not right or left % right else left // right


def at(number: Any, values: Values) -> Any:
    return number.at(values) if isinstance(number, Size) else number


def all_at(numbers: Sequence[Any], values: Values) -> tuple[int, ...]:
    return tuple(at(each, values) for each in numbers)


def constant(node: Node) -> Any:
    """The number that a node of a graph is, of which no symbols are left, or else the node."""
    value = node.meta.get("val")
    return value if isinstance(value, int | float | bool) else node


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | Size)


def _formula(number: Any) -> sympy.Expr:
    return number.formula if isinstance(number, Size) else sympy.Integer(int(number))


def _value(formula: Any, values: Values) -> Any:
    return formula.xreplace({symbol: sympy.Integer(value) for symbol, value in values.items()})


def _product(left: Range, right: Range) -> Range:
    corners = [a * b for a in left for b in right]
    return min(corners), max(corners)


def _is_function(formula: Any) -> bool:
    return type(formula).__name__ in ("Max", "Min", "FloorDiv", "CleanDiv")


def _quotient(left: Any, right: Any) -> Any:
    """Of polynomials, with whole coefficients; None where there is none."""
    if right == 0:
        return None
    symbols = sorted(left.free_symbols | right.free_symbols, key=str)
    if not symbols:
        return left // right if left % right == 0 else None
    try:
        whole, rest = sympy.div(left, right, *symbols, domain="ZZ")
    except sympy.PolynomialError:
        return None
    return sympy.expand(whole) if rest == 0 else None
