"""What front ends write beside structured operations, as structured operations: softmax, moved tensors, and casts that
an operation implies.

`tensor.expand_shape`, `collapse_shape` where all but one dimension have size 1, `extract_slice` and `cast` only say
where an element of their result stands in their operand: as a `linalg.generic` that copies, with that place as indexing
map, they become reads of a diagram, which move nothing. Of a slice that begins a dimension and does not go to its end,
an indexing map says too little: `Parts` does."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, func, linalg, math, tensor
from xdsl.dialects.builtin import (
    AffineMapAttr,
    ArrayAttr,
    FloatAttr,
    IndexType,
    IntegerAttr,
    TensorType,
    f64,
    i32,
    i64,
)
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineConstantExpr, AffineDimExpr, AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.upstream.bodies import Function, body_of, converted
from treadle.compiler.upstream.softmax import SoftmaxOp
from treadle.dialects.diagram.array import DYNAMIC, FORMATS, Number, format_of, shape_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes.linalg.loops import groups_of, split_merged_loops
from treadle.passes.linalg.narrowing import narrow
from treadle.passes.linalg.structured import STRUCTURED, Stays, check_constant, constant_of

MOVES = (tensor.ExpandShapeOp, tensor.CollapseShapeOp, tensor.ExtractSliceOp, tensor.CastOp)

CASTABLE = (*FORMATS, f64, i64)
"""Formats of scalars that a fill casts; i1 is not among them, whose true is -1 to a signed cast."""


Parts: TypeAlias = dict[Operation, frozenset[int]]
"""For a `linalg.generic` the dimensions of its first operand along which its loops do not go to the end."""


def as_generic(function: func.FuncOp) -> Parts:
    """Rewrite in place every softmax, every fill whose scalar has another format, what is computed in 64 bits and need
    not be, loops along merged dimensions, and every such move that feeds or follows a structured operation."""
    for op in [op for op in function.walk() if isinstance(op, SoftmaxOp)]:
        _decompose(op)
    for op in [op for op in function.body.block.ops if isinstance(op, linalg.ops.FillOp) and op.results]:
        _cast_fill(op)
    narrow(function)
    split_merged_loops(function)
    parts: Parts = {}
    waiting = True
    while waiting:
        waiting = False
        for op in [op for op in function.body.block.ops if isinstance(op, MOVES)]:
            if _is_among_structured(op) and (place := _place(op)) is not None:
                cut = _cut(op) if isinstance(op, tensor.ExtractSliceOp) else frozenset[int]()
                parts[_copy(op, place)] = cut
                waiting = True
    return parts


def _cast_fill(op: linalg.ops.FillOp) -> None:
    """Upstream's fill casts its scalar to the format of the elements. A number is cast here, so that what starts from
    it is known; another scalar in the body."""
    (scalar,), (out,), (result,) = op.inputs, op.outputs, op.results
    element = format_of(out.type)
    if scalar.type == element or element not in FORMATS or scalar.type not in CASTABLE:
        return
    maker = _Maker(op)
    if (number := _cast_number(constant_of(scalar), element)) is not None:
        constant = maker.add(arith.ConstantOp(number), scalar.name_hint)
        value = maker.add(linalg.ops.FillOp([constant], [out], [result.type]), result.name_hint)
    else:
        rank = len(shape_of(out.type))
        maps = [AffineMap(rank, 0, ()), AffineMap.identity(rank)]
        body = body_of([scalar, out], lambda a: converted(a[0], element))
        value = maker.generic([scalar], [out], maps, body, frozenset(), result.name_hint)
    result.replace_all_uses_with(value)
    op.detach()
    op.erase()


def _cast_number(number: Number | None, wanted: Attribute) -> Number | None:
    """The number in another format; None where it is beyond what that holds, and the cast has to say what it gives."""
    if number is None:
        return None
    value = number.value.data
    if wanted == i32:
        fits = isfinite(value) and -(2**31) <= int(value) < 2**31
        return IntegerAttr(int(value), i32) if fits else None
    known = number_format(wanted)
    if abs(value) > known.largest and (isfinite(value) or known.saturates):
        return None
    return FloatAttr(float(value), wanted)  # pyright: ignore[reportArgumentType, reportCallIssue]


def _is_among_structured(op: Operation) -> bool:
    source, (result,) = op.operands[0], op.results
    try:
        check_constant(source)
    except Stays:
        return False
    near = [source.owner, *(use.operation for use in result.uses)]
    return format_of(result.type) in FORMATS and any(isinstance(each, STRUCTURED) for each in near)


def _place(op: Operation) -> AffineMap | None:
    """Where in the operand each element of the result stands; None where that is not affine, or not known here."""
    shape = shape_of(op.results[0].type)
    match op:
        case tensor.CastOp():
            return AffineMap.identity(len(shape))
        case tensor.ExpandShapeOp():
            groups = groups_of(op)
            if any(shape[dim] == DYNAMIC for group in groups for dim in group[1:]):
                return None
            return AffineMap(len(shape), 0, tuple(_flat(group, shape) for group in groups))
        case tensor.CollapseShapeOp():
            kept = _kept_dimensions(op)
            if kept is None:
                return None
            places = {dim: i for i, dim in enumerate(kept)}
            rank = len(shape_of(op.src.type))
            return AffineMap(len(shape), 0, tuple(_at(places.get(dim)) for dim in range(rank)))
        case tensor.ExtractSliceOp():
            offsets, strides = op.static_offsets.get_values(), op.static_strides.get_values()
            if DYNAMIC in (*offsets, *strides) or min((*offsets, *strides), default=0) < 0:
                return None
            sizes = op.static_sizes.get_values()
            if any(sizes[dim] == DYNAMIC for dim in _cut(op)):
                return None  # a number that the program computes: no axis of a diagram has such a size
            return _slice(offsets, sizes, strides, shape)
        case _:
            return None


def _kept_dimensions(op: tensor.CollapseShapeOp) -> list[int | None] | None:
    """For each dimension of the result the one of the operand that it is, the others being of size 1 (None where all
    are); None altogether where several are merged."""
    shape = shape_of(op.src.type)
    kept = [[dim for dim in group if shape[dim] != 1] for group in groups_of(op)]
    if any(len(group) > 1 for group in kept):
        return None
    return [group[0] if group else None for group in kept]


def _at(dim: int | None) -> AffineExpr:
    return AffineConstantExpr(0) if dim is None else AffineDimExpr(dim)


def _cut(op: tensor.ExtractSliceOp) -> frozenset[int]:
    """The dimensions of which a slice does not take all."""
    given = iter(op.sizes)
    sizes = [next(given) if size == DYNAMIC else size for size in op.static_sizes.get_values()]
    moved = zip(op.static_offsets.get_values(), op.static_strides.get_values(), strict=True)
    from_start = [offset == 0 and stride == 1 for offset, stride in moved]
    return frozenset(dim for dim, size in enumerate(sizes) if not (from_start[dim] and _is_size(size, op.source, dim)))


def _is_size(size: SSAValue | int, source: SSAValue, dim: int) -> bool:
    """Whether a number is the size of a dimension, as far as the program says."""
    if not isinstance(size, SSAValue):
        return size == shape_of(source.type)[dim]
    if not isinstance(size.owner, tensor.DimOp) or size.owner.source is not source:
        return False
    index = constant_of(size.owner.index)
    return index is not None and index.value.data == dim


def _flat(group: Sequence[int], shape: Sequence[int]) -> AffineExpr:
    """Along a dimension of size 1, which a front end makes to broadcast, nothing moves."""
    steps = {dim: prod(shape[inner] for inner in group[i + 1 :]) for i, dim in enumerate(group) if shape[dim] != 1}
    terms = [AffineDimExpr(dim) * step if step != 1 else AffineDimExpr(dim) for dim, step in steps.items()]
    place: AffineExpr = terms[0] if terms else AffineConstantExpr(0)
    for term in terms[1:]:
        place = place + term
    return place


def _slice(
    offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int], shape: Sequence[int]
) -> AffineMap | None:
    """A result of fewer dimensions has left out some of size 1: the first ones that fit."""
    places: list[AffineExpr] = []
    dim = 0
    for i, (offset, size, stride) in enumerate(zip(offsets, sizes, strides, strict=True)):
        left = len(sizes) - i
        if size == 1 and left > len(shape) - dim:
            places.append(AffineConstantExpr(offset))
            continue
        place: AffineExpr = AffineDimExpr(dim) if stride == 1 else AffineDimExpr(dim) * stride
        places.append(place + offset if offset else place)
        dim += 1
    return AffineMap(len(shape), 0, tuple(places)) if dim == len(shape) else None


def _copy(op: Operation, place: AffineMap) -> Operation:
    """The `linalg.generic` that takes the place of a move."""
    result = op.results[0]
    sizes = _dynamic_sizes(op)
    maker = _Maker(op)
    empty = maker.add(tensor.EmptyOp(sizes, result.type), "")
    element = format_of(result.type)
    block = Block(arg_types=[element, element])
    block.add_op(linalg.ops.YieldOp(block.args[0]))
    maps = [place, AffineMap.identity(len(shape_of(result.type)))]
    value = maker.generic([op.operands[0]], [empty], maps, Region(block), frozenset(), result.name_hint)
    result.replace_all_uses_with(value)
    op.detach()
    op.erase()
    assert isinstance(value.owner, Operation)
    return value.owner


def _dynamic_sizes(op: Operation) -> list[SSAValue]:
    match op:
        case tensor.ExpandShapeOp():
            return list(op.dynamic_output_shape)
        case tensor.ExtractSliceOp():
            return list(op.sizes)
        case tensor.CollapseShapeOp():
            before = _Maker(op)
            kept = [dim for dim in _kept_dimensions(op) or () if dim is not None]
            return [before.size(op.src, dim) for dim in kept if shape_of(op.src.type)[dim] == DYNAMIC]
        case _:
            shape, before = shape_of(op.results[0].type), _Maker(op)
            return [before.size(op.operands[0], i) for i, size in enumerate(shape) if size == DYNAMIC]


def _decompose(op: SoftmaxOp) -> None:
    """As upstream's own decomposition: maximum, powers of the difference, sum, quotient."""
    maker, dim = _Maker(op), op.dimension.value.data
    shape = shape_of(op.input.type)
    element = format_of(op.input.type)
    rows = [i for i in range(len(shape)) if i != dim]
    row_type = TensorType(element, [shape[i] for i in rows])
    sizes = [maker.size(op.input, i) for i in rows if shape[i] == DYNAMIC]
    row, whole = AffineMap(len(shape), 0, tuple(map(AffineDimExpr, rows))), AffineMap.identity(len(shape))
    over = frozenset({dim})

    def start(number: float) -> SSAValue:
        constant = maker.add(arith.ConstantOp(FloatAttr(number, element)), "")  # pyright: ignore
        empty = maker.add(tensor.EmptyOp(sizes, row_type), "")
        return maker.add(linalg.ops.FillOp([constant], [empty], [row_type]), "")

    top = maker.generic([op.input], [start(float("-inf"))], [whole, row], maker.body(2, element, _larger), over, "m")
    power = maker.body(3, element, lambda a: math.ExpOp(arith.SubfOp(a[0], a[1]).result).result)
    powers = maker.generic([op.input, top], [op.output], [whole, row, whole], power, frozenset(), "e")
    total = maker.body(2, element, lambda a: arith.AddfOp(a[1], a[0]).result)
    sums = maker.generic([powers], [start(0.0)], [whole, row], total, over, "l")
    share = maker.body(3, element, lambda a: arith.DivfOp(a[0], a[1]).result)
    hint = op.result.name_hint
    shares = maker.generic([powers, sums], [op.output], [whole, row, whole], share, frozenset(), hint)
    op.result.replace_all_uses_with(shares)
    op.detach()
    op.erase()


def _larger(a: Sequence[SSAValue]) -> SSAValue:
    return arith.MaximumfOp(a[1], a[0]).result


class _Maker:
    """Makes operations in front of one, with its place in the file."""

    def __init__(self, before: Operation):
        self.before = before

    def add(self, op: Operation, hint: str | None) -> SSAValue:
        Rewriter.insert_op(op, InsertPoint.before(self.before))
        op.location = self.before.location
        op.results[0].name_hint = hint or None
        return op.results[0]

    def size(self, value: SSAValue, dimension: int) -> SSAValue:
        index = self.add(arith.ConstantOp(IntegerAttr(dimension, IndexType())), "")
        return self.add(tensor.DimOp(value, index), "")

    def body(self, count: int, element: Attribute, function: Function) -> Region:
        block = Block(arg_types=[element] * count)
        with ImplicitBuilder(block) as arguments:
            linalg.ops.YieldOp(function(arguments))
        return Region(block)

    def generic(
        self,
        inputs: Sequence[SSAValue],
        outputs: Sequence[SSAValue],
        maps: Sequence[AffineMap],
        body: Region,
        reduced: frozenset[int],
        hint: str | None,
    ) -> SSAValue:
        loops = [
            IteratorTypeAttr.reduction() if loop in reduced else IteratorTypeAttr.parallel()
            for loop in range(maps[0].num_dims)
        ]
        listed = ArrayAttr([AffineMapAttr(each) for each in maps])
        types = [each.type for each in outputs]
        return self.add(linalg.ops.GenericOp(inputs, outputs, body, listed, ArrayAttr(loops), types), hint)
