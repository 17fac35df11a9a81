"""Values of the interpreter: float64 arrays with named axes, optionally with an error bound each.

Operations find each other's axes by name, so a value carries its axes; a law runs on operands that have
more axes than its types say, and needs no special case for them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import Float64Type, IndexType, IntegerType
from xdsl.ir import Attribute

from treadle.dialects.diagram.formats import ui8

AnyArray: TypeAlias = NDArray[Any]
FloatArray: TypeAlias = NDArray[np.float64]

NEUTRAL: dict[str, float] = {"add": 0.0, "mul": 1.0, "max": -np.inf, "min": np.inf}
"""The element that changes nothing, for each reduction of `diagram.reduce`."""


class CannotRun(Exception):
    """What an operation cannot do with what it was given: the caller knows the operation, and says where."""


class AxisMismatch(CannotRun):
    """Two values disagree about an axis."""


@dataclass(frozen=True)
class Numbers:
    """Elements without axis names; `error` bounds how far a computed element may be from `value`, and is
    None where no bounds are asked for."""

    value: AnyArray
    error: FloatArray | None = None
    absent: NDArray[np.bool_] | None = None
    """Elements that a condition excludes; what stands in their place means nothing. None: there are all."""

    def reshaped(self, change: Callable[[AnyArray], AnyArray]) -> Numbers:
        """`change`, which only moves or repeats elements, done to values and bounds alike."""
        error, absent = (None if each is None else change(each) for each in (self.error, self.absent))
        return Numbers(change(self.value), error, absent)

    def without(self, absent: NDArray[np.bool_] | None) -> Numbers:
        """The same with these elements absent as well."""
        if absent is None:
            return self
        both = absent if self.absent is None else absent | self.absent
        return Numbers(self.value, self.error, np.broadcast_to(both, self.value.shape))

    def filled(self, number: Any) -> Numbers:
        """The same with a number, which is exact, in the place of what is absent."""
        if self.absent is None:
            return self
        value = np.where(self.absent, np.asarray(number, self.value.dtype), self.value)
        return Numbers(value, None if self.error is None else np.where(self.absent, 0.0, self.error))


@dataclass(frozen=True)
class Array:
    """An array whose dimensions are the named axes, in order."""

    axes: tuple[str, ...]
    numbers: Numbers

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.axes, self.numbers.value.shape, strict=True))

    def aligned(self, axes: Sequence[str]) -> Numbers:
        """The elements with dimensions in the order of `axes`, of size 1 where the array has no such
        axis."""
        order = [self.axes.index(axis) for axis in axes if axis in self.axes]
        if len(order) != len(self.axes):
            raise AxisMismatch(f"axes [{', '.join(self.axes)}] do not fit in [{', '.join(axes)}]")
        shape = tuple(self.sizes.get(axis, 1) for axis in axes)
        return self.numbers.reshaped(lambda data: np.transpose(data, order).reshape(shape))

    def spread(self, axes: Sequence[str], sizes: Mapping[str, int]) -> Array:
        """The same array over `axes`, repeated along those that it lacks."""
        if tuple(axes) == self.axes:
            return self
        shape = tuple(self.sizes.get(axis, sizes.get(axis, 1)) for axis in axes)
        return Array(tuple(axes), self.aligned(axes).reshaped(lambda data: np.broadcast_to(data, shape)))

    def filled(self, number: Any) -> Array:
        return Array(self.axes, self.numbers.filled(number))

    def where(self, holds: NDArray[np.bool_]) -> Array:
        """1 where something holds of an element, and 0 elsewhere."""
        return Array(self.axes, Numbers(holds.astype(np.float64)))

    def renamed(self, names: Mapping[str, str]) -> Array:
        return Array(tuple(names.get(axis, axis) for axis in self.axes), self.numbers)


def absent_in(numbers: Iterable[Numbers]) -> NDArray[np.bool_] | None:
    """Where one of some numbers of the same dimensions is absent."""
    given = [each.absent for each in numbers if each.absent is not None]
    return functools.reduce(np.logical_or, given) if given else None


def array_of(value: Array | Numbers) -> Array:
    """A scalar is the array without axes."""
    return value if isinstance(value, Array) else Array((), value)


def merged_sizes(arrays: Iterable[Array]) -> dict[str, int]:
    """The size of each axis of the arrays (AxisMismatch where two disagree)."""
    sizes: dict[str, int] = {}
    for array in arrays:
        for axis, size in array.sizes.items():
            if sizes.setdefault(axis, size) != size:
                raise AxisMismatch(f"axis '{axis}' has {sizes[axis]} elements in one operand, {size} in another")
    return sizes


def with_weaved(axes: Sequence[str], arrays: Iterable[Array], without: Sequence[str] = ()) -> tuple[str, ...]:
    """`axes`, then whatever other axes the arrays have: those over which a law is weaved."""
    others = (axis for array in arrays for axis in array.axes if axis not in axes and axis not in without)
    return tuple(dict.fromkeys((*axes, *others)))


def dtype_of(format: Attribute) -> np.dtype[Any]:
    """What an element is held in: every float format is held in float64, integers wrap as they do."""
    if isinstance(format, IndexType):
        return np.dtype(np.int64)
    if isinstance(format, IntegerType):
        width: int = cast("IntegerType[Any]", format).width.data
        sign = "u" if format == ui8 else ""
        return np.dtype(np.bool_ if width == 1 else f"{sign}int{max(8, width)}")
    return np.dtype(np.float64)


def is_float(format: Attribute) -> bool:
    return not isinstance(format, IntegerType | IndexType)


def bytes_of(format: Attribute) -> int:
    """Bytes of an element in memory."""
    if isinstance(format, Float64Type | IndexType):
        return 8
    bits: int = getattr(format, "bitwidth", 32)
    return (bits + 7) // 8


def neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    """The neutral element of a reduction, in a number format; of exact numbers an exact one, where it is finite."""
    if dtype.kind == "O":
        return Fraction(NEUTRAL[kind]) if kind in ("add", "mul") else NEUTRAL[kind]
    if dtype.kind == "f" or kind in ("add", "mul"):
        return dtype.type(NEUTRAL[kind])
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if kind == "max" else limits.max)


def contract(left: Array, right: Array, over: Sequence[str], axes: Sequence[str]) -> AnyArray:
    """Sum over the axes `over` of the product of the arrays, as dimensions `axes`.

    A batched matrix product, because numpy hands that to BLAS; einsum would not, and stops at 52 axes."""
    sizes = merged_sizes((left, right))
    shared = [axis for axis in axes if axis in left.axes and axis in right.axes]
    only_left = [axis for axis in axes if axis in left.axes and axis not in right.axes]
    only_right = [axis for axis in axes if axis in right.axes and axis not in left.axes]

    def matrix(array: Array, rows: Sequence[str], columns: Sequence[str]) -> AnyArray:
        order = (*shared, *rows, *columns)
        whole = array.spread(order, sizes).numbers.value
        shape = [sizes[axis] for axis in shared]
        return whole.reshape((*shape, prod(sizes[a] for a in rows), prod(sizes[a] for a in columns)))

    product = np.matmul(matrix(left, only_left, over), matrix(right, over, only_right))
    order = (*shared, *only_left, *only_right)
    whole = product.reshape([sizes[axis] for axis in order])
    return np.transpose(whole, [order.index(axis) for axis in axes])


def reduce(kind: str, values: AnyArray, dimensions: tuple[int, ...]) -> AnyArray:
    """Combine the elements along `dimensions`; along an empty one, the neutral element."""
    start = neutral(kind, values.dtype)
    match kind:
        case "add":
            return np.add.reduce(values, axis=dimensions, dtype=values.dtype)
        case "mul":
            return np.multiply.reduce(values, axis=dimensions, dtype=values.dtype)
        case "max":
            return np.maximum.reduce(values, axis=dimensions, initial=start)
        case _:
            return np.minimum.reduce(values, axis=dimensions, initial=start)


COMBINE: dict[str, Callable[[AnyArray, AnyArray], AnyArray]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""The operation of each reduction, between two elements."""


def scan(kind: str, values: AnyArray, exclusive: bool = False, reverse: bool = False) -> AnyArray:
    """Combine, along the last dimension, the elements up to each, or from each on, itself included or not."""
    operations = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    values = values[..., ::-1] if reverse else values
    if exclusive:
        first = np.full((*values.shape[:-1], 1), neutral(kind, values.dtype), values.dtype)
        values = np.concatenate([first, values[..., :-1]], axis=-1)[..., : values.shape[-1]]
    found = operations[kind].accumulate(values, axis=-1, dtype=values.dtype)
    return found[..., ::-1] if reverse else found


def padded(data: AnyArray, positions: Sequence[NDArray[np.int64]], there: NDArray[np.bool_]) -> AnyArray:
    """The elements at some positions, one array of them for each axis, of those that are `there`; zeros where a
    position lies outside."""
    shape, inside = there.shape, there.copy()
    for position, size in zip(positions, data.shape, strict=True):
        inside &= (position >= 0) & (position < size)
    if not data.size:
        return np.zeros(shape, data.dtype)
    near = tuple(np.clip(position, 0, size - 1) for position, size in zip(positions, data.shape, strict=True))
    return np.where(inside, data[near], np.zeros((), data.dtype))
