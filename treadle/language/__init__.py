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


_SPELLED = {
    "contract(a, b, over='k')": "bmm dot einsum inner matmul mm tensordot vdot",
    "minimum(tl.maximum(a, low), high)": "clamp clip",
    "where(a > 0, 1.0, tl.where(a < 0, -1.0, 0.0))": "sign sgn",
    "sqrt(tl.sum(a * a, over='x'))": "norm",
    "sqrt(tl.var(a, over='x'))": "std",
    "max(tl.where(a > 0, 1, 0), over='x')": "any",
    "min(tl.where(a > 0, 1, 0), over='x')": "all",
    "max(a, over='x')": "amax",
    "min(a, over='x')": "amin",
    "topk(a, k=8, over='x', axis='r')": "argsort sort",
    "index('x', a)": "arange",
    "read(a, 'i[q], x', i=i)": "gather index_select take take_along_axis take_along_dim",
    "scatter(a, 's=256 d', at='i[n], d', i=i)": "bincount histogram index_add scatter_add segment_sum",
    "where(tl.index('v', a).equals(i), 1.0, 0.0)": "eye one_hot",
    "keep(a, 'x <= q')": "masked tril triu",
    "stack([a, b], axis='r')": "cat concat concatenate",
}
"""What numpy and PyTorch have under other names, by what says it here."""


def __getattr__(name: str) -> NoReturn:
    """Of what is not there (AttributeError, as `hasattr` wants it)."""
    if spelled := [text for text, names in _SPELLED.items() if name in names.split()]:
        raise AttributeError(f"treadle.language has no '{name}': write tl.{spelled[0]}", name=name)
    close = get_close_matches(name, __all__, n=3)
    meant = f"did you mean {' or '.join(close)}?" if close else "docs/reference has what there is;"
    said = f"{meant} others are written with these, as mish(x) is x * tl.tanh(tl.softplus(x))"
    raise AttributeError(f"treadle.language has no '{name}': {said}", name=name)
