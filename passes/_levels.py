"""Whether a module is at the level that a pass works on, and its kernels there."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import Refusal
from treadle.dialects import cuda
from treadle.dialects.diagram import (
    ApplyOp,
    CastOp,
    ContractOp,
    MapOp,
    RecurrenceOp,
    ReduceOp,
    ScanOp,
    ScatterOp,
    SwapOp,
    WhereOp,
)
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions

UNLOWERED = (
    KernelOp | ApplyOp | CastOp | ContractOp | MapOp | RecurrenceOp | ReduceOp | ScanOp | ScatterOp | SwapOp | WhereOp
)


def check_lowered(module: ModuleOp) -> None:
    """Refuse a module with functions that hold work which no kernel of threads does yet: a pass on such kernels would
    change nothing, and say nothing."""
    for function in functions(module):
        for op in function.walk():
            if isinstance(op, UNLOWERED):
                raise Refusal(op, "it is not lowered to threads yet: run convert-hierarchy-to-cuda before this pass")


def lowered_kernels(module: ModuleOp, name: str) -> list[cuda.KernelOp]:
    """The kernels of threads, or the one of that name (Refusal if there is none)."""
    found = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]
    named = [kernel for kernel in found if name in ("", kernel.sym_name.data)]
    if name and not named:
        names = ", ".join(f"@{kernel.sym_name.data}" for kernel in found) or "none"
        raise Refusal(module, f"there is no kernel @{name} (kernels are {names})")
    return named
