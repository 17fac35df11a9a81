# pyright: standard
"""Integers taken apart: bits, shifts, quotients by constants; and the formats of 8 bits, which wrap around. As
`treadle.torch.operations`.

Shifts by a negative number, or by more than there are bits, leave no bit but the sign's, in PyTorch as in programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from treadle.torch.elementwise import is_truth, is_whole
from treadle.torch.registry import COMPUTED, aten
from treadle.torch.tensors import Body, Tensor, Unsupported

BITS = 8
EIGHT = {torch.int8: (-(2**7), 2**7 - 1), torch.uint8: (0, 2**8 - 1)}
"""The formats of 8 bits: their least and their largest number."""


def _of_integers(symbol: str, function: Callable[..., Any], *targets: Any) -> None:
    """Truth values have a meaning of their own (`treadle.torch.elementwise`)."""

    def handler(body: Body, *operands: Any) -> Tensor:
        of_truths = known.get(target) if all(map(is_truth, operands)) else None
        if of_truths is not None:
            return of_truths(body, *operands)
        for each in operands:
            if not is_whole(each) if isinstance(each, Tensor) else not isinstance(each, int):
                raise Unsupported(f"{symbol} of what is no integer")
        return body.map(function, *operands)

    known = {target: COMPUTED[target] for target in targets if target in COMPUTED}
    target = next(iter(known), None)
    COMPUTED.update(dict.fromkeys(targets, handler))


_of_integers("and", lambda a, b: a & b, aten.bitwise_and.Tensor, aten.bitwise_and.Scalar)
_of_integers("or", lambda a, b: a | b, aten.bitwise_or.Tensor, aten.bitwise_or.Scalar)
_of_integers("xor", lambda a, b: a ^ b, aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar)
_of_integers("not", lambda a: ~a, aten.bitwise_not.default)
_of_integers(
    "a shift",
    lambda a, b: a << b,
    *(aten.__lshift__.Scalar, aten.__lshift__.Tensor),
    *(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar),
)
_of_integers(
    "a shift",
    lambda a, b: a >> b,
    *(aten.__rshift__.Scalar, aten.__rshift__.Tensor),
    *(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar),
)


def _by_constant(name: str, left: Any, right: Any) -> None:
    """PyTorch raises where an integer is divided by zero, which a kernel cannot (Unsupported)."""
    if not (isinstance(left, Tensor) and is_whole(left)):
        raise Unsupported(f"{name} of what is no integer")
    if not isinstance(right, int) or right == 0:
        raise Unsupported(f"{name} by what is no number but 0, of integers")


def _said(body: Body, made: Tensor, symbol: str, left: Any, right: int) -> Tensor:
    """Conditions divide by numbers above zero."""
    return body.said(made, symbol, left, right) if right > 0 else made


def floor_divide(body: Body, left: Any, right: Any) -> Tensor:
    _by_constant("a quotient", left, right)
    return _said(body, body.map(lambda a, b: a // b, left, right), "//", left, right)


def remainder(body: Body, left: Any, right: Any) -> Tensor:
    _by_constant("a remainder", left, right)
    return _said(body, body.map(lambda a, b: a % b, left, right), "%", left, right)


def divided(body: Body, left: Any, right: Any, rounding_mode: Any = None) -> Tensor:
    if rounding_mode != "floor":
        raise Unsupported(f"a quotient rounded as '{rounding_mode}'")
    return floor_divide(body, left, right)


COMPUTED.update(dict.fromkeys((aten.floor_divide.default,), floor_divide))
COMPUTED.update(dict.fromkeys((aten.remainder.Scalar, aten.remainder.Tensor), remainder))
COMPUTED.update(dict.fromkeys((aten.div.Tensor_mode, aten.div.Scalar_mode), divided))


# -- formats of 8 bits -----------------------------------------------------------------------------

IN_EIGHT_BITS = {
    *(aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.mul.Tensor, aten.mul.Scalar),
    *(aten.neg.default, aten.abs.default, aten.maximum.default, aten.minimum.default, aten.clamp.default),
    *(aten.where.self, aten.cat.default, aten._to_copy.default),
    *(aten.bitwise_and.Tensor, aten.bitwise_and.Scalar, aten.bitwise_or.Tensor, aten.bitwise_or.Scalar),
    *(aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_not.default),
    *(aten.__lshift__.Scalar, aten.__lshift__.Tensor, aten.__rshift__.Scalar, aten.__rshift__.Tensor),
    *(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar),
    *(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar),
    *(aten.floor_divide.default, aten.remainder.Scalar, aten.remainder.Tensor, aten.div.Tensor_mode),
}
"""What of 8 bits is the same computed in 32, but for the bits that 8 do not hold."""


def check_numbers(dtype: torch.dtype, arguments: Any) -> None:
    """Numbers beside a tensor of 8 bits must be some that 8 bits hold: of others PyTorch takes some bits
    (Unsupported)."""
    least, largest = EIGHT[dtype]
    for each in arguments:
        if isinstance(each, int) and not isinstance(each, bool) and not least <= each <= largest:
            raise Unsupported(f"{each} beside {dtype}, which does not hold it")


def wrapped(body: Body, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """What 8 bits hold of integers of 32; no condition speaks of it."""
    if dtype == torch.uint8:
        return body.map(lambda a: a & (2**BITS - 1), tensor)
    return body.map(lambda a: (a << (32 - BITS)) >> (32 - BITS), tensor)


__all__ = ["EIGHT", "IN_EIGHT_BITS", "check_numbers", "wrapped"]
