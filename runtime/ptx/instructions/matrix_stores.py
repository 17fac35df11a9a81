"""Matrices from registers to shared memory: stmatrix (PTX ISA 9.7.14.5.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.text.instruction import Instruction, Modifiers, Vector

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.program import Program

ROW_BYTES = 16


@meaning("stmatrix", "sync", "aligned", "m8n8")
def stmatrix(instruction: Instruction, program: Program) -> Step:
    """One, two or four 8x8 matrices of 16 bits: lane l holds two neighbours of row l / 4 of each, from column 2 (l % 4)
    on, or with .trans of column l / 4; lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i."""
    modifiers = Modifiers(instruction, taken=4)
    count = int(modifiers.choice("x1", "x2", "x4")[1])
    is_transposed = modifiers.flag("trans")
    modifiers.choice("shared", "shared::cta")
    modifiers.require("b16")
    modifiers.end()
    instruction.expect(2)
    to, source = instruction.operands
    if not isinstance(source, Vector) or len(source.elements) != count:
        instruction.unknown(f"expected a vector of {count} registers")
    address = program.address(to, instruction)
    reads = program.readers(source, "b32", instruction)

    def step(threads: Threads) -> None:
        words = np.stack([threads.full(read(threads)) for read in reads], axis=1)
        halves = words.view(np.uint16).reshape(-1, 8, 4, count, 2)
        # (warp, matrix, row, column) of what each lane holds as l / 4, l % 4, matrix, which of two.
        rows = halves.transpose(0, 3, 1, 2, 4).reshape(-1, count, 8, 8)
        rows = rows.swapaxes(2, 3) if is_transposed else rows
        gives = threads.machine.thread_index[threads.select] % WARP < 8 * count
        some = threads.subset(gives)
        places = program.machine.shared.locate(some, threads.full(address(threads))[gives], ROW_BYTES, ROW_BYTES)
        program.machine.shared.bytes.reshape(-1, ROW_BYTES)[places // ROW_BYTES] = (
            np.ascontiguousarray(rows).view(np.uint8).reshape(-1, ROW_BYTES)
        )

    return program.converged(step, instruction)
