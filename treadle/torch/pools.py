# pyright: standard
"""The largest elements of windows (`max_pool1d`, `max_pool2d`), where nobody asks where they are."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as combinations
from math import prod
from operator import getitem
from typing import Any, cast

import torch
from torch.fx import Graph

from treadle.language import functions as tl
from treadle.torch.registry import FORMATS, aten, typed
from treadle.torch.tensors import Body, Tensor, Unsupported
from treadle.torch.windows import MOST_PLACES, Place, Window, ends_outside, of_each, read_windows, windows_along

MOST_READINGS = 3
"""Of each element. Windows of 3 x 3 by steps of 2 have 2.25: behind a `relu` of 32 x 64 x 112 x 112 in f16 that takes
39 us on an H100, by the model, and 33 and a reading of 51 MB apart. With padding, what is before is saved first, and
the two take 73 us."""


@torch.library.custom_op("treadle::max_of_windows", mutates_args=())
def max_of_windows(
    x: torch.Tensor,
    width: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    to_the_end: bool,
) -> torch.Tensor:
    """The values of `max_pool2d`."""
    return aten.max_pool2d_with_indices(x, width, stride, padding, dilation, to_the_end)[0]


@max_of_windows.register_fake
def _(x: Any, width: Any, stride: Any, padding: Any, dilation: Any, to_the_end: bool) -> torch.Tensor:
    return aten.max_pool2d_with_indices(x, width, stride, padding, dilation, to_the_end)[0]


@typed(torch.ops.treadle.max_of_windows.default)
def largest(
    body: Body,
    x: Tensor,
    width: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    to_the_end: bool,
    *,
    made: torch.dtype,
) -> Tensor:
    """NaN is larger than any other element, as in PyTorch (Unsupported)."""
    if made not in FORMATS:
        raise Unsupported(f"the largest of windows in {made}")
    along = _windows(width, stride, padding, dilation)
    if to_the_end and any(map(ends_outside, along, x.shape[-2:])):
        raise Unsupported("windows that go past the end")
    dims = windows_along(body, x, along)
    found: Tensor | None = None
    for inside in combinations(*(range(w.width) for w in along)):
        starts = [i * w.dilation - w.padding for i, w in zip(inside, along, strict=True)]
        places = [Place(start, ((m, w.stride),)) for start, m, w in zip(starts, dims, along, strict=True)]
        part = read_windows(body, x, places, dims)
        found = part if found is None else body.map(tl.maximum, found, part)
    assert found is not None
    return found


def _windows(
    width: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    *_: Any,
) -> list[Window]:
    given = (of_each(each, 2) for each in (width, stride or width, padding, dilation))
    return [Window(*each) for each in zip(*given, strict=True)]


def _is_fast(along: Sequence[Window]) -> bool:
    """Whether kernels are, that read each element of a window by itself."""
    read = prod(w.width for w in along)
    return not any(w.padding for w in along) and read <= min(MOST_PLACES, MOST_READINGS * prod(w.stride for w in along))


def ask_for_values_alone(graph: Graph) -> None:
    """Where nobody reads where the largest elements are, and windows are some that kernels read fast."""
    for node in graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices.default):
        users = [*node.users]
        if not users or any(user.target is not getitem or user.args[1] != 0 for user in users):
            continue
        if not _is_fast(_windows(*cast("tuple[Any, ...]", node.args[1:]))):
            continue
        given = [*node.args, *_rest(len(node.args))]
        for user in users:
            with graph.inserting_before(user):
                made = graph.call_function(torch.ops.treadle.max_of_windows.default, tuple(given))
            made.meta.update(user.meta)
            user.replace_all_uses_with(made)
            graph.erase_node(user)
        graph.erase_node(node)


def _rest(given: int) -> list[Any]:
    """What is not said: windows side by side, no padding, no gaps."""
    return [[], [0, 0], [1, 1], False][given - 2 :]


__all__ = ["ask_for_values_alone"]
