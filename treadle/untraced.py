# pyright: standard
"""What PyTorch's compiler is to call and not to read: its eyes on everything that runs below a compiled function would
make tensors of the numbers that this compiler reckons with."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

SEEN_THROUGH = "torch.compile and torch.export see through kernels that treadle.torch.operator(name, kernel) registers"


P = ParamSpec("P")
R = TypeVar("R")


def untraced(function: Callable[P, R]) -> Callable[P, R]:
    """`function`, called as it is where a function that `torch.compile` took calls it, and all below it too.

    Where a whole graph is asked for, PyTorch says why there is none (`SEEN_THROUGH`)."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> R:
        if (_asked or _found())() is not None:  # as `is_watched`, without another call
            return (_APART.get(function) or _set_apart(function))(*arguments, **named)
        return function(*arguments, **named)

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    call._torchdynamo_disable_msg = SEEN_THROUGH  # type: ignore[attr-defined]
    return call


def is_watched() -> bool:
    """Whether PyTorch's compiler looks at what runs in this thread."""
    return (_asked or _found())() is not None


_asked: Callable[[], Any] | None = None


def _found() -> Callable[[], Any]:
    """How PyTorch is asked. Torch is not to be imported for this: where it is not loaded, it compiles nothing. A
    version that cannot be asked may always look."""
    global _asked
    frames = sys.modules.get("torch._C._dynamo.eval_frame")
    if frames is None:
        return lambda: None
    found: Callable[[], Any] = getattr(frames, "get_eval_frame_callback", lambda: frames)
    _asked = found
    return found


_APART: dict[Callable[..., Any], Callable[..., Any]] = {}


def _set_apart(function: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    _APART[function] = torch.compiler.disable(function, reason=SEEN_THROUGH)
    return _APART[function]
