# pyright: standard
"""How large integers get. PyTorch has positions and sums of integers in 64 bits, programs have 32: an operation joins a
program only where what is known of its operands says that they are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import torch

from treadle.torch.bits import EIGHT
from treadle.torch.extremes import EXTREME_PLACE, TOP_PLACES
from treadle.torch.held import limit_of_fractions
from treadle.torch.lookups import LOOKUPS
from treadle.torch.registry import FREE, aten
from treadle.torch.symbols import Size, most
from treadle.torch.tensors import Tensor, Unsupported

Limit: TypeAlias = Callable[..., float]

UNKNOWN = 2**63
"""The limit of what is no integer, or may be any."""

OF_FORMATS = {torch.bool: 1, torch.int8: 128, torch.uint8: 255, torch.int32: 2**31}
"""The limit of all that a format can hold; arithmetic in it wraps around as PyTorch's does."""


def limit_of(target: Any, dtype: torch.dtype, arguments: Sequence[Any], options: Mapping[str, Any]) -> float:
    """No element of the result, whose format this is, is larger than that, nor smaller than its negative."""
    if dtype.is_floating_point:
        return limit_of_fractions(target, dtype, arguments)
    return min(OF_FORMATS.get(dtype, UNKNOWN), _computed(target, arguments, options))


def _computed(target: Any, arguments: Sequence[Any], options: Mapping[str, Any]) -> float:
    """That of the result, if nothing wraps around."""
    return _LIMITS.get(target, _of_tensor if target in FREE else _unknown)(*arguments, **options)


def wraps(target: Any, dtype: torch.dtype, arguments: Sequence[Any], options: Mapping[str, Any]) -> bool:
    """Whether what an operation gives in 8 bits may need more, or less than none where they have no sign."""
    least, largest = EIGHT[dtype]
    above = _computed(target, arguments, options) > largest
    return above or (least == 0 and (target in _BELOW_ZERO or any(map(_may_be_negative, arguments))))


def _may_be_negative(operand: Any) -> bool:
    if isinstance(operand, list | tuple):
        return any(map(_may_be_negative, operand))
    if isinstance(operand, Tensor):
        return operand.dtype not in (torch.bool, torch.uint8)
    return isinstance(operand, int) and operand < 0


def check_fits(dtype: torch.dtype, limit: float) -> None:
    """(Unsupported)"""
    if dtype == torch.int64 and limit >= 2**31:
        raise Unsupported("its integers may need 64 bits (where torch.int32 holds them, convert them to it)")


def _unknown(*_: Any, **__: Any) -> int:
    return UNKNOWN


def _of(operand: Any) -> float:
    return operand.limit if isinstance(operand, Tensor) else most(operand)


def _largest(*operands: Any, **options: Any) -> float:
    """What gives one of its operands."""
    return max(_of(each) for each in (*operands, *options.values()) if each is not None)


def _of_tensor(tensor: Tensor, *_: Any, **__: Any) -> float:
    return tensor.limit


def _sum(left: Any, right: Any, alpha: Any = 1) -> float:
    return _of(left) + _of(right) * abs(alpha)


def _product(left: Any, right: Any) -> float:
    return _of(left) * _of(right)


def _total(tensor: Tensor, *_: Any, **__: Any) -> float:
    """Of sums, over all axes at most."""
    return tensor.limit * prod(map(most, tensor.shape))


def _place(tensor: Tensor, dim: int | None = None, *_: Any, **__: Any) -> float:
    """Of positions along a dimension, or of all elements."""
    size = prod(map(most, tensor.shape)) if dim is None else most(tensor.shape[dim])
    return max(size - 1, 0)


def _power(base: Any, exponent: Any) -> float:
    return _of(base) ** exponent if isinstance(exponent, int) and 0 <= exponent < 64 else UNKNOWN


def _positions(start: Any, end: Any, *_: Any, **__: Any) -> float:
    return max(most(start), most(end)) if all(isinstance(each, int | Size) for each in (start, end)) else UNKNOWN


def _bits(*operands: Any) -> float:
    """Of what has no bit that none of them has, but the sign's."""
    most_of = max(map(_of, operands))
    return (
        UNKNOWN if most_of >= 2**31 else (1 << int(most_of).bit_length()) - (not any(map(_may_be_negative, operands)))
    )


def _common(left: Any, right: Any) -> float:
    """What has no sign bounds what it has in common with others."""
    bounds = [_of(each) for each in (left, right) if not _may_be_negative(each)]
    return min(bounds, default=_bits(left, right))


def _shifted_left(tensor: Any, by: Any) -> float:
    return _of(tensor) * 2.0**by if isinstance(by, int) and 0 <= by < 32 else UNKNOWN


def _shifted_right(tensor: Any, by: Any) -> float:
    return -(-_of(tensor) // 2**by) if isinstance(by, int) and 0 <= by < 32 else _of(tensor)


_SUMS = (aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar)
_LEFT = (aten.__lshift__.Scalar, aten.__lshift__.Tensor)
_RIGHT = (aten.__rshift__.Scalar, aten.__rshift__.Tensor)
_BELOW_ZERO = {aten.sub.Tensor, aten.sub.Scalar, aten.neg.default, aten.bitwise_not.default}
"""These may be less than zero though no operand is."""

_LIMITS: dict[Any, Limit] = {
    **dict.fromkeys(_SUMS, _sum),
    **dict.fromkeys((aten.bitwise_and.Tensor, aten.bitwise_and.Scalar), _common),
    **dict.fromkeys((aten.bitwise_or.Tensor, aten.bitwise_or.Scalar), _bits),
    **dict.fromkeys((aten.bitwise_xor.Tensor, aten.bitwise_xor.Scalar, aten.bitwise_not.default), _bits),
    **dict.fromkeys((*_LEFT, aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar), _shifted_left),
    **dict.fromkeys((*_RIGHT, aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar), _shifted_right),
    **dict.fromkeys((aten.floor_divide.default, aten.div.Tensor_mode, aten.div.Scalar_mode), _of_tensor),
    **dict.fromkeys((aten.remainder.Scalar, aten.remainder.Tensor), lambda tensor, by: _of(by)),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _product),
    **dict.fromkeys((aten.pow.Tensor_Scalar,), _power),
    **dict.fromkeys((aten.maximum.default, aten.minimum.default, aten.clamp.default, aten.where.self), _largest),
    **dict.fromkeys((aten.neg.default, aten.abs.default, aten.relu.default, aten._to_copy.default), _of_tensor),
    **dict.fromkeys((aten.floor.default, aten.ceil.default, aten.trunc.default, aten.round.default), _of_tensor),
    **dict.fromkeys((aten.amax.default, aten.amin.default, aten.max.default, aten.min.default), _of_tensor),
    **dict.fromkeys((aten.fmax.default, aten.fmin.default, aten.hardtanh.default), _largest),
    **dict.fromkeys((aten.argmax.default, aten.argmin.default), _place),
    **dict.fromkeys((TOP_PLACES, EXTREME_PLACE), lambda tensor, values, dim, *_: _place(tensor, dim)),
    aten.cat.default: lambda tensors, *_, **__: max(map(_of, tensors)),
    **dict.fromkeys(LOOKUPS, _of_tensor),
    aten.sign.default: lambda tensor: 1,
    aten.sum.dim_IntList: _total,
    aten.arange.start_step: _positions,
    aten.full.default: lambda shape, number, **_: _of(number),
    aten.full_like.default: lambda tensor, number, **_: _of(number),
    aten.scalar_tensor.default: lambda number, **_: _of(number),
}

__all__ = ["check_fits", "limit_of", "wraps"]
