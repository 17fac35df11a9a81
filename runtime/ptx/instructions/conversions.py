"""Moves and conversions (PTX ISA, section "Data Movement and Conversion Instructions": mov, cvt, cvta)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.runtime.ptx.instructions.conversion_rules import (
    INTEGER_ROUNDINGS,
    converted,
    converted_to_integer,
    packed,
    unpacked,
)
from treadle.runtime.ptx.instructions.integers import unary
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.machine.windows import from_generic, to_generic
from treadle.runtime.ptx.text.instruction import Instruction, Modifiers, Vector
from treadle.runtime.ptx.types import TYPES, Array

_INTEGERS = tuple(f"{kind}{size}" for kind in "us" for size in (8, 16, 32, 64))
_SPACES = ("global", "shared", "local", "param")


@meaning("mov")
def move(instruction: Instruction, program: Program) -> Step:
    """mov.type d, a: a register, an immediate, the address of a variable; mov.bN between a register and a vector of
    parts of it, the first lowest."""
    modifiers = instruction.modifiers
    types = ("pred", *(f"{kind}{size}" for kind in "bus" for size in (16, 32, 64)), "f32", "f64")
    type = modifiers.choice(*types)
    modifiers.end()
    instruction.expect(2)
    to, source = instruction.operands
    if isinstance(source, Vector):
        return _pack(instruction, program, type, len(source.elements))
    if isinstance(to, Vector):
        return _unpack(instruction, program, type, len(to.elements))
    return unary(instruction, program, lambda a: a, type)


def _part(instruction: Instruction, type: str, count: int) -> str:
    bits = int(type[1:]) // count
    if type[0] != "b" or f"b{bits}" not in TYPES or bits * count != int(type[1:]):
        instruction.unknown(f"no vector of {count} parts makes a .{type}")
    return f"b{bits}"


def _pack(instruction: Instruction, program: Program, type: str, count: int) -> Step:
    part = _part(instruction, type, count)
    reads = program.readers(instruction.operands[1], part, instruction)
    write = program.writer(instruction.operands[0], type, instruction)

    def step(threads: Threads) -> None:
        made = np.empty((threads.count, count), TYPES[part])
        for i, read in enumerate(reads):
            made[:, i] = read(threads)
        write(threads, made.view(TYPES[type])[:, 0])

    return step


def _unpack(instruction: Instruction, program: Program, type: str, count: int) -> Step:
    part = _part(instruction, type, count)
    read = program.reader(instruction.operands[1], type, instruction)
    writes = program.writers(instruction.operands[0], part, instruction)

    def step(threads: Threads) -> None:
        parts = np.array(threads.full(read(threads))).view(TYPES[part]).reshape(-1, count)
        for i, write in enumerate(writes):
            write(threads, parts[:, i])

    return step


@meaning("cvt")
def convert(instruction: Instruction, program: Program) -> Step:
    """cvt{.rnd}{.ftz}{.satfinite}.dtype.atype: integers wrap or are extended; numbers are rounded."""
    modifiers = instruction.modifiers
    if modifiers.flag("sat"):
        return _clip(instruction, program, modifiers)
    rounding = modifiers.choice("rn", "rna", *INTEGER_ROUNDINGS, default="")
    ftz = modifiers.flag("ftz")
    finite = modifiers.flag("satfinite")
    to = modifiers.choice(*_INTEGERS, "f16", "bf16", "f32", "f64", "tf32", "f16x2", "bf16x2", "e4m3x2", "e5m2x2")
    source = modifiers.choice(*_INTEGERS, "f16", "bf16", "f32", "f64", "f16x2", "e4m3x2", "e5m2x2")
    modifiers.end()
    if ftz:
        instruction.unknown("'.ftz' of a conversion is not known")
    if to.endswith("x2") and source == "f32":
        return _convert_two(instruction, program, rounding, finite, to)
    if to == "f16x2" and source in ("e4m3x2", "e5m2x2"):
        return _widen_two(instruction, program, rounding, finite, source)
    if to.endswith("x2") or source.endswith("x2") or finite:
        instruction.unknown("unknown conversion")
    if to in _INTEGERS and source in _INTEGERS:
        return _convert_integer(instruction, program, rounding, to, source)
    return _convert_one(instruction, program, rounding, to, source)


def _clip(instruction: Instruction, program: Program, modifiers: Modifiers) -> Step:
    """cvt.sat.f32.f32: what lies in [0, 1], the nearer end of it, or 0 of NaN."""
    modifiers.require("f32", "f32")
    modifiers.end()
    return unary(instruction, program, lambda a: np.clip(np.where(np.isnan(a), a.dtype.type(0), a), 0, 1), "f32")


def _convert_integer(instruction: Instruction, program: Program, rounding: str, to: str, source: str) -> Step:
    instruction.expect(2)
    if rounding:
        instruction.unknown("integers are not rounded")
    read = program.reader(instruction.operands[1], source, instruction, wider=True)
    write = program.writer(instruction.operands[0], to, instruction, wider=True)

    def step(threads: Threads) -> None:
        write(threads, read(threads).astype(TYPES[to]))

    return step


def _convert_one(instruction: Instruction, program: Program, rounding: str, to: str, source: str) -> Step:
    instruction.expect(2)
    held = "b32" if to == "tf32" else "b16" if to in ("f16", "bf16") else to
    from_ = "b16" if source in ("f16", "bf16") else source
    read = program.reader(instruction.operands[1], from_, instruction, wider=source in _INTEGERS)
    write = program.writer(instruction.operands[0], held, instruction, wider=to in _INTEGERS)
    if to in _INTEGERS:
        if rounding not in INTEGER_ROUNDINGS:
            instruction.unknown("a float becomes an integer by .rni, .rzi, .rmi or .rpi")

        def cut(threads: Threads) -> None:
            write(threads, converted_to_integer(read(threads).view(TYPES[source]), rounding, to))

        return cut
    if rounding in INTEGER_ROUNDINGS and source == to and to in ("f32", "f64"):
        return _convert_to_whole(program, instruction, INTEGER_ROUNDINGS[rounding], to)
    exact = source in ("f16", "bf16") or (source, to) == ("f32", "f64")
    if rounding != ("" if exact and to in ("f32", "f64") else "rna" if to == "tf32" else "rn"):
        instruction.unknown("unknown rounding of a conversion")

    def step(threads: Threads) -> None:
        write(threads, converted(read(threads).view(TYPES[source]), to).view(TYPES[held]))

    return step


def _convert_to_whole(program: Program, instruction: Instruction, whole: Callable[[Array], Array], type: str) -> Step:
    """A whole number in the same float format: infinities, NaN and the sign of zero stay."""
    return unary(instruction, program, lambda a: whole(a).astype(a.dtype, copy=False), type)


def _convert_two(instruction: Instruction, program: Program, rounding: str, finite: bool, to: str) -> Step:
    """Two numbers in one register, the first operand in its upper half."""
    instruction.expect(3)
    if rounding != "rn" or finite != (to in ("e4m3x2", "e5m2x2")):
        instruction.unknown("unknown conversion")
    held = "b32" if to in ("f16x2", "bf16x2") else "b16"
    write = program.writer(instruction.operands[0], held, instruction)
    upper, lower = (program.reader(each, "f32", instruction) for each in instruction.operands[1:])

    def step(threads: Threads) -> None:
        write(threads, packed(threads.full(lower(threads)), threads.full(upper(threads)), to))

    return step


def _widen_two(instruction: Instruction, program: Program, rounding: str, finite: bool, source: str) -> Step:
    instruction.expect(2)
    if rounding != "rn" or finite:
        instruction.unknown("unknown conversion")
    write = program.writer(instruction.operands[0], "b32", instruction)
    read = program.reader(instruction.operands[1], "b16", instruction)

    def step(threads: Threads) -> None:
        write(threads, unpacked(threads.full(read(threads)), source))

    return step


@meaning("cvta")
def convert_address(instruction: Instruction, program: Program) -> Step:
    """cvta{.to}.space.u64: between addresses in a memory and generic ones."""
    modifiers = instruction.modifiers
    to = modifiers.flag("to")
    space = modifiers.choice(*_SPACES)
    modifiers.require("u64")
    modifiers.end()
    instruction.expect(2)
    write = program.writer(instruction.operands[0], "u64", instruction)
    read = program.reader(instruction.operands[1], "u64", instruction)

    def step(threads: Threads) -> None:
        given = read(threads)
        write(threads, from_generic(threads, space, given) if to else to_generic(space, given))

    return step
