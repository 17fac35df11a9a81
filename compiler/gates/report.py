"""What is known of each kernel's machine code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.gates.code import Code
from treadle.compiler.gates.step import Step, step_of
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.machines.machine import WARP
from treadle.compiler.sass import LoopTable
from treadle.dialects import cuda
from treadle.runtime.nvcc import Resources


@dataclass(frozen=True)
class KernelReport:
    """One kernel: what it takes, how many of it an SM holds, and what its main loop issues."""

    kernel: str
    machine: Machine
    threads: int
    dynamic_shared: int
    resources: Resources | None
    """What ptxas says; None without it."""
    code: Code | None
    """None without a disassembler."""
    step: Step | None
    """What a turn of the main loop computes; None if no loop multiplies."""

    @property
    def warps(self) -> int:
        """Of one block."""
        return self.threads // WARP

    @property
    def shared(self) -> int:
        """Bytes of a block, static and dynamic."""
        return self.dynamic_shared + (self.resources.shared_bytes if self.resources else 0)

    @property
    def blocks_on_sm(self) -> int | None:
        if self.resources is None:
            return None
        return self.machine.blocks_on_sm(self.warps, self.resources.registers, self.shared)

    @property
    def warps_on_sm(self) -> int | None:
        blocks = self.blocks_on_sm
        return None if blocks is None else blocks * self.warps

    @property
    def loop(self) -> LoopTable | None:
        return self.code.loop if self.code else None

    @property
    def copying_warps(self) -> int:
        """Warps of a block that start tensor copies to shared memory."""
        return sum(each < self.warps for each in self.code.copying) if self.code else 0

    @property
    def scores(self) -> float:
        """Scores of a lane in one turn of the loop in machine code, which may be several turns of the IR's."""
        if self.step is None or self.loop is None or not self.step.products:
            return 0
        return self.step.scores * self.loop.products / self.step.products

    @property
    def others_per_score(self) -> float | None:
        """Instructions of the main loop other than products, for each score of a lane."""
        return self.loop.others / self.scores if self.loop and self.scores else None

    @property
    def others_per_product(self) -> float | None:
        """Instructions of the main loop other than products, for each product, where there are no scores."""
        if self.loop is None or self.scores or not self.loop.products:
            return None
        return self.loop.others / self.loop.products


def report_kernels(
    module: ModuleOp, resources: Sequence[Resources] = (), codes: Mapping[str, Code] | None = None
) -> list[KernelReport]:
    """A report of every kernel of a module at `cuda` level, with what ptxas and the disassembler said of it."""
    machine = machine_of(module)
    by_name = {each.kernel: each for each in resources}
    codes = codes or {}
    return [
        KernelReport(
            kernel=(name := kernel.sym_name.data),
            machine=machine,
            threads=kernel.threads.data,
            dynamic_shared=cuda.shared_bytes(kernel, cuda.alignments(kernel)[0]),
            resources=by_name.get(name),
            code=codes.get(name),
            step=step_of(kernel, machine.capability),
        )
        for kernel in module.body.block.ops
        if isinstance(kernel, cuda.KernelOp)
    ]
