"""What a traced function may do with its arrays, besides arithmetic: see `treadle.kernel`.

```
import treadle
import treadle.language as tl


@treadle.kernel("q d, x d, x e -> q e")
def attention(Q, K, V):
    S = tl.contract(Q, K, over="d") * 0.125
    return tl.contract(tl.softmax(S, over="x"), V, over="x")
```

Functions of one number work element by element, in f32, and are as exact as CUDA's; what is computed in fewer
instructions, and how exact that is, stands in docs/numerics.md.
"""

from difflib import get_close_matches
from typing import NoReturn

from treadle.language.array import Array
from treadle.language.conditions import Condition
from treadle.language.extremes import argmax, argmin, topk
from treadle.language.function import NamedKernel, kernel
from treadle.language.functions import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    ceil,
    contract,
    copysign,
    cos,
    cosh,
    cumsum,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    gelu,
    index,
    keep,
    log,
    log1p,
    log2,
    log10,
    log_softmax,
    logsigmoid,
    logsumexp,
    max,
    maximum,
    mean,
    min,
    minimum,
    prod,
    read,
    relu,
    round,
    rsqrt,
    sigmoid,
    silu,
    sin,
    sinh,
    softmax,
    softplus,
    sqrt,
    sum,
    tan,
    tanh,
    trunc,
    var,
    where,
)
from treadle.language.random import dropout, normal, random_bits, uniform
from treadle.language.recurrent import recurrence
from treadle.language.scattered import scatter
from treadle.language.stacked import stack

__all__ = [
    "Array",
    "Condition",
    "NamedKernel",
    "abs",
    "acos",
    "acosh",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "contract",
    "copysign",
    "cos",
    "cosh",
    "cumsum",
    "dropout",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "gelu",
    "index",
    "keep",
    "kernel",
    "log",
    "log1p",
    "log2",
    "log10",
    "log_softmax",
    "logsigmoid",
    "logsumexp",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "normal",
    "prod",
    "random_bits",
    "read",
    "recurrence",
    "relu",
    "round",
    "rsqrt",
    "scatter",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "softmax",
    "softplus",
    "sqrt",
    "stack",
    "sum",
    "tan",
    "tanh",
    "topk",
    "trunc",
    "uniform",
    "var",
    "where",
]


def __getattr__(name: str) -> NoReturn:
    """Of what is not there (AttributeError, as `hasattr` wants it)."""
    close = get_close_matches(name, __all__, n=3)
    meant = f"did you mean {' or '.join(close)}?" if close else "docs/reference has what there is;"
    said = f"{meant} others are written with these, as mish(x) is x * tl.tanh(tl.softplus(x))"
    raise AttributeError(f"treadle.language has no '{name}': {said}", name=name)
