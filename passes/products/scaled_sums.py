"""Sums of products that are scaled, each by a number of its own: `sum over e of G[t, e] * contract(X, W[e])`.

A sum takes its scale into each of its pieces. So a product along `k` of which the sum over `e` is wanted is one over
pieces of `k`, and the sum goes over both axes at once: a step multiplies one piece, and adds it up with its scale."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import arith, func
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import ContractOp, ExpandOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.passes._functions import derived_hint, erase_unused, replace, stated_sizes
from treadle.passes.axes.lengths import stated_length, too_many
from treadle.passes.axes.names import axes_in, unused
from treadle.passes.expressions.scalars import Expression, Leaf, Node, expression_of, is_plain, leaves

PIECE = 128
"""Elements along the sum of a product that are multiplied at once: as many as tensor cores take while what comes of
them is scaled, with room beside them. Of 64 the scaling takes longer, and 256 leave smaller tiles."""


@dataclass(frozen=True)
class ScaledSum:
    """A sum along one axis of a product that a map scales."""

    sum: ReduceOp
    map: MapOp
    product: ContractOp
    outer: str
    inner: str
    """The axis of the product, which is cut in pieces."""

    @property
    def axes(self) -> tuple[str, str]:
        """What is summed: by the sum, and by the product."""
        return self.outer, self.inner


def scaled_sums_in(function: func.FuncOp) -> list[ScaledSum]:
    """Those of a function that one stream of pieces could make."""
    likely = stated_sizes(function)
    return [found for op in function.body.block.ops if (found := _scaled_sum(op, likely)) is not None]


def _scaled_sum(op: Operation, likely: Mapping[str, int]) -> ScaledSum | None:
    if not isinstance(op, ReduceOp) or op.kind.data != "add" or op.init is not None or len(op.over_axes) != 1:
        return None
    map, (outer,) = op.operand.owner, op.over_axes
    if not isinstance(map, MapOp) or not is_plain(map) or not op.operand.has_one_use():
        return None
    products = [each.owner for each in map.inputs if isinstance(each.owner, ContractOp) and outer in axes_of(each.type)]
    product = products[0] if len(products) == 1 else None
    if product is None or product.init is not None or len(product.over_axes) != 1:
        return None
    (inner,) = product.over_axes
    sizes = sizes_of(product.rhs.type) | sizes_of(product.lhs.type)
    is_long = sizes[inner] > PIECE and sizes[inner] % PIECE == 0
    lengths = [stated_length(outer, sizes, likely), sizes[inner] // PIECE]
    if not is_long or sizes[outer] == 1 or too_many(lengths) is not None or not product.result.has_one_use():
        return None
    sums = {product.accumulate, format_of(product.result.type), format_of(map.result.type), format_of(op.result.type)}
    is_whole = not absences_of([op.operand, product.lhs, product.rhs])
    if len(sums) > 1 or not is_whole or not _scales(expression_of(map), product.result):
        return None
    return ScaledSum(op, map, product, outer, inner)


def _scales(expression: Expression, value: SSAValue) -> bool:
    """Whether an expression is a value times, or divided by, what knows nothing of it."""
    if isinstance(expression, Leaf):
        return expression.value is value
    if not isinstance(expression, Node) or expression.kind not in (arith.MulfOp, arith.DivfOp, arith.NegfOp):
        return False
    knowing = [each for each in expression.operands if value in [leaf.value for leaf in leaves(each)]]
    if len(knowing) != 1 or (expression.kind is arith.DivfOp and knowing[0] is not expression.operands[0]):
        return False
    return _scales(knowing[0], value)


def sum_pieces(function: func.FuncOp, each: ScaledSum) -> tuple[str, str]:
    """Cut the product in pieces, and let the sum go over them, too. The two axes that it has then."""
    op, product = each.sum, each.product
    taken = axes_in(function.body.block)
    number, within = (unused(f"{each.inner}_{what}", taken) for what in ("piece", "within"))
    pieces = sizes_of(product.lhs.type)[each.inner] // PIECE

    def put(new: Operation, near: SSAValue, what: str) -> SSAValue:
        new.location = op.location
        Rewriter.insert_op(new, InsertPoint.before(op))
        new.results[0].name_hint = derived_hint(near, what)
        return new.results[0]

    def cut(value: SSAValue) -> SSAValue:
        sizes = dict[str, int]()
        for axis, size in sizes_of(value.type).items():
            sizes |= {number: pieces, within: PIECE} if axis == each.inner else {axis: size}
        type = array_type(format_of(value.type), sizes)
        return put(ExpandOp(value, each.inner, [number, within], type), value, "pieces")

    multiply = None if product.multiply is None else product.multiply.data
    type = _beside(product.result.type, each.outer, number, pieces)
    parts = ContractOp(cut(product.lhs), cut(product.rhs), [within], type, product.accumulate, None, multiply)
    made = put(parts, product.result, "pieces")
    scaled = each.map.clone({product.result: made})
    Rewriter.replace_value_with_new_type(scaled.result, _beside(each.map.result.type, each.outer, number, pieces))
    new = ReduceOp("add", put(scaled, each.map.result, "pieces"), [each.outer, number], op.result.type)
    new.location = op.location
    before = op.operand
    replace(op, [new], new.result)
    erase_unused([before])
    return each.outer, number


def _beside(type: Attribute, outer: str, number: str, pieces: int) -> Attribute:
    """Of an array with an axis of pieces within another one."""
    sizes = dict[str, int]()
    for axis, size in sizes_of(type).items():
        sizes |= {axis: size, number: pieces} if axis == outer else {axis: size}
    return array_type(format_of(type), sizes)


__all__ = ["ScaledSum", "scaled_sums_in", "sum_pieces"]
