"""Logic, shifts and bytes (PTX ISA, section "Logic and Shift Instructions"; bfi among the integers, prmt among the
moves there)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.runtime.ptx.instructions.integers import binary, unary
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction
from treadle.runtime.ptx.types import Array

_LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


def _type(instruction: Instruction, *types: str) -> str:
    modifiers = instruction.modifiers
    type = modifiers.choice(*types)
    modifiers.end()
    return type


@meaning("and")
@meaning("or")
@meaning("xor")
def logic(instruction: Instruction, program: Program) -> Step:
    """and, or, xor of predicates and bits."""
    type = _type(instruction, "pred", "b16", "b32", "b64")
    return binary(instruction, program, _LOGIC[instruction.parts[0]], type)


@meaning("not")
def complement(instruction: Instruction, program: Program) -> Step:
    return unary(instruction, program, np.invert, _type(instruction, "pred", "b16", "b32", "b64"))


@meaning("shl")
@meaning("shr")
def shift(instruction: Instruction, program: Program) -> Step:
    """shl, shr: by a u32; as many bits as the type has, or more, shift all out (the sign stays, of .s)."""
    left = instruction.parts[0] == "shl"
    type = _type(instruction, *("b16", "b32", "b64"), *(() if left else ("u16", "u32", "u64", "s16", "s32", "s64")))
    instruction.expect(3)
    bits = int(type[1:])
    write = program.writer(instruction.operands[0], type, instruction)
    a = program.reader(instruction.operands[1], type, instruction)
    by = program.reader(instruction.operands[2], "u32", instruction)

    def step(threads: Threads) -> None:
        value, amount = a(threads), by(threads)
        within = np.minimum(amount, bits - 1).astype(value.dtype)
        made = value << within if left else value >> within
        out = amount >= bits
        write(threads, np.where(out, value >> (bits - 1) if type[0] == "s" else 0, made).astype(value.dtype))

    return step


@meaning("bfi")
def insert(instruction: Instruction, program: Program) -> Step:
    """bfi.b32/.b64 f, a, b, c, d: the low d bits of a over those of b from bit c on."""
    type = _type(instruction, "b32", "b64")
    instruction.expect(5)
    write = program.writer(instruction.operands[0], type, instruction)
    a, b = (program.reader(each, type, instruction) for each in instruction.operands[1:3])
    start, length = (program.reader(each, "u32", instruction) for each in instruction.operands[3:])
    bits = int(type[1:])

    def step(threads: Threads) -> None:
        into = b(threads)
        first, count = start(threads) & 0xFF, length(threads) & 0xFF
        full = np.uint64((1 << bits) - 1)
        ones = np.where(
            count >= bits, full, (np.uint64(1) << np.minimum(count, bits - 1).astype(np.uint64)) - np.uint64(1)
        )
        at = np.minimum(first, 63).astype(np.uint64)
        mask = np.where(first >= bits, np.uint64(0), (ones << at) & full)
        new = (a(threads).astype(np.uint64) << at) & mask
        write(threads, (new | (into.astype(np.uint64) & ~mask)).astype(into.dtype))

    return step


@meaning("prmt")
def permute(instruction: Instruction, program: Program) -> Step:
    """prmt.b32 d, a, b, c: byte i of d is the byte of {b, a} that nibble i of c names, or that byte's sign, eight
    times, where the nibble's highest bit is set. Its modes (.f4e, ...) are not known here."""
    type = _type(instruction, "b32")
    instruction.expect(4)
    write = program.writer(instruction.operands[0], type, instruction)
    a, b, c = (program.reader(each, type, instruction) for each in instruction.operands[1:])

    def step(threads: Threads) -> None:
        both = a(threads).astype(np.uint64) | (b(threads).astype(np.uint64) << np.uint64(32))
        choice = c(threads).astype(np.uint64)
        made: Array = np.zeros(1, np.uint64)
        for i in range(4):
            nibble = (choice >> np.uint64(4 * i)) & np.uint64(15)
            byte: Array = (both >> ((nibble & np.uint64(7)) * np.uint64(8))) & np.uint64(0xFF)
            byte = np.where(nibble & np.uint64(8), (byte >> np.uint64(7)) * np.uint64(0xFF), byte)
            made = made | (byte << np.uint64(8 * i))
        write(threads, made.astype(np.uint32))

    return step


@meaning("popc")
def count_bits(instruction: Instruction, program: Program) -> Step:
    """popc.b32/.b64: how many bits are set, in 32 bits."""
    type = _type(instruction, "b32", "b64")
    instruction.expect(2)
    write = program.writer(instruction.operands[0], "u32", instruction)
    a = program.reader(instruction.operands[1], type, instruction)

    def step(threads: Threads) -> None:
        write(threads, np.bitwise_count(a(threads)).astype(np.uint32))

    return step
