# pyright: standard
"""Functions of one element of each operand, which broadcast as PyTorch's do: as `treadle.torch.operations`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import torch
from xdsl.dialects import arith
from xdsl.dialects.builtin import f32, i32

from treadle.language import functions as tl
from treadle.language.array import combine
from treadle.language.conditions import Comparison
from treadle.language.graph import FORMATS as NAMED
from treadle.runtime.formats import rounded
from treadle.torch.held import check_held
from treadle.torch.registry import COMPUTED, FORMATS, STORED, aten, computed, typed
from treadle.torch.tensors import Body, Tensor, Unsupported


def _map(*targets: Any, function: Callable[..., Any]) -> None:
    for target in targets:
        COMPUTED[target] = lambda body, *operands, _function=function, **_: body.map(_function, *operands)


_map(aten.neg.default, function=lambda a: -a)
_map(aten.abs.default, function=lambda a: abs(a))
_map(aten.exp.default, function=tl.exp)
_map(aten.exp2.default, function=tl.exp2)
_map(aten.expm1.default, function=tl.expm1)
_map(aten.log.default, function=tl.log)
_map(aten.log2.default, function=tl.log2)
_map(aten.log10.default, function=tl.log10)
_map(aten.log1p.default, function=tl.log1p)
_map(aten.sqrt.default, function=tl.sqrt)
_map(aten.rsqrt.default, function=tl.rsqrt)
_map(aten.reciprocal.default, function=lambda a: 1.0 / a)
_map(aten.sin.default, function=tl.sin)
_map(aten.cos.default, function=tl.cos)
_map(aten.tan.default, function=tl.tan)
_map(aten.asin.default, function=tl.asin)
_map(aten.acos.default, function=tl.acos)
_map(aten.atan.default, function=tl.atan)
_map(aten.atan2.default, function=tl.atan2)
_map(aten.sinh.default, function=tl.sinh)
_map(aten.cosh.default, function=tl.cosh)
_map(aten.tanh.default, function=tl.tanh)
_map(aten.asinh.default, function=tl.asinh)
_map(aten.acosh.default, function=tl.acosh)
_map(aten.atanh.default, function=tl.atanh)
_map(aten.erf.default, function=tl.erf)
_map(aten.sigmoid.default, function=tl.sigmoid)
_map(aten.relu.default, function=tl.relu)
_map(aten.silu.default, function=tl.silu)
_map(aten.mul.Tensor, aten.mul.Scalar, function=lambda a, b: a * b)
_map(aten.maximum.default, function=tl.maximum)
_map(aten.minimum.default, function=tl.minimum)
_map(aten.fmax.default, function=lambda a, b: combine("fmax", arith.MaxnumfOp, arith.MaxSIOp, a, b))
_map(aten.fmin.default, function=lambda a, b: combine("fmin", arith.MinnumfOp, arith.MinSIOp, a, b))
_map(aten.copysign.Tensor, aten.copysign.Scalar, function=tl.copysign)


def _whole_numbers(target: Any, function: Callable[..., Any]) -> None:
    """Integers are whole already. What PyTorch has in 16 bits is rounded to them before, as what is compared is: one
    digit less makes another whole number."""

    def handler(body: Body, tensor: Tensor) -> Tensor:
        if is_whole(tensor):
            return tensor
        return body.map(lambda a: function(a.to(_format(tensor))), tensor)

    COMPUTED[target] = handler


_whole_numbers(aten.floor.default, tl.floor)
_whole_numbers(aten.ceil.default, tl.ceil)
_whole_numbers(aten.trunc.default, tl.trunc)
_whole_numbers(aten.round.default, tl.round)


def _say(*targets: Any, symbol: str, function: Callable[..., Any]) -> None:
    """Integers and truth values, of which conditions can speak; truth values are 1 and 0."""

    def handler(body: Body, *operands: Any) -> Tensor:
        _check_bytes(*operands)
        return body.said(body.map(function, *_in_one_format(body, *operands)), symbol, *operands)

    for target in targets:
        COMPUTED[target] = handler


def _check_bytes(left: Any, right: Any) -> None:
    """PyTorch compares integers of 8 bits with what 8 bits hold of a number (Unsupported)."""
    for tensor, number in ((left, right), (right, left)):
        if getattr(tensor, "dtype", None) not in (torch.int8, torch.uint8) or not isinstance(number, int):
            continue
        limits = torch.iinfo(tensor.dtype)
        if not limits.min <= number <= limits.max:
            raise Unsupported(f"a comparison of {tensor.dtype} with {number}, of which PyTorch takes 8 bits")


def _in_one_format(body: Body, *operands: Any) -> tuple[Any, ...]:
    """PyTorch compares with a tensor of 16 bits what 16 bits hold of a number: of 0.1 in f16, so that an element that
    was 0.1 is equal to it. Where the number is none of the format's, what is compared with it is one."""
    format = _compared_in(operands)
    if format is None or all(_is_held(each, format) for each in operands):
        return operands
    return tuple(_held(body, each, format) for each in operands)


def _compared_in(operands: Sequence[Any]) -> torch.dtype | None:
    """The format of 16 bits in which PyTorch compares these, if it is one: that of fractions with dimensions, else that
    of those without."""
    fractions = [each for each in operands if isinstance(each, Tensor) and each.dtype and each.dtype.is_floating_point]
    decide = {each.dtype for each in fractions if each.dims} or {each.dtype for each in fractions}
    return next(iter(decide)) if len(decide) == 1 and decide <= {torch.float16, torch.bfloat16} else None


def _is_held(operand: Any, format: torch.dtype) -> bool:
    if isinstance(operand, Tensor):
        return operand.dtype == format
    return not isinstance(operand, int | float) or operand in (inf, -inf, in_format(operand, format))


def _held(body: Body, operand: Any, format: torch.dtype) -> Any:
    if isinstance(operand, Tensor):
        return body.map(lambda a: a.to(FORMATS[format]), operand)
    return in_format(operand, format) if isinstance(operand, int | float) else operand


def in_format(number: Any, format: torch.dtype) -> float:
    """What a format of fractions holds of a number."""
    return float(rounded(np.asarray(number, np.float64), NAMED[FORMATS[format]]))


_say(aten.lt.Scalar, aten.lt.Tensor, symbol="<", function=lambda a, b: Comparison("olt", "slt", a, b))
_say(aten.le.Scalar, aten.le.Tensor, symbol="<=", function=lambda a, b: Comparison("ole", "sle", a, b))
_say(aten.gt.Scalar, aten.gt.Tensor, symbol=">", function=lambda a, b: Comparison("ogt", "sgt", a, b))
_say(aten.ge.Scalar, aten.ge.Tensor, symbol=">=", function=lambda a, b: Comparison("oge", "sge", a, b))
_say(aten.eq.Scalar, aten.eq.Tensor, symbol="==", function=lambda a, b: Comparison("oeq", "eq", a, b))
_say(aten.ne.Scalar, aten.ne.Tensor, symbol="!=", function=lambda a, b: Comparison("une", "ne", a, b))
_map(aten.isnan.default, function=lambda a: Comparison("une", "ne", a, a))
_map(aten.isinf.default, function=lambda a: abs(a).equals(inf))


SAID = ("and", "or", "not")
"""How conditions join others."""


def _logical(target: Any, bitwise: Any, symbol: str, function: Callable[..., Any]) -> None:
    """Of truth values; the logical operation asks other numbers whether they are 0. (`treadle.torch.bits` has the
    bitwise one of integers.)"""

    def of_truths(body: Body, *operands: Any) -> Tensor:
        made = body.map(function, *operands)
        said = [each for each in operands if not (symbol in ("and", "or") and _is_always(each, symbol == "and"))]
        if len(said) < len(operands) and isinstance(rest := next(iter(said), None), Tensor):
            return replace(made, text=rest.text, named=rest.named)
        return body.said(made, symbol, *operands) if symbol in SAID else made

    COMPUTED[target] = lambda body, *operands: of_truths(body, *(truth(body, each) for each in operands))
    COMPUTED[bitwise] = of_truths


def _is_always(operand: Any, value: bool) -> bool:
    """Whether a tensor is that truth value everywhere, as far as the graph says."""
    number = operand.array if isinstance(operand, Tensor) else operand
    return isinstance(number, int) and number == int(value)


def truth(body: Body, operand: Any) -> Any:
    return operand if is_truth(operand) else COMPUTED[aten.ne.Scalar](body, operand, 0)


def is_truth(operand: Any) -> bool:
    return isinstance(operand, bool) or (isinstance(operand, Tensor) and operand.dtype == torch.bool)


_logical(aten.logical_and.default, aten.bitwise_and.Tensor, "and", lambda a, b: a * b)
_logical(aten.logical_or.default, aten.bitwise_or.Tensor, "or", tl.maximum)
_logical(aten.logical_xor.default, aten.bitwise_xor.Tensor, "xor", lambda a, b: Comparison("une", "ne", a, b))
_logical(aten.logical_not.default, aten.bitwise_not.default, "not", lambda a: 1 - a)


@typed(aten.where.self)
def where(body: Body, condition: Tensor, left: Any, right: Any, *, made: torch.dtype) -> Tensor:
    format = f32 if made.is_floating_point else i32
    return body.map(lambda c, a, b: tl.chosen(c > 0, a, b, format), condition, left, right)


@computed(aten.add.Tensor, aten.add.Scalar)
def add(body: Body, left: Any, right: Any, alpha: Any = 1) -> Tensor:
    if is_truth(left) and is_truth(right):
        return COMPUTED[aten.logical_or.default](body, left, right if alpha else False)
    made = body.map(lambda a, b: a + (b if alpha == 1 else b * alpha), left, right)
    return body.said(made, "+", left, right) if alpha == 1 else made


@computed(aten.sub.Tensor, aten.sub.Scalar)
def sub(body: Body, left: Any, right: Any, alpha: Any = 1) -> Tensor:
    made = body.map(lambda a, b: a - (b if alpha == 1 else b * alpha), left, right)
    return body.said(made, "-", left, right) if alpha == 1 else made


@computed(aten.div.Tensor, aten.div.Scalar)
def div(body: Body, left: Any, right: Any) -> Tensor:
    return body.map(lambda a, b: a / b, left, right)


@typed(aten.pow.Tensor_Scalar, aten.pow.Tensor_Tensor)
def power(body: Body, base: Tensor, exponent: Any, *, made: torch.dtype) -> Tensor:
    if not made.is_floating_point and not (isinstance(exponent, int) and 1 <= exponent <= 8):
        raise Unsupported("a power of integers, of which only those up to 8 are products")
    if made.is_floating_point:
        base = converted(body, base, torch.float32)  # the product of integers would wrap around
    known: dict[Any, Callable[[Any], Any]] = {0.5: tl.sqrt, -0.5: tl.rsqrt, -1: lambda a: 1.0 / a}
    if isinstance(exponent, int | float) and exponent in known:
        return body.map(known[exponent], base)
    if isinstance(exponent, float) and exponent.is_integer():
        exponent = int(exponent)
    return body.map(lambda a, b: a**b, base, exponent)


@typed(aten.pow.Scalar)
def power_of_number(body: Body, base: Any, exponent: Tensor, *, made: torch.dtype) -> Tensor:
    if not made.is_floating_point:
        raise Unsupported("a power of integers, of which only those up to 8 are products")
    return body.map(lambda a, b: a**b, float(base), exponent)


@typed(aten.sign.default)
def sign(body: Body, tensor: Tensor, *, made: torch.dtype) -> Tensor:
    format = f32 if made.is_floating_point else i32
    one, zero = (1.0, 0.0) if made.is_floating_point else (1, 0)
    return body.map(lambda a: tl.chosen(a > 0, one, tl.chosen(a < 0, -one, zero, format), format), tensor)


@computed(aten.elu.default)
def elu(body: Body, tensor: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    def function(a: Any) -> Any:
        inner = a if input_scale == 1 else a * float(input_scale)
        return tl.where(a < 0, tl.expm1(inner) * float(alpha * scale), a * float(scale))

    return body.map(function, tensor)


@computed(aten.leaky_relu.default)
def leaky_relu(body: Body, tensor: Tensor, slope: Any = 0.01) -> Tensor:
    return body.map(lambda a: tl.where(a > 0, a, a * float(slope)), tensor)


@computed(aten.gelu.default)
def gelu(body: Body, tensor: Tensor, approximate: str = "none") -> Tensor:
    return body.map(lambda a: tl.gelu(a, approximate), tensor)


@typed(aten.clamp.default)
def clamp(body: Body, tensor: Tensor, low: Any = None, high: Any = None, *, made: torch.dtype) -> Tensor:
    if made in FORMATS:
        low, high = (in_format(each, made) if isinstance(each, int | float) else each for each in (low, high))
    given = [(bound, each) for bound, each in ((tl.maximum, low), (tl.minimum, high)) if each is not None]

    def function(a: Any, *ends: Any) -> Any:
        for (bound, _), end in zip(given, ends, strict=True):
            a = bound(a, end)
        return a

    return body.map(function, tensor, *(end for _, end in given))


@typed(aten.hardtanh.default)
def hardtanh(body: Body, tensor: Tensor, low: Any = -1, high: Any = 1, *, made: torch.dtype) -> Tensor:
    return clamp(body, tensor, low, high, made=made)


@computed(aten._to_copy.default)
def to_copy(body: Body, tensor: Tensor, dtype: Any = None, **_: Any) -> Tensor:
    if dtype is None or (dtype not in (FORMATS | STORED) and dtype.is_floating_point):
        raise Unsupported(f"a conversion to {dtype}")
    if dtype == torch.bool:
        return truth(body, tensor)
    if not dtype.is_floating_point and is_whole(tensor):  # what does not fit in 32 bits is refused
        return tensor
    if dtype in FORMATS:
        return body.map(lambda a: a.to(FORMATS[dtype]), tensor)
    check_held(tensor, dtype)
    return body.map(lambda a: a.to(_format(tensor)).to(STORED.get(dtype, "i32")), tensor)


def _format(tensor: Tensor) -> str:
    """That of PyTorch's tensor, where it is one of fractions."""
    return "f32" if tensor.dtype is None else FORMATS.get(tensor.dtype, "f32")


@computed(torch.ops.prims.convert_element_type.default)
def promoted(body: Body, tensor: Tensor, dtype: Any) -> Tensor:
    """What PyTorch puts around an operation whose number has become a tensor, since a size is a symbol: the operation
    alone would not round, either, before what follows in the kernel."""
    widens = tensor.dtype not in FORMATS or dtype not in FORMATS or dtype.itemsize > tensor.dtype.itemsize
    return to_copy(body, tensor, dtype) if widens else tensor


def converted(body: Body, tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Integers in a format of fractions; what has one already stays."""
    return to_copy(body, tensor, dtype) if is_whole(tensor) else tensor


def is_whole(tensor: Tensor) -> bool:
    return tensor.dtype is not None and not tensor.dtype.is_floating_point


__all__ = ["converted", "in_format", "is_truth", "is_whole", "to_copy", "truth"]
