"""What a kernel's machine code must be, as numbers that are known without a GPU."""

from treadle.compiler.gates.checks import Gate, check
from treadle.compiler.gates.code import Code, Codes, codes_of_cubin
from treadle.compiler.gates.report import KernelReport, report_kernels
from treadle.compiler.gates.step import Step, step_of
from treadle.compiler.gates.text import gate_lines, report_lines

__all__ = [
    "Code",
    "Codes",
    "Gate",
    "KernelReport",
    "Step",
    "check",
    "codes_of_cubin",
    "gate_lines",
    "report_kernels",
    "report_lines",
    "step_of",
]
