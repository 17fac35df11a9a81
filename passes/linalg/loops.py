"""Loops that stand for several dimensions at once, taken apart.

Front ends merge the batch and the heads of an array to have one batch dimension (`tensor.collapse_shape`), multiply,
and split the result again. An axis of a diagram is one dimension, so the loop that goes along merged ones becomes one
for each of them, everything that it goes along is split, and the merging moves behind the operation, until it meets
the splitting and both are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod

from xdsl.dialects import arith, func, linalg, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    IndexType,
    IntegerAttr,
    TensorType,
    i64,
)
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram.array import DYNAMIC, format_of, shape_of
from treadle.passes.linalg.structured import STRUCTURED, Position, Stays, Structured, structured

Split = tuple[int, ...]
"""The sizes that a dimension or a loop is taken apart into, outermost first."""


def split_merged_loops(function: func.FuncOp) -> None:
    """Move every merging of dimensions of known sizes behind what reads it, as far as that can be done."""
    block = function.body.block
    waiting = True
    while waiting:
        merges = [op for op in block.ops if isinstance(op, tensor.CollapseShapeOp)]
        waiting = any(_move(merge) for merge in merges)


def groups_of(op: tensor.CollapseShapeOp | tensor.ExpandShapeOp) -> list[list[int]]:
    return [[number.value.data for number in group] for group in op.reassociation]


def _move(merge: tensor.CollapseShapeOp) -> bool:
    """Whether something was done."""
    splits = _splits(merge)
    done = False
    for use in list(merge.result.uses) if splits else []:
        if _is_undone(merge, use.operation):
            use.operation.results[0].replace_all_uses_with(merge.src)
            use.operation.detach()
            use.operation.erase()
            done = True
        elif isinstance(use.operation, STRUCTURED) and use.operation.parent is merge.parent:
            done |= use.operation.parent is not None and _take_apart(use.operation, merge.result, splits)
    if not merge.result.uses:
        merge.detach()
        merge.erase()
        return True
    return done


def _splits(merge: tensor.CollapseShapeOp) -> dict[int, Split]:
    """For each dimension of the result that is several ones merged, their sizes; empty where one is not known."""
    shape = shape_of(merge.src.type)
    found = {i: tuple(shape[dim] for dim in group) for i, group in enumerate(groups_of(merge)) if len(group) > 1}
    if all(sum(size != 1 for size in sizes) <= 1 for sizes in found.values()):
        return {}  # a read at position 0 of the others
    return {} if any(DYNAMIC in sizes for sizes in found.values()) else found


def _is_undone(merge: tensor.CollapseShapeOp, user: Operation) -> bool:
    return (
        isinstance(user, tensor.ExpandShapeOp)
        and user.result.type == merge.src.type
        and groups_of(user) == groups_of(merge)
    )


def _take_apart(op: Operation, merged: SSAValue, splits: Mapping[int, Split]) -> bool:
    """Whether the loops along the merged dimensions are several now."""
    try:
        of = structured(op)
    except Stays:
        return False
    loops: dict[int, Split] = {}
    for operand, places in zip(of.operands, of.places, strict=True):
        for dim, sizes in splits.items() if operand is merged else ():
            if (loop := places[dim].loop) is None or loops.setdefault(loop, sizes) != sizes:
                return False
    if not _may_split(of, loops):
        return False
    _replace(of, loops)
    return True


def _may_split(of: Structured, loops: Mapping[int, Split]) -> bool:
    """Whether nothing computes with these loops: an operand is read at one as it is, or not along it."""
    for inner in of.body.walk():
        if isinstance(inner, linalg.ops.IndexOp) and inner.dim.value.data in loops:
            return False
    for operand, places in zip(of.operands, of.places, strict=True):
        shape = shape_of(operand.type)
        for size, place in zip(shape, places, strict=True):
            met = [loop for loop, _ in place.terms if loop in loops]
            if met and (place.loop is None or size != prod(loops[place.loop])):
                return False
    return True


def _replace(of: Structured, loops: Mapping[int, Split]) -> None:
    """The operation as a `linalg.generic` with more loops; its results are merged behind it."""
    counts = [len(loops.get(loop, (0,))) for loop in range(of.loops)]
    first = [0, *accumulate(counts)]
    maps, operands = list[AffineMapAttr](), list[SSAValue]()
    splits = list[dict[int, Split]]()
    for operand, places in zip(of.operands, of.places, strict=True):
        along = {dim: place.loop for dim, place in enumerate(places)}
        met = {dim: loops[loop] for dim, loop in along.items() if loop is not None and loop in loops}
        positions = [each for place in places for each in _positions(place, first, counts)]
        maps.append(AffineMapAttr(AffineMap(first[-1], 0, tuple(positions))))
        operands.append(_split(operand, met, of.op))
        splits.append(met)
    kinds = [
        IteratorTypeAttr.reduction() if loop in of.reduced else IteratorTypeAttr.parallel()
        for loop, count in enumerate(counts)
        for _ in range(count)
    ]
    body = of.op.regions[0].clone()
    for inner in body.walk():
        if isinstance(inner, linalg.ops.IndexOp):
            inner.dim = IntegerAttr(first[inner.dim.value.data], i64)
    inputs, outputs = operands[: of.inputs], operands[of.inputs :]
    generic = linalg.ops.GenericOp(inputs, outputs, body, maps, kinds, [each.type for each in outputs])
    _insert(generic, of.op)
    for old, new, met in zip(of.results, generic.results, splits[of.inputs :], strict=True):
        old.replace_all_uses_with(_merged(new, met, old, of.op))
    of.op.detach()
    of.op.erase()


def _positions(place: Position, first: Sequence[int], counts: Sequence[int]) -> list[AffineExpr]:
    if place.loop is not None:
        return [AffineDimExpr(first[place.loop] + i) for i in range(counts[place.loop])]
    position: AffineExpr = AffineConstantExpr(place.constant)
    for loop, factor in place.terms:
        position = position + AffineDimExpr(first[loop]) * factor
    return [position]


# -- values -------------------------------------------------------------------------------------------


def _split(value: SSAValue, splits: Mapping[int, Split], before: Operation) -> SSAValue:
    """The value with more dimensions."""
    owner = value.owner
    if not splits:
        return value
    if isinstance(owner, tensor.CollapseShapeOp) and _splits(owner) == splits:
        return owner.src
    type, groups = _split_type(value, splits)
    if isinstance(owner, tensor.EmptyOp):
        return _insert(tensor.EmptyOp(owner.dynamic_sizes, type), before)
    if isinstance(owner, linalg.ops.FillOp):
        room = _split(owner.outputs[0], splits, before)
        return _insert(linalg.ops.FillOp(owner.inputs, [room], [type]), before)
    sizes = [_size(value, dim, before) for dim, size in enumerate(shape_of(value.type)) if size == DYNAMIC]
    return _insert(tensor.ExpandShapeOp(value, sizes, groups, shape_of(type), type), before)


def _merged(value: SSAValue, splits: Mapping[int, Split], like: SSAValue, before: Operation) -> SSAValue:
    if not splits:
        return value
    _, groups = _split_type(like, splits)
    merge = tensor.CollapseShapeOp(operands=[value], result_types=[like.type], properties={"reassociation": groups})
    _insert(merge, before).name_hint = like.name_hint
    return merge.result


def _split_type(value: SSAValue, splits: Mapping[int, Split]) -> tuple[TensorType, ArrayAttr[ArrayAttr[IntegerAttr]]]:
    """The type with more dimensions, and which of them each one becomes."""
    parts = [splits.get(dim, (size,)) for dim, size in enumerate(shape_of(value.type))]
    ends = list(accumulate(map(len, parts)))
    groups = [range(end - len(part), end) for part, end in zip(parts, ends, strict=True)]
    listed = ArrayAttr(ArrayAttr(IntegerAttr(dim, i64) for dim in group) for group in groups)
    return TensorType(format_of(value.type), [size for part in parts for size in part]), listed


def _size(value: SSAValue, dim: int, before: Operation) -> SSAValue:
    index = _insert(arith.ConstantOp(IntegerAttr(dim, IndexType())), before)
    return _insert(tensor.DimOp(value, index), before)


def _insert(op: Operation, before: Operation) -> SSAValue:
    Rewriter.insert_op(op, InsertPoint.before(before))
    op.location = before.location
    return op.results[0]
