"""Random bodies of maps: what a random program computes of one element."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

BINARY = {
    "f32": ("arith.addf", "arith.mulf", "arith.subf", "arith.maximumf", "arith.minnumf"),
    "i32": ("arith.addi", "arith.muli", "arith.subi", "arith.maxsi"),
}
UNARY = ("math.tanh", "math.sin", "math.absf", "arith.negf", "scale", "exp of tanh", "square of tanh")
CONSTANTS = ("0.125", "-0.5", "0.3")

OF_REDUCTION = (
    "%y = arith.addf %a, %r : f32",
    "%y = arith.subf %a, %r : f32",
    "%y = arith.mulf %a, %r : f32",
    "%y = arith.divf %a, %r : f32",
    "%t = arith.subf %a, %r : f32\n%y = arith.mulf %t, %t : f32",
    "%t = arith.mulf %r, %r : f32\n%u = arith.addf %t, %one : f32\n%y = arith.divf %a, %u : f32",
    "%t = arith.mulf %r, %r : f32\n%u = arith.addf %t, %one : f32\n%v = math.rsqrt %u : f32\n"
    "%y = arith.mulf %v, %a : f32",
    "%u = math.absf %r : f32\n%v = arith.addf %u, %one : f32\n%w = math.log %v : f32\n%y = arith.addf %w, %a : f32",
    "%t = arith.mulf %r, %half : f32\n%y = arith.subf %a, %t : f32",
    "%t = arith.negf %r : f32\n%y = arith.maximumf %a, %t : f32",
)
"""What is made of an element %a and a reduction %r over an axis of it: some split off, some do not."""

EXPONENTIALS = {
    "max": ("%t = arith.subf %a, %r : f32", "%s = arith.subf %a, %r : f32\n%t = arith.mulf %s, %half : f32"),
    "min": ("%t = arith.subf %r, %a : f32", "%s = arith.subf %a, %r : f32\n%t = arith.negf %s : f32"),
}
"""Distances from an extremum, none above zero."""


def of_reduction(dice: random.Random) -> list[str]:
    """The lines of a body with the arguments %a and %r."""
    return [*_constants(), *dice.choice(OF_REDUCTION).split("\n"), "diagram.yield %y : f32"]


def exponential(dice: random.Random, kind: str) -> list[str]:
    """The lines of a body with the arguments %a and %r: a power of the distance of %a from its extremum."""
    lines = dice.choice(EXPONENTIALS[kind]).split("\n")
    return [*_constants(), *lines, "%y = math.exp %t : f32", "diagram.yield %y : f32"]


def _constants() -> list[str]:
    return ["%one = arith.constant 1.0 : f32", "%half = arith.constant 0.5 : f32"]


def of_arguments(dice: random.Random, formats: Sequence[str], result: str) -> list[str]:
    """The lines of a body with the arguments %a0, %a1, ... of some formats, which gives `result` (f32 or i32)."""
    lines: list[str] = []

    def name(line: str) -> str:
        lines.append(f"%s{len(lines)} = {line}")
        return f"%s{len(lines) - 1}"

    value, *others = [_as(f"%a{i}", format, result, name) for i, format in enumerate(formats)]
    if dice.random() < 0.3:
        others.append(value)
    for other in others:
        value = name(f"{dice.choice(BINARY[result])} {value}, {other} : {result}")
    if result == "f32" and dice.random() < 0.7:
        value = _unary(dice, value, name)
    return [*lines, f"diagram.yield {value} : {result}"]


def _as(value: str, format: str, result: str, name: Callable[[str], str]) -> str:
    if format == result:
        return value
    return name(f"arith.sitofp {value} : i32 to f32" if format == "i32" else f"arith.extf {value} : {format} to f32")


def _unary(dice: random.Random, value: str, name: Callable[[str], str]) -> str:
    match dice.choice(UNARY):
        case "scale":
            constant = name(f"arith.constant {dice.choice(CONSTANTS)} : f32")
            return name(f"arith.mulf {value}, {constant} : f32")
        case "exp of tanh":
            return name(f"math.exp {name(f'math.tanh {value} : f32')} : f32")
        case "square of tanh":
            small = name(f"math.tanh {value} : f32")
            return name(f"arith.mulf {small}, {small} : f32")
        case operation:
            return name(f"{operation} {value} : f32")
