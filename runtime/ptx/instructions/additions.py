"""Additions to memory that are done at once, whoever else adds there (PTX ISA, section "red")."""

from __future__ import annotations

import numpy as np

from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction, Vector
from treadle.runtime.ptx.types import TYPES


@meaning("red")
def add(instruction: Instruction, program: Program) -> Step:
    """red.relaxed.gpu.global.add{.vec}.type [a], b: floats that are not normal are zeros, before and after."""
    modifiers = instruction.modifiers
    for word in ("relaxed", "gpu", "global", "add"):
        modifiers.choice(word)
    vector = modifiers.choice("v2", "v4", default="v1")
    type = modifiers.choice("f32", "s32", "u32")
    modifiers.end()
    instruction.expect(2)
    count, (to, source) = int(vector[1]), instruction.operands
    reads = program.readers(source, type, instruction)
    if len(reads) != count or isinstance(source, Vector) != (count > 1) or (count > 1 and type != "f32"):
        instruction.unknown(f"{len(reads)} registers of {type} for {count} elements")
    address, dtype = program.address(to, instruction), TYPES[type]
    nbytes = dtype.itemsize

    def step(threads: Threads) -> None:
        place = address(threads)
        for i, read in enumerate(reads):
            values, align = threads.full(read(threads)), nbytes * count if i == 0 else nbytes
            threads.machine.memory.add(threads, place + np.uint64(i * nbytes), values.view(dtype), align)

    return step
