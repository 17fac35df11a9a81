"""Runs a program of this compiler: kernels where treadle runs them, `net.embed` in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from net_compiler.dialect import EmbedOp, Net
from net_compiler.net_to_cuda import NetToCudaPass
from treadle.compiler.pipeline import print_cuda
from treadle.compiler.source import make_context, parse_module
from treadle.dialects.cuda import kernel_names
from treadle.runtime.backend import Backend
from treadle.runtime.emulator.backend import EmulatorBackend
from treadle.runtime.host import execute


def context() -> Context:
    """The dialects of treadle's programs, and this one."""
    context = make_context()
    context.load_dialect(Net)
    return context


def embed(op: EmbedOp, ids: Any, table: Any) -> Any:
    return np.take(table, ids, axis=0)


FOREIGN = {EmbedOp: embed}


def compiled(text: str, machine: str = "a100") -> ModuleOp:
    """A program, lowered to kernels and a host function."""
    module = parse_module(text, "model.mlir", context())
    NetToCudaPass(machine).apply(context(), module)
    return module


def backend_of(module: ModuleOp) -> Backend:
    """Where the kernels of a lowered program run. On a GPU: `GpuBackend(cuda, kernels, machine_of(module).arch)`."""
    return EmulatorBackend(print_cuda(module), kernel_names(module))


def run(module: ModuleOp, *arguments: Any) -> tuple[Any, ...]:
    """The results of a lowered program."""
    return execute(module, arguments, backend_of(module), foreign=FOREIGN)
