"""An entry bound to a machine: where operands are read and written, and the steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.machine.meanings import MOVED, Step
from treadle.runtime.ptx.machine.special import SPECIAL, special_register
from treadle.runtime.ptx.text.instruction import (
    SINK,
    Address,
    Immediate,
    Instruction,
    Negated,
    Operand,
    Register,
    Symbol,
    Vector,
)
from treadle.runtime.ptx.types import BITS, TYPES, Array, constant

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.machine import Machine
    from treadle.runtime.ptx.machine.threads import Threads

Read = Callable[["Threads"], Array]
Write = Callable[["Threads", Array], None]


class Program:
    """The registers and steps of an entry on a machine."""

    def __init__(self, machine: Machine, registers: dict[str, str]) -> None:
        self.machine = machine
        self.registers: dict[str, Array] = {
            name: np.zeros(machine.size, np.bool_ if type == "pred" else BITS[TYPES[type].itemsize])
            for name, type in registers.items()
        }
        """Raw bits of each register, one element for each thread of the batch."""
        self.steps: list[Step] = []
        """What each instruction does."""

    def poison(self) -> None:
        """Registers that nobody has written hold 0xFF in every byte, a NaN in all formats."""
        for values in self.registers.values():
            values.fill(values.dtype.kind == "b" or np.iinfo(values.dtype).max)

    # -- operands ------------------------------------------------------------------------------

    def reader(self, operand: Operand, type: str, instruction: Instruction, wider: bool = False) -> Read:
        """Reads a register, special register, immediate or the address of a variable as a type (PtxUnknown). `wider`:
        a register may be wider than the type, whose low bits are read then (ISA section 9.4.1)."""
        if isinstance(operand, Immediate):
            try:
                value = constant(operand.text, type)
            except ValueError as error:
                instruction.unknown(str(error))
            return lambda threads: value
        if isinstance(operand, Symbol):
            return self._symbol(operand, type, instruction)
        if isinstance(operand, Negated) and type == "pred":
            held = self.view(operand.register, type, instruction)
            return lambda threads: ~held[threads.select]
        if not isinstance(operand, Register):
            instruction.unknown("expected a register or a number")
        held = self.view(operand, type, instruction, wider)
        return lambda threads: held[threads.select]

    def _symbol(self, symbol: Symbol, type: str, instruction: Instruction) -> Read:
        """The address of a variable in its memory."""
        dtype = TYPES[type]
        found = self.machine.variables.get(symbol.name)
        if found is None or dtype.itemsize < 4:
            instruction.unknown(f"'{symbol.name}' is no variable" if found is None else f"an address is no .{type}")
        if found.space == "shared":
            windows = self.machine.window
            return lambda threads: (windows[threads.select] + found.address).astype(dtype)
        value = np.array([found.address], dtype)
        return lambda threads: value

    def view(self, register: Register, type: str, instruction: Instruction, wider: bool = False) -> Array:
        """A register of all threads of the batch, as a type."""
        special = SPECIAL.get(register.name)
        held = self.registers.get(register.name) if special is None else special_register(self.machine, register.name)
        if held is None:
            instruction.unknown(f"no register '{register.name}'")
        dtype = TYPES[type]
        if (held.dtype.kind == "b") != (dtype.kind == "b") or held.itemsize < dtype.itemsize:
            instruction.unknown(f"register '{register.name}' is no .{type}")
        if held.itemsize == dtype.itemsize:
            return held.view(dtype)
        if not wider:
            instruction.unknown(f"register '{register.name}' is wider than .{type}")
        return held.view(dtype)[:: held.itemsize // dtype.itemsize]

    def writer(self, operand: Operand, type: str, instruction: Instruction, wider: bool = False) -> Write:
        """Writes values of the type's numpy dtype, or of its raw bits. `wider`: into a register that may be wider, by
        sign for `.s`, else with zeros (ISA section 9.4.2)."""
        if operand == SINK:
            return lambda threads, values: None
        if not isinstance(operand, Register) or operand.name in SPECIAL:
            instruction.unknown("expected a register to write to")
        dtype, held = TYPES[type], self.registers[operand.name]
        if wider and held.itemsize > dtype.itemsize:
            whole = held.view(np.dtype(f"{'i' if type[0] == 's' else 'u'}{held.itemsize}"))

            def extend(threads: Threads, values: Array) -> None:
                bits = values if values.dtype.kind in "iu" else values.view(BITS[dtype.itemsize])
                whole[threads.select] = bits.view(dtype if dtype.kind == "i" else bits.dtype)

            return extend
        view = self.view(operand, type, instruction)
        raw = held

        def write(threads: Threads, values: Array) -> None:
            if values.dtype == view.dtype:
                view[threads.select] = values
            else:
                raw[threads.select] = values.view(raw.dtype)

        return write

    def readers(self, operand: Operand, type: str, instruction: Instruction, wider: bool = False) -> list[Read]:
        """Of each element of a vector operand, or of one that is no vector."""
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        return [self.reader(each, type, instruction, wider) for each in elements]

    def writers(self, operand: Operand, type: str, instruction: Instruction, wider: bool = False) -> list[Write]:
        elements = operand.elements if isinstance(operand, Vector) else (operand,)
        return [self.writer(each, type, instruction, wider) for each in elements]

    def address(self, operand: Operand, instruction: Instruction) -> Read:
        """The address that an operand in brackets names, in 64 bits."""
        if not isinstance(operand, Address) or operand.coordinates is not None:
            instruction.unknown("expected an address in brackets")
        if isinstance(operand.base, Register):
            type = "u64" if self.view_width(operand.base, instruction) == 8 else "u32"
            base = self.reader(operand.base, type, instruction)
        else:
            base = self.reader(operand.base, "u64", instruction)
        offset = np.int64(operand.offset)
        return lambda threads: (base(threads).astype(np.int64) + offset).view(np.uint64)

    def view_width(self, register: Register, instruction: Instruction) -> int:
        """Bytes of a register."""
        if register.name not in self.registers:
            instruction.unknown(f"no register '{register.name}'")
        return self.registers[register.name].itemsize

    def label(self, operand: Operand, instruction: Instruction) -> int:
        """The instruction that a label names."""
        target = self.machine.labels.get(operand.name) if isinstance(operand, Symbol) else None
        if target is None:
            instruction.unknown("expected a label")
        return target

    # -- steps ---------------------------------------------------------------------------------

    def converged(self, step: Step, instruction: Instruction) -> Step:
        """Of `.sync.aligned`: executed by whole warps only; threads wait here for the others of their warp."""

        def together(threads: Threads) -> int | None:
            if threads.are_whole_warps:
                return step(threads)
            return self.split(threads, threads.in_whole_warps, step, instruction.index)

        return together

    def split(self, threads: Threads, ready: Array, step: Step, index: int) -> int:
        """Executes a step for the threads that are ready; the others wait here until more come."""
        self.machine.await_others(threads.lanes[~ready], index)
        if ready.any():
            self._place(threads.subset(ready), step, index)
        return MOVED

    def _place(self, threads: Threads, step: Step, index: int) -> None:
        """Executes a step, and places the threads wherever it says."""
        outcome = step(threads)
        if outcome != MOVED:
            threads.go(None, index + 1 if outcome is None else outcome)
