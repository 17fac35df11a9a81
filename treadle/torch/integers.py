# pyright: standard
"""How large integers get. PyTorch has positions and sums of integers in 64 bits, programs have 32: an operation joins a
program only where what is known of its operands says that they are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias

import torch

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
        return UNKNOWN
    if dtype in OF_FORMATS:
        return OF_FORMATS[dtype]
    return _LIMITS.get(target, _of_tensor if target in FREE else _unknown)(*arguments, **options)


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


def _power(base: Any, exponent: Any) -> float:
    return _of(base) ** exponent if isinstance(exponent, int) and 0 <= exponent < 64 else UNKNOWN


def _positions(start: Any, end: Any, *_: Any, **__: Any) -> float:
    return max(most(start), most(end)) if all(isinstance(each, int | Size) for each in (start, end)) else UNKNOWN


_LIMITS: dict[Any, Limit] = {
    **dict.fromkeys((aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar), _sum),
    **dict.fromkeys((aten.mul.Tensor, aten.mul.Scalar), _product),
    **dict.fromkeys((aten.pow.Tensor_Scalar,), _power),
    **dict.fromkeys((aten.maximum.default, aten.minimum.default, aten.clamp.default, aten.where.self), _largest),
    **dict.fromkeys((aten.neg.default, aten.abs.default, aten.relu.default, aten._to_copy.default), _of_tensor),
    **dict.fromkeys((aten.floor.default, aten.ceil.default, aten.trunc.default, aten.round.default), _of_tensor),
    **dict.fromkeys((aten.amax.default, aten.amin.default, aten.max.default, aten.min.default), _of_tensor),
    **dict.fromkeys((aten.fmax.default, aten.fmin.default, aten.hardtanh.default), _largest),
    aten.cat.default: lambda tensors, *_, **__: max(map(_of, tensors)),
    aten.sign.default: lambda tensor: 1,
    aten.sum.dim_IntList: _total,
    aten.arange.start_step: _positions,
    aten.full.default: lambda shape, number, **_: _of(number),
    aten.full_like.default: lambda tensor, number, **_: _of(number),
    aten.scalar_tensor.default: lambda number, **_: _of(number),
}

__all__ = ["check_fits", "limit_of"]
