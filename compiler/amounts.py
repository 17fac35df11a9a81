"""Arithmetic on an amount: a number of one candidate, or an array with a number of each of many.

Choosing sizes tries thousands of candidates. The model is written once; with arrays for the sizes of the pieces it
estimates all of them together. What the operators of Python do with both stands in the model as it is; the rest is
here."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any, TypeAlias, cast

import numpy as np

Amount: TypeAlias = Any
"""An int, a float, or an array of them."""


def is_many(amount: Amount) -> bool:
    """Whether it is an array with a number of each candidate."""
    return isinstance(amount, np.ndarray)


def ceil_div(amount: Amount, divisor: Amount) -> Amount:
    return -(-amount // divisor)


def most(*amounts: Amount) -> Amount:
    if any(map(is_many, amounts)):
        return _each(np.maximum, amounts)
    return max(amounts)


def _each(of_two: Callable[[Amount, Amount], Amount], amounts: tuple[Amount, ...]) -> Amount:
    return reduce(of_two, amounts)


def least(*amounts: Amount) -> Amount:
    if any(map(is_many, amounts)):
        return _each(np.minimum, amounts)
    return min(amounts)


def choice(condition: Amount, then: Amount, other: Amount) -> Amount:
    """`then` where the condition holds, else `other`; both are computed."""
    if is_many(condition):
        return cast(Amount, np.where(condition, then, other))
    return then if condition else other


def rounded(amount: Amount) -> Amount:
    """To the nearest integer, halves to the even one."""
    return np.rint(amount).astype(np.int64) if is_many(amount) else round(amount)


def floor_power(amount: Amount) -> Amount:
    """The largest power of two that is not above a positive amount."""
    if not is_many(amount):
        return 1 << (max(int(amount), 1).bit_length() - 1)
    return 2 ** np.floor(np.log2(most(amount, 1))).astype(np.int64)


def ceil_power(amount: Amount) -> Amount:
    """The smallest power of two that is not below an amount."""
    if not is_many(amount):
        return 1 << (max(-int(-amount // 1), 1) - 1).bit_length()
    return 2 ** np.ceil(np.log2(most(amount, 1))).astype(np.int64)


def is_any(amount: Amount) -> bool:
    """Whether it is not zero, of any candidate."""
    return bool(np.any(amount) if is_many(amount) else amount)
