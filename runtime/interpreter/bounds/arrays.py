"""Bounds of contractions and reductions: every step of a sum, in any order, rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith
from xdsl.ir import Attribute

from treadle.dialects import diagram
from treadle.dialects.cuda.sums import promoted_growth
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import EIGHT_BIT
from treadle.runtime.interpreter.arrays import AnyArray, Array, FloatArray, Numbers, contract, is_float, scan
from treadle.runtime.interpreter.bounds.numbers import error_of, finite_size, rounded, settled
from treadle.runtime.interpreter.bounds.spreads import NO_OPERATION
from treadle.runtime.interpreter.bounds.tables import SPREAD
from treadle.runtime.interpreter.bounds.units import (
    LARGEST,
    SMALLEST,
    TENSOR_CORE_F16,
    TENSOR_CORE_F32,
    TF32,
    UNIT,
)
from treadle.runtime.interpreter.places import Sums


def _gamma(count: int, unit: float, likely: bool = False) -> float:
    """Relative error of `count` roundings one after another; if they are independent, that of their square root."""
    return float(np.expm1((sqrt(count) if likely else count) * np.log1p(unit)))


def _largest_partial(reach: FloatArray, value: AnyArray, error: FloatArray) -> FloatArray:
    """The largest partial sum in any order: all the positive elements, or all the negative ones. Their
    difference is the sum, and `reach` bounds their total."""
    return np.minimum(reach, (reach + finite_size(value) + error) / 2)


def _unit_of_product(op: diagram.ContractOp) -> float:
    """Rounding of one step of a sum of products."""
    accumulate, operand = str(op.accumulate), str(format_of(op.lhs.type))
    if accumulate == "f32":
        return UNIT["f32"] if operand == "f32" and not op.is_tf32 else TENSOR_CORE_F32
    return {"f16": TENSOR_CORE_F16, "bf16": 2 * UNIT["bf16"]}.get(accumulate, 0.0)


def _gamma_of_product(op: diagram.ContractOp, length: int, coarse: float, likely: bool) -> float:
    """Relative error of the steps of a sum of products; `coarse`, how many of those of 8-bit operands are added up with
    few bits."""
    if not coarse or str(op.accumulate) != "f32" or str(format_of(op.lhs.type)) not in EIGHT_BIT:
        return _gamma(length, _unit_of_product(op), likely)
    return promoted_growth(length, coarse, likely)


def _length(op: diagram.ContractOp, left: Array, right: Array) -> int:
    return prod({**left.sizes, **right.sizes}[axis] for axis in op.over_axes)


def contract_error(
    op: diagram.ContractOp,
    left: Array,
    right: Array,
    value: AnyArray,
    axes: Sequence[str],
    coarse: float = 0,
    lenient: bool = True,
    likely: bool = False,
) -> FloatArray:
    """|a| eb + |b| ea + ea eb, summed; a unit of the accumulator for each term; the result's rounding. `coarse`,
    `lenient` and `likely` as in `Session`."""
    accumulate, length = str(op.accumulate), _length(op, left, right)
    unknown = _is_unknown(left, right, op.over_axes, axes, lenient) | _is_unknown(
        right, left, op.over_axes, axes, lenient
    )
    left, right = left.filled(0), right.filled(0)
    operand_unit = TF32 if op.is_tf32 else 0.0
    a, b = _size_and_reach(left, operand_unit), _size_and_reach(right, operand_unit)
    with np.errstate(all="ignore"):
        reach = contract(a[1], b[1], op.over_axes, axes)
        error = reach - contract(a[0], b[0], op.over_axes, axes)
        partial = _largest_partial(reach, value, error)
        if likely:
            (size_a, error_a), (size_b, error_b) = (_squares(size.numbers, most) for size, most in (a, b))
            pairs = ((size_a, error_b), (error_a, size_b), (error_a, error_b))
            error = np.sqrt(sum(contract(one, other, op.over_axes, axes) for one, other in pairs))
        steps = _gamma_of_product(op, length, coarse, likely)
        error = error + steps * partial + length * SMALLEST.get(accumulate, 0.0)
        error = np.where(unknown | (partial > LARGEST.get(accumulate, np.inf)), np.inf, error)
        if op.accumulate == format_of(op.result.type):
            return settled(value, error)
        return rounded(value, error, format_of(op.result.type))


def _is_unknown(one: Array, other: Array, over: Sequence[str], axes: Sequence[str], lenient: bool) -> NDArray[np.bool_]:
    """The sums in which an infinite element of one array is multiplied by what may be zero, or of either sign; or any
    that is not finite by an absent one, for which a kernel may take a zero."""
    value, absent = one.filled(0).numbers.value, other.numbers.absent
    if np.isfinite(value).all():
        return np.zeros((), np.bool_)
    near = other.filled(0).numbers
    vanishes = (error_of(near) > 0) & (np.abs(near.value) <= error_of(near))
    unknown = contract(one.where(np.isinf(value)), other.where(vanishes), over, axes)
    if absent is not None and lenient:
        unknown = unknown + contract(one.where(~np.isfinite(value)), other.where(absent), over, axes)
    return unknown > 0


def _squares(size: Numbers, most: Array) -> tuple[Array, Array]:
    """The squares of |a|, and of how much more it may be."""
    error = most.numbers.value - size.value
    return Array(most.axes, Numbers(np.square(size.value))), Array(most.axes, Numbers(np.square(error)))


def contract_gamma(op: diagram.ContractOp, left: Array, right: Array, coarse: float = 0, likely: bool = False) -> float:
    """What the steps of a sum of products may add to whatever the accumulator starts from."""
    return _gamma_of_product(op, _length(op, left, right), coarse, likely)


def reduce_gamma(count: int, format: Attribute, likely: bool = False) -> float:
    """As `contract_gamma`, for a reduction of `count` elements."""
    return _gamma(count, UNIT[str(format)], likely) if is_float(format) else 0.0


def _size_and_reach(array: Array, unit: float) -> tuple[Array, Array]:
    """|a|, and the most that |a| may be; infinite elements count as none, since their products are
    compared by kind."""
    numbers = array.numbers
    size = finite_size(numbers.value)
    reach = (1 + unit) * (size + error_of(numbers))
    return Array(array.axes, Numbers(size)), Array(array.axes, Numbers(reach))


def reduce_error(
    kind: str, data: Numbers, value: AnyArray, dimensions: tuple[int, ...], format: Attribute, likely: bool = False
) -> FloatArray:
    """A sum or product adds a rounding for each element; max and min pass on the largest bound. `likely` as in
    `Session`, of sums."""
    error = error_of(data)
    count = prod(data.value.shape[i] for i in dimensions)
    size = finite_size(data.value)
    reach, gamma = size + error, reduce_gamma(count, format)
    with np.errstate(all="ignore"):
        match kind:
            case "add":
                bound = np.sum(reach - size, axis=dimensions)
                most = _largest_partial(np.sum(reach, axis=dimensions), value, bound)
                if likely:
                    bound, gamma = np.sqrt(np.sum(np.square(error), axis=dimensions)), reduce_gamma(count, format, True)
            case "mul":
                return settled(value, _product_error(data, dimensions, format, gamma))
            case _:
                return settled(value, np.max(error, axis=dimensions, initial=0.0))
        bound = np.where(most > LARGEST.get(str(format), np.inf), np.inf, bound + gamma * most)
        if not is_float(format):  # integers wrap, in any order to the same
            bound = np.where(np.max(error, axis=dimensions, initial=0.0) == 0, 0.0, bound)
        bound = np.where((value == 0) & (most == 0), 0.0, bound + count * SMALLEST.get(str(format), 0.0))
        return settled(value, bound)  # of exact zeros, as of no elements, the sum is one


def scan_error(op: diagram.ScanOp, data: Numbers, value: AnyArray, likely: bool = False) -> FloatArray:
    """As `reduce_error`, of what a scan makes along the last dimension: no result has more roundings than the whole."""
    kind, format = op.kind.data, format_of(op.result.type)
    error, length = error_of(data), data.value.shape[-1]

    def scanned(combined: str, array: FloatArray) -> FloatArray:
        return scan(combined, array, op.is_exclusive, op.is_reverse)

    if kind in ("max", "min"):  # of no element there is no error
        return settled(value, np.maximum(scanned("max", error), 0.0))
    if kind == "mul":
        last = (data.value.ndim - 1,)
        found = [
            reduce_error(kind, Numbers(data.value[..., part], error[..., part]), value[..., i], last, format, likely)
            for i, part in enumerate(_scanned_parts(op, length))
        ]
        return np.stack(found, axis=-1) if found else error
    size = finite_size(data.value)
    reach, gamma = size + error, reduce_gamma(length, format)
    with np.errstate(all="ignore"):
        bound = scanned("add", reach - size)
        most = _largest_partial(scanned("add", reach), value, bound)
        if likely:
            bound, gamma = np.sqrt(scanned("add", np.square(error))), reduce_gamma(length, format, True)
        bound = np.where(most > LARGEST.get(str(format), np.inf), np.inf, bound + gamma * most)
        if not is_float(format):  # integers wrap, in any order to the same
            bound = np.where(scanned("max", error) <= 0, 0.0, bound)
        return settled(value, bound + length * SMALLEST.get(str(format), 0.0))


def scatter_error(
    sums: Sums, data: Numbers, value: AnyArray, format: Attribute, likely: bool = False
) -> tuple[FloatArray, float]:
    """As `reduce_error`, of each sum of what is scattered; and the relative error of the steps of the longest."""
    error = np.broadcast_to(error_of(data), data.value.shape)
    size = finite_size(data.value)
    reach, counts = size + error, sums.of(np.ones(data.value.shape))
    count = int(counts.max(initial=0))
    if not is_float(format):  # integers wrap, in any order to the same
        return settled(value, np.where(sums.of(error) == 0, 0.0, np.inf)), 0.0
    with np.errstate(all="ignore"):
        bound = sums.of(reach - size)
        most = _largest_partial(sums.of(reach), value, bound)
        if likely:
            bound = np.sqrt(sums.of(np.square(error)))
        steps = (np.sqrt(counts) if likely else counts) * np.log1p(UNIT[str(format)])
        bound = np.where(most > LARGEST[str(format)], np.inf, bound + np.expm1(steps) * most)
        return settled(value, bound + counts * SMALLEST[str(format)]), reduce_gamma(count, format, likely)


def _scanned_parts(op: diagram.ScanOp, length: int) -> Iterator[slice]:
    """The elements that each result of a scan is made of."""
    for i in range(length):
        own = 0 if op.is_exclusive else 1
        yield slice(i + 1 - own, length) if op.is_reverse else slice(0, i + own)


def _product_error(data: Numbers, dimensions: tuple[int, ...], format: Attribute, gamma: float) -> FloatArray:
    """Partial products, in any order, may leave the range although the product does not: the largest is that of all
    elements above 1, the smallest that of all below. What is lost below the smallest number, later elements enlarge.
    Integers wrap, so the product of exact ones is exact, and of others anything."""
    error = error_of(data)
    if not is_float(format):
        return np.where(error.any(axis=dimensions), np.inf, 0.0)
    name, count, size = str(format), prod(data.value.shape[i] for i in dimensions), finite_size(data.value)
    wild, zero = ~np.isfinite(data.value), (data.value == 0) & (error == 0)
    reach, low = size + error, np.where(wild | zero, 1.0, np.clip(size - error, 0.0, 1.0))
    whole, most = np.prod(reach, axis=dimensions), np.prod(np.maximum(reach, 1.0), axis=dimensions)
    least, smallest = np.prod(low, axis=dimensions), SMALLEST.get(name, 0.0)
    is_wild, is_zero = wild.any(axis=dimensions), zero.any(axis=dimensions)
    enlarged = np.where((least < smallest / UNIT[name]) & ~is_zero, most, 1.0)
    bound = whole - np.prod(size, axis=dimensions) + gamma * whole + count * smallest * enlarged
    vanishes = is_wild & (least < smallest)  # zero times infinity
    overflows = ~is_wild & (most > LARGEST.get(name, np.finfo(np.float64).max))
    return np.where(vanishes | overflows | np.isinf(error).any(axis=dimensions), np.inf, bound)


def combine_error(
    kind: str, init: Numbers, result: Numbers, value: AnyArray, format: Attribute, gamma: float
) -> FloatArray:
    """A reduction or contraction that starts from `init`: each of its steps (`gamma`, together) rounds a
    partial result that `init` is a part of."""
    operation = {
        "add": arith.AddfOp,
        "mul": arith.MulfOp,
        "max": arith.MaximumfOp,
        "min": arith.MinimumfOp,
    }[kind]
    with np.errstate(all="ignore"):
        error = SPREAD[operation](NO_OPERATION, (init, result), value)
        if kind in ("max", "min"):
            return settled(value, error)
        start = np.abs(init.value if kind == "add" else value) + error_of(init)
        error = error + gamma * np.where(np.isfinite(start), start, 0.0)
        return rounded(value, error, format)
