"""Registers of a turn that takes its powers first, and the blocks that they leave on a multiprocessor.

Scores stand until their powers are known to be right, and powers beside those of the turn before, so that a thread has
more registers: with heads of 64 in steps of 64 keys 128 for 110. Where roles share out all registers of a
multiprocessor, it holds one block either way. Where they do not, more registers may leave fewer blocks, which hide each
other's waits; then a turn keeps its order. Else the kernel states the blocks that it leaves (`resident`), for ptxas
takes more registers than it needs where nothing is stated: 138 in that case, which leave one block for two."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from xdsl.dialects.builtin import IntAttr
from xdsl.ir import SSAValue

from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import WARP
from treadle.dialects import cuda
from treadle.dialects.cuda.roles import register_cap
from treadle.dialects.cuda.tiles import is_fragment, layout_of
from treadle.dialects.diagram.array import format_of
from treadle.dialects.diagram.formats import FORMAT_BYTES
from treadle.passes.speculation.law import Speculation
from treadle.passes.warps.laws import Reason

OTHER_REGISTERS = 22
"""Of a thread beside the fragments of a loop: where it is, addresses, descriptors, and what is on its way."""


@dataclass(frozen=True)
class Registers:
    """What a thread of a kernel's consumers has."""

    kernel: cuda.KernelOp
    roles: cuda.RolesOp
    machine: Machine

    @property
    def granted(self) -> int:
        """By its role, or beside the blocks that the kernel states."""
        resident = 1 if self.kernel.resident is None else self.kernel.resident.data
        return self.roles.registers[1] or register_cap(self.kernel.threads.data, resident)

    def blocks(self, registers: int) -> int:
        """That a multiprocessor holds where a thread has so many."""
        if any(self.roles.registers):
            return 1
        warps = self.kernel.threads.data // WARP
        return int(self.machine.blocks_on_sm(warps, registers, self.kernel.shared_bytes.data))

    def why_not(self, found: Speculation) -> Reason | None:
        """Why a turn cannot keep its scores until its powers are known."""
        need, before = needed_registers(found), registers_before(found)
        if need > self.granted:
            fact = f"{need} registers of a thread, which has {self.granted}"
            return Reason("a turn's scores stay until its powers are known", fact)
        if self.blocks(need) < self.blocks(before):
            fact = f"{need} registers of a thread leave {self.blocks(need)}, and {before} leave {self.blocks(before)}"
            return Reason("a multiprocessor holds as many blocks", fact)
        return None

    def state(self, registers: int) -> None:
        """Have the kernel state the blocks that so many registers leave."""
        blocks = self.blocks(registers)
        if blocks > 1 and self.kernel.resident is None:
            self.kernel.resident = IntAttr(blocks)


def needed_registers(found: Speculation) -> int:
    """Of a thread, while the scores of a turn stand beside its powers and all that the loop carries."""
    again = [value for value in found.wanted if found.made_again(value)]
    return registers_before(found) + sum(map(registers_of, again))


def registers_before(found: Speculation) -> int:
    """Of a thread as the loop stands: powers take the place of the scores that they are told from, one by one."""
    products = (op for op in found.loop.walk() if isinstance(op, cuda.WarpgroupProductOp))
    lefts = dict.fromkeys(op.lhs for op in products if isinstance(op.lhs.owner, cuda.ReadOp))
    held = [*found.loop.body.block.args[1:], found.extremum.operand, *found.carried, *lefts]
    return sum(map(registers_of, held)) + OTHER_REGISTERS


def registers_of(value: SSAValue) -> int:
    """Of a thread, 4 bytes each, that hold a fragment."""
    if not is_fragment(value.type):
        return 1
    return -(-prod(layout_of(value.type).register_shape) * FORMAT_BYTES[str(format_of(value.type))] // 4)
