# pyright: standard
"""PyTorch's operations in the language of diagrams, one function each.

Each takes the `Body` and the arguments of the node, with a `Tensor` in place of every tensor; Unsupported says why one
stays with PyTorch. The list is ATen as `torch.compile` gives it after decomposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from xdsl.dialects.builtin import f32, i32

from treadle.language import functions as tl
from treadle.language.array import Array, Condition
from treadle.language.graph import FORMATS as NAMED
from treadle.runtime.formats import rounded
from treadle.torch import masked  # noqa: F401  # pyright: ignore[reportUnusedImport]  # it registers the operation
from treadle.torch.axes import Axis, Dims, leaves
from treadle.torch.tensors import Body, Tensor, Unsupported

aten: Any = torch.ops.aten

Handler: TypeAlias = Callable[..., Tensor]

FREE: dict[Any, Handler] = {}
"""The same elements under other dimensions: each user does them again, so that they join nothing."""

SOURCES: dict[Any, Handler] = {}
"""Tensors made of nothing."""

COMPUTED: dict[Any, Handler] = {}
"""Everything else."""

FORMATS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
"""What programs call the number formats."""


def handler_of(target: Any) -> Handler | None:
    return FREE.get(target) or SOURCES.get(target) or COMPUTED.get(target)


# -- one element at a time -----------------------------------------------------------------------


def _map(*targets: Any, function: Callable[..., Any]) -> None:
    for target in targets:
        COMPUTED[target] = lambda body, *operands, _function=function, **_: body.map(_function, *operands)


_map(aten.neg.default, function=lambda a: -a)
_map(aten.abs.default, function=lambda a: abs(a))
_map(aten.exp.default, function=tl.exp)
_map(aten.exp2.default, function=tl.exp2)
_map(aten.log.default, function=tl.log)
_map(aten.log2.default, function=tl.log2)
_map(aten.sqrt.default, function=tl.sqrt)
_map(aten.rsqrt.default, function=tl.rsqrt)
_map(aten.reciprocal.default, function=lambda a: 1.0 / a)
_map(aten.sin.default, function=tl.sin)
_map(aten.cos.default, function=tl.cos)
_map(aten.tanh.default, function=tl.tanh)
_map(aten.erf.default, function=tl.erf)
_map(aten.sigmoid.default, function=tl.sigmoid)
_map(aten.relu.default, function=tl.relu)
_map(aten.silu.default, function=tl.silu)
_map(aten.mul.Tensor, aten.mul.Scalar, function=lambda a, b: a * b)
_map(aten.maximum.default, function=tl.maximum)
_map(aten.minimum.default, function=tl.minimum)


def _say(*targets: Any, symbol: str, function: Callable[..., Any]) -> None:
    """Integers and truth values, of which conditions can speak; truth values are 1 and 0."""

    def handler(body: Body, *operands: Any) -> Tensor:
        return body.said(body.map(function, *operands), symbol, *operands)

    for target in targets:
        COMPUTED[target] = handler


_say(aten.lt.Scalar, aten.lt.Tensor, symbol="<", function=lambda a, b: Condition("olt", "slt", a, b))
_say(aten.le.Scalar, aten.le.Tensor, symbol="<=", function=lambda a, b: Condition("ole", "sle", a, b))
_say(aten.gt.Scalar, aten.gt.Tensor, symbol=">", function=lambda a, b: Condition("ogt", "sgt", a, b))
_say(aten.ge.Scalar, aten.ge.Tensor, symbol=">=", function=lambda a, b: Condition("oge", "sge", a, b))
_say(aten.eq.Scalar, aten.eq.Tensor, symbol="==", function=lambda a, b: Condition("oeq", "eq", a, b))
_say(aten.ne.Scalar, aten.ne.Tensor, symbol="!=", function=lambda a, b: Condition("une", "ne", a, b))


def _logical(target: Any, bitwise: Any, symbol: str, function: Callable[..., Any]) -> None:
    """Of truth values; the logical operation asks other numbers whether they are 0, the bitwise one takes integers
    apart, which programs do not."""

    def of_truths(body: Body, *operands: Any) -> Tensor:
        return body.said(body.map(function, *operands), symbol, *operands)

    def of_bits(body: Body, *operands: Any) -> Tensor:
        if not all(map(_is_truth, operands)):
            raise Unsupported(f"{symbol} of the bits of integers")
        return of_truths(body, *operands)

    COMPUTED[target] = lambda body, *operands: of_truths(body, *(_truth(body, each) for each in operands))
    COMPUTED[bitwise] = of_bits


def _truth(body: Body, operand: Any) -> Any:
    return operand if _is_truth(operand) else COMPUTED[aten.ne.Scalar](body, operand, 0)


def _is_truth(operand: Any) -> bool:
    return isinstance(operand, bool) or (isinstance(operand, Tensor) and operand.dtype == torch.bool)


_logical(aten.logical_and.default, aten.bitwise_and.Tensor, "and", lambda a, b: a * b)
_logical(aten.logical_or.default, aten.bitwise_or.Tensor, "or", tl.maximum)
_logical(aten.logical_not.default, aten.bitwise_not.default, "not", lambda a: 1 - a)


def _with(*targets: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for target in targets:
            COMPUTED[target] = handler
        return handler

    return register


@_with(aten.where.self)
def where(body: Body, condition: Tensor, left: Any, right: Any, *, made: torch.dtype) -> Tensor:
    format = f32 if made.is_floating_point else i32
    return body.map(lambda c, a, b: tl.chosen(c > 0, a, b, format), condition, left, right)


@_with(aten.add.Tensor, aten.add.Scalar)
def add(body: Body, left: Any, right: Any, alpha: Any = 1) -> Tensor:
    if _is_truth(left) and _is_truth(right):
        return COMPUTED[aten.logical_or.default](body, left, right if alpha else False)
    made = body.map(lambda a, b: a + (b if alpha == 1 else b * alpha), left, right)
    return body.said(made, "+", left, right) if alpha == 1 else made


@_with(aten.sub.Tensor, aten.sub.Scalar)
def sub(body: Body, left: Any, right: Any, alpha: Any = 1) -> Tensor:
    made = body.map(lambda a, b: a - (b if alpha == 1 else b * alpha), left, right)
    return body.said(made, "-", left, right) if alpha == 1 else made


@_with(aten.div.Tensor, aten.div.Scalar)
def div(body: Body, left: Any, right: Any) -> Tensor:
    return body.map(lambda a, b: a / b, left, right)


@_with(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor)
def power(body: Body, base: Tensor, exponent: Any, *, made: torch.dtype) -> Tensor:
    if not made.is_floating_point and not (isinstance(exponent, int) and 1 <= exponent <= 8):
        raise Unsupported("a power of integers, of which only those up to 8 are products")
    if made.is_floating_point:
        base = _converted(body, base, torch.float32)  # the product of integers would wrap around
    known: dict[Any, Callable[[Any], Any]] = {0.5: tl.sqrt, -0.5: tl.rsqrt, -1: lambda a: 1.0 / a}
    if isinstance(exponent, int | float) and exponent in known:
        return body.map(known[exponent], base)
    if isinstance(exponent, float) and exponent.is_integer():
        exponent = int(exponent)
    return body.map(lambda a, b: a**b, base, exponent)


@_with(aten.gelu.default)
def gelu(body: Body, tensor: Tensor, approximate: str = "none") -> Tensor:
    return body.map(lambda a: tl.gelu(a, approximate), tensor)


@_with(aten.clamp.default)
def clamp(body: Body, tensor: Tensor, low: Any = None, high: Any = None) -> Tensor:
    def function(a: Any) -> Any:
        a = a if low is None else tl.maximum(a, low)
        return a if high is None else tl.minimum(a, high)

    return body.map(function, tensor)


@_with(aten._to_copy.default)
def to_copy(body: Body, tensor: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    if dtype is None or (dtype not in FORMATS and dtype.is_floating_point):
        raise Unsupported(f"a conversion to {dtype}")
    if not dtype.is_floating_point:
        raise Unsupported("a conversion to integers")
    return body.map(lambda a: a.to(FORMATS[dtype]), tensor)


def _converted(body: Body, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Integers in a format of fractions; what has one already stays."""
    return to_copy(body, tensor, dtype) if _is_whole(tensor) else tensor


def _is_whole(tensor: Tensor) -> bool:
    return tensor.dtype is not None and not tensor.dtype.is_floating_point


# -- over axes -----------------------------------------------------------------------------------


@_with(aten.sum.dim_IntList)
def sum_over(
    body: Body, tensor: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None, *, made: torch.dtype
) -> Tensor:
    if made == torch.bool or not (made.is_floating_point or _is_whole(tensor)):
        raise Unsupported(f"a conversion of {tensor.dtype} to {made}")
    tensor = _asked(body, tensor, dtype)
    return body.reduce(tensor, dims, keep, lambda a, over: a.sum(over))


def _asked(body: Body, tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    """In the format that a sum is asked for, which PyTorch converts to before it adds."""
    return to_copy(body, tensor, dtype) if dtype in FORMATS else tensor


@_with(aten.amax.default)
def amax(body: Body, tensor: Tensor, dims: Any = (), keep: bool = False) -> Tensor:
    return body.reduce(tensor, dims, keep, lambda a, over: a.max(over))


@_with(aten.amin.default)
def amin(body: Body, tensor: Tensor, dims: Any = (), keep: bool = False) -> Tensor:
    return body.reduce(tensor, dims, keep, lambda a, over: a.min(over))


@_with(aten.mean.dim)
def mean(body: Body, tensor: Tensor, dims: Any = None, keep: bool = False, dtype: Any = None) -> Tensor:
    return body.reduce(_asked(body, tensor, dtype), dims, keep, lambda a, over: a.mean(over))


@_with(aten.mean.default)
def mean_all(body: Body, tensor: Tensor, dtype: Any = None) -> Tensor:
    return mean(body, tensor, dtype=dtype)


@_with(aten._safe_softmax.default)
def safe_softmax(body: Body, tensor: Tensor, dim: int, *_: Any) -> Tensor:
    """Zeros where a row is nothing but -inf."""
    if not tensor.along(dim):
        raise Unsupported("softmax over an axis of size 1")

    def shares(a: tl.Array, over: Any) -> tl.Array:
        return tl.where(a.max(over).equals(float("-inf")), 0.0, _apply("softmax", a, over))

    return body.along(tensor, dim, shares)


@_with(aten._softmax.default)
def softmax(body: Body, tensor: Tensor, dim: int, *_: Any, **__: Any) -> Tensor:
    """Of one element, it is 1: there is no axis to go along."""
    if not tensor.along(dim):
        raise Unsupported("softmax over an axis of size 1")
    return body.along(tensor, dim, lambda a, over: _apply("softmax", a, over))


@_with(aten._log_softmax.default)
def log_softmax(body: Body, tensor: Tensor, dim: int, *_: Any) -> Tensor:
    if not tensor.along(dim):
        raise Unsupported("log_softmax over an axis of size 1")
    return body.along(tensor, dim, lambda a, over: _apply("log_softmax", a, over))


@_with(torch.ops.treadle.masked_softmax.default)
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
    return body.along(body.tensor(dims, kept), -1, lambda a, over: _apply("softmax", a, over))


def _apply(law: str, array: Array, over: Sequence[str]) -> Array:
    if len(over) != 1:
        raise Unsupported(f"{law} over a dimension that other operations split into {len(over)} axes")
    return Array(array.graph, array.graph.apply(law, [array.value], over, array.axes))


# -- products ------------------------------------------------------------------------------------


@_with(aten.mm.default, aten.bmm.default)
def product(body: Body, left: Tensor, right: Tensor, *, format: str | None = None) -> Tensor:
    """[.., m, k] x [.., k, n], in the format of the operands."""
    *batch, m, k = left.dims
    *same, other, n = right.dims
    body.unify(_flat(batch), _flat(same))
    body.unify(k, other)
    return body.contract(left, right, (*batch, m, n), k, format)


@_with(aten.addmm.default)
def addmm(
    body: Body, bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, format: Any = None
) -> Tensor:
    def scaled(a: Any, factor: Any) -> Any:
        return a if factor == 1 else a * factor

    made = product(body, left, right, format=format)
    if beta == 0:  # then nothing of the bias counts, not even what is no number
        return body.map(lambda a: scaled(a, alpha), made)
    return body.map(lambda a, b: scaled(a, alpha) + scaled(b, beta), made, bias)


@_with(aten.baddbmm.default)
def baddbmm(
    body: Body, bias: Tensor, left: Tensor, right: Tensor, *, beta: Any = 1, alpha: Any = 1, format: Any = None
) -> Tensor:
    return addmm(body, bias, left, right, beta=beta, alpha=alpha, format=format)


PRODUCTS = {aten.mm.default, aten.bmm.default, aten.addmm.default, aten.baddbmm.default}
"""These take `format`, that of their operands."""

REDUCTIONS = {
    *PRODUCTS,
    *(aten.sum.dim_IntList, aten.amax.default, aten.amin.default, aten.mean.dim, aten.mean.default),
    torch.ops.treadle.masked_softmax.default,
    *(aten._softmax.default, aten._safe_softmax.default, aten._log_softmax.default),
}
"""Worth a kernel even alone."""


def _flat(dims: Sequence[tuple[Axis, ...]]) -> tuple[Axis, ...]:
    return tuple(axis for axes in dims for axis in axes)


# -- the same elements ---------------------------------------------------------------------------


def _free(*targets: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for target in targets:
            FREE[target] = handler
        return handler

    return register


@_free(aten.view.default, aten.reshape.default)
def view(body: Body, tensor: Tensor, shape: Sequence[int]) -> Tensor:
    total = _size(tensor.shape)
    known = _size([size for size in shape if size != -1])
    return body.view(tensor, [total // known if size == -1 else size for size in shape])


@_free(aten.permute.default)
def permute(body: Body, tensor: Tensor, order: Sequence[int]) -> Tensor:
    return body.rearranged(tensor, [tensor.dims[i] for i in order])


@_free(aten.unsqueeze.default)
def unsqueeze(body: Body, tensor: Tensor, dim: int) -> Tensor:
    dims = list(tensor.dims)
    dims.insert(dim % (len(dims) + 1), ())
    return body.rearranged(tensor, dims)


@_free(aten.squeeze.dims)
def squeeze(body: Body, tensor: Tensor, dims: Sequence[int]) -> Tensor:
    gone = {tensor.place(dim) for dim in dims if not tensor.along(dim)}
    return body.rearranged(tensor, [axes for i, axes in enumerate(tensor.dims) if i not in gone])


@_free(aten.expand.default)
def expand(body: Body, tensor: Tensor, shape: Sequence[int], **_: Any) -> Tensor:
    known: Dims = ((),) * (len(shape) - len(tensor.dims)) + tensor.dims
    pairs = list(zip(known, shape, strict=True))
    grows = [not leaves(axes) and size not in (1, -1) for axes, size in pairs]  # to no elements, too
    made = iter(body.new_dims([size for (_, size), new in zip(pairs, grows, strict=True) if new]))
    return body.rearranged(tensor, [next(made) if new else axes for (axes, _), new in zip(pairs, grows, strict=True)])


@_free(aten.clone.default, aten.alias.default, aten.lift_fresh_copy.default)
def same(body: Body, tensor: Tensor, **_: Any) -> Tensor:
    return tensor


@_free(aten.slice.Tensor)
def slice_whole(body: Body, tensor: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Tensor:
    size = tensor.shape[dim]
    if start not in (None, 0) or (end is not None and end < size) or step != 1:
        raise Unsupported("a slice is a part of an axis")
    return tensor


@_free(aten.select.int)
def select(body: Body, tensor: Tensor, dim: int, index: int) -> Tensor:
    if tensor.along(dim):
        raise Unsupported("one place of an axis is a part of it")
    return squeeze(body, tensor, [dim])


PARTS = {aten.slice.Tensor, aten.select.int}
"""What may leave elements out."""


# -- of nothing ----------------------------------------------------------------------------------


def _source(*targets: Any) -> Callable[[Handler], Handler]:
    def register(handler: Handler) -> Handler:
        for target in targets:
            SOURCES[target] = handler
        return handler

    return register


@_source(aten.full.default)
def full(body: Body, shape: Sequence[int], number: Any, *, made: torch.dtype, **_: Any) -> Tensor:
    return body.tensor(body.new_dims(shape), _number(number, made))


@_source(aten.full_like.default)
def full_like(body: Body, tensor: Tensor, number: Any, *, made: torch.dtype, **_: Any) -> Tensor:
    return body.tensor(tensor.dims, _number(number, made))


@_source(aten.scalar_tensor.default)
def scalar_tensor(body: Body, number: Any, *, made: torch.dtype, **_: Any) -> Tensor:
    return body.tensor((), _number(number, made))


@_source(aten.arange.start_step)
def arange(body: Body, start: Any, end: Any, step: Any = 1, *, made: torch.dtype, **_: Any) -> Tensor:
    if not all(isinstance(each, int) for each in (start, end, step)):
        raise Unsupported("arange of fractions")
    if made.is_floating_point and made not in FORMATS:
        raise Unsupported(f"arange in {made}")
    positions = body.positions(len(range(start, end, step)))
    if (start, step) != (0, 1):
        positions = body.map(lambda a: a * step + start, positions)
    return body.map(lambda a: a.to(FORMATS[made]), positions) if made.is_floating_point else positions


def _number(number: Any, dtype: torch.dtype) -> float:
    """As a tensor of that format holds it; truth values are 1 and 0."""
    if dtype == torch.bool:
        return int(bool(number))
    if not dtype.is_floating_point:
        return int(number)
    return float(rounded(np.asarray(number, np.float64), NAMED[FORMATS[dtype]])) if dtype in FORMATS else float(number)


def _size(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


TYPED = {
    *(aten.where.self, aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor, aten.sum.dim_IntList),
    *(aten.full.default, aten.full_like.default, aten.scalar_tensor.default, aten.arange.start_step),
}
"""These take `made`, PyTorch's number format of the result, which their operands alone do not say."""

__all__ = ["COMPUTED", "FORMATS", "FREE", "PARTS", "PRODUCTS", "REDUCTIONS", "SOURCES", "TYPED", "handler_of"]
