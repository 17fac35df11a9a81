"""Let a turn take its powers from the maximum of the turns before, and look afterwards whether that was right."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from treadle.dialects import cuda
from treadle.dialects.cuda.roles import register_cap
from treadle.dialects.hierarchy.schedule import StepAttr, record
from treadle.passes._functions import function_of, launches_of_kernel
from treadle.passes._levels import check_lowered
from treadle.passes.loops.speculation import Speculation, needed_registers, speculate, speculation
from treadle.passes.warps.laws import Reason

LAW = "powers whose sum is within the slack are told from a maximum within the slack"


@dataclass(frozen=True)
class CudaSpeculatePass(ModulePass):
    """Let a turn take its powers from the maximum of the turns before, and look afterwards whether that was right."""

    name = "cuda-speculate"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        check_lowered(op)
        for kernel in [inner for inner in op.body.block.ops if isinstance(inner, cuda.KernelOp)]:
            roles, launches = cuda.roles_of(kernel), launches_of_kernel(kernel)
            if roles is None or not launches:
                continue
            registers = roles.registers[1] or register_cap(kernel.threads.data)
            loops = [inner for inner in roles.consumers.walk() if isinstance(inner, scf.ForOp)]
            for loop in loops:
                step = _try(kernel, loop, registers)
                if step is not None:
                    record(function_of(launches[0]).attributes, [step])


def _try(kernel: cuda.KernelOp, loop: scf.ForOp, registers: int) -> StepAttr | None:
    found = speculation(loop, registers)
    if found is None:
        return None
    subject = f"@{kernel.sym_name.data}"
    if isinstance(found, Reason):
        return StepAttr("decline cuda-speculate", subject, found.law, found.fact)
    told = _told(found)
    speculate(found)
    return StepAttr("cuda-speculate", subject, LAW, told)


def _told(found: Speculation) -> str:
    power, extremum = found.sum.operand.name_hint, found.extremum.result.name_hint
    return (
        f"%{power} before %{extremum} is known, again where a lane's sum is above {found.limit:g}; "
        f"{needed_registers(found)} registers"
    )
