"""Floating point (PTX ISA, section "Floating Point Instructions").

What is approximate there (`.approx`, `.full`) is computed in float64 and rounded once, which is within every error that
the ISA states. NaNs that come out are NaNs; only min and max, whose rules name it, give the canonical one's bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.runtime.ptx.instructions.integers import binary, unary
from treadle.runtime.ptx.instructions.rounding import added_towards_zero, flushed, fused
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction, Modifiers
from treadle.runtime.ptx.types import Array

_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
}

CANONICAL_NAN = np.array([0x7FFFFFFF], np.uint32).view(np.float32)


def _type(modifiers: Modifiers, *types: str) -> str:
    type = modifiers.choice(*types)
    modifiers.end()
    return type


def _two(compute: Callable[[Array, Array], Array], ftz: bool) -> Callable[[Array, Array], Array]:
    """Inputs and results that are subnormal become zeros of their sign where `ftz`."""

    def quiet(a: Array, b: Array) -> Array:
        with np.errstate(all="ignore"):
            return flushed(compute(flushed(a), flushed(b))) if ftz else compute(a, b)

    return quiet


def _one(compute: Callable[[Array], Array], ftz: bool) -> Callable[[Array], Array]:
    def quiet(a: Array) -> Array:
        with np.errstate(all="ignore"):
            return flushed(compute(flushed(a))) if ftz else compute(a)

    return quiet


def simple(instruction: Instruction, program: Program) -> Step:
    """add, sub, mul{.rn}{.ftz}.f32/.f64: rounded to nearest even; add.rz{.ftz}.f32: towards zero."""
    modifiers = instruction.modifiers
    if instruction.parts[0] == "add" and modifiers.flag("rz"):
        ftz = modifiers.flag("ftz")
        return binary(instruction, program, _two(added_towards_zero, ftz), _type(modifiers, "f32"))
    modifiers.flag("rn")
    ftz = modifiers.flag("ftz")
    return binary(instruction, program, _two(_TWO[instruction.parts[0]], ftz), _type(modifiers, "f32", "f64"))


@meaning("fma")
def fma(instruction: Instruction, program: Program) -> Step:
    """fma.rn{.ftz}.f32: a * b + c, rounded once."""
    modifiers = instruction.modifiers
    modifiers.require("rn")
    ftz = modifiers.flag("ftz")
    type = _type(modifiers, "f32")
    instruction.expect(4)
    write = program.writer(instruction.operands[0], type, instruction)
    a, b, c = (program.reader(each, type, instruction) for each in instruction.operands[1:])

    def step(threads: Threads) -> None:
        given = a(threads), b(threads), c(threads)
        with np.errstate(all="ignore"):
            write(threads, flushed(fused(*map(flushed, given))) if ftz else fused(*given))

    return step


def extreme(instruction: Instruction, program: Program) -> Step:
    """min, max{.ftz}{.NaN}.f32: +0 is above -0; with .NaN a NaN among the inputs gives the canonical NaN, else the
    other input, and two NaNs the canonical one."""
    modifiers = instruction.modifiers
    ftz, nan = modifiers.flag("ftz"), modifiers.flag("NaN")
    least = instruction.parts[0] == "min"
    type = _type(modifiers, "f32")

    def compute(a: Array, b: Array) -> Array:
        below = (a < b) | ((a == b) & np.signbit(a))
        made = np.where(below == least, a, b)
        strange = np.isnan(a) | np.isnan(b)
        if not strange.any():
            return made
        other = np.where(np.isnan(a), b, a)
        return np.where(strange, CANONICAL_NAN if nan else np.where(np.isnan(other), CANONICAL_NAN, other), made)

    return binary(instruction, program, _two(compute, ftz), type)


def sign(instruction: Instruction, program: Program) -> Step:
    """neg, abs{.ftz}.f32/.f64"""
    modifiers = instruction.modifiers
    ftz = modifiers.flag("ftz")
    compute = np.negative if instruction.parts[0] == "neg" else np.abs
    return unary(instruction, program, _one(compute, ftz), _type(modifiers, "f32", "f64"))


@meaning("copysign")
def copysign(instruction: Instruction, program: Program) -> Step:
    """copysign.f32/.f64: the sign of a, on b."""
    type = _type(instruction.modifiers, "f32", "f64")
    return binary(instruction, program, lambda a, b: np.copysign(b, a), type)


def quotient(instruction: Instruction, program: Program) -> Step:
    """div.rn, div.full, div.approx{.ftz}.f32: correctly rounded, which div.full and div.approx need not be (2 ulp)."""
    modifiers = instruction.modifiers
    how = modifiers.choice("rn", "full", "approx")
    ftz = modifiers.flag("ftz")
    type = _type(modifiers, "f32", "f64") if how == "rn" else _type(modifiers, "f32")
    return binary(instruction, program, _two(_by_reciprocal if how == "approx" else np.divide, ftz), type)


def _by_reciprocal(a: Array, b: Array) -> Array:
    """div.approx is a times a reciprocal, which is zero for b beyond 2^126: so is the quotient, and that of an infinity
    a NaN."""
    beyond = (np.abs(b) > np.float32(2.0**126)) & np.isfinite(b)
    return np.where(beyond, a * np.copysign(np.float32(0), b), a / b)


@meaning("sqrt")
def square_root(instruction: Instruction, program: Program) -> Step:
    """sqrt.rn, sqrt.approx{.ftz}.f32: correctly rounded."""
    modifiers = instruction.modifiers
    modifiers.choice("rn", "approx")
    ftz = modifiers.flag("ftz")
    return unary(instruction, program, _one(np.sqrt, ftz), _type(modifiers, "f32"))


_APPROXIMATE: dict[str, Callable[[Array], Array]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": lambda a: 1 / a,
    "rsqrt": lambda a: 1 / np.sqrt(a),
}


def _register(opcode: str) -> None:
    exact = _APPROXIMATE[opcode]

    @meaning(opcode)
    def decode(instruction: Instruction, program: Program) -> Step:
        """opcode.approx{.ftz}.f32, from float64; rcp.rn, too."""
        modifiers = instruction.modifiers
        modifiers.choice("approx", *(("rn",) if opcode == "rcp" else ()))
        ftz = modifiers.flag("ftz")

        def compute(a: Array) -> Array:
            return exact(a.astype(np.float64)).astype(np.float32)

        return unary(instruction, program, _one(compute, ftz), _type(modifiers, "f32"))


for _opcode in _APPROXIMATE:
    _register(_opcode)
