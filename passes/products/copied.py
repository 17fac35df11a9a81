"""Operands of a product in an order in which what it sums lies side by side: a kernel copies them, so that the product
is fed one axis. What is read by position, as patches of an image are, lies in such an order only once it is copied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CollapseOp, ContractOp, ReadOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.passes._functions import derived_hint, erase_unused, label, note, replace, stated_sizes
from treadle.passes.axes.joins import join
from treadle.passes.axes.lengths import stated_length, too_many
from treadle.passes.axes.merge import merged, name_of
from treadle.passes.expressions.scalars import Leaf, build_map
from treadle.passes.products.depths import summed

LAW = "order of axes"

Axes = tuple[str, ...]
Sides = tuple[bool, bool]
"""Which of both operands of a product."""

NEITHER, LEFT, RIGHT, BOTH = (False, False), (True, False), (False, True), (True, True)


@dataclass(frozen=True)
class Copying:
    """A product, or the sum of one, and what of it would be copied into which order."""

    sum: SSAValue
    order: Axes
    """The axes that both operands have and that are summed, as the copies have them, their innermost ones."""
    sides: Sides
    """Which are copied."""
    names: Axes
    """What the program calls these."""


@dataclass(frozen=True)
class Ways:
    """A product whose operands have axes that it sums apart, and what may be copied: one operand into the order of the
    other, or both."""

    product: ContractOp
    copyings: list[Copying]

    def copied(self, copying: Copying) -> list[SSAValue]:
        """What one of these copies."""
        return _of((self.product.lhs, self.product.rhs), copying.sides)


def ways_in(function: func.FuncOp) -> list[Ways]:
    """For each product of a function, or sum of one, of which something may be copied."""
    found = ((op, *summed(op)) for op in function.body.block.ops)
    likely = stated_sizes(function)
    ways = (
        Ways(product, _copyings(op.results[0], product, over, likely))
        for op, product, over in found
        if product is not None and len(over) > 1 and not absences_of(product.operands)
    )
    return [each for each in ways if each.copyings]


def _copyings(sum: SSAValue, product: ContractOp, over: Sequence[str], likely: Mapping[str, int]) -> list[Copying]:
    """Those that leave fewer axes apart than there are; both operands only where one does not do as well."""
    factors = (product.lhs, product.rhs)
    orders = dict.fromkeys(tuple(axis for axis in axes_of(factor.type) if axis in over) for factor in factors)

    def fewer(sides: Sides, than: int) -> list[tuple[int, Copying]]:
        names = tuple(factor.name_hint or "" for factor in _of(factors, sides))
        found = [(_runs(factors, sides, order), Copying(sum, order, sides, names)) for order in orders]
        return [(len(runs), each) for runs, each in found if len(runs) < than and _may_be_one(factors, runs, likely)]

    now = min(len(_runs(factors, NEITHER, order)) for order in orders)
    alone = [*fewer(LEFT, now), *fewer(RIGHT, now)]
    least = min((runs for runs, _ in alone), default=now)
    return [each for _, each in (*alone, *fewer(BOTH, least))]


def _of(factors: Sequence[SSAValue], sides: Sides) -> list[SSAValue]:
    """The operands that are copied."""
    return [factor for factor, is_copied in zip(factors, sides, strict=True) if is_copied]


def _runs(factors: Sequence[SSAValue], sides: Sides, order: Sequence[str]) -> list[list[str]]:
    """The axes of `order`, those together that would lie side by side in both factors."""
    left = [factor for factor in factors if factor not in _of(factors, sides)]
    runs: list[list[str]] = []
    for axis in order:
        if runs and all(_is_next(factor, runs[-1][-1], axis) for factor in left):
            runs[-1].append(axis)
        else:
            runs.append([axis])
    return runs


def _is_next(factor: SSAValue, first: str, second: str) -> bool:
    """Whether one axis lies right within another one in memory: what is read by position lies anywhere."""
    axes = axes_of(factor.type)
    return not isinstance(factor.owner, ReadOp) and axes.index(second) == axes.index(first) + 1


def _may_be_one(factors: Sequence[SSAValue], runs: Sequence[Sequence[str]], likely: Mapping[str, int]) -> bool:
    """Whether each of these would be no axis longer than there may be, at the sizes that the program states, too."""
    sizes = sizes_of(factors[0].type)
    return all(too_many(stated_length(axis, sizes, likely) for axis in run) is None for run in runs)


def copy_operands(function: func.FuncOp, copying: Copying, rewrite: str, why: str) -> None:
    """Copy operands of a sum, and let it go over one axis in the place of those that lie side by side then."""
    op = copying.sum.owner
    if isinstance(op, ReduceOp):
        op = join(function, op, rewrite)
    assert isinstance(op, ContractOp)
    before = (op.lhs, op.rhs)
    copied = _of(before, copying.sides)
    runs = [run for run in _runs(before, copying.sides, copying.order) if len(run) > 1]
    factors = [_copied(op, each, copying.order) if each in copied else each for each in before]
    over = list(op.over_axes)
    for run in runs:
        whole = name_of(run, function.body.block)
        factors = [_flat(op, factor, run, whole) for factor in factors]
        over = [whole if axis == run[0] else axis for axis in over if axis not in run[1:]]
    multiply = None if op.multiply is None else op.multiply.data
    new = ContractOp(factors[0], factors[1], over, op.result.type, op.accumulate, None, multiply)
    new.location = op.location
    subject = f"{' and '.join(map(label, copied))} of {label(op.result)} as [.., {', '.join(copying.order)}]"
    replace(op, [new], new.result)
    erase_unused(before)
    note(function, rewrite, subject, LAW, why)


def _copied(op: ContractOp, factor: SSAValue, order: Axes) -> SSAValue:
    """What is summed innermost, and the rest as the product has it, so that rows of it lie side by side, too."""
    sizes, result = sizes_of(factor.type), axes_of(op.result.type)
    rest = [axis for axis in result if axis in sizes and axis not in order]
    alone = [axis for axis in sizes if axis not in (*rest, *order)]
    type = array_type(format_of(factor.type), {axis: sizes[axis] for axis in (*rest, *alone, *order)})
    copy = build_map(Leaf(factor), type, derived_hint(factor, "copy"), op.location)
    Rewriter.insert_op(copy, InsertPoint.before(op))
    return copy.result


def _flat(op: ContractOp, factor: SSAValue, axes: Sequence[str], whole: str) -> SSAValue:
    view = CollapseOp(factor, axes, whole, merged(factor.type, axes, whole))
    view.location = op.location
    Rewriter.insert_op(view, InsertPoint.before(op))
    view.result.name_hint = derived_hint(factor, "flat")
    return view.result


__all__ = ["Copying", "Ways", "copy_operands", "ways_in"]
