"""What all operations of `diagram` share: checked array types, one size for each axis, reduced axes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from xdsl.ir import Attribute
from xdsl.irdl import (
    IRDLOperation,
)
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.diagram.array import (
    check_array,
    merge_sizes,
    sizes_of,
)

REDUCTIONS = ("add", "mul", "max", "min")
"""Associative and commutative operations of `diagram.reduce`, each with a neutral element."""


def quote(axes: Iterable[str]) -> str:
    return ", ".join(f"'{axis}'" for axis in axes)


def check_over(over: Sequence[str], inputs: Sequence[str], result: Sequence[str]) -> None:
    if not over:
        raise VerifyException("'over' names no axis: nothing would be reduced")
    for axis in over:
        if over.count(axis) > 1:
            raise VerifyException(f"axis '{axis}' is reduced twice")
        if axis not in inputs:
            raise VerifyException(f"axis '{axis}' is reduced, but no operand has it (operands have {quote(inputs)})")
        if axis in result:
            raise VerifyException(f"axis '{axis}' is reduced, yet the result still has it")
    for axis in inputs:
        if axis not in over and axis not in result:
            raise VerifyException(
                f"axis '{axis}' is neither reduced nor in the result: name it in 'over' or keep it in the result"
            )
    for axis in result:
        if axis not in inputs:
            raise VerifyException(f"axis '{axis}' of the result comes from no operand")


def union(*axis_lists: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(axis for axes in axis_lists for axis in axes))


class DiagramOperation(IRDLOperation):
    """What all array operations share: checked array types and one size for each axis."""

    def check_arrays(self) -> None:
        """Each operand and result is an array of a supported format, and sizes agree by axis."""
        named = [
            *((f"operand {i}", operand.type) for i, operand in enumerate(self.operands)),
            *((f"result {i}", result.type) for i, result in enumerate(self.results)),
        ]
        for what, type in named:
            check_array(type, what)
        merge_sizes(named)


def same_axes(left: Attribute, right: Attribute) -> bool:
    """Whether two arrays have the same axes with the same sizes, in any order."""
    return sizes_of(left).items() == sizes_of(right).items()
