"""Opcodes that integers and floats share, by the type at their end."""

from __future__ import annotations

from treadle.runtime.ptx.instructions import floats, halves, integers
from treadle.runtime.ptx.machine.meanings import Decoder, Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.text.instruction import Instruction

_INTEGER: dict[str, Decoder] = {
    **dict.fromkeys(("add", "sub", "min", "max"), integers.simple),
    **dict.fromkeys(("neg", "abs"), integers.negate_or_absolute),
    **dict.fromkeys(("div", "rem"), integers.quotient),
    **dict.fromkeys(("mul", "mad"), integers.product),
}
_FLOAT: dict[str, Decoder] = {
    **dict.fromkeys(("add", "sub", "mul"), floats.simple),
    **dict.fromkeys(("min", "max"), floats.extreme),
    **dict.fromkeys(("neg", "abs"), floats.sign),
    "div": floats.quotient,
}
_HALF: dict[str, Decoder] = dict.fromkeys(("add", "sub", "mul"), halves.simple)


def _register(opcode: str) -> None:
    @meaning(opcode)
    def decode(instruction: Instruction, program: Program) -> Step:
        known = _INTEGER if integers.is_integer(instruction) else _HALF if halves.is_half(instruction) else _FLOAT
        if opcode not in known:
            instruction.unknown("unknown instruction")
        return known[opcode](instruction, program)


for _opcode in sorted({*_INTEGER, *_FLOAT}):
    _register(_opcode)
