"""What a moment of a compilation costs, as lines to compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.draw.columns import columns_of
from treadle.compiler.draw.costs import KernelCost, bytes_text, explain_kernels
from treadle.compiler.draw.mathtext import plain_text
from treadle.compiler.draw.read import read_program
from treadle.compiler.draw.table import table_of
from treadle.compiler.errors import TreadleError
from treadle.dialects.cuda import KernelOp as CudaKernelOp

Costs: TypeAlias = dict[str, str]
"""What is counted, and how much that is, in words."""


def costs_of(module: ModuleOp, sizes: Mapping[str, int]) -> Costs:
    """In numbers as soon as all sizes are chosen, in symbols before."""
    compiled = [op for op in module.walk() if isinstance(op, CudaKernelOp)]
    if compiled:
        return {key: text for op in compiled for key, text in _of_compiled(op).items()}
    try:
        explanation = explain_kernels(module, sizes)
    except TreadleError:  # a size that nobody knows
        explanation = None
    if explanation is None:
        return _in_symbols(module)
    return {key: text for kernel in explanation.kernels for key, text in _of_kernel(kernel).items()}


def _of_compiled(op: CudaKernelOp) -> Costs:
    at = f"@{op.sym_name.data}"
    return {
        f"{at} threads of a block": str(op.threads.data),
        f"{at} shared memory of a block": f"{op.shared_bytes.data:,} B",
    }


def _of_kernel(kernel: KernelCost) -> Costs:
    at = f"@{kernel.name}"
    costs = {f"{at} H, {level.name}": bytes_text(level.transfer_bytes) for level in kernel.levels}
    costs |= {
        f"{at} M, {level.name}": f"{bytes_text(level.memory_bytes)} of {bytes_text(level.capacity_bytes)}"
        for level in kernel.levels
        if level.name != "device"
    }
    time = "does not fit" if kernel.time_us is None else f"{kernel.time_us:.3g} us, bound by {kernel.bottleneck}"
    return costs | {f"{at} time (estimate)": time, f"{at} blocks": f"{kernel.blocks}, {kernel.waves:.2f} waves"}


def _in_symbols(module: ModuleOp) -> Costs:
    diagram = read_program(module)
    table = table_of(columns_of(diagram), {})
    if not table.rows:
        return {"functions, each a kernel of its own": str(len(diagram.nodes))}
    return {f"{plain_text(row.head)}, in values": plain_text(" + ".join(row.total)) for row in table.rows}
