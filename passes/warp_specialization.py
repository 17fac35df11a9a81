"""Give copies and products to different warps, where the machine has the means."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.passes import ModulePass

from treadle.compiler.machines import machine_of
from treadle.dialects import cuda
from treadle.dialects.hierarchy.schedule import StepAttr, record

FIRST_ARCH = 90
"""Registers can be moved between warps (`setmaxnreg`) and copies signal barriers from sm_90 on (PTX ISA 9.7.19.5)."""


@dataclass(frozen=True)
class WarpSpecializationPass(ModulePass):
    """Split the warps of a streamed kernel into a producer, which issues the copies of the next pieces, and consumers,
    which compute.

    Legal if every copy of the stream's step is asynchronous and completes on a barrier that the consumers wait for: the
    order of copies and uses is then kept by the barriers. The pass declines, and says why in the derivation, below
    sm_90, where a producer could not hand its registers to the consumers; for a kernel without a stream, in which
    there is nothing to overlap; and for one whose copies are not asynchronous, which is all of them until `pipelining`
    exists.

    Before:
    ```
    cuda.kernel @step_kernel (%n: index) threads 128 shared 0 {
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      scf.for %i = %zero to %n step %piece {
      }
    }
    func.func @step(%n: index) {
      cuda.launch @step_kernel grid %n aligned %n (%n) : index
      func.return
    }
    ```

    After:
    ```
    cuda.kernel @step_kernel (%n: index) threads 128 shared 0 {
      %zero = arith.constant 0 : index
      %piece = arith.constant 64 : index
      scf.for %i = %zero to %n step %piece {
      }
    }
    func.func @step(%n: index) attributes {derivation = [
        #hierarchy.step<"decline warp-specialization", "@step_kernel",
          "registers move between warps only from sm_90 on", "the machine a100 is sm_80">]} {
      cuda.launch @step_kernel grid %n aligned %n(%n) : index
      func.return
    }
    ```
    """

    name = "warp-specialization"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = machine_of(op)
        kernels = {kernel.sym_name.data: kernel for kernel in op.body.block.ops if isinstance(kernel, cuda.KernelOp)}
        for function in op.body.block.ops:
            if not isinstance(function, FuncOp):
                continue
            launches = [launch for launch in function.walk() if isinstance(launch, cuda.LaunchOp)]
            names = dict.fromkeys(launch.kernel.root_reference.data for launch in launches)
            record(
                function.attributes,
                [
                    StepAttr("decline warp-specialization", f"@{name}", *reason)
                    for name in names
                    if (reason := why_not(kernels[name], machine.name, machine.arch)) is not None
                ],
            )


def why_not(kernel: cuda.KernelOp, machine: str, arch: str) -> tuple[str, str] | None:
    """The law that is missing and the fact that shows it; None if the kernel can be specialised."""
    if int(arch.removeprefix("sm_").rstrip("af")) < FIRST_ARCH:
        return "registers move between warps only from sm_90 on", f"the machine {machine} is {arch}"
    streams = [op for op in kernel.walk() if isinstance(op, scf.ForOp)]
    if not streams:
        return "a producer overlaps copies with computation", "the kernel has no stream, so nothing to overlap"
    copies = [op for stream in streams for op in stream.walk() if isinstance(op, cuda.CopyOp | cuda.LoadOp)]
    if copies:
        return (
            "a producer's copies must be asynchronous",
            f"the {len(copies)} copies of the stream's step are not",
        )
    return "a producer overlaps copies with computation", "the stream's step copies nothing"
