"""treadle: derive fast GPU kernels from deep-learning algorithms drawn as diagrams.

```
attention = treadle.compile("examples/attention.mlir")
O = attention.run(Q, K, V)  # numpy arrays or torch tensors
print(attention.cuda)
```

Everything here is imported when it is first used, so that `import treadle` costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from treadle.compiled import Argument, Kernel, Step, compile, load
    from treadle.compiler.errors import TreadleError
    from treadle.gradients import differentiate
    from treadle.language.function import kernel
    from treadle.torch.explain import explain

_HOMES = {
    "Argument": "treadle.compiled",
    "Kernel": "treadle.compiled",
    "Step": "treadle.compiled",
    "TreadleError": "treadle.compiler.errors",
    "compile": "treadle.compiled",
    "differentiate": "treadle.gradients",
    "explain": "treadle.torch.explain",
    "kernel": "treadle.language.function",
    "load": "treadle.compiled",
}

__all__ = [
    "Argument",
    "Kernel",
    "Step",
    "TreadleError",
    "__version__",
    "compile",
    "differentiate",
    "explain",
    "kernel",
    "load",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOMES:
        raise AttributeError(f"module 'treadle' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
