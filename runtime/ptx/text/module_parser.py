"""Parses a PTX file down to its entries (PTX ISA sections 4, 5 and 11)."""

from __future__ import annotations

import re

from treadle.runtime.ptx.errors import PtxUnknown
from treadle.runtime.ptx.text.body import Variable
from treadle.runtime.ptx.text.module import Entry, Module, Parameter

_NAME = r"[A-Za-z_$%][\w$]*"
_ENTRY = re.compile(rf"(?:\.(?:visible|weak)\s+)?\.entry\s+({_NAME})\s*\(")
_TARGET = re.compile(r"\.target\s+(\w+)")
_PARAMETER = re.compile(rf"\.param\s+(?:\.align\s+(\d+)\s+)?\.([busf])(8|16|32|64)\s+({_NAME})(?:\[(\d+)\])?$")
_VARIABLE = re.compile(
    rf"(\.extern\s+)?\.(shared|local|global)\s+(?:\.align\s+(\d+)\s+)?\.([busf])(8|16|32|64)\s+({_NAME})(?:\[(\d*)\])?(?:\s*=\s*\{{(.*)\}})?$",
    re.DOTALL,
)
_PASSED_OVER = re.compile(r"\s+|//[^\n]*|\.version[^\n]*|\.target[^\n]*|\.address_size[^\n]*|\.file[^\n]*")
_SECTION = re.compile(r"\.section\s+\S+\s*\{[^}]*\}")
_DECLARATION = re.compile(r"[^;{]*(?:\{[^{};]*\}\s*)?;")


def parse_module(text: str) -> Module:
    """The entries of a PTX file, their bodies not yet parsed (PtxUnknown)."""
    target = _TARGET.search(text)
    if target is None:
        raise PtxUnknown("PTX names no .target")
    entries: dict[str, Entry] = {}
    variables: list[Variable] = []
    position = 0
    while position < len(text):
        if (found := _PASSED_OVER.match(text, position) or _SECTION.match(text, position)) is not None:
            position = found.end()
        elif (found := _ENTRY.match(text, position)) is not None:
            entry, position = _entry(text, found, tuple(variables))
            entries[entry.name] = entry
        elif (found := _DECLARATION.match(text, position)) is not None:
            variables.append(variable(found.group()[:-1].strip(), _line(text, position)))
            position = found.end()
        else:
            raise PtxUnknown(f"PTX line {_line(text, position)}: {text[position : position + 60].splitlines()[0]}")
    return Module(target[1], entries, tuple(variables))


def variable(declaration: str, line: int) -> Variable:
    """`.shared .align 16 .b8 name[64]`, `.global .b8 name[2] = {1, 2}` (PtxUnknown)."""
    found = _VARIABLE.match(declaration)
    if found is None:
        raise PtxUnknown(f"PTX line {line}: unknown declaration: {declaration}")
    extern, space, align, _, bits, name, count, values = found.groups()
    if bool(extern) != (count == "") or (extern and space != "shared"):
        raise PtxUnknown(f"PTX line {line}: an array without a size is .extern .shared, and no other: {declaration}")
    element = int(bits) // 8
    nbytes = None if extern else element * int(count or 1)
    numbers = [int(each, 0) for each in values.split(",")] if values else []
    data = b"".join((each & (1 << 8 * element) - 1).to_bytes(element, "little") for each in numbers)
    if data and (space != "global" or nbytes is None or len(data) > nbytes):
        raise PtxUnknown(f"PTX line {line}: unknown values: {declaration}")
    return Variable(name, space, int(align or element), nbytes, data)


def _entry(text: str, found: re.Match[str], variables: tuple[Variable, ...]) -> tuple[Entry, int]:
    close = text.index(")", found.end())
    begin = text.index("{", close)
    end = _closing(text, begin)
    parameters = _parameters(text[found.end() : close], _line(text, found.start()))
    directives = _directives(text[close + 1 : begin], _line(text, close))
    body = text[begin + 1 : end]
    return Entry(found[1], parameters, directives, body, _line(text, begin), variables), end + 1


def _parameters(text: str, line: int) -> tuple[Parameter, ...]:
    """In the order and at the alignments in which the driver takes them."""
    made: list[Parameter] = []
    offset = 0
    for each in filter(None, (part.strip() for part in text.split(","))):
        found = _PARAMETER.match(each)
        if found is None:
            raise PtxUnknown(f"PTX line {line}: unknown parameter: {each}")
        align, _, bits, name, count = found.groups()
        nbytes = int(bits) // 8 * int(count or 1)
        step = int(align or int(bits) // 8)
        offset = -(-offset // step) * step
        made.append(Parameter(name, offset, nbytes))
        offset += nbytes
    return tuple(made)


def _directives(text: str, line: int) -> dict[str, tuple[int, ...]]:
    made: dict[str, tuple[int, ...]] = {}
    for each in filter(None, (part.strip() for part in text.splitlines())):
        found = re.fullmatch(r"\.(\w+)((?:\s*,?\s*\d+)*)", each)
        if found is None:
            raise PtxUnknown(f"PTX line {line}: unknown directive: {each}")
        made[found[1]] = tuple(map(int, re.findall(r"\d+", found[2])))
    return made


def _closing(text: str, begin: int) -> int:
    """Where the brace that opens at `begin` closes."""
    depth = 0
    for found in re.compile(r"[{}]|//[^\n]*").finditer(text, begin):
        depth += {"{": 1, "}": -1}.get(found.group(), 0)
        if depth == 0:
            return found.start()
    raise PtxUnknown(f"PTX line {_line(text, begin)}: a brace that never closes")


def _line(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
