# pyright: standard
"""PyTorch's operations in the language of diagrams, one function each: over axes, products, other dimensions, and what
is made of nothing. Those of one element at a time are in `treadle.torch.elementwise`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from treadle.language import functions as tl
from treadle.language.array import Array, average_of_all
from treadle.torch import (
    added,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    concatenation,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    eight_bits,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    elsewhere,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    grouped_products,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    lookups,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    masked,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    parts,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    placed,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    pools,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    random,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    scans,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    ways,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    windows,  # noqa: F401  # pyright: ignore[reportUnusedImport]
)
from treadle.torch import (  # they register operations
    at_blocks as _at_blocks,  # noqa: F401  # pyright: ignore[reportUnusedImport]
)
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.elementwise import converted, in_format, is_whole, to_copy, truth
from treadle.torch.extremes import EXTREME_PLACE, TOP_PLACES, TOP_VALUES
from treadle.torch.registry import (
    FORMATS,
    aten,
    computed,
    free,
    source,
    typed,
)
from treadle.torch.symbols import Size
from treadle.torch.tensors import Body, Tensor, Unsupported, told

# -- over axes -----------------------------------------------------------------------------------


@typed(aten.sum.dim_IntList)
def sum_over(
    body: Body, tensor: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None, *, made: torch.dtype
) -> Tensor:
    if made == torch.bool or not (made.is_floating_point or is_whole(tensor)):
        raise Unsupported(f"a conversion of {tensor.dtype} to {made}")
    tensor = _asked(body, tensor, dtype)
    return body.reduce(tensor, dims, keep, lambda a, over: a.sum(over))


def _asked(body: Body, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """In the format that a sum is asked for, which PyTorch converts to before it adds."""
    return to_copy(body, tensor, dtype) if dtype in FORMATS else tensor


@typed(aten.prod.default)
def product_of_all(body: Body, tensor: Tensor, dtype: Any = None, *, made: torch.dtype) -> Tensor:
    return _product(body, tensor, None, False, dtype, made)


@typed(aten.prod.dim_int)
def product_over(
    body: Body, tensor: Tensor, dim: int, keep: bool = False, dtype: Any = None, *, made: torch.dtype
) -> Tensor:
    return _product(body, tensor, [dim], keep, dtype, made)


def _product(body: Body, tensor: Tensor, dims: Any, keep: bool, dtype: Any, made: torch.dtype) -> Tensor:
    if not made.is_floating_point:
        raise Unsupported("a product of integers, which may need 64 bits")
    return body.reduce(converted(body, _asked(body, tensor, dtype), torch.float32), dims, keep, tl.prod)


@computed(aten.amax.default, aten.max.default)
def amax(body: Body, tensor: Tensor, dims: Any = (), keep: bool = False) -> Tensor:
    return body.reduce(tensor, dims, keep, lambda a, over: a.max(over))


@computed(aten.amin.default, aten.min.default)
def amin(body: Body, tensor: Tensor, dims: Any = (), keep: bool = False) -> Tensor:
    return body.reduce(tensor, dims, keep, lambda a, over: a.min(over))


@computed(aten.any.default, aten.any.dims)
def any_of(body: Body, tensor: Tensor, dims: Any = None, keep: bool = False) -> Tensor:
    if dims is not None and not dims:
        raise Unsupported("any over no dimensions")
    return amax(body, truth(body, tensor), dims, keep)


@computed(aten.any.dim)
def any_along(body: Body, tensor: Tensor, dim: int, keep: bool = False) -> Tensor:
    return amax(body, truth(body, tensor), [dim], keep)


@computed(aten.mean.dim)
def mean(body: Body, tensor: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> Tensor:
    return body.reduce(_asked(body, tensor, dtype), dims, keep, average_of_all)


@computed(aten.mean.default)
def mean_all(body: Body, tensor: Tensor, dtype: Any = None) -> Tensor:
    return mean(body, tensor, dtype=dtype)


@computed(aten._safe_softmax.default)
def safe_softmax(body: Body, tensor: Tensor, dim: int, *_: Any) -> Tensor:
    return body.along(tensor, dim, _safe_softmax)


@computed(aten._softmax.default)
def softmax(body: Body, tensor: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    return body.along(tensor, dim, _softmax)


@computed(aten._log_softmax.default)
def log_softmax(body: Body, tensor: Tensor, dim: int, *_: Any) -> Tensor:
    return body.along(tensor, dim, _log_softmax)


@computed(torch.ops.treadle.masked_softmax.default)
def masked_softmax(body: Body, scores: Tensor, mask: Tensor) -> Tensor:
    dims = body.broadcast([scores, mask])
    if not leaves(dims[-1]):
        raise Unsupported("softmax over an axis of size 1")
    if body.graph is None:
        return body.tensor(dims)
    if mask.text is None:
        raise Unsupported(
            "the mask is computed from numbers: conditions speak of positions and of masks that are given"
        )
    whole = body.whole(body.tensor(dims, scores.array))
    kept = tl.keep(whole, mask.text, **mask.named)
    return body.along(body.tensor(dims, kept), -1, _safe_softmax)


@computed(torch.ops.treadle.at_blocks.default)
def at_blocks(body: Body, table: Tensor, blocks: Sequence[int], sizes: Sequence[Any]) -> Tensor:
    """A read at quotients, which conditions can name as they can name the table."""
    made = iter(body.new_dims([size for size, block in zip(sizes, blocks, strict=True) if block > 1]))
    dims = tuple(next(made) if block > 1 else axes for axes, block in zip(table.dims, blocks, strict=True))
    divided = [(old, new, block) for old, new, block in zip(table.dims, dims, blocks, strict=True) if block > 1]
    for old, new, _ in divided:
        body.keep_whole(old)
        body.keep_whole(new)
    if body.graph is None:
        return body.tensor(dims)
    array = body.whole(table)
    at = {body.names[leaves(old)[0]]: f"{body.names[leaves(new)[0]]} // {block}" for old, new, block in divided}
    names = [body.names[axis] for axes in dims for axis in leaves(axes)]
    read = Array(body.graph, body.graph.read(array.value, [at.get(name, name) for name in array.axes], names, True))
    tensor = body.tensor(dims, read)
    if table.text is None or table.dtype not in (torch.bool, torch.int32):
        return tensor
    return told(tensor, read, "_".join([*table.named, *map(str, blocks)]), table.dtype)


def _softmax(array: Array, over: Sequence[str]) -> Array:
    """A law is over one axis. A dimension may have several, which other operations split it into, or none: it is what
    the law says then, too."""
    if len(over) == 1:
        return array.softmax(over[0])
    powers = tl.exp(array - array.max(over))
    return powers / powers.sum(over)


def _safe_softmax(array: Array, over: Sequence[str]) -> Array:
    """Zeros where a row is nothing but -inf."""
    return tl.where(array.max(over).equals(float("-inf")), 0.0, _softmax(array, over))


def _log_softmax(array: Array, over: Sequence[str]) -> Array:
    if len(over) == 1:
        return Array(array.graph, array.graph.apply("log_softmax", [array.value], over, array.axes))
    below = array - array.max(over)
    return below - tl.log(tl.exp(below).sum(over))


# -- products ------------------------------------------------------------------------------------


@computed(aten.mm.default, aten.bmm.default)
def product(body: Body, left: Tensor, right: Tensor, *, format: str | None = None) -> Tensor:
    """[.., m, k] x [.., k, n], in the format of the operands (Unsupported where they have two)."""
    *batch, m, k = left.dims
    *same, other, n = right.dims
    if None not in (left.dtype, right.dtype) and left.dtype != right.dtype:
        raise Unsupported(f"a product of {left.dtype} by {right.dtype}, which PyTorch refuses")
    body.unify(_flat(batch), _flat(same))
    body.unify(k, other)
    return body.contract(left, right, (*batch, m, n), k, format)


@computed(aten.addmm.default)
def addmm(
    body: Body, bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, format: Any = None
) -> Tensor:
    def scaled(a: Any, factor: Any) -> Any:
        return a if factor == 1 else a * factor

    made = product(body, left, right, format=format)
    if beta == 0:  # then nothing of the bias counts, not even what is no number
        return body.map(lambda a: scaled(a, alpha), made)
    return body.map(lambda a, b: scaled(a, alpha) + scaled(b, beta), made, bias)


@computed(aten.baddbmm.default)
def baddbmm(
    body: Body, bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, format: Any = None
) -> Tensor:
    return addmm(body, bias, left, right, beta=beta, alpha=alpha, format=format)


PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
"""These take `format`, that of their operands."""

CONTRACTIONS = {
    *(*PRODUCTS, aten.convolution.default),
    *(aten._int_mm.default, aten._scaled_mm.default, aten._weight_int8pack_mm.default),
    aten._grouped_mm.default,
}
"""What multiplies matrices, at last."""

REDUCTIONS = {
    *CONTRACTIONS,
    *(aten.avg_pool2d.default, aten.avg_pool3d.default),
    *(aten.sum.dim_IntList, aten.mean.dim, aten.mean.default, aten.prod.default, aten.prod.dim_int),
    *(aten.amax.default, aten.amin.default, aten.max.default, aten.min.default),
    *(aten.argmax.default, aten.argmin.default, TOP_VALUES, TOP_PLACES, EXTREME_PLACE),
    torch.ops.treadle.masked_softmax.default,
    *(aten._softmax.default, aten._safe_softmax.default, aten._log_softmax.default),
}
"""Worth a kernel even alone."""


def _flat(dims: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    return tuple(axis for axes in dims for axis in axes)


# -- the same elements ---------------------------------------------------------------------------


@free(aten.view.default, aten.reshape.default)
def view(body: Body, tensor: Tensor, shape: Sequence[Any]) -> Tensor:
    total = _size(tensor.shape)
    known = _size([size for size in shape if size != -1])
    return body.view(tensor, [total // known if size == -1 else size for size in shape])


@free(aten.permute.default)
def permute(body: Body, tensor: Tensor, order: Sequence[int]) -> Tensor:
    return body.rearranged(tensor, [tensor.dims[i] for i in order])


@free(aten.unsqueeze.default)
def unsqueeze(body: Body, tensor: Tensor, dim: int) -> Tensor:
    dims = list(tensor.dims)
    dims.insert(dim % (len(dims) + 1), ())
    return body.rearranged(tensor, dims)


@free(aten.squeeze.dims)
def squeeze(body: Body, tensor: Tensor, dims: Sequence[int]) -> Tensor:
    gone = {tensor.place(dim) for dim in dims if not tensor.along(dim)}
    return body.rearranged(tensor, [axes for i, axes in enumerate(tensor.dims) if i not in gone])


@free(aten.expand.default)
def expand(body: Body, tensor: Tensor, shape: Sequence[Any], **_: Any) -> Tensor:
    known: Dims = ((),) * (len(shape) - len(tensor.dims)) + tensor.dims
    pairs = list(zip(known, shape, strict=True))
    grows = [not leaves(axes) and size not in (1, -1) for axes, size in pairs]  # to no elements, too
    made = iter(body.new_dims([size for (_, size), new in zip(pairs, grows, strict=True) if new]))
    return body.rearranged(tensor, [next(made) if new else axes for (axes, _), new in zip(pairs, grows, strict=True)])


@free(aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default)
def same(body: Body, tensor: Tensor, **_: Any) -> Tensor:
    return tensor


# -- of nothing ----------------------------------------------------------------------------------


@source(aten.full.default)
def full(body: Body, shape: Sequence[int], number: Any, *, made: torch.dtype, **_: Any) -> Tensor:
    return body.tensor(body.new_dims(shape), _number(body, number, made))


@source(aten.full_like.default)
def full_like(body: Body, tensor: Tensor, number: Any, *, made: torch.dtype, **_: Any) -> Tensor:
    return body.tensor(tensor.dims, _number(body, number, made))


@source(aten.scalar_tensor.default)
def scalar_tensor(body: Body, number: Any, *, made: torch.dtype, **_: Any) -> Tensor:
    return body.tensor((), _number(body, number, made))


@source(aten.arange.start_step)
def arange(body: Body, start: Any, end: Any, step: Any = 1, *, made: torch.dtype, **_: Any) -> Tensor:
    if not all(isinstance(each, int | Size) for each in (start, end, step)):
        raise Unsupported("arange of fractions")
    if made.is_floating_point and made not in FORMATS:
        raise Unsupported(f"arange in {made}")
    size = end - start if step == 1 and end > start else len(range(int(start), int(end), int(step)))
    positions = body.positions(size)
    if start != 0 or step != 1:
        positions = body.map(lambda a, first: a * step + first, positions, start)
    return body.map(lambda a: a.to(FORMATS[made]), positions) if made.is_floating_point else positions


def _number(body: Body, number: Any, dtype: torch.dtype) -> Array | float | None:
    """As a tensor of that format holds it; truth values are 1 and 0."""
    if isinstance(number, Size) and dtype != torch.bool and (dtype in FORMATS or not dtype.is_floating_point):
        if body.graph is None:
            return None
        held = body.number(number)
        return held.to(FORMATS[dtype]).to("f32") if dtype in FORMATS else held
    if dtype == torch.bool:
        return int(bool(number))
    if not dtype.is_floating_point:
        return int(number)
    return in_format(number, dtype) if dtype in FORMATS else float(number)


def _size(shape: Sequence[Any]) -> Any:
    total: Any = 1
    for size in shape:
        total *= size
    return total


__all__ = ["CONTRACTIONS", "PRODUCTS", "REDUCTIONS"]
