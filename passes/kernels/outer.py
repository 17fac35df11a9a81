"""Arrays whose elements meet as those of factors do in a product, whatever is made of each pair: `max over k of
A[m, k] + B[k, n]`, or `sum over k of |A[m, k] - B[n, k]|`."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import is_array, sizes_of


def is_met_by_others(value: SSAValue, stream: str | None) -> bool:
    """Whether steps of a stream make, of all elements of an array, those of larger ones of which no array that they
    load has all axes: each element is one of many rows and columns."""
    return stream in several_in(value) and all(
        isinstance(use.operation, MapOp) and bool(outer_axes_of(use.operation, stream)) for use in value.uses
    )


def outer_axes(operations: Iterable[Operation], stream: str | None) -> frozenset[str]:
    """The axes along which elements meet so: of each, some of the arrays lack it and some do not."""
    return frozenset(axis for op in operations if isinstance(op, MapOp) for axis in outer_axes_of(op, stream))


def outer_axes_of(op: MapOp, stream: str | None) -> frozenset[str]:
    """Those of a map of what a stream brings; none if some array has all axes of the result, nor if another map takes
    that, for which a lane would hold it all."""
    if any(isinstance(use.operation, MapOp | CastOp) for use in op.result.uses):
        return frozenset()
    every = several_in(op.result)
    met = [axes for operand in op.inputs if stream in (axes := several_in(operand))]
    if stream not in every or len(met) < 2 or any(every <= axes for axes in met):
        return frozenset()
    return frozenset(axis for axis in every if 0 < sum(axis in axes for axes in met) < len(met))


def several_in(value: SSAValue) -> frozenset[str]:
    """The axes along which an array has several elements."""
    sizes = sizes_of(value.type) if is_array(value.type) else {}
    return frozenset(axis for axis, size in sizes.items() if size != 1)


__all__ = ["is_met_by_others", "outer_axes", "several_in"]
