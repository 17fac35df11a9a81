"""What nvcc makes of the kernels, and whether that passes the gates: for reports and pages."""

from __future__ import annotations

from collections.abc import Iterator, Set

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import InternalError
from treadle.compiler.gates import Codes, KernelReport, codes_of_cubin, gate_lines, report_kernels, report_lines
from treadle.compiler.sass import DisassemblerUnavailable
from treadle.runtime.cache import CacheUnavailable
from treadle.runtime.nvcc import Cubin, NvccFailure, NvccUnavailable, compile_cubin


def machine_code(cuda: str, arch: str, file: str | None = None) -> Cubin | str:
    """What nvcc makes of printed CUDA C, or why there is nothing of it here (InternalError if nvcc refuses it)."""
    try:
        return compile_cubin(cuda, arch)
    except NvccFailure as error:
        raise InternalError(f"nvcc refuses what treadle printed: {error}", file) from error
    except (CacheUnavailable, NvccUnavailable) as error:
        return str(error)


def code_lines(module: ModuleOp, found: Cubin | str) -> Iterator[str]:
    """Machine code and gates of each kernel, or why they cannot be known here."""
    if isinstance(found, str):
        yield f"  not known (registers, spills, warps on an SM, the main loop and every gate): {found}"
        return
    codes, missing = _codes(found)
    reports = report_kernels(module, found.resources, codes)
    for report in reports:
        yield from (f"  {line}" for line in report_lines(report))
        yield from _gates(report)
    yield from _entries({report.kernel for report in reports}, found)
    if missing:
        yield f"  the instructions are not known, nor the gates on them: {missing}"


def _entries(reported: Set[str], cubin: Cubin) -> Iterator[str]:
    """What a launch takes where rows are aligned otherwise: no gate is about these."""
    others = [each for each in cubin.resources if each.kernel not in reported]
    if others:
        yield "  the same for arrays that are aligned otherwise"
    for each in others:
        yield f"    @{each.kernel}: {each.registers} registers, {each.spilled_bytes} bytes spilled a thread"


def _codes(cubin: Cubin) -> tuple[Codes, str]:
    try:
        return codes_of_cubin(cubin.path), ""
    except DisassemblerUnavailable as error:
        return {}, str(error)


def _gates(report: KernelReport) -> Iterator[str]:
    yield "    gates"
    yield from (f"    {line}" for line in gate_lines(report))
