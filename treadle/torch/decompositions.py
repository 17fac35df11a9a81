# pyright: standard
"""How PyTorch's larger operations are written with small ones, which the calculus then puts together as it likes."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from math import inf
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch._decomp import core_aten_decompositions, get_decompositions
from torch.fx import GraphModule

from treadle.torch.added import embedding_dense_backward
from treadle.torch.convolution import convolution
from treadle.torch.extremes import largest_along, smallest_along, topk
from treadle.torch.flexible import FLEX_ATTENTION, flexible_attention
from treadle.torch.formulas import hypotenuse, inverse_of_erf
from treadle.torch.heads import for_heads
from treadle.torch.masked import masked_softmax
from treadle.torch.nearest import interpolate
from treadle.torch.random import bernoulli, dropout, dropout_backward

aten: Any = torch.ops.aten

KEPT = (
    *(aten._softmax, aten._safe_softmax, aten._log_softmax, aten.gelu, aten.silu, aten.addmm, aten.baddbmm),
    *(aten._scaled_dot_product_flash_attention_for_cpu, aten.roll),
    *(aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d),
    *(aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d),
)
"""What the calculus has a word for; and an operation of which PyTorch's decomposition (2.13) gives the shares where its
backward operation wants their logarithmic sum, so that gradients would be wrong."""


def decompositions() -> dict[Any, Callable[..., Any]]:
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for packet in KEPT:
        for overload in packet.overloads():
            table.pop(getattr(packet, overload), None)
    table[aten.native_layer_norm.default] = layer_norm
    table[aten.native_group_norm.default] = group_norm
    table[aten.linalg_vector_norm.default] = vector_norm
    table[aten.logsumexp.default] = log_sum_exp
    table[aten._cdist_forward.default] = distances
    table[aten._cdist_backward.default] = distances_backward
    table[aten._euclidean_dist.default] = euclidean_distances
    table[aten.split_with_sizes.default] = split
    table[aten.repeat.default] = repeat
    table[aten.ldexp.Tensor] = scaled_by_powers
    table[aten.hypot.default] = hypotenuse
    table[aten.erfinv.default] = inverse_of_erf
    table[aten.copy.default] = copy
    table[aten.select_scatter.default] = select_scatter
    table[aten.convolution.default] = convolution
    table[aten.constant_pad_nd.default] = pad
    table[aten.clamp.Tensor] = clamp
    table[aten.addmv.default] = addmv
    table[aten._trilinear.default] = trilinear
    table[aten._native_batch_norm_legit_no_training.default] = batch_norm
    table[aten._native_batch_norm_legit.no_stats] = instance_norm
    table[aten.var_mean.correction] = var_mean
    table[aten.var.correction] = var
    table[aten.native_dropout.default] = dropout
    table[aten.native_dropout_backward.default] = dropout_backward
    table[aten.bernoulli.p] = bernoulli
    table[aten.embedding_dense_backward.default] = embedding_dense_backward
    table[aten.topk.default] = topk
    table[aten.max.dim] = largest_along
    table[aten.min.dim] = smallest_along
    table.update(get_decompositions([aten._native_batch_norm_legit_functional.default]))
    if hasattr(torch.ops.prims, "fma"):  # PyTorch makes it when it first writes `addcmul_` with it, as optimisers do
        table[torch.ops.prims.fma.default] = multiply_add
    return table


def select_scatter(x: Any, part: Any, dim: int, index: int) -> Any:
    """A slice of one element, as which writes into neighbours are told (`written.py`)."""
    at = index + x.shape[dim] if index < 0 else index
    return torch.slice_scatter(x, part.unsqueeze(dim), dim, at, at + 1)


def multiply_add(left: Any, right: Any, summand: Any) -> Any:
    """In one rounding, as far as f32 holds the product of narrower numbers."""
    return (_wide(left) * right + summand).to(summand.dtype)


def layer_norm(x: Any, shape: Sequence[int], weight: Any, bias: Any, eps: float) -> tuple[Any, Any, Any]:
    """PyTorch's own is contiguous, whatever the strides of its argument: what follows may look at the memory."""
    result, mean, rstd = _normalised(x, list(range(x.dim() - len(shape), x.dim())), eps)
    return _scaled(result, weight, bias).to(x.dtype).contiguous(), mean, rstd


def group_norm(
    x: Any, weight: Any, bias: Any, batch: int, channels: int, size: int, groups: int, eps: float
) -> tuple[Any, Any, Any]:
    result, mean, rstd = _normalised(x.reshape(batch, groups, channels // groups, size), [2, 3], eps)
    along = [1, channels, *[1] * (x.dim() - 2)]
    gain, shift = (None if each is None else each.reshape(along) for each in (weight, bias))
    result = _scaled(result.reshape(x.shape), gain, shift).to(x.dtype)
    return result, *(each.reshape(batch, groups).to(x.dtype) for each in (mean, rstd))


def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: float, eps: float
) -> tuple[Any, Any, Any]:
    """By statistics that are given. Nothing is kept for a gradient, as in PyTorch."""
    gain, shift, middle, width = (
        None if each is None else each.reshape([1, -1, *[1] * (x.dim() - 2)]) for each in (weight, bias, mean, var)
    )
    result = _scaled((_wide(x) - middle) * torch.rsqrt(_wide(width) + eps), gain, shift)
    nothing = x.new_empty((0,))
    return result.to(x.dtype), nothing, nothing


def instance_norm(x: Any, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> tuple[Any, Any, Any]:
    """By the statistics of all but the channels."""
    result, mean, rstd = _normalised(x, [i for i in range(x.dim()) if i != 1], eps)
    gain, shift = (None if each is None else each.reshape([1, -1, *[1] * (x.dim() - 2)]) for each in (weight, bias))
    return _scaled(result, gain, shift).to(x.dtype), mean.reshape(-1), rstd.reshape(-1)


def _normalised(x: Any, dims: Sequence[int], eps: float) -> tuple[Any, Any, Any]:
    """Less its mean and by its deviation, with the mean and one by the deviation."""
    wide = _wide(x)
    mean = wide.mean(dims, keepdim=True)
    centred = wide - mean
    rstd = torch.rsqrt((centred * centred).mean(dims, keepdim=True) + eps)
    return centred * rstd, mean, rstd


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _wide(x: Any) -> Any:
    """In f32, but what is wider already."""
    return x if x.dtype == torch.float64 else x.float()


def log_sum_exp(x: Any, dim: Sequence[int], keepdim: bool = False) -> Any:
    """Relative to the largest element itself, as a softmax is, and not to 0 where that is infinite: so both share their
    powers. An infinite one is the result."""
    if not x.is_floating_point() or not x.numel():
        return NotImplemented
    wide = _wide(x)
    dims = [each % x.dim() for each in dim] if x.dim() else []
    most = wide.amax(dims, keepdim=True)
    sums = most + (wide - most).exp().sum(dims, keepdim=True).log()
    result = torch.where(most.abs() == inf, most, sums).to(x.dtype)
    return result if keepdim or not dims else result.squeeze(dims)


def vector_norm(
    x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> Any:
    if not x.is_floating_point():
        return NotImplemented
    kept = x.dtype if dtype is None else dtype
    wide = _wide(x.to(kept))
    dims = list(range(x.dim())) if dim is None else dim
    return _norm(wide, float(ord), dims, keepdim).to(kept)


def _norm(x: Any, ord: float, dims: Sequence[int], keep: bool) -> Any:
    if ord == 2:
        return torch.sqrt((x * x).sum(dims, keepdim=keep))
    if ord == 0:
        return (x != 0).to(x.dtype).sum(dims, keepdim=keep)
    if ord == inf:
        return x.abs().amax(dims, keepdim=keep)
    if ord == -inf:
        return x.abs().amin(dims, keepdim=keep)
    if ord == 1:
        return x.abs().sum(dims, keepdim=keep)
    return (x.abs() ** ord).sum(dims, keepdim=keep) ** (1.0 / ord)


def distances(x: Any, y: Any, ord: float, mode: int | None) -> Any:
    """Of all pairs of rows (`cdist`), where programs have the numbers: PyTorch would write all differences. Of none,
    and of powers by which NaN does not always count, the norm is PyTorch's to say."""
    if not _are_numbers_of_programs(x, y) or not 0 < ord < inf:
        return NotImplemented
    return _norm(x[..., :, None, :] - y[..., None, :, :], float(ord), [-1], False)


def euclidean_distances(x: Any, y: Any) -> Any:
    """Of all pairs of many rows (`cdist`), by a product: PyTorch would put the squares beside its factors."""
    if not _are_numbers_of_programs(x, y):
        return NotImplemented
    of_x, of_y = ((each * each).sum(-1, keepdim=True) for each in (x, y))
    return (of_x - 2 * (x @ y.mT) + of_y.mT).clamp_min(0).sqrt()


def distances_backward(slope: Any, x: Any, y: Any, ord: float, found: Any) -> Any:
    """By `x`, for sums and roots of sums of squares; of equal rows, whose root has no slope, zero, as in PyTorch."""
    if not _are_numbers_of_programs(x, y) or ord not in (1, 2) or x.shape[:-2] != y.shape[:-2]:
        return NotImplemented
    apart = x[..., :, None, :] - y[..., None, :, :]
    if ord == 1:
        signs = torch.where(apart == apart, torch.sign(apart), apart)  # NaN has one, too
        return (slope[..., None] * signs).sum(-2)
    return (torch.where(found == 0, 0.0, slope / found)[..., None] * apart).sum(-2)


def _are_numbers_of_programs(*tensors: Any) -> bool:
    return all(each.dtype == torch.float32 and 0 not in each.shape for each in tensors)


def split(x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    """Views, which cost nothing and cut no program."""
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [x.narrow(dim, start, size) for start, size in zip(starts, sizes, strict=True)]


def repeat(x: Any, times: Sequence[int]) -> Any:
    """A view of elements that are repeated, and a copy only where one is needed."""
    shape = [1] * (len(times) - x.dim()) + [*x.shape]
    apart = [each for size in shape for each in (1, size)]
    grown = [each for n, size in zip(times, shape, strict=True) for each in (n, size)]
    return (
        x.reshape(apart)
        .expand(grown)
        .clone(memory_format=torch.contiguous_format)
        .view([n * size for n, size in zip(times, shape, strict=True)])
    )


def scaled_by_powers(x: Any, exponents: Any) -> Any:
    return x * torch.pow(2.0, exponents)


def pad(x: Any, widths: Sequence[int], value: float = 0) -> Any:
    """What is padded by nothing, as models do that pad to a multiple, is a copy."""
    if any(widths):
        return NotImplemented
    return x.clone(memory_format=torch.preserve_format)


def copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    """What a tensor becomes that another one is written into: that one, in its format and its memory."""
    if not isinstance(source, torch.Tensor) or x.device != source.device or not x.is_contiguous():
        return NotImplemented
    return source.to(x.dtype).expand(x.shape).clone(memory_format=torch.contiguous_format)


def addmv(x: Any, matrix: Any, vector: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    made = torch.mv(matrix, vector)
    made = made if alpha == 1 else made * alpha
    if beta == 0:  # then nothing of it counts, not even what is no number
        return made
    return made + (x if beta == 1 else x * beta)


def trilinear(
    a: Any,
    b: Any,
    c: Any,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_c: Sequence[int],
    over: Sequence[int],
    unroll: int = 1,
) -> Any:
    """The sum over some dimensions of products of three tensors, each of which lacks the dimensions `expand`: two
    products, one after another."""
    rank = a.dim() + len(expand_a)
    letters = string.ascii_lowercase[:rank]
    given = (
        "".join(each for i, each in enumerate(letters) if i not in gone) for gone in (expand_a, expand_b, expand_c)
    )
    left = "".join(each for i, each in enumerate(letters) if i not in over)
    return torch.einsum(f"{','.join(given)}->{left}", a, b, c)


def clamp(x: Any, least: Any = None, most: Any = None) -> Any:
    x = x if least is None else torch.maximum(x, least)
    return x if most is None else torch.minimum(x, most)


def var_mean(
    x: Any, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    """The variance and the mean. PyTorch's own is left where a number has two parts: `float()` would drop one."""
    if not x.is_floating_point():
        return NotImplemented
    dims = list(range(x.dim())) if not dim else list(dim)
    count = 1
    for each in dims if x.dim() else ():  # PyTorch lets one name a dimension of a tensor without any
        count *= x.shape[each]
    mean = _wide(x).mean(dims, keepdim=True)
    centred = x - mean
    var = (centred * centred).sum(dims, keepdim=keepdim) / max(count - (1 if correction is None else correction), 0)
    return var.to(x.dtype), (mean if keepdim else mean.squeeze(dims)).to(x.dtype)


def var(x: Any, *args: Any, **kwargs: Any) -> Any:
    found = var_mean(x, *args, **kwargs)
    return found if found is NotImplemented else found[0]


def plain_attention(module: GraphModule) -> GraphModule:
    """`scaled_dot_product_attention` and `flex_attention`, spelled out before PyTorch chooses a kernel of its own, and
    nearest elements, before it writes them with indices."""
    for node in module.graph.find_nodes(op="call_function", target=F.scaled_dot_product_attention):
        node.target = attention
        node.kwargs = {**node.kwargs, "order": _order(node.meta.get("example_value"))}
    for node in module.graph.find_nodes(op="call_function", target=F.multi_head_attention_forward):
        node.target = with_plain_attention
    for node in module.graph.find_nodes(op="call_function", target=FLEX_ATTENTION):
        node.target = flexible_attention
    for node in module.graph.find_nodes(op="call_function", target=F.interpolate):
        node.target = interpolate
    module.recompile()
    return module


def _calling(name: str, function: Any, **others: Any) -> Any:
    """A Python function that finds these where it asks for what has their names. Its own name is another, by which the
    text of a graph calls it."""
    made = FunctionType(function.__code__, {**function.__globals__, **others}, name, function.__defaults__)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__module__, made.__qualname__ = __name__, name
    made.__globals__[function.__name__] = made  # under a mode of PyTorch's, it calls itself
    return made


def _order(result: Any) -> tuple[int, ...] | None:
    """The dimensions of PyTorch's own result in its order of memory, as far as that is known."""
    if not isinstance(result, torch.Tensor):
        return None
    strides = result.stride()
    return tuple(sorted(range(result.dim()), key=lambda i: (-strides[i], bool(result.shape[i] == 1))))


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    order: Sequence[int] | None = None,
) -> Any:
    """What PyTorch's documentation says of `scaled_dot_product_attention`; rows that see no key give zeros. In memory,
    the result has its dimensions in that order: what follows was written for PyTorch's own, and may look at it."""
    if enable_gqa:
        key, value = (for_heads(each, query.size(-3)) for each in (key, value))
    if scale is None:
        scale = query.size(-1) ** -0.5 if query.size(-1) else 1.0  # of nothing, the scores are 0 at any scale
    scores = query @ key.transpose(-2, -1) * scale
    mask = attn_mask if attn_mask is not None and attn_mask.dtype == torch.bool else None
    if is_causal:
        rows, columns = (torch.arange(scores.size(i), device=scores.device) for i in (-2, -1))
        mask = columns <= rows[:, None]
    elif mask is None and attn_mask is not None:
        scores = scores + attn_mask
    if mask is not None:
        shares = masked_softmax(scores, mask)
    else:  # what is added may be -inf for a whole row
        shares = (torch.softmax if attn_mask is None else aten._safe_softmax)(scores, -1)
    shares = shares.to(value.dtype)
    result = (torch.dropout(shares, dropout_p, True) if dropout_p else shares) @ value
    if order is None:
        return result
    back = sorted(range(len(order)), key=order.__getitem__)
    return result.permute(tuple(order)).contiguous().permute(back)


with_plain_attention = _calling(
    "with_plain_attention", F.multi_head_attention_forward, scaled_dot_product_attention=attention
)
"""`multi_head_attention_forward`, which PyTorch does not look into, and which calls the attention itself."""
