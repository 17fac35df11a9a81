"""What a traced function may do with its arrays, besides arithmetic: see `treadle.kernel`.

```
import treadle
import treadle.language as tl

@treadle.kernel("q d, x d, x e -> q e")
def attention(Q, K, V):
    S = tl.contract(Q, K, over="d") * 0.125
    return tl.contract(tl.softmax(S, over="x"), V, over="x")
```
"""

from treadle.language.array import Array, Condition
from treadle.language.function import NamedKernel, kernel
from treadle.language.functions import (
    contract,
    cos,
    erf,
    exp,
    exp2,
    gelu,
    index,
    keep,
    log,
    log2,
    max,
    maximum,
    mean,
    min,
    minimum,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sin,
    softmax,
    sqrt,
    sum,
    tanh,
    where,
)

__all__ = [
    "Array",
    "Condition",
    "NamedKernel",
    "contract",
    "cos",
    "erf",
    "exp",
    "exp2",
    "gelu",
    "index",
    "keep",
    "kernel",
    "log",
    "log2",
    "max",
    "maximum",
    "mean",
    "min",
    "minimum",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "sqrt",
    "sum",
    "tanh",
    "where",
]
