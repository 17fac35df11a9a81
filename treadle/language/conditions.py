"""What `where` asks: comparisons of elements, alone or joined by `&`, `|`, `^` and `~`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i1
from xdsl.ir import Operation, SSAValue

from treadle.compiler.errors import TreadleError

Join = Callable[[SSAValue, SSAValue], Operation]


class Condition:
    """Whether something holds of each element, for `where`."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TreadleError(
            "a traced function cannot ask for the value of an array: use treadle.language.where, not 'if', and join "
            "comparisons by & and |, not by 'and' and 'or', nor in a chain"
        )

    def __and__(self, other: Any) -> Condition:
        return _joined("&", arith.AndIOp, self, other)

    def __or__(self, other: Any) -> Condition:
        return _joined("|", arith.OrIOp, self, other)

    def __xor__(self, other: Any) -> Condition:
        return _joined("^", arith.XOrIOp, self, other)

    __rand__, __ror__, __rxor__ = __and__, __or__, __xor__

    def __invert__(self) -> Condition:
        return Joined(arith.XOrIOp, self, None)

    def _is_no_array(self, *_: Any) -> NoReturn:
        raise TreadleError(
            "arithmetic of a comparison, which is no array: make one by treadle.language.where(.., 1, 0)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _is_no_array
    __neg__ = __pos__ = __abs__ = _is_no_array


@dataclass(frozen=True)
class Comparison(Condition):
    """By the predicates of `arith.cmpf` and `arith.cmpi`."""

    of_floats: str
    of_integers: str
    left: Any
    right: Any


@dataclass(frozen=True)
class Joined(Condition):
    """Two, or one and what always holds (None)."""

    join: Join
    left: Condition
    right: Condition | None


def always() -> SSAValue:
    """What holds of each element, in the body of a map."""
    return arith.ConstantOp(IntegerAttr(1, i1)).result


def _joined(symbol: str, join: Join, left: Condition, right: Any) -> Condition:
    if not isinstance(right, Condition):
        raise TreadleError(
            f"'{symbol}' joins a comparison to another, not to a {type(right).__name__}: put each in parentheses, as "
            "in (A > 0) & (A < 1)"
        )
    return Joined(join, left, right)


__all__ = ["Comparison", "Condition", "Joined", "always"]
