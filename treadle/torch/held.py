# pyright: standard
"""How large fractions get, as far as a program says it: what is converted to integers, or to a float of 8 bits, joins a
program where the format surely holds it, as behind `clamp`. Of what it does not hold kernels make the largest number
that there is, and PyTorch something that depends on its version and on the device."""

from __future__ import annotations

from math import inf, isnan
from typing import Any

import torch

from treadle.torch.registry import FREE, aten
from treadle.torch.tensors import Tensor, Unsupported

HELD = {
    torch.int8: ("-128, 127", 128),
    torch.uint8: ("0, 255", 255),
    **dict.fromkeys((torch.int32, torch.int64), ("-2e9, 2e9", 2**31 - 2**7)),  # the largest of f32 that 32 bits hold
    torch.float8_e4m3fn: ("-448, 448", 448),
    torch.float8_e5m2: ("-57344, 57344", 57344),
}
"""Between which numbers fractions may lie that are converted to a format, and the largest without its sign."""

_KEPT = {
    *(aten.floor.default, aten.ceil.default, aten.trunc.default, aten.round.default),
    *(aten.neg.default, aten.abs.default, aten.relu.default, aten._to_copy.default),
    *(aten.amax.default, aten.amin.default),
}
"""What gives nothing larger than its operand, but for rounding."""

_CHOSEN = {aten.clamp.default, aten.hardtanh.default}
"""What lies between its last two operands."""


def check_held(tensor: Tensor, dtype: torch.dtype) -> None:
    """(Unsupported)"""
    ends, largest = HELD[dtype]
    if tensor.limit > largest and not (dtype == torch.float8_e4m3fn and _saturates()):
        raise Unsupported(
            f"a conversion of fractions to {dtype}, where nothing says that it holds all of them (behind "
            f".clamp({ends}) it does)"
        )


def limit_of_fractions(target: Any, dtype: torch.dtype, arguments: Any) -> float:
    """No number of the result is larger, nor smaller than the negative of it; NaNs are none."""
    limit = _limit(target, *arguments)
    # rounding keeps an order: what is no larger than the limit is rounded to no more than what the limit is rounded to
    return float(torch.tensor(limit, dtype=torch.float64).to(dtype)) if limit < inf else inf


def _limit(target: Any, *arguments: Any) -> float:
    if target in _CHOSEN:
        ends = arguments[1:] if len(arguments) == 3 else (None,)
        return max(map(_of, ends))
    if target == aten.where.self:
        return max(map(_of, arguments[1:]))
    if target == aten.cat.default:
        return max(map(_of, arguments[0]))
    if target == aten.full.default:
        return _of(arguments[1])
    if target == aten.scalar_tensor.default:
        return _of(arguments[0])
    if target in _KEPT or target in FREE:
        limit = _of(arguments[0])
        return limit if limit == inf else -(-limit // 1)  # a half may be rounded to the next whole number
    return inf


def _of(operand: Any) -> float:
    if isinstance(operand, Tensor):
        return operand.limit
    if not isinstance(operand, int | float):
        return inf
    return 0 if isnan(operand) else abs(operand)


def _saturates() -> bool:
    """Whether PyTorch makes the largest number, as kernels do, of what is too large for this format, which has no
    infinity. Older versions make NaN."""
    return bool(torch.tensor(1e9).to(torch.float8_e4m3fn).float() == HELD[torch.float8_e4m3fn][1])


__all__ = ["check_held", "limit_of_fractions"]
