"""`treadle compile --report`: what nvcc makes of the kernels, and whether that passes the gates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.gates import KernelReport, gate_lines, report_kernels, report_lines
from treadle.compiler.sass import DisassemblerUnavailable, Function, disassemble
from treadle.runtime.nvcc import Cubin


def code_lines(module: ModuleOp, cubin: Cubin | None) -> Iterator[str]:
    """Machine code and gates of each kernel; what cannot be known here is said."""
    if cubin is None:
        yield "  not known: nvcc was not found (registers, spills, warps on an SM, the main loop and every gate)"
        return
    functions, missing = _functions(cubin)
    for report in report_kernels(module, cubin.resources, functions):
        yield from (f"  {line}" for line in report_lines(report))
        yield from _gates(report)
    if missing:
        yield f"  the instructions are not known, nor the gates on them: {missing}"


def _functions(cubin: Cubin) -> tuple[Sequence[Function], str]:
    try:
        return disassemble(cubin.path), ""
    except DisassemblerUnavailable as error:
        return (), str(error)


def _gates(report: KernelReport) -> Iterator[str]:
    yield "    gates"
    yield from (f"    {line}" for line in gate_lines(report))
