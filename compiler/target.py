"""The target `cuda-c` of `xdsl-opt`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from treadle.compiler.errors import Reported, TreadleError
from treadle.compiler.printer.cuda_c import print_cuda_c
from treadle.compiler.synchronised import check_synchronised


@dataclass(frozen=True)
class CudaCTarget(Target):
    """Prints CUDA C: `xdsl-opt -p treadle -t cuda-c FILE`. A module that was read may be anybody's, so it is looked at
    once more (Reported); not with `cuda-c{checked=false}`, for parts of kernels that show how something is printed."""

    name = "cuda-c"

    checked: bool = True

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        try:
            if self.checked:
                check_synchronised(module)
        except TreadleError as error:
            raise Reported(error) from error
        output.write(print_cuda_c(module))
