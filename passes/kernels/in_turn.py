"""Reductions over several axes, done along one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from xdsl.dialects import func
from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE, default_sizes
from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, format_of, sizes_of
from treadle.dialects.diagram.read import with_fitting
from treadle.passes._functions import derived_hint, label, note, replace
from treadle.passes._parts import Reducing, part_of
from treadle.passes.kernels.roles import Refusal, Roles, fed_across, roles_of
from treadle.passes.kernels.sums import Axes, summed_axes


def split_reductions(
    function: func.FuncOp, block: Block, limit: int, rewrite: str, unfit: Callable[[frozenset[Operation]], str | None]
) -> None:
    """A reduction over several axes that no kernel can do at once becomes one reduction after another, the first of
    a contraction the product. The longest axis comes first: then the fewest elements go from one to the next. So does a
    product that would be fed index by index along the axis in which memory runs, and what is `unfit` for the machine as
    one kernel, of which a group would hold too much."""
    likely = with_fitting(block, default_sizes(function))
    for op in list(block.ops):
        if not isinstance(op, Reducing) or op.init is not None or len(op.over_axes) < 2:
            continue
        roles = roles_of(part_of([op]), limit)
        if (
            isinstance(roles, Refusal)
            or (isinstance(op, ContractOp) and fed_across(op, roles, limit))
            or (_holds_some_beside(op, roles) and unfit(frozenset([op])) is not None)
        ):
            made = _reductions(op, likely) if isinstance(op, ReduceOp) else _product_and_reductions(op, likely)
            _put(function, op, made, rewrite)


def _holds_some_beside(op: Reducing, roles: Roles) -> bool:
    """Whether a group holds whole what a reduction goes over, beside another axis of it."""
    wide = [axis for axis in op.over_axes if sizes_of(op.operands[0].type).get(axis, DYNAMIC) != 1]
    return len(wide) > 1 and any(axis in roles.whole for axis in wide)


def split_sums_between(function: func.FuncOp, block: Block, rewrite: str) -> None:
    """A reduction over long axes along some of which other operations sum, and along others not, is done along the
    former first: a kernel that is fed these does that, and what is left is small."""
    reductions = [op for op in block.ops if isinstance(op, ReduceOp) and op.init is None]
    several = [op for op in reductions if len(summed_axes(op)) > 1]
    fed = [axes for op in block.ops if op not in several and (axes := summed_axes(op))]
    for op in several:
        if (first := next((axes & {*op.over_axes} for axes in fed if _parts_of(op, axes)), None)) is not None:
            over = [[axis for axis in op.over_axes if (axis in first) == inside] for inside in (True, False)]
            _put(function, op, _in_turn(op.operand, op.kind.data, over, op.result, op.result.type), rewrite)


def split_products_of_products(function: func.FuncOp, block: Block, rewrite: str) -> None:
    """A sum of products over several axes that a product has from which a factor is made, is done along the longest
    first: a kernel that makes both has one of these axes as columns, and the others in its groups."""
    likely = with_fitting(block, default_sizes(function))
    for op in list(block.ops):
        if isinstance(op, ContractOp) and op.init is None and _is_of_several(op):
            _put(function, op, _product_and_reductions(op, likely), rewrite)


def _is_of_several(op: ContractOp) -> bool:
    wide = {axis for axis in op.over_axes if sizes_of(op.lhs.type).get(axis) != 1}
    made = [product for factor in (op.lhs, op.rhs) for product in _products_in(factor)]
    return any(len(wide & sizes_of(product.result.type).keys()) > 1 for product in made)


def _products_in(value: SSAValue) -> Iterator[ContractOp]:
    """The products of which an array is made element by element."""
    left, seen = [value], set[SSAValue]()
    while left:
        op = left.pop().owner
        if isinstance(op, ContractOp):
            yield op
        elif isinstance(op, MapOp | CastOp | WhereOp) and op.results[0] not in seen:
            seen.add(op.results[0])
            left += op.operands


def _parts_of(op: ReduceOp, axes: Axes) -> bool:
    """Whether a reduction has some of these axes, and long ones beside."""
    return bool(summed_axes(op) & axes) and bool(summed_axes(op) - axes)


def _put(function: func.FuncOp, op: ContractOp | ReduceOp, made: list[Operation], rewrite: str) -> None:
    for each in made:
        each.location = op.location
    made[-1].results[0].name_hint = op.results[0].name_hint
    subject = f"{label(op.result)} one axis after another"
    kind = op.kind.data if isinstance(op, ReduceOp) else "add"
    replace(op, made, made[-1].results[0])
    note(function, rewrite, subject, f"associativity of {kind}")


def _reductions(op: ReduceOp, likely: Mapping[str, int]) -> list[Operation]:
    over = _longest_first(op.over_axes, sizes_of(op.operand.type), likely)
    return _in_turn(op.operand, op.kind.data, [[axis] for axis in over], op.result, op.result.type)


def _product_and_reductions(op: ContractOp, likely: Mapping[str, int]) -> list[Operation]:
    """The product sums over one axis, as if the others were weaved; the sum goes on in the format of its products."""
    left, right = sizes_of(op.lhs.type), sizes_of(op.rhs.type)
    sizes = left | right
    inner = [axis for axis in op.over_axes if axis in left and axis in right] or op.over_axes
    depth = _longest_first(inner, sizes, likely)[0]
    others = _longest_first([axis for axis in op.over_axes if axis != depth], sizes, likely)
    kept = {axis: sizes[axis] for axis in others} | sizes_of(op.result.type)
    product = ContractOp(op.lhs, op.rhs, [depth], array_type(op.accumulate, kept), op.accumulate)
    product.multiply = op.multiply
    product.result.name_hint = derived_hint(op.result, depth)
    total = array_type(op.accumulate, sizes_of(op.result.type))
    made = [product, *_in_turn(product.result, "add", [[axis] for axis in others], op.result, total)]
    return made if total == op.result.type else [*made, CastOp(made[-1].results[0], op.result.type)]


def _in_turn(
    value: SSAValue, kind: str, over: Sequence[Sequence[str]], result: SSAValue, type: Attribute
) -> list[Operation]:
    """A reduction over each of these sets of axes, on the way to `result`; that of the last is of this type."""
    made = list[Operation]()
    for axes in over:
        sizes = {each: size for each, size in sizes_of(value.type).items() if each not in axes}
        step = ReduceOp(kind, value, axes, type if axes is over[-1] else array_type(format_of(type), sizes))
        step.result.name_hint = derived_hint(result, axes[-1])
        made.append(step)
        value = step.result
    return made


def _longest_first(axes: Iterable[str], sizes: Mapping[str, int], likely: Mapping[str, int]) -> list[str]:
    """Of those whose sizes nothing states, the symbolic ones count as long."""

    def length(axis: str) -> int:
        return likely.get(axis, UNKNOWN_SIZE if sizes[axis] == DYNAMIC else sizes[axis])

    return sorted(axes, key=lambda axis: -length(axis))
