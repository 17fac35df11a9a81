"""Arrays at one position of an axis, and what is made of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from treadle.runtime.interpreter.arrays import Array, Numbers, merged_sizes, with_weaved


def at_position(array: Array, axis: str, place: int) -> Array:
    """Without the axis; an array that lacks it is the same everywhere."""
    if axis not in array.axes:
        return array
    along = array.axes.index(axis)
    axes = tuple(name for name in array.axes if name != axis)
    return Array(axes, array.numbers.reshaped(lambda data: np.take(data, place, axis=along)))


def at_each(arrays: Sequence[Array], axis: str, axes: Sequence[str]) -> Array:
    """The arrays of all positions, of which there is one at least, with the axis where `axes` has it; others that they
    have come last."""
    others = with_weaved([name for name in axes if name != axis], arrays)
    sizes: Mapping[str, int] = merged_sizes(arrays)
    numbers = [array.spread(others, sizes).numbers for array in arrays]
    value = np.stack([each.value for each in numbers], axis=-1)
    errors = [each.error for each in numbers if each.error is not None]
    error = np.stack(errors, axis=-1) if errors else None
    absent = None
    if any(each.absent is not None for each in numbers):
        none = [np.zeros(each.value.shape, np.bool_) if each.absent is None else each.absent for each in numbers]
        absent = np.stack(none, axis=-1)
    stacked = Array((*others, axis), Numbers(value, error, absent))
    wanted = with_weaved(axes, [stacked])
    return Array(wanted, stacked.aligned(wanted))
