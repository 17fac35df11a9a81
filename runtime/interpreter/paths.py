"""How far the states of a recurrence are likely to be from the reference: paths that roundings take.

Worst cases of a step, one after another, grow without end where what is computed does not: a gate holds a state back,
and a log-sum-exp moves no further than what it is of, but an interval knows of neither. So *likely* bounds are found by
trying: beside the reference go some paths whose states are moved at every position by what is rounded there, to one
side or the other by chance. How far they come to lie from the reference is the bound, to first order what errors do; a
state that small errors move far, as in a chaotic network, has a bound that says so.

Source: the sampling of rounding errors as random variables is that of D. S. Parker, "Monte Carlo Arithmetic", UCLA
CSD-970002, 1997."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from treadle.runtime.interpreter.arrays import AnyArray, Array, FloatArray, Numbers
from treadle.runtime.interpreter.bounds.numbers import settled
from treadle.runtime.interpreter.recurrences import at_position

PATHS = 8
"""Beside the reference. The largest of eight distances is some 1.5 standard deviations, of normal errors, which are
taken `CONFIDENCE` times in the end."""

Step = Callable[[Sequence[Array], bool], tuple[Array, ...]]
"""What happens at a position: of its arrays, with bounds or without."""


class Paths:
    """The states of some paths. `states` are what they begin with, `inputs` what is fed along the axis; both may have
    errors already."""

    def __init__(self, states: Sequence[Array], inputs: Sequence[Array], axis: str):
        self.random = np.random.default_rng(0)
        self.axis = axis
        self.states = [[self._moved(each) for each in states] for _ in range(PATHS)]
        self.inputs = [[self._moved(each) for each in inputs] for _ in range(PATHS)]

    def after(self, step: Step, states: Sequence[Array], inputs: Sequence[Array], place: int) -> tuple[Array, ...]:
        """What comes of a position of the reference, with likely bounds; the paths go on to the next one."""
        reference = step([_exact(each) for each in (*states, *inputs)], True)
        distances = [_error(each) for each in reference]
        for path, fed in enumerate(self.inputs):
            here = [at_position(each, self.axis, place) for each in fed]
            made = step([*self.states[path], *here], False)
            moved = [self._moved(_with(each, _error(own))) for each, own in zip(made, reference, strict=True)]
            for i, (each, own) in enumerate(zip(moved, reference, strict=True)):
                distances[i] = np.maximum(distances[i], _distance(each, own))
            self.states[path] = moved[: len(states)]
        return tuple(_with(each, distance) for each, distance in zip(reference, distances, strict=True))

    def _moved(self, array: Array) -> Array:
        """An array whose elements lie at one or the other end of their bounds."""
        value, error = array.numbers.value, array.numbers.error
        if error is None or not np.any(error):
            return _bare(array)
        side = self.random.choice((-1.0, 1.0), value.shape)
        with np.errstate(all="ignore"):
            by = np.where(error == 0, 0.0, side * error)
            if value.dtype.kind != "f":
                by = np.rint(np.nan_to_num(by, posinf=0.0, neginf=0.0))
            return Array(array.axes, Numbers((value + by).astype(value.dtype)))


def _distance(moved: Array, reference: Array) -> FloatArray:
    there, here = moved.aligned(reference.axes).value, reference.numbers.value
    with np.errstate(all="ignore"):
        apart = np.abs(there.astype(np.float64) - here.astype(np.float64))
    # infinities of one kind, and NaN where NaN is, are no distance
    alike = (there == here) | (np.isnan(there) & np.isnan(here)) if here.dtype.kind == "f" else there == here
    return settled(here, np.where(alike, 0.0, np.where(np.isfinite(there), apart, np.inf)))


def _error(array: Array) -> FloatArray:
    error = array.numbers.error
    return np.zeros(array.numbers.value.shape) if error is None else error


def _with(array: Array, error: AnyArray) -> Array:
    return Array(array.axes, Numbers(array.numbers.value, error, array.numbers.absent))


def _exact(array: Array) -> Array:
    return _with(array, np.zeros(array.numbers.value.shape))


def _bare(array: Array) -> Array:
    return Array(array.axes, Numbers(array.numbers.value, None, array.numbers.absent))


__all__ = ["PATHS", "Paths"]
