"""A kernel alone in a module of its own, on which passes that come later are tried."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from treadle.dialects.hierarchy import KernelOp


def alone(module: ModuleOp, function: func.FuncOp, kernel: KernelOp) -> tuple[ModuleOp, func.FuncOp]:
    """A module for the same machine, whose one function, with the likely sizes of `function`, calls a kernel on its
    arguments. The kernel stands nowhere yet."""
    trial = func.FuncOp("trial", ([value.type for value in kernel.operands], [value.type for value in kernel.outputs]))
    kernel.operands = trial.body.block.args
    trial.body.block.add_ops([kernel, func.ReturnOp(*kernel.outputs)])
    if "sizes" in function.attributes:
        trial.attributes["sizes"] = function.attributes["sizes"]
    return ModuleOp([trial], dict(module.attributes)), trial
