"""Number formats as numpy has them, and the one way to round to them (`treadle.dialects.diagram.formats`)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute

from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import EIGHT_BIT, NUMBER_FORMATS

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(getattr(ml_dtypes, each.dtype, None) or each.dtype) for name, each in NUMBER_FORMATS.items()
}
"""What numpy calls each number format."""

FLOATS = frozenset(DTYPES[name] for name, each in NUMBER_FORMATS.items() if each.is_float)

_SAVED_AS = {
    "bf16": (np.dtype("V2"),),
    **dict.fromkeys(EIGHT_BIT, (np.dtype("V1"), np.dtype(np.uint8))),
}
"""How numpy saves what it does not know: bf16 and f8E4M3FN as bytes; of f8E5M2 a person has to save the bytes."""


def numpy_dtype(type: Attribute) -> np.dtype[Any]:
    """What numpy calls the format of an array or scalar."""
    return DTYPES[str(format_of(type))]


def saturated(value: NDArray[Any], format: Attribute) -> NDArray[Any]:
    """What is beyond the largest number of a format that saturates, at that number; not rounded."""
    known = NUMBER_FORMATS.get(str(format))
    if known is None or not known.saturates or value.dtype.kind not in "iufO":
        return value
    return np.clip(value, *known.range)


def rounded(value: NDArray[Any], format: Attribute) -> NDArray[Any]:
    """In a format, to nearest even, as a cast of the program would make it of these numbers."""
    with np.errstate(all="ignore"):
        return saturated(np.asarray(value), format).astype(numpy_dtype(format))


def held(number: float | int, format: Attribute) -> NDArray[Any] | None:
    """A plain number in a format: rounded to nearest, but None for what an integer format would cut off, and for a
    whole number that is beyond all floats."""
    dtype = numpy_dtype(format)
    try:
        if dtype.kind in "iu" and not isinstance(number, int):
            return None
        return np.asarray(number, dtype) if dtype.kind in "iu" else rounded(np.asarray(float(number)), format)
    except OverflowError:
        return None


def named_bytes(array: NDArray[Any], type: Attribute) -> NDArray[Any]:
    """An array as the program has it, if numpy saved it as bytes because it does not know the format."""
    return array.view(numpy_dtype(type)) if array.dtype in _SAVED_AS.get(str(format_of(type)), ()) else array
