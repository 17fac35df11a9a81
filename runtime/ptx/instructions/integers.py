"""Integer arithmetic (PTX ISA, section "Integer Arithmetic Instructions"). Sums and low products wrap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.runtime.ptx.machine.meanings import Step
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction
from treadle.runtime.ptx.types import Array

SIZES = ("16", "32", "64")
INTEGERS = tuple(f"{kind}{size}" for kind in "us" for size in SIZES)

_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "min": np.minimum,
    "max": np.maximum,
}


def is_integer(instruction: Instruction) -> bool:
    return instruction.parts[-1] in INTEGERS


def binary(instruction: Instruction, program: Program, compute: Callable[[Array, Array], Array], type: str) -> Step:
    """d = compute(a, b), all of one type."""
    instruction.expect(3)
    write = program.writer(instruction.operands[0], type, instruction)
    a, b = (program.reader(each, type, instruction) for each in instruction.operands[1:])

    def step(threads: Threads) -> None:
        write(threads, compute(a(threads), b(threads)))

    return step


def unary(instruction: Instruction, program: Program, compute: Callable[[Array], Array], type: str) -> Step:
    """d = compute(a), both of one type."""
    instruction.expect(2)
    write = program.writer(instruction.operands[0], type, instruction)
    a = program.reader(instruction.operands[1], type, instruction)

    def step(threads: Threads) -> None:
        write(threads, compute(a(threads)))

    return step


def simple(instruction: Instruction, program: Program) -> Step:
    """add, sub, min, max (.sat, .cc and .relu are not known here)."""
    modifiers = instruction.modifiers
    type = modifiers.choice(*INTEGERS)
    modifiers.end()
    return binary(instruction, program, _TWO[instruction.parts[0]], type)


def negate_or_absolute(instruction: Instruction, program: Program) -> Step:
    """neg, abs: of signed integers; the smallest one stays, as it wraps."""
    modifiers = instruction.modifiers
    type = modifiers.choice("s16", "s32", "s64")
    modifiers.end()
    return unary(instruction, program, np.negative if instruction.parts[0] == "neg" else np.abs, type)


def quotient(instruction: Instruction, program: Program) -> Step:
    """div, rem: towards zero. Of a divisor 0 the ISA says nothing, so that it is refused."""
    modifiers = instruction.modifiers
    type = modifiers.choice(*INTEGERS)
    modifiers.end()
    instruction.expect(3)
    remainder, signed = instruction.parts[0] == "rem", type[0] == "s"
    write = program.writer(instruction.operands[0], type, instruction)
    a, b = (program.reader(each, type, instruction) for each in instruction.operands[1:])

    def step(threads: Threads) -> None:
        dividend, divisor = a(threads), b(threads)
        threads.check(divisor != 0, "an integer is divided by 0")
        with np.errstate(over="ignore"):
            if remainder:
                write(threads, np.fmod(dividend, divisor))
                return
            floor = dividend // divisor
            inexact = signed & (floor * divisor != dividend) & ((dividend < 0) != (divisor < 0))
            write(threads, floor + inexact.astype(floor.dtype) if signed else floor)

    return step


def product(instruction: Instruction, program: Program) -> Step:
    """mul, mad with .lo, .hi or .wide: the low or high half of the product, or all of it, and with mad a sum."""
    modifiers = instruction.modifiers
    part = modifiers.choice("lo", "hi", "wide")
    type = modifiers.choice(*INTEGERS)
    modifiers.end()
    adds = instruction.parts[0] == "mad"
    instruction.expect(4 if adds else 3)
    result = _wider(type, instruction) if part == "wide" else type
    write = program.writer(instruction.operands[0], result, instruction)
    a, b = (program.reader(each, type, instruction) for each in instruction.operands[1:3])
    c = program.reader(instruction.operands[3], result, instruction) if adds else None
    compute = _PARTS[part]

    def step(threads: Threads) -> None:
        made = compute(a(threads), b(threads))
        write(threads, made if c is None else made + c(threads))

    return step


def _wider(type: str, instruction: Instruction) -> str:
    if type[1:] == "64":
        instruction.unknown("there are no integers of 128 bits")
    return f"{type[0]}{2 * int(type[1:])}"


def _wide(a: Array, b: Array) -> Array:
    wide = np.dtype(f"{a.dtype.kind}{2 * a.itemsize}")
    return a.astype(wide) * b.astype(wide)


def _high(a: Array, b: Array) -> Array:
    if a.itemsize < 8:
        return (_wide(a, b) >> (8 * a.itemsize)).astype(a.dtype)
    shape = np.broadcast_shapes(a.shape, b.shape)
    whole = [int(x) * int(y) >> 64 for x, y in np.broadcast(a, b)]
    return np.array([each & (1 << 64) - 1 for each in whole], np.uint64).view(a.dtype).reshape(shape)


_PARTS: dict[str, Callable[[Array, Array], Array]] = {"lo": lambda a, b: a * b, "hi": _high, "wide": _wide}
