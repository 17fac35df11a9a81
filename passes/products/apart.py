"""Free axes of one product as one, though other operations tell them apart: it is given views in which each of its
matrices has its rows along one axis, and what it makes is a view again, between kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, CollapseOp, ContractOp, ExpandOp, MapOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, sizes_of
from treadle.passes._functions import derived_hint, label, note, stated_sizes
from treadle.passes.axes.lengths import stated_length, too_many
from treadle.passes.axes.merge import LAW, merged, name_of

Group = tuple[str, ...]


@dataclass(frozen=True)
class Apart:
    """A product, and its free axes that are to be one, group by group."""

    product: SSAValue
    groups: tuple[Group, ...]

    @property
    def axes(self) -> Group:
        """All of them."""
        return tuple(axis for group in self.groups for axis in group)


def apart_in(block: Block, besides: Iterable[Group] = (), among: Sequence[str] = ()) -> list[Apart]:
    """The products of a function with free axes side by side, but for those that are one everywhere, and only those
    `among`, if any are."""
    elsewhere, function = {axis for group in besides for axis in group}, block.parent_op()
    stated = stated_sizes(function) if isinstance(function, func.FuncOp) else {}
    found = list[Apart]()
    for op in block.ops:
        if not isinstance(op, ContractOp) or op.init is not None:
            continue
        free = [each for side in (0, 1) for each in _free_groups(op, side, stated) if elsewhere.isdisjoint(each)]
        if groups := [each for each in free if not among or {*each} <= {*among}]:
            found.append(Apart(op.result, tuple(groups)))
    return found


def _converted(op: Operation) -> list[Operation]:
    """An operation, and the conversions that alone use it, in their order."""
    users = [use.operation for use in op.results[0].uses]
    return [op, *(_converted(users[0]) if len(users) == 1 and isinstance(users[0], CastOp) else ())]


def _is_of_a_product(value: SSAValue) -> bool:
    """Whether it is a product, or made of one and of arguments element by element: of shares, say, which wait for sums,
    another product is often the same stream."""
    products, left = False, [value]
    while left:
        op = left.pop().owner
        if isinstance(op, MapOp | CastOp):
            left += op.operands
        elif not isinstance(op, Block | ContractOp):
            return False
        products |= isinstance(op, ContractOp)
    return products


def _free_groups(op: ContractOp, side: int, stated: Mapping[str, int]) -> list[Group]:
    """Axes that one factor has side by side, the other one lacks, and the product has in that order, as it is and
    converted."""
    factor, other = op.operands[side], op.operands[1 - side]
    if not isinstance(factor.owner, Block | ReduceOp | CollapseOp | ExpandOp) and not _is_of_a_product(factor):
        return []  # a view of what a kernel makes would keep apart what makes it
    made = [set(pairwise(axes_of(each.results[0].type))) for each in _converted(op)]
    beside = set[tuple[str, str]].intersection(*made)
    groups: list[list[str]] = []
    for axis in axes_of(factor.type):
        if axis in axes_of(other.type) or axis in op.over_axes:
            groups.append([])
        elif groups and groups[-1] and (groups[-1][-1], axis) in beside:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    sizes = sizes_of(factor.type)
    return [tuple(each) for each in groups if _may_be_one([stated_length(axis, sizes, stated) for axis in each])]


def _may_be_one(sizes: Sequence[int]) -> bool:
    """Whether several axes of these sizes, beside those of one element, have no more elements than one may."""
    several = len([size for size in sizes if size != 1]) > 1
    return several and too_many(sizes) is None


def merge_apart(function: func.FuncOp, found: Apart, rewrite: str, why: str) -> None:
    """One axis in the place of each group of the free axes of a product, in it and nowhere else."""
    op = found.product.owner
    assert isinstance(op, ContractOp)
    for axes in found.groups:
        whole = name_of(axes, function.body.block)
        for index, factor in enumerate((op.lhs, op.rhs)):
            if axes[0] in axes_of(factor.type):
                op.operands[index] = _collapsed(op, factor, axes, whole)
        subject = f"[{', '.join(axes)}] of {label(op.result)} as {whole}"
        _expand(op, axes, whole)
        note(function, rewrite, subject, LAW, why)


def _collapsed(op: ContractOp, factor: SSAValue, axes: Group, whole: str) -> SSAValue:
    view = CollapseOp(factor, axes, whole, merged(factor.type, axes, whole))
    view.location = op.location
    view.result.name_hint = derived_hint(factor, "flat")
    Rewriter.insert_op(view, InsertPoint.before(op))
    return view.result


def _expand(op: ContractOp, axes: Group, whole: str) -> None:
    """Let what uses a product, as it is or converted, have its axes as they were."""
    chain = _converted(op)
    last = chain[-1].results[0]
    type, uses = last.type, list(last.uses)
    for each in chain:
        Rewriter.replace_value_with_new_type(each.results[0], merged(each.results[0].type, axes, whole))
    last = chain[-1].results[0]
    view = ExpandOp(last, whole, axes, type)
    view.location = op.location
    Rewriter.insert_op(view, InsertPoint.after(chain[-1]))
    for use in uses:
        use.operation.operands[use.index] = view.result
    view.result.name_hint, last.name_hint = last.name_hint, derived_hint(last, "flat")


__all__ = ["Apart", "apart_in", "merge_apart"]
