# pyright: standard
"""Products of matrices in 8 bits: `torch._int_mm`; `torch._scaled_mm`, whose operands have scales; and
`torch._weight_int8pack_mm`, with one operand in 8 bits. As `treadle.torch.operations`."""

from __future__ import annotations

from typing import Any

import torch

from treadle.torch.registry import FORMATS as FLOATS
from treadle.torch.registry import STORED, aten, computed
from treadle.torch.tensors import Body, Tensor, Unsupported

OF_INTEGERS = {torch.int8: "i8"}

FORMATS: dict[Any, str] = {**FLOATS, **STORED, **OF_INTEGERS}


@computed(aten._int_mm.default)
def int_mm(body: Body, left: Tensor, right: Tensor) -> Tensor:
    """[m, k] x [k, n] of int8, in i32."""
    for each in (left, right):
        if each.dtype not in OF_INTEGERS:
            raise Unsupported(f"a product of integers of {each.dtype}, for torch.int8")
    return _product(body, left, right)


@computed(aten._scaled_mm.default)
def scaled_mm(
    body: Body,
    left: Tensor,
    right: Tensor,
    left_scale: Tensor,
    right_scale: Tensor,
    bias: Tensor | None = None,
    result_scale: Tensor | None = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """[m, k] x [k, n] of 8-bit floats times both scales, one number each or one for each row [m, 1] and column [1, n],
    and a bias [n]. Sums are in f32 however fast they may be."""
    if result_scale is not None:
        raise Unsupported("a scale of the result")
    for each in (left, right):
        if each.dtype not in STORED:
            raise Unsupported(f"a scaled product of {each.dtype}, for 8-bit floats")
    made = _product(body, left, right)
    for scale, other in ((left_scale, -1), (right_scale, -2)):
        _check_scale(scale, other)
        made = body.map(lambda a, b: a * b, made, scale)
    return made if bias is None else body.map(lambda a, b: a + b, made, bias)


@computed(aten._weight_int8pack_mm.default)
def weight_int8_mm(body: Body, left: Tensor, right: Tensor, scales: Tensor) -> Tensor:
    """[m, k] x [n, k] of int8, each column of the result times its scale [n]."""
    if left.dtype not in FLOATS or right.dtype not in OF_INTEGERS:
        raise Unsupported(f"a product of {left.dtype} by weights of {right.dtype}")
    (m, k), (n, other) = left.dims, right.dims
    body.unify(k, other)
    left, right = (_in(body, each, FORMATS[each.dtype]) for each in (left, right))
    return body.map(lambda a, b: a * b, body.contract(left, right, (m, n), k, None), scales)


def _product(body: Body, left: Tensor, right: Tensor) -> Tensor:
    (m, k), (other, n) = left.dims, right.dims
    body.unify(k, other)
    left, right = (_in(body, each, FORMATS[each.dtype]) for each in (left, right))
    return body.contract(left, right, (m, n), k, None)


def _in(body: Body, tensor: Tensor, format: str) -> Tensor:
    """What is computed is so in 32 bits, until something asks for the 8 that hold it."""
    return body.map(lambda a: a.to(format), tensor)


def _check_scale(scale: Tensor, other: int) -> None:
    """One number, or one for each row (column), whose `other` dimension has one element (Unsupported)."""
    if scale.dtype != torch.float32:
        raise Unsupported(f"scales of {scale.dtype}")
    one_number = not scale.axes
    if not one_number and (len(scale.dims) != 2 or scale.along(other)):
        raise Unsupported("scales of blocks")
