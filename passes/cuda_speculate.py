"""Let a turn take its powers from the maximum of the turns before, and look afterwards whether that was right."""

from __future__ import annotations

from collections.abc import Iterator
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
from treadle.passes.speculation.law import Speculation, needed_registers, speculation
from treadle.passes.speculation.rewrite import speculate
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
            steps = list(_speculate(kernel, roles, registers))
            if steps:
                record(function_of(launches[0]).attributes, steps)


def _speculate(kernel: cuda.KernelOp, roles: cuda.RolesOp, registers: int) -> Iterator[StepAttr]:
    subject = f"@{kernel.sym_name.data}"
    loops = [inner for inner in roles.consumers.walk() if isinstance(inner, scf.ForOp)]
    every = [each for loop in loops if (each := speculation(loop, registers)) is not None]
    found = [each for each in every if isinstance(each, Speculation)]
    are_peeled = not all(each.is_masked for each in found)
    for each in every:
        if isinstance(each, Reason):
            yield StepAttr("decline cuda-speculate", subject, each.law, each.fact)
        elif each.is_masked and are_peeled:
            fact = f"%{each.extremum.operand.name_hint} has absent elements in each turn of its loop"
            yield StepAttr(
                "decline cuda-speculate", subject, "turns that conditions cut are few where they are peeled", fact
            )
        else:
            told = _told(each)
            speculate(each)
            yield StepAttr("cuda-speculate", subject, LAW, told)


def _told(found: Speculation) -> str:
    power, extremum = found.sum.operand.name_hint, found.extremum.result.name_hint
    return (
        f"%{power} before %{extremum} is known, again where a lane's sum is above {found.limit:g}; "
        f"{needed_registers(found)} registers"
    )
