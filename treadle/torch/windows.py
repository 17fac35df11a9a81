# pyright: standard
"""What looks at an image through windows, each element several times or zeros around it, too: convolutions and means.

A window is a read at affine positions (`diagram.read`): nothing is copied. What goes over the edges finds zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product as combinations
from math import prod
from operator import add
from operator import mul as multiply

import torch

from treadle.language.array import Array
from treadle.passes.kernels.roles import WHOLE_LIMIT
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.registry import FORMATS, aten, typed
from treadle.torch.tensors import Body, Tensor, Unsupported

MOST_PLACES = 9
"""Elements of a window that are read one by one: each takes the registers of an element."""


@dataclass(frozen=True)
class Window:
    """Along one dimension: how many elements, how far from window to window, zeros before and after the dimension, and
    how far from element to element."""

    width: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1

    def number(self, size: int) -> int:
        """Of windows along so many elements."""
        return (size + 2 * self.padding - self.dilation * (self.width - 1) - 1) // self.stride + 1

    @property
    def is_element(self) -> bool:
        """Whether each element is a window."""
        return (self.width, self.stride, self.padding) == (1, 1, 0)


@dataclass(frozen=True)
class Place:
    """Where along one dimension: at positions along others, each step of which is so long, behind a start."""

    start: int
    steps: tuple[tuple[tuple[Axis, ...], int], ...] = ()

    def said(self, names: Mapping[Axis, str]) -> str:
        terms = [f"{step} * {names[axis]}" for axes, first in self.steps for axis, step in _digits(axes, first)]
        return " + ".join([*terms, str(self.start)])

    def leaves_out(self, size: int) -> bool:
        """Whether it goes before the first of so many elements, or past the last."""
        far = [step * (axis.size - 1) for axes, first in self.steps for axis, step in _digits(axes, first)]
        return self.start < 0 or self.start + sum(far) >= size

    def is_along(self, axes: Sequence[Axis]) -> bool:
        """Whether it is each element of a dimension in turn."""
        own = [(leaves(each), step) for each, step in self.steps if leaves(each)]
        return not self.start and own == ([(leaves(axes), 1)] if leaves(axes) else [])


def _digits(axes: Sequence[Axis], step: int) -> list[tuple[Axis, int]]:
    """The axes that a dimension is split into, and how far a step along each goes."""
    found: list[tuple[Axis, int]] = []
    for axis in reversed(leaves(axes)):
        found.append((axis, step))
        step *= int(axis.size)
    return found[::-1]


# -- operations --------------------------------------------------------------------------------------


@typed(aten.convolution.default)
def convolution(
    body: Body,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    *,
    made: torch.dtype,
) -> Tensor:
    """[batch, channels, size..] by [made, channels of a group, window..]"""
    if transposed:
        raise Unsupported("a transposed convolution, whose windows are written, not read")
    if made not in FORMATS:
        raise Unsupported(f"it computes in {made}")
    made_channels, channels, *widths = weight.shape
    rank = len(widths)
    given = (of_each(each, rank) for each in (stride, padding, dilation))
    along = [Window(*each) for each in zip(widths, *given, strict=True)]
    batch, _, *sizes = x.shape
    apart = body.view(x, [batch, groups, channels, *sizes])
    factor = body.view(weight, [groups, made_channels // groups, channels, *widths])
    body.unify(apart.dims[1], factor.dims[0])
    body.unify(apart.dims[2], factor.dims[2])
    how = _element_by_element if channels == 1 else _products
    result = how(body, apart, factor, along, FORMATS[made])
    result = body.rearranged(result, [result.dims[0], (*result.dims[1], *result.dims[2]), *result.dims[3:]])
    if bias is None:
        return result
    body.unify(bias.dims[0], result.dims[1])
    return body.map(lambda a, b: a + b, result, body.rearranged(bias, [bias.dims[0], *((),) * rank]))


def _products(body: Body, x: Tensor, weight: Tensor, along: Sequence[Window], format: str) -> Tensor:
    """Products of matrices, of [batch, group, channels, size..] by [group, made, channels, window..] (Unsupported where
    a kernel would hold too much, or save a sum for each place in a window)."""
    if sum(w.width > 1 for w in along) > 1:
        raise Unsupported("a sum over channels and over windows along two dimensions, which no kernel does at once")
    if x.shape[2] > WHOLE_LIMIT and any(w.width > 1 for w in along):
        raise Unsupported(f"windows of more than {WHOLE_LIMIT} channels, which no group of a kernel holds")
    made = windows_along(body, x, along)
    inside = weight.dims[3:]
    places = [Place(-w.padding, ((m, w.stride), (i, w.dilation))) for w, m, i in zip(along, made, inside, strict=True)]
    read = read_windows(body, _rounded(body, x, format), places, (*made, *inside))
    over = leaves(axis for axes in (x.dims[2], *inside) for axis in axes)
    return body.contract(read, weight, (*x.dims[:2], weight.dims[1], *made), over, format)


def _element_by_element(body: Body, x: Tensor, weight: Tensor, along: Sequence[Window], format: str) -> Tensor:
    """Groups of one channel: tensor cores would multiply a row by a column for each element."""
    x, weight = _rounded(body, x, format), _rounded(body, weight, format)

    def product(part: Tensor, inside: Sequence[int]) -> Tensor:
        nothing = ((),) * len(along)
        factor = read_windows(body, weight, [Place(start) for start in inside], nothing)
        return body.map(multiply, part, body.rearranged(factor, (*weight.dims[:2], *nothing)))

    return _sum_of_places(body, x, along, product)


@typed(aten.avg_pool2d.default, aten.avg_pool3d.default)
def average(
    body: Body,
    x: Tensor,
    width: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    to_the_end: bool = False,
    with_zeros: bool = True,
    divisor: int | None = None,
    *,
    made: torch.dtype,
) -> Tensor:
    if not made.is_floating_point:
        raise Unsupported("means of integers")
    rank = max(len(width), 2)
    widths = of_each(width, rank)
    given = (of_each(each, rank) for each in (stride or widths, padding))
    along = [Window(*each) for each in zip(widths, *given, strict=True)]
    if to_the_end and any(map(ends_outside, along, x.shape[-rank:])):
        raise Unsupported("windows that go past the end")
    if any(w.padding for w in along) and not with_zeros and divisor is None:
        raise Unsupported("means of fewer elements at the edges")
    total = _sum_of_places(body, x, along, lambda part, inside: part)
    return body.map(lambda a: a * (1.0 / (divisor or prod(widths))), total)


def ends_outside(window: Window, size: int) -> bool:
    return (int(size) + 2 * window.padding - window.width) % window.stride != 0


# -- windows -----------------------------------------------------------------------------------------


def windows_along(body: Body, x: Tensor, along: Sequence[Window]) -> Dims:
    """For each of the last dimensions, the one that says which window."""
    first = len(x.dims) - len(along)
    pairs = list(zip(along, x.dims[first:], x.shape[first:], strict=True))
    made = iter(body.new_dims([w.number(int(size)) for w, _, size in pairs if not w.is_element]))
    return tuple(axes if w.is_element else next(made) for w, axes, _ in pairs)


def _sum_of_places(
    body: Body, x: Tensor, along: Sequence[Window], summand: Callable[[Tensor, Sequence[int]], Tensor]
) -> Tensor:
    """The sum over the places in a window, each a read of its own: side by side in a thread, they come from the nearest
    cache, while a sum along an axis would be fed them (Unsupported for too many)."""
    if (count := prod(w.width for w in along)) > MOST_PLACES:
        raise Unsupported(f"windows of {count} elements, each of which would be read by itself")
    made = windows_along(body, x, along)
    summands: list[Tensor] = []
    for inside in combinations(*(range(w.width) for w in along)):
        starts = [i * w.dilation - w.padding for i, w in zip(inside, along, strict=True)]
        places = [Place(start, ((m, w.stride),)) for start, m, w in zip(starts, made, along, strict=True)]
        summands.append(summand(read_windows(body, x, places, made), inside))
    return reduce(lambda a, b: body.map(add, a, b), summands)


def _rounded(body: Body, x: Tensor, format: str) -> Tensor:
    return body.map(lambda a: a.to(format), x)


def read_windows(body: Body, x: Tensor, places: Sequence[Place], dims: Dims) -> Tensor:
    """The last dimensions of a tensor at these places; `dims` are there instead, or behind (Unsupported)."""
    first = len(x.dims) - len(places)
    pairs = [(axes, place) for axes, place in zip(x.dims[first:], places, strict=True) if not place.is_along(axes)]
    for axes, _ in pairs:
        body.keep_whole(axes)
    whole = (*x.dims[:first], *dims)
    if body.graph is None or not pairs:
        return body.tensor(whole, x.array)
    array = body.whole(x)
    at = {body.names[leaves(axes)[0]]: place.said(body.names) for axes, place in pairs}
    names = [body.names[axis] for axes in whole for axis in leaves(axes)]
    padded = any(place.leaves_out(leaves(axes)[0].size) for axes, place in pairs)
    read = body.graph.read(array.value, [at.get(name, name) for name in array.axes], names, padded)
    return body.tensor(whole, Array(body.graph, read))


def of_each(given: Sequence[int], rank: int) -> list[int]:
    """One number may stand for all dimensions."""
    return [*given] * rank if len(given) == 1 else [*given]


__all__ = ["MOST_PLACES", "Place", "Window", "ends_outside", "of_each", "read_windows", "windows_along"]
