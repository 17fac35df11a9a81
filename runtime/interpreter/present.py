"""Contractions of arrays from which conditions leave elements out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.dialects import diagram
from treadle.runtime.interpreter.arrays import AnyArray, Array, Numbers
from treadle.runtime.interpreter.subloops import contract_in_pieces


def contract_present(op: diagram.ContractOp, left: Array, right: Array, axes: Sequence[str]) -> AnyArray:
    """The sum of the products of elements that both exist. Zeros stand for those that do not, unless the others hold
    what zero times is no number: then the finite products are added up, and what the others make is found apart."""
    one, other = left.filled(0), right.filled(0)
    if not (_may_meet(left, other) or _may_meet(right, one)):
        return contract_in_pieces(op, one, other, axes)
    value = contract_in_pieces(op, _finite(one), _finite(other), axes)
    for sign in (1, -1):
        pairs = (
            (_reaching(left, sign), _of_sign(right, 1)),
            (_reaching(left, -sign), _of_sign(right, -1)),
            (_of_sign(left, 1), _reaching(right, sign)),
            (_of_sign(left, -1), _reaching(right, -sign)),
        )
        count = sum(contract_in_pieces(op, a, b, axes) for a, b in pairs)
        value = value + np.where(count > 0, sign * np.inf, 0.0)
    return value


def _may_meet(one: Array, other: Array) -> bool:
    """Whether an absent element of one array may be multiplied by one of the other that is not finite."""
    absent, value = one.numbers.absent, other.numbers.value
    return absent is not None and value.dtype.kind == "f" and bool(absent.any()) and not np.isfinite(value).all()


def _finite(array: Array) -> Array:
    value = array.numbers.value
    return Array(array.axes, Numbers(np.where(np.isfinite(value), value, 0.0)))


def _reaching(array: Array, sign: int) -> Array:
    """Where an element is the infinity of a sign; NaN counts as both, whose sum it is."""
    value = array.numbers.value
    return _present(array, (value == sign * np.inf) | np.isnan(value))


def _of_sign(array: Array, sign: int) -> Array:
    """Where an element has a sign; what is zero or NaN counts as both, as an infinity times that is NaN."""
    return _present(array, ~(sign * array.numbers.value < 0))


def _present(array: Array, holds: AnyArray) -> Array:
    absent = array.numbers.absent
    return array.where(holds if absent is None else holds & ~absent)
