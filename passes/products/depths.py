"""Two axes that a product sums over, as one that is fed in pieces of the inner one: where one axis lies apart from the
other in memory, a group would else be fed along one of them, and leave a product for each index of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.formats import FORMAT_BYTES
from treadle.passes._functions import erase_unused, label, note, replace, stated_sizes
from treadle.passes.axes.joins import inner_of, join
from treadle.passes.axes.lengths import stated_length, too_many
from treadle.passes.products.kept import LAW as KEPT
from treadle.passes.products.kept import KeptProduct, axes_of_condition, conditions_on, has_both_ends, kept_product
from treadle.passes.products.pieces import Pieces

LAW = "a sum over pieces of an axis, of sums over each"

LINES = (128, 64, 32)
"""Bytes of a row of a piece, the best first: what tensor copies and swizzled tiles take, or the half of it, or that."""


@dataclass(frozen=True)
class Depth:
    """What is summed: a product, or the sum of a product, along an outer and an inner axis."""

    sum: SSAValue
    outer: str
    inner: str
    piece: int
    """Elements of the inner axis that are multiplied at once."""

    @property
    def axes(self) -> tuple[str, str]:
        """The two axes."""
        return self.outer, self.inner


def depths_in(function: func.FuncOp) -> list[Depth]:
    """The products of a function that sum over two axes, one of which can be cut in pieces, alone or by a sum of
    them."""
    likely = stated_sizes(function)
    return [found for op in function.body.block.ops if (found := _depth_of(op, likely)) is not None]


def of_unknown_sizes(function: func.FuncOp) -> list[tuple[str, ...]]:
    """The axes of products that sum over several, of none of which the size is known."""
    found = ((op, *summed(op)) for op in function.body.block.ops)
    return [
        tuple(axes)
        for op, product, axes in found
        if product is not None and product is op and len(axes) > 1 and _is_unknown(product.lhs, axes)
    ]


def _is_unknown(factor: SSAValue, axes: Sequence[str]) -> bool:
    return {sizes_of(factor.type)[axis] for axis in axes} == {DYNAMIC}


def _depth_of(op: Operation, likely: Mapping[str, int]) -> Depth | None:
    kept = kept_product(op)
    product, both = summed(op) if kept is None else (kept.product, kept.axes)
    if product is None or not all(map(_can_be_read, (product.lhs, product.rhs))):
        return None
    sizes = sizes_of(product.rhs.type) | sizes_of(product.lhs.type)
    bytes = FORMAT_BYTES[str(format_of(product.lhs.type))]
    conditions = [each for factor in (product.lhs, product.rhs) for each in conditions_on(factor)]
    asked = {axis for each in conditions for axis in axes_of_condition(each)}
    cut = [axis for axis in (both if kept is None else product.over_axes) if axis not in asked]
    least = 2 if kept is not None or conditions else 1  # a factor may lack the outer axis
    pieces = {axis: piece for axis in cut if (piece := _piece(sizes[axis], bytes, least))}
    if len(both) < 2 or not pieces:
        return None
    fastest = [axes_of(operand.type)[-1] for operand in (product.lhs, product.rhs)]
    inner = max(pieces, key=lambda axis: (axis in fastest, sizes[axis]))
    outer = max((axis for axis in both if axis != inner), key=lambda axis: _length(axis, sizes, likely))
    if not all(has_both_ends(each, outer) for each in conditions):
        return None  # every group would search for what it is fed
    if pieces[inner] == sizes[inner] and product is op:
        return None  # a group holds it whole as it is
    if too_many([stated_length(outer, sizes, likely), sizes[inner] // pieces[inner]]) is not None:
        return None
    if sizes[outer] == DYNAMIC and not any(_has_both(factor, {outer, inner}) for factor in (product.lhs, product.rhs)):
        return None  # nothing would tell how many pieces there are
    return Depth(op.results[0], outer, inner, pieces[inner])


def summed(op: Operation) -> tuple[ContractOp | None, list[str]]:
    """The product that an operation is, or sums, and the axes of both factors along which."""
    product, over = _product_of(op)
    if product is None:
        return None, []
    left, right = sizes_of(product.lhs.type), sizes_of(product.rhs.type)
    return product, [axis for axis in over if axis in left and axis in right and 1 not in (left[axis], right[axis])]


def _product_of(op: Operation) -> tuple[ContractOp | None, Sequence[str]]:
    """The product that an operation is, or sums, and along which axes."""
    if isinstance(op, ReduceOp) and op.init is None and isinstance(inner := inner_of(op), ContractOp):
        return inner, [*op.over_axes, *inner.over_axes]
    if not isinstance(op, ContractOp) or op.init is not None:
        return None, ()
    is_summed = any(inner_of(use.operation) is op for use in op.result.uses)
    return (None, ()) if is_summed else (op, op.over_axes)


def _can_be_read(value: SSAValue) -> bool:
    """Whether an array is one that can be read piece by piece, or made of such element by element."""
    if isinstance(op := value.owner, MapOp | CastOp):
        return all(_can_be_read(operand) for operand in op.operands)
    if isinstance(op, WhereOp):
        return _can_be_read(op.operand)
    return not is_array(value.type) or isinstance(op, Block | ContractOp | ReduceOp)


def _has_both(value: SSAValue, axes: set[str]) -> bool:
    """Whether an array that is read piece by piece has both axes."""
    if isinstance(op := value.owner, MapOp | CastOp):
        return any(_has_both(operand, axes) for operand in op.operands)
    if isinstance(op, WhereOp):
        return _has_both(op.operand, axes)
    return is_array(value.type) and axes <= {*axes_of(value.type)}


def _piece(size: int, bytes: int, least: int) -> int | None:
    """Of which there are so many at least."""
    fits = (line // bytes for line in LINES if size >= least * (line // bytes) and size % (line // bytes) == 0)
    return next(fits, None)


def _length(axis: str, sizes: Mapping[str, int], likely: Mapping[str, int]) -> int:
    return sizes[axis] if sizes[axis] != DYNAMIC else likely.get(axis, UNKNOWN_SIZE)


def merge_depth(function: func.FuncOp, depth: Depth, rewrite: str, why: str) -> None:
    """One axis, and the elements of a piece, in the place of two axes that a sum goes over."""
    op = depth.sum.owner
    assert isinstance(op, Operation)
    if (kept := kept_product(op)) is not None:
        _merge_kept(function, depth, kept, rewrite, why)
        return
    if isinstance(op, ReduceOp):
        op = join(function, op, rewrite)
    assert isinstance(op, ContractOp)
    if depth.piece == sizes_of(op.lhs.type)[depth.inner]:
        return
    pieces = Pieces.of(function, rewrite, depth.axes, depth.piece, op, op)
    factors = [pieces.read(operand) for operand in (op.lhs, op.rhs)]
    over = [pieces.whole, pieces.within, *(axis for axis in op.over_axes if axis not in depth.axes)]
    multiply = None if op.multiply is None else op.multiply.data
    new = ContractOp(factors[0], factors[1], over, op.result.type, op.accumulate, None, multiply)
    new.location = op.location
    subject = f"[{', '.join(depth.axes)}] of {label(op.result)} as [{pieces.whole}, {pieces.within}]"
    before = (op.lhs, op.rhs)
    replace(op, [new], new.result)
    erase_unused(before)
    note(function, rewrite, subject, LAW, why)


def _merge_kept(function: func.FuncOp, depth: Depth, kept: KeptProduct, rewrite: str, why: str) -> None:
    """The same of a sum of products of which a condition leaves some: of a factor of which it leaves some rows, others
    at each index of the outer axis."""
    op, product, where = depth.sum.owner, kept.product, kept.where
    assert isinstance(op, ReduceOp)
    pieces = Pieces.of(function, rewrite, depth.axes, depth.piece, op, product)
    factors = sorted((product.lhs, product.rhs), key=lambda each: depth.outer not in axes_of(each.type))
    read = {each: pieces.read(each) for each in factors}  # first what tells at launch how many pieces there are
    left, right = read[product.lhs], read[product.rhs]
    left, right = (pieces.keep(where, left), right) if kept.left else (left, pieces.keep(where, right))
    multiply = None if product.multiply is None else product.multiply.data
    over = [pieces.whole, pieces.within]
    new = ContractOp(left, right, over, op.result.type, product.accumulate, None, multiply)
    new.location = op.location
    subject = f"[{', '.join(depth.axes)}] of {label(op.result)} as [{pieces.whole}, {pieces.within}]"
    before = op.operand
    replace(op, [new], new.result)
    erase_unused([before])
    note(function, rewrite, label(new.result), KEPT)
    note(function, rewrite, subject, LAW, why)


__all__ = ["Depth", "depths_in", "merge_depth", "of_unknown_sizes", "summed"]
