"""Two axes that a product sums over, as one that is fed in pieces of the inner one: where one axis lies apart from the
other in memory, a group would else be fed along one of them, and leave a product for each index of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from xdsl.dialects import func
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import CastOp, ContractOp, ExpandOp, MapOp, ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.condition import Both, Condition, Linear, quotient, remainder, resolved, spelled
from treadle.dialects.diagram.formats import FORMAT_BYTES
from treadle.passes._functions import derived_hint, erase_unused, label, note, replace, stated_sizes
from treadle.passes.axes.joins import inner_of, join
from treadle.passes.axes.lengths import too_many
from treadle.passes.expressions.conditions import inputs_of
from treadle.passes.expressions.conditions import spelled as spelled_condition
from treadle.passes.products.kept import LAW as KEPT
from treadle.passes.products.kept import KeptProduct, along_pieces, kept_product, with_ranges

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
    cut, least = (both, 1) if kept is None else (product.over_axes, 2)  # a factor may lack the outer axis
    pieces = {axis: piece for axis in cut if (piece := _piece(sizes[axis], bytes, least))}
    if len(both) < 2 or not pieces:
        return None
    fastest = [axes_of(operand.type)[-1] for operand in (product.lhs, product.rhs)]
    inner = max(pieces, key=lambda axis: (axis in fastest, sizes[axis]))
    outer = max((axis for axis in both if axis != inner), key=lambda axis: _length(axis, sizes, likely))
    if pieces[inner] == sizes[inner] and product is op:
        return None  # a group holds it whole as it is
    if too_many([likely.get(outer, sizes[outer]), sizes[inner] // pieces[inner]]) is not None:
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
    return not is_array(value.type) or isinstance(op, Block | ContractOp | ReduceOp)


def _has_both(value: SSAValue, axes: set[str]) -> bool:
    """Whether an array that is read piece by piece has both axes."""
    if isinstance(op := value.owner, MapOp | CastOp):
        return any(_has_both(operand, axes) for operand in op.operands)
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
    pieces = _Pieces.of(depth, op, op)
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
    op, product, where = depth.sum.owner, kept.product, with_ranges(function, kept, rewrite)
    assert isinstance(op, ReduceOp)
    pieces = _Pieces.of(depth, op, product)
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


@dataclass
class _Pieces:
    """The axes in the place of two, and the arrays that have them."""

    op: Operation
    """What they are read for, before which that stands."""
    sizes: Mapping[str, int]
    """Of the axes of both factors."""
    outer: str
    inner: str
    count: int
    """Pieces of the inner axis."""
    piece: int
    number: str
    """The axis that counts the pieces of the inner one."""
    within: str
    """The axis of the elements of a piece."""
    whole: str
    """The axis of all pieces, of every index of the outer one."""
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @classmethod
    def of(cls, depth: Depth, op: Operation, product: ContractOp) -> _Pieces:
        outer, inner = depth.axes
        sizes = sizes_of(product.rhs.type) | sizes_of(product.lhs.type)
        taken = _axes_near(op)
        names = [f"{inner}_piece", f"{inner}_within", f"{outer}_{inner}"]
        number, within, whole = (next(f"{n}{'_' * i}" for i in count() if f"{n}{'_' * i}" not in taken) for n in names)
        size = sizes[inner]
        return cls(op, sizes, outer, inner, size // depth.piece, depth.piece, number, within, whole)

    def read(self, value: SSAValue) -> SSAValue:
        """An array of these axes in the place of the two."""
        if not {self.outer, self.inner} & {*(axes_of(value.type) if is_array(value.type) else ())}:
            return value
        if value not in self.made:
            made = self._computed(value.owner) if isinstance(value.owner, MapOp | CastOp) else self._read(value)
            self.made[value] = made
        return self.made[value]

    def keep(self, where: WhereOp, factor: SSAValue) -> SSAValue:
        """What a condition keeps of a factor with these axes."""
        asked = {
            value: self._read(value) if self.outer in (axes_of(value.type) if is_array(value.type) else ()) else value
            for value in where.inputs
        }
        holds, within = (self._restated(each, asked) for each in (where.holds, where.may_hold))
        names = inputs_of(Both((holds, within)))
        texts = spelled_condition(holds, names), None if where.within is None else spelled_condition(within, names)
        text, told = texts
        used = inputs_of(holds) if told is None else names
        given = {names[value]: value for value in used}
        return self._put(WhereOp(factor, text, given, within=told), where.result, "rows")

    def _restated(self, condition: Condition, asked: Mapping[SSAValue, SSAValue]) -> Condition:
        along = along_pieces(condition, self.outer, self.whole, self.count)
        return resolved(along, lambda term: asked.get(term) if isinstance(term, SSAValue) else None)

    def _computed(self, op: MapOp | CastOp) -> SSAValue:
        operands = [self.read(operand) for operand in op.operands]
        copy = op.clone(dict(zip(op.operands, operands, strict=True)))
        Rewriter.insert_op(copy, InsertPoint.before(self.op))
        copy.results[0].name_hint = derived_hint(op.results[0], "depth")
        return Rewriter.replace_value_with_new_type(copy.results[0], self._type(op.results[0].type))

    def _read(self, value: SSAValue) -> SSAValue:
        apart = value
        if self.inner in axes_of(value.type):
            view = ExpandOp(value, self.inner, [self.number, self.within], self._expanded(value))
            apart = self._put(view, value, "pieces")
        places = {
            self.outer: Linear({quotient(self.whole, self.count): 1}),
            self.number: remainder(self.whole, self.count),
        }
        forms = [places.get(axis, Linear({axis: 1})) for axis in axes_of(apart.type)]
        place = ", ".join(map(spelled, forms))
        return self._put(ReadOp(apart, place, self._type(apart.type), padded=True), value, "depth")

    def _put(self, op: Operation, read: SSAValue, what: str) -> SSAValue:
        op.location = self.op.location
        Rewriter.insert_op(op, InsertPoint.before(self.op))
        op.results[0].name_hint = derived_hint(read, what)
        return op.results[0]

    def _expanded(self, value: SSAValue) -> Attribute:
        found = dict[str, int]()
        for axis, size in sizes_of(value.type).items():
            found |= {self.number: self.count, self.within: self.piece} if axis == self.inner else {axis: size}
        return array_type(format_of(value.type), found)

    def _type(self, type: Attribute) -> Attribute:
        """Of what is read: of an array of the two axes, one of them, or the first of them and what the other became."""
        sizes = self.sizes
        length = DYNAMIC if sizes[self.outer] == DYNAMIC else sizes[self.outer] * self.count
        found = dict[str, int]()
        for axis, size in sizes_of(type).items():
            if axis in (self.outer, self.inner, self.number):
                found[self.whole] = length
            if axis == self.inner:
                found[self.within] = self.piece
            if axis not in (self.outer, self.inner, self.number):
                found[axis] = size
        return array_type(format_of(type), found)


def _axes_near(op: Operation) -> set[str]:
    block = op.parent
    assert isinstance(block, Block)
    values = [*block.args, *(result for each in block.ops for result in each.results)]
    return {axis for value in values if is_array(value.type) for axis in axes_of(value.type)}


__all__ = ["Depth", "depths_in", "merge_depth", "of_unknown_sizes", "summed"]
