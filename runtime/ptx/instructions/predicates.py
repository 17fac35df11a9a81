"""Comparisons and selections (PTX ISA, section "Comparison and Selection Instructions")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.runtime.ptx.instructions.integers import INTEGERS
from treadle.runtime.ptx.instructions.rounding import flushed
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.text.instruction import Instruction, Pair
from treadle.runtime.ptx.types import Array

Compare = Callable[[Array, Array], Array]

_ORDERED: dict[str, Compare] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_BITS = ("b16", "b32", "b64")


def _nan(a: Array, b: Array) -> Array:
    return np.isnan(a) | np.isnan(b)


def _unordered(compare: Compare) -> Compare:
    """True where an operand is a NaN, too."""
    return lambda a, b: compare(a, b) | _nan(a, b)


_FLOAT: dict[str, Compare] = {
    **_ORDERED,
    "ne": lambda a, b: (a != b) & ~_nan(a, b),
    **{f"{name}u": _unordered(compare) for name, compare in _ORDERED.items()},
    "num": lambda a, b: ~_nan(a, b),
    "nan": _nan,
}
_COMBINED: dict[str, Compare] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def _known(type: str) -> dict[str, Compare]:
    """The comparisons of a type."""
    if type[0] == "f":
        return _FLOAT
    if type[0] == "b":
        return {name: _ORDERED[name] for name in ("eq", "ne")}
    return {**_ORDERED, **({name: _ORDERED[same] for name, same in _UNSIGNED.items()} if type[0] == "u" else {})}


@meaning("setp")
def compare(instruction: Instruction, program: Program) -> Step:
    """setp.cmp{.and/.or/.xor}{.ftz}.type p{|q}, a, b{, {!}c}: p is (a cmp b) op c, and q is (not (a cmp b)) op c."""
    modifiers = instruction.modifiers
    name = modifiers.choice(*_FLOAT, *_UNSIGNED)
    combine = modifiers.choice(*_COMBINED, default="")
    ftz = modifiers.flag("ftz")
    type = modifiers.choice(*_BITS, *INTEGERS, "f32", "f64")
    modifiers.end()
    known = _known(type)
    if name not in known or (ftz and type != "f32"):
        instruction.unknown(f"'.{name}' compares no .{type}")
    instruction.expect(4 if combine else 3)
    holds, operands = known[name], instruction.operands
    both = (operands[0].first, operands[0].second) if isinstance(operands[0], Pair) else (operands[0],)
    writes = [program.writer(each, "pred", instruction) for each in both]
    a, b = (program.reader(each, type, instruction) for each in operands[1:3])
    c = program.reader(operands[3], "pred", instruction) if combine else None

    def step(threads: Threads) -> None:
        left, right = a(threads), b(threads)
        found = holds(flushed(left), flushed(right)) if ftz else holds(left, right)
        results = [found, ~found][: len(writes)]
        other = None if c is None else c(threads)
        made = [each if other is None else _COMBINED[combine](each, other) for each in results]
        for write, each in zip(writes, made, strict=True):
            write(threads, each)

    return step


@meaning("selp")
def select(instruction: Instruction, program: Program) -> Step:
    """selp.type d, a, b, c: a where the predicate c holds, else b."""
    modifiers = instruction.modifiers
    type = modifiers.choice(*_BITS, *INTEGERS, "f32", "f64")
    modifiers.end()
    instruction.expect(4)
    write = program.writer(instruction.operands[0], type, instruction)
    a, b = (program.reader(each, type, instruction) for each in instruction.operands[1:3])
    c = program.reader(instruction.operands[3], "pred", instruction)

    def step(threads: Threads) -> None:
        write(threads, np.where(c(threads), a(threads), b(threads)))

    return step
