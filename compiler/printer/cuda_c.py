"""A module at `cuda` level as one CUDA C file."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import DiagnosticException

from treadle.compiler import primitives
from treadle.compiler.errors import Refusal
from treadle.compiler.printer.kernel import KernelPrinter
from treadle.compiler.printer.launches import launches_of
from treadle.compiler.printer.text import Text
from treadle.dialects import cuda
from treadle.dialects.diagram import ReadOp
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.formats import EIGHT_BIT, NUMBER_FORMATS
from treadle.dialects.hierarchy.schedule import derivation_of


def print_cuda_c(module: ModuleOp) -> str:
    """The CUDA C of every kernel of a module, with the primitives they use at its head.

    Raises DiagnosticException if there is no kernel, or an operation that has no CUDA C."""
    kernels = [op for op in module.body.block.ops if isinstance(op, cuda.KernelOp)]
    if not kernels:
        raise _nothing_to_print(module)
    launches = launches_of(module)
    printers = [KernelPrinter(kernel, launches.get(kernel.sym_name.data)) for kernel in kernels]
    bodies = [printer.print() for printer in printers]
    uses = {name for printer in printers for name in printer.uses}
    if any(NUMBER_FORMATS[name].c_type in body for name in EIGHT_BIT for body in bodies):
        uses.add("eight_bit")
    return "\n".join([_title(module), primitives.source(uses), *bodies])


def _nothing_to_print(module: ModuleOp) -> DiagnosticException:
    functions = [op for op in module.body.block.ops if isinstance(op, FuncOp) and not op.is_declaration]
    computing = any(_is_for_kernels(op) for function in functions for op in function.walk())
    if not functions or computing:
        return DiagnosticException(
            "the module has no cuda.kernel: run convert-hierarchy-to-cuda before printing (a derivation, too)"
        )
    why = "it computes nothing: what it returns lies in its arguments, so there is no kernel to print"
    return Refusal(functions[0], f"{why}. Let it return what it computes")


def _is_for_kernels(op: Operation) -> bool:
    """Whether lowering makes a kernel of it: reads and regroupings outside of kernels are views, which the
    host makes."""
    return op.dialect_name() in ("diagram", "hierarchy") and not isinstance(op, ReadOp | Regrouping)


def _title(module: ModuleOp) -> str:
    text = Text()
    text.line(
        "// CUDA C printed by treadle, for nvcc -std=c++17 -fmad=false: where a product and a sum are one operation, it"
    )
    text.line("// says fmaf. How it was derived:")
    for op in module.body.block.ops:
        for step in derivation_of(op.attributes):
            rewrite, subject, law, reason = step.texts()
            text.comment(f"  {rewrite} {subject}: {law}{'; ' + reason if reason else ''}")
    text.line()
    return "\n".join(text.lines)
