"""What a pass has decided for a kernel, in the form of its own options: asked for these, it does the same again, at any
sizes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.func import FuncOp

from treadle.dialects import cuda
from treadle.dialects.hierarchy import KernelOp

Kernel: TypeAlias = KernelOp | cuda.KernelOp | FuncOp
"""What is decided for: before there are kernels, a function."""
Values: TypeAlias = "tuple[str, ...] | tuple[int, ...] | tuple[bool, ...]"


@dataclass(frozen=True)
class Decision:
    """Options of a pass, by the names of its fields, for the kernel or function of this name."""

    kernel: str
    options: Mapping[str, Values]


Listener: TypeAlias = Callable[[Kernel, Decision], None]

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(listener: Listener) -> Generator[None]:
    """Let `listener` hear what is decided meanwhile, also for copies of kernels, on which passes try something."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def decide(kernel: Kernel, **options: str | int | bool | Values | None) -> None:
    """Say what the pass that runs has decided for a kernel, or a function without any yet; an option that is None is
    not decided. It says nothing of one that it would leave as it is whatever it is asked, nor what an earlier pass has
    decided: that is said where it was."""
    if (listener := _LISTENER.get()) is None:
        return
    stated = {name: value for name, value in options.items() if value is not None}
    values: dict[str, Values] = {
        name: value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportAssignmentType]
        for name, value in stated.items()
    }
    name = kernel.kernel_name if isinstance(kernel, KernelOp) else kernel.sym_name
    listener(kernel, Decision(name.data, values))
