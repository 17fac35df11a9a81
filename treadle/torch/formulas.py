# pyright: standard
"""Functions of one element for which the calculus has no word, as formulas of those for which it has one: as
`treadle.torch.decompositions`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import torch

CENTRE = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
TAILS = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)
"""Of M. Giles, Approximating the erfinv function (GPU Computing Gems, 2011), highest powers first."""


def hypotenuse(a: Any, b: Any) -> Any:
    """The root of the sum of squares, relative to the larger of the two, so that no square overflows or vanishes. With
    an infinity it is infinite, even beside NaN. Within 3 units in the last place of f32; narrower numbers are rounded
    once."""
    if not _are_computed(a, b):
        return NotImplemented
    made = torch.result_type(a, b)
    one, other = (each.float().abs() for each in (a, b))
    large, small = torch.maximum(one, other), torch.minimum(one, other)
    ratio = small / torch.where(large == 0, 1.0, large)
    found = large * torch.sqrt(1 + ratio * ratio)
    return torch.where((one == inf) | (other == inf), inf, found).to(made)


def inverse_of_erf(x: Any) -> Any:
    """What `erf` makes x of: infinities at 1 and -1, NaN outside. Within 5e-7 of the result, relatively."""
    if not _are_computed(x):
        return NotImplemented
    wide = x.float()
    w = -torch.log((1 - wide) * (1 + wide))  # 1 - x is exact near 1, where the square is not
    in_tails = torch.sqrt(w) - 3
    found = torch.where(w < 5, _polynomial(CENTRE, w - 2.5), _polynomial(TAILS, in_tails)) * wide
    return torch.where(wide.abs() == 1, wide * inf, found).to(x.dtype)


def _polynomial(coefficients: Sequence[float], at: Any) -> Any:
    value = at * coefficients[0] + coefficients[1]
    for each in coefficients[2:]:
        value = value * at + each
    return value


def _are_computed(*tensors: Any) -> bool:
    """Whether 32 bits hold all of them."""
    return all(each.dtype in (torch.float16, torch.bfloat16, torch.float32) for each in tensors)


__all__ = ["hypotenuse", "inverse_of_erf"]
