"""Whether a module is at the level that a pass works on."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ApplyOp, CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.hierarchy import KernelOp
from treadle.passes._functions import functions

UNLOWERED = KernelOp | ApplyOp | CastOp | ContractOp | MapOp | ReduceOp | WhereOp


def check_lowered(module: ModuleOp) -> None:
    """Refuse a module with functions that hold work which no kernel of threads does yet: a pass on such kernels would
    change nothing, and say nothing."""
    for function in functions(module):
        for op in function.walk():
            if isinstance(op, UNLOWERED):
                raise Refusal(op, "it is not lowered to threads yet: run convert-hierarchy-to-cuda before this pass")
