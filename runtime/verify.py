"""Whether what a backend computed is what the algorithm says: compared with the float64 reference, within
a tolerance that follows from the number formats in the IR (`runtime.interpreter.bounds`), element by
element. No tolerance is chosen by hand.

There are three verdicts. `verified`: every element that has a bound is within it. `WRONG`: one is not. `cannot be
verified`: none is beyond its bound, but too few have one that says anything, so the comparison would pass whatever a
kernel computed. A bound says something if it is below the element itself, or below the scale of those around it: three
quarters of them are no larger. No few large elements or rows set that, under which the others could be anything.

Where the worst case says nothing (attention in 8 bits averages thousands of values, and so their roundings), the bounds
of independent roundings are tried, whose squares add up along sums; a result within them is verified, and says so. One
beyond them is not called wrong for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute

from treadle.compiler.errors import at
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.runtime.inputs import Input, output_names
from treadle.runtime.interpreter import Bounded, entry_function, run_with_bounds
from treadle.runtime.interpreter.arrays import FloatArray
from treadle.runtime.interpreter.bounds.units import SMALLEST

UNCHECKED_SHARE = 0.01
"""Of the elements of a verified output, at most this share has no bound that says anything."""
UNDECIDED_SHARE = 0.05
"""The same of integers: each is known exactly, or depends on what roundings decide (which element is the eighth)."""
SCALE_QUANTILE = 0.75
"""The scale of some elements is a size that so many of them do not exceed: of normal numbers about their root mean
square, but not set by a few outliers."""
FEW = 16
"""So many elements have a scale; of fewer it would be chance."""
SPREAD = 4
"""So much smaller than the others a part of the result is by chance, where its sums cancel."""
STEPS = 16
"""A bound of so many of the format's smallest steps says what the format can: of shares that vanish beside others."""

LOOSE = 1 / 8
"""Of the scale of a result, what half of its tolerances exceed where the verdict warns: much may be wrong unseen."""

WHY = (
    "the values leave the range of a format, divide by what may be zero, multiply infinities or NaN by what is absent, "
    "cancel down to their own rounding errors, or depend on which of two is the larger, as near as these are; smaller "
    "inputs, shorter sums or wider formats can be verified"
)


@dataclass(frozen=True)
class Verdict:
    """How one output compares with the reference.

    Exactly one of `verified`, `wrong > 0` (or a `note`) and `unverifiable` holds.

    `max_error` and `tolerance` belong to one element, at `where`: the one whose error is the largest part
    of its own tolerance. Every element has a tolerance of its own, so the largest error and some other
    element's tolerance would say nothing together."""

    name: str
    backend: str
    ok: bool
    """Whether it is verified."""
    max_error: float
    tolerance: float
    where: Mapping[str, int] = field(default_factory=dict[str, int])
    actual: float | int | None = None
    expected: float | int | None = None
    elements: int = 0
    wrong: int = 0
    """Elements beyond their tolerance."""
    unchecked: int = 0
    """Elements whose tolerance is infinite or below neither them nor their scale: next to nothing is known of them."""
    scale: float = 0.0
    """The scale of the whole reference; where that is 0, any finite tolerance tells."""
    is_likely: bool = False
    """Whether the tolerances are those of independent roundings: the worst case has none that says anything."""
    is_of_conditions: bool = False
    """Whether it is by what masks leave out, which the formula multiplies by zero."""
    typical: float = 0.0
    """The tolerance that half of the elements do not exceed."""
    note: str = ""
    """What is wrong where it is no element: a shape, say."""

    @property
    def unverifiable(self) -> bool:
        """Whether nothing is seen to be wrong, and nothing is known."""
        return not (self.ok or self.wrong or self.note)

    @property
    def is_loose(self) -> bool:
        """Whether errors may be a good part of the result and within their tolerances."""
        return bool(self.scale) and LOOSE * self.scale < self.typical < inf

    def __str__(self) -> str:
        if self.note:
            return f"WRONG ({self.backend}): {self.name} {self.note}"
        if not self.elements:
            return f"verified ({self.backend}): {self.name} is empty, so there is nothing to compare"
        if self.wrong:
            return self._wrong_text()
        if self.unverifiable:
            return (
                f"cannot be verified ({self.backend}): {self.name}: {self.unchecked} of {self.elements} elements have "
                f"no tolerance below their scale ({_short(self.scale)} for the whole result): {WHY}"
            )
        unknown = f", {self.unchecked} of {self.elements} elements without a bound" if self.unchecked else ""
        unknown += ", if roundings are independent" if self.is_likely else ""
        unknown += ", of what masks leave: elsewhere are infinities or NaNs" if self.is_of_conditions else ""
        if self.is_loose:
            share = 100 * self.typical / self.scale
            unknown += f"; loose: half of the tolerances are above {share:.0f} % of the scale, {_short(self.scale)}"
        return (
            f"verified ({self.backend}): {self.name} max error {_short(self.max_error)} "
            f"(tolerance {_short(self.tolerance)}{unknown})"
        )

    def _wrong_text(self) -> str:
        place = ", ".join(f"{axis}={i}" for axis, i in self.where.items())
        element = f"{self.name}[{place}]" if place else self.name
        return (
            f"WRONG ({self.backend}): {element} is {_number(self.actual)}, expected {_number(self.expected)}; "
            f"max error {_short(self.max_error)}; tolerance {_short(self.tolerance)}; "
            f"{self.wrong} of {self.elements} elements are wrong"
        )


def _likely(strict: Verdict, likely: Verdict) -> Verdict:
    """In place of a verdict that says nothing, the one by likely bounds, if every element is within them: that one is
    beyond its own is no proof that it is wrong."""
    if not strict.unverifiable or not likely.ok:
        return strict
    return replace(likely, is_likely=True)


def _of_conditions(strict: Verdict, other: Verdict) -> Verdict:
    """In place of a verdict that something is wrong, one that it is right of what masks leave."""
    return replace(other, is_of_conditions=True) if strict.wrong and not other.wrong else strict


def _is_finite(given: Input | float | int) -> bool:
    array = np.asarray(given)
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.float64)).all())


def verify(
    module: ModuleOp,
    inputs: Sequence[Input | float | int],
    outputs: Sequence[NDArray[Any]],
    backend: str,
    *,
    function: str | None = None,
    sizes: Mapping[str, int] | None = None,
    coarse: float | None = None,
    with_conditions: Callable[[ModuleOp], ModuleOp | None] | None = None,
) -> tuple[Verdict, ...]:
    """Compare `outputs`, one for each result, with the reference for `inputs`.

    `module` is the algorithm as it was before its streams were expanded: its formats give the tolerance. `coarse` says
    how many products of 8 bits tensor cores added up with few bits (`Session`); where nothing is said, on a GPU and in
    the emulator they may have added up all. `with_conditions` gives the same program with conditions for masks that
    are written out, None if it has none: of inputs that are not finite the formula multiplies by zero what these leave
    out."""
    entry = entry_function(module, function)
    digits = (inf if backend in ("gpu", "emulator") else 0) if coarse is None else coarse
    types = entry.function_type.outputs.data
    if len(outputs) != len(types):
        raise at(entry, f"gives {len(types)} results, {len(outputs)} are compared")
    arrays = [np.asarray(output) for output in outputs]

    def verdicts(lenient: bool, likely: bool = False, module: ModuleOp = module) -> tuple[Verdict, ...]:
        references = run_with_bounds(
            module, inputs, function=function, sizes=sizes, coarse=digits, lenient=lenient, likely=likely
        )
        given = zip(output_names(entry), types, arrays, references, strict=True)
        return tuple(compare(name, type, array, reference, backend) for name, type, array, reference in given)

    # What an absent factor meets does not count. A result that has met zeros in its place is perhaps not wrong, either.
    found = verdicts(lenient=False)
    if any(verdict.wrong for verdict in found):
        found = tuple(other if one.wrong else one for one, other in zip(found, verdicts(lenient=True), strict=True))
    is_wrong = any(verdict.wrong for verdict in found) and not all(map(_is_finite, inputs))
    if is_wrong and with_conditions is not None and (raised := with_conditions(module)) is not None:
        others = verdicts(lenient=True, module=raised)
        found = tuple(_of_conditions(one, other) for one, other in zip(found, others, strict=True))
    if any(verdict.unverifiable for verdict in found):
        found = tuple(map(_likely, found, verdicts(lenient=False, likely=True)))
    return found


def compare(name: str, type: Attribute, output: NDArray[Any], reference: Bounded, backend: str) -> Verdict:
    """The verdict on one output."""
    expected = reference.value
    if output.shape != expected.shape:
        note = f"has shape {output.shape}, expected {expected.shape}"
        return Verdict(name, backend, False, np.inf, 0.0, note=note)
    if not output.size:
        return Verdict(name, backend, True, 0.0, 0.0)
    actual = output.astype(np.float64 if expected.dtype.kind == "f" else expected.dtype)
    error, tolerance = _errors(actual, expected), reference.error
    bounded = np.isfinite(tolerance)
    with np.errstate(all="ignore"):
        part = np.where(error == 0, 0.0, np.where(tolerance == 0, np.inf, error / tolerance))
    part = np.where(bounded, np.where(np.isnan(part), np.inf, part), -1.0)
    worst = np.unravel_index(int(np.argmax(part)), part.shape)
    sizes = np.where(bounded & np.isfinite(expected), np.abs(expected.astype(np.float64)), 0.0)
    wrong, unchecked = int((part > 1).sum()), int((~_says_something(sizes, tolerance, format_of(type))).sum())
    share = UNCHECKED_SHARE if expected.dtype.kind == "f" else UNDECIDED_SHARE
    return Verdict(
        name,
        backend,
        ok=wrong == 0 and unchecked <= share * output.size,
        max_error=float(error[worst]),
        tolerance=float(tolerance[worst]),
        where=dict(zip(axes_of(type), map(int, worst), strict=True)),
        actual=_item(actual[worst]),
        expected=_item(expected[worst]),
        elements=output.size,
        wrong=wrong,
        unchecked=unchecked,
        scale=_scale(sizes),
        typical=float(np.median(tolerance)),
    )


def _says_something(sizes: FloatArray, tolerance: FloatArray, format: Attribute) -> NDArray[np.bool_]:
    """The elements whose tolerance is the format's own, or below their size, or below what is around them: the scale of
    the whole, and, but for chance, that of all that has the same index along one of the axes."""
    close = STEPS * SMALLEST.get(str(format), 0.0)
    certain = (tolerance <= close) | (tolerance < sizes)
    said = certain | (tolerance < (_scale(sizes) or np.inf))
    if sizes.ndim > 1:
        for axis in range(sizes.ndim):
            said &= certain | (tolerance < SPREAD * _scales_along(axis, sizes, said & ~certain))
    return said


def _scales_along(axis: int, sizes: FloatArray, asked: NDArray[np.bool_]) -> FloatArray:
    """The scale of each slice of an array along an axis, where an element of it is asked for; infinite where it has
    none."""
    scales = np.full([size if each == axis else 1 for each, size in enumerate(sizes.shape)], np.inf)
    for index in np.flatnonzero(asked.any(axis=tuple(each for each in range(sizes.ndim) if each != axis))):
        slice = np.take(sizes, index, axis)
        if np.count_nonzero(slice) >= FEW:
            scales.flat[index] = _scale(slice)
    return scales


def _scale(sizes: FloatArray) -> float:
    """A size that three quarters of the elements do not exceed, but for zeros, which are of any scale; 0 if all are."""
    sizes = sizes[sizes > 0]
    place = int(SCALE_QUANTILE * (sizes.size - 1)) if sizes.size else 0
    return float(np.partition(sizes, place)[place]) if sizes.size else 0.0


def _errors(actual: NDArray[Any], expected: NDArray[Any]) -> NDArray[np.float64]:
    """Distance of each element; none between two NaNs or equal infinities, and infinite where only one is
    a number: an element that nobody wrote is NaN."""
    same = (actual == expected) | (np.isnan(actual) & np.isnan(expected))
    with np.errstate(all="ignore"):
        distance = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def _item(value: Any) -> float | int:
    return value.item()


def _short(value: float) -> str:
    """`3.1e-4`"""
    if value == 0 or not np.isfinite(value):
        return f"{value:g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _number(value: float | int | None) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


__all__ = ["UNCHECKED_SHARE", "Verdict", "compare", "verify"]
