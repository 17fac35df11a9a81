"""Half precision (PTX ISA, section "Half Precision Floating Point Instructions"): one number of 16 bits, or two in a
register of 32, each by itself. Subnormal numbers are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from treadle.runtime.ptx.machine.meanings import Step
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction
from treadle.runtime.ptx.types import Array

FORMATS: dict[str, tuple[np.dtype[Any], str]] = {
    "f16": (np.dtype(np.float16), "b16"),
    "f16x2": (np.dtype(np.float16), "b32"),
    "bf16": (np.dtype(ml_dtypes.bfloat16), "b16"),
    "bf16x2": (np.dtype(ml_dtypes.bfloat16), "b32"),
}
"""What numpy calls the numbers of each type, and the register that holds it."""

# In float64, where sums and products of these formats are exact or, where a sum is not, differ from a tie of the format
# as the exact sum does: they are rounded once.
_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}


def is_half(instruction: Instruction) -> bool:
    return instruction.parts[-1] in FORMATS


def simple(instruction: Instruction, program: Program) -> Step:
    """add, sub, mul{.rn} of .f16, .f16x2, .bf16, .bf16x2: to nearest even (.ftz and .sat are not known here)."""
    modifiers = instruction.modifiers
    modifiers.flag("rn")
    type = modifiers.choice(*FORMATS)
    modifiers.end()
    instruction.expect(3)
    compute, (dtype, held) = _TWO[instruction.parts[0]], FORMATS[type]
    write = program.writer(instruction.operands[0], held, instruction)
    reads = [program.reader(each, held, instruction) for each in instruction.operands[1:]]

    def step(threads: Threads) -> None:
        a, b = (np.ascontiguousarray(read(threads)).view(dtype).astype(np.float64) for read in reads)
        with np.errstate(all="ignore"):
            made = compute(a, b).astype(dtype)
        write(threads, made.view(f"u{int(held[1:]) // 8}"))

    return step
