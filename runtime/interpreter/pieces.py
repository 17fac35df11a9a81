"""A large function run piece by piece: what is weaved over an axis does to each piece what it does to the whole.

The reason is time. numpy makes an array for every step, and asks the system for each large one: at sizes of 10^7
elements most of the time goes there. Pieces that fit a cache take a fourth of it, and little memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod

import numpy as np
from xdsl.dialects import func
from xdsl.interpreter import PythonValues
from xdsl.ir import Attribute, Block, SSAValue

from treadle.compiler.counting import counted
from treadle.dialects import diagram
from treadle.dialects.diagram.array import is_array, sizes_of
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.runtime.interpreter.arrays import Array, Numbers, array_of
from treadle.runtime.interpreter.scope import Scope

LARGE = 2**18
"""Elements of the largest array of a piece: 2 MB in float64."""
REPEATED = 1.3
"""Pieces may make so many times the elements of the whole: an array that lacks an axis is made for each piece of it."""

Pieces = Mapping[str, slice]


def run_in_pieces(
    function: func.FuncOp, scope: Scope, values: PythonValues, run: Callable[[PythonValues], PythonValues]
) -> PythonValues:
    """The results of a function in its scope; `run` runs its body, for each piece if it is large."""
    cuts = _cuts(function, scope)
    if not cuts:
        return run(values)
    results: list[Array] = []
    for pieces in counted(list(_pieces(cuts, scope)), "pieces"):
        with scope.within(pieces):
            made = run(tuple(_cut(value, pieces) for value in values))
        arrays = [array_of(each) for each in made]
        results = results or [_whole(array, scope) for array in arrays]
        for result, array in zip(results, arrays, strict=True):
            _put(result, array, pieces)
    return tuple(results)


def _cuts(function: func.FuncOp, scope: Scope) -> dict[str, int]:
    """The size of a piece of each axis that is cut: outer axes first, as far as a piece is too large."""
    block = function.body.block
    shapes = [_shape(value.type, scope) for value in _values(block) if is_array(value.type)]
    cuts: dict[str, int] = {}
    if max(map(prod, (shape.values() for shape in shapes)), default=0) <= LARGE:
        return cuts
    for axis in _weaved(block):
        largest = max(_elements(shape, cuts) for shape in shapes)
        count = min(scope.whole.get(axis, 0), -(-largest // LARGE))
        while count > 1:
            cut = {**cuts, axis: -(-scope.whole[axis] // count)}
            if _made(shapes, cut, scope) <= REPEATED * _made(shapes, {}, scope):
                cuts = cut
                break
            count //= 2
    return cuts


def _weaved(block: Block) -> list[str]:
    """Axes that every result has and over which all that happens is weaved, outermost first."""
    terminator = block.last_op
    if not isinstance(terminator, func.ReturnOp) or not terminator.operands:
        return []
    first, *others = ([*sizes_of(value.type)] for value in terminator.operands)
    fixed: set[str] = set()
    for op in block.ops:
        match op:
            case diagram.ContractOp() | diagram.ReduceOp() | diagram.ApplyOp() | diagram.RecurrenceOp():
                fixed |= set(op.over_axes)
            case diagram.ScanOp():
                fixed.add(op.axis.data)
            case diagram.ReadOp() | diagram.ScatterOp():  # a piece of what is read is no piece of what it is read from
                fixed |= {axis for value in (*op.operands, op.result) for axis in sizes_of(value.type)}
            case diagram.CollapseOp() | diagram.ExpandOp():
                fixed |= {op.whole, *op.parts}
            case DiagramOperation() | func.ReturnOp():
                pass
            case _ if any(is_array(value.type) for value in (*op.operands, *op.results)) or op.regions:
                return []
            case _:
                pass
    return [axis for axis in first if axis not in fixed and all(axis in other for other in others)]


def _values(block: Block) -> Iterator[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def _shape(type: Attribute, scope: Scope) -> dict[str, int]:
    return {axis: scope.whole.get(axis, size) for axis, size in sizes_of(type).items()}


def _elements(shape: Mapping[str, int], cuts: Mapping[str, int]) -> int:
    return prod(min(size, cuts.get(axis, size)) for axis, size in shape.items())


def _made(shapes: Sequence[Mapping[str, int]], cuts: Mapping[str, int], scope: Scope) -> int:
    """Elements of all arrays, each for every piece."""
    count = prod(-(-scope.whole[axis] // piece) for axis, piece in cuts.items())
    return count * sum(_elements(shape, cuts) for shape in shapes)


def _pieces(cuts: Mapping[str, int], scope: Scope) -> Iterator[Pieces]:
    for pieces in product(*(scope.split(axis, size) for axis, size in cuts.items())):
        yield dict(zip(cuts, pieces, strict=True))


def _index(axes: Sequence[str], pieces: Pieces) -> tuple[slice, ...]:
    return tuple(pieces.get(axis, slice(None)) for axis in axes)


def _cut(value: Array | Numbers, pieces: Pieces) -> Array | Numbers:
    if isinstance(value, Numbers):
        return value
    return Array(value.axes, value.numbers.reshaped(lambda data: data[_index(value.axes, pieces)]))


def _whole(array: Array, scope: Scope) -> Array:
    """Room for a result of which this is a piece; absent elements are filled with zeros."""
    shape = tuple(scope.whole.get(axis, size) for axis, size in array.sizes.items())
    error = None if array.numbers.error is None else np.zeros(shape)
    return Array(array.axes, Numbers(np.zeros(shape, array.numbers.value.dtype), error))


def _put(result: Array, array: Array, pieces: Pieces) -> None:
    index, numbers = _index(array.axes, pieces), array.numbers.filled(0)
    result.numbers.value[index] = numbers.value
    if result.numbers.error is not None and numbers.error is not None:
        result.numbers.error[index] = numbers.error
