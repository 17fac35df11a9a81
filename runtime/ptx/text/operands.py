"""Parses the operands of an instruction (PTX ISA section 6)."""

from __future__ import annotations

import re
from collections.abc import Callable

from treadle.runtime.ptx.text.instruction import Address, Immediate, Negated, Operand, Pair, Register, Symbol, Vector

Resolve = Callable[[str], Operand]
"""What a name is, where it stands."""

_NUMBER = re.compile(r"-?(?:0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}|0[xX][0-9A-Fa-f]+U?|\d+\.\d+|\d+U?)$")
_NAME = re.compile(r"[A-Za-z_$%][\w$]*(?:\.[xyzw])?$")


def parse_operands(text: str, resolve: Resolve) -> tuple[Operand, ...]:
    """The operands between commas (ValueError)."""
    return tuple(_operand(each, resolve) for each in split(text))


def split(text: str) -> list[str]:
    """At the commas that are in no brackets."""
    parts: list[str] = []
    depth, begin = 0, 0
    for i, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    last = text[begin:].strip()
    if depth or (parts and not last):
        raise ValueError(f"operands that do not close: {text}")
    return [*parts, last] if last else []


def _operand(text: str, resolve: Resolve) -> Operand:
    if text.startswith("["):
        return _address(text, resolve)
    if text.startswith("{"):
        return Vector(parse_operands(_inside(text, "}"), resolve))
    if text.startswith("!"):
        register = resolve(text[1:].strip())
        if not isinstance(register, Register):
            raise ValueError(f"no register: {text}")
        return Negated(register)
    if "|" in text:
        first, second = text.split("|")
        return Pair(_operand(first.strip(), resolve), _operand(second.strip(), resolve))
    if _NUMBER.match(text):
        return Immediate(text)
    if _NAME.match(text):
        return resolve(text)
    raise ValueError(f"unknown operand: {text}")


def _address(text: str, resolve: Resolve) -> Address:
    base, *rest = split(_inside(text, "]"))
    if len(rest) > 1:
        raise ValueError(f"unknown address: {text}")
    coordinates = _operand(rest[0], resolve) if rest else None
    if coordinates is not None and not isinstance(coordinates, Vector):
        raise ValueError(f"unknown address: {text}")
    name, sign, offset = _parts(base)
    made = _operand(name, resolve) if name else None
    if not isinstance(made, Register | Symbol | Immediate):
        raise ValueError(f"unknown address: {text}")
    distance = int(offset or "0", 0)
    return Address(made, -distance if sign == "-" else distance, coordinates)


def _parts(text: str) -> tuple[str, str, str]:
    found = re.fullmatch(r"([^+\s-]+)\s*(?:([+-])\s*(-?\w+))?", text)
    return (found[1], found[2] or "", found[3] or "") if found else ("", "", "")


def _inside(text: str, close: str) -> str:
    if not text.endswith(close):
        raise ValueError(f"unknown operand: {text}")
    return text[1:-1].strip()
