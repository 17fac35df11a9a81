"""Axes along which a map spreads the elements of a product that lacks them: a number for each head, or a bias for each
of them, beside scores that all heads share.

All that is made of such a product has one more axis. A group that holds this whole makes the product once, and holds
everything behind it as often as the axis is long; one that is cut along it makes the product again. The columns of a
later product (of `P V`, whose `P` is made of `Q K^T`) are nothing of the kind: no element is held for each of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import SSAValue

from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import axes_of
from treadle.passes._parts import Part, Reducing


def spread_axes(part: Part) -> tuple[str, ...]:
    """The axes of elements that are made of those of a product, one by one, which has them not."""
    made: set[SSAValue] = set()
    found: dict[str, None] = {}
    for op in part.ops:
        if isinstance(op, ContractOp):
            made.add(op.result)
        elif not isinstance(op, Reducing) and (elements := [value for value in op.operands if value in made]):
            (result,) = op.results
            made.add(result)
            found |= dict.fromkeys(
                axis for axis in axes_of(result.type) if any(axis not in axes_of(each.type) for each in elements)
            )
    return tuple(found)


def made_for_each(part: Part) -> set[str]:
    """The axes of factors that a part makes, which their products do not sum: there is a product for each index."""
    products = [op for op in part.ops if isinstance(op, ContractOp)]
    made = [(op, value) for op in products for value in op.operands if value.owner in part.ops]
    return {axis for op, value in made for axis in axes_of(value.type) if axis not in op.over_axes}


def subsets(axes: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """None of some axes, each alone, and all: what is tried of them, the fewest first. Of three or more, what lies
    between is not: kernels are timed for each."""
    yield ()
    yield from ((axis,) for axis in axes)
    if len(axes) > 1:
        yield tuple(axes)
