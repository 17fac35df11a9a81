"""The registry of what instructions mean.

A meaning is registered for the beginning of an opcode and decodes one instruction, once a launch, into a step:

    @meaning("wgmma", "mma_async")
    def mma_async(instruction: Instruction, program: Program) -> Step:
        modifiers = Modifiers(instruction, taken=2)      # strict: what is not taken is refused by `end`
        read = program.reader(instruction.operands[0], "b32")   # -> Callable[[Threads], NDArray]
        write = program.writer(instruction.operands[1], "f32")  # -> Callable[[Threads, NDArray], None]

        def step(threads: Threads) -> int | None:
            write(threads, read(threads))

        return program.converged(step)   # for .sync.aligned: runs only with whole warps

A step is executed for threads of any blocks of the batch that stand at the instruction together. It gives None if they
go on behind it, the index of an instruction if they all jump there, and MOVED if it has said of each where it goes
(`Threads.go`, `sleep_here`, `sleep_behind`). Guards (`@p`) are seen to by the machine: a step gets those threads only
that execute it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from treadle.runtime.ptx.text.instruction import Instruction

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.program import Program
    from treadle.runtime.ptx.machine.threads import Threads

Step = Callable[["Threads"], "int | None"]
Decoder = Callable[[Instruction, "Program"], Step]

MOVED = -1
"""What a step gives that has placed its threads itself."""

TOPICS = (
    "instructions.arithmetic",
    "instructions.barriers",
    "instructions.bits",
    "instructions.clusters",
    "instructions.control",
    "instructions.conversions",
    "instructions.copies",
    "instructions.elections",
    "instructions.fences",
    "instructions.floats",
    "instructions.additions",
    "instructions.loads",
    "instructions.matrices",
    "instructions.matrix_stores",
    "instructions.predicates",
    "instructions.registers",
    "instructions.shuffles",
    "hopper.bulk_groups",
    "hopper.mbarriers",
    "hopper.tensor_copies",
    "hopper.wgmma",
)
"""The files that register meanings."""

_MEANINGS: dict[tuple[str, ...], Decoder] = {}


def meaning(*parts: str) -> Callable[[Decoder], Decoder]:
    """Registers a decoder for opcodes that begin with these parts."""

    def register(decoder: Decoder) -> Decoder:
        assert parts not in _MEANINGS, parts
        _MEANINGS[parts] = decoder
        return decoder

    return register


@cache
def _register_topics() -> None:
    for topic in TOPICS:
        import_module(f"treadle.runtime.ptx.{topic}")


def decode(instruction: Instruction, program: Program) -> Step:
    """The step of an instruction, by the longest opcode that is known (PtxUnknown)."""
    _register_topics()
    for length in range(len(instruction.parts), 0, -1):
        if (decoder := _MEANINGS.get(instruction.parts[:length])) is not None:
            return decoder(instruction, program)
    instruction.unknown("unknown instruction")
