"""What Python's `//` and `%` are of two integers of a map: quotients round down, remainders have the divisor's sign."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i32
from xdsl.ir import Operation, SSAValue


def floored(left: SSAValue, right: SSAValue) -> Operation:
    """The whole number at or below `left / right`; 0 by zero. By a power of two it is a shift."""
    power = _power_of_two(right)
    if power is None:
        return arith.FloorDivSIOp(left, right)
    return arith.ShRSIOp(left, _number(power.bit_length() - 1))


def modulo(left: SSAValue, right: SSAValue) -> Operation:
    """`left` less the divisor as often as `floored` says; 0 by zero. By a power of two they are the lowest bits."""
    power = _power_of_two(right)
    if power is not None:
        return arith.AndIOp(left, _number(power - 1))
    rest, zero = arith.RemSIOp(left, right).result, _number(0)
    signs_differ = arith.XOrIOp(_less(rest, zero), _less(right, zero)).result
    is_off = arith.AndIOp(arith.CmpiOp(rest, zero, "ne").result, signs_differ).result
    return arith.SelectOp(is_off, arith.AddiOp(rest, right).result, rest)


def _less(left: SSAValue, right: SSAValue) -> SSAValue:
    return arith.CmpiOp(left, right, "slt").result


def _power_of_two(value: SSAValue) -> int | None:
    constant = value.owner.value if isinstance(value.owner, arith.ConstantOp) else None
    number = constant.value.data if isinstance(constant, IntegerAttr) else 0
    return number if number > 0 and number.bit_count() == 1 else None


def _number(value: int) -> SSAValue:
    return arith.ConstantOp(IntegerAttr(value, i32)).result
