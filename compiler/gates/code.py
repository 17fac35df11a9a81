"""What the whole of a kernel's machine code holds, kept beside a cubin that is: the disassembler's listing of a large
kernel is tens of thousands of lines, of which a report shows a few numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeAlias

from treadle.compiler.sass import Function, LoopTable, class_of, disassemble, main_loop, warps_that_reach
from treadle.runtime.cache import CacheUnavailable, cached_file


@dataclass(frozen=True)
class Code:
    """What the whole of a kernel's machine code holds."""

    products: int
    ldmatrix: int
    async_copies: int
    local: int
    """Loads and stores of a thread's own memory: spills, and arrays that found no registers."""
    loop: LoopTable | None
    """The main loop; None if no loop multiplies on tensor cores."""
    copying: tuple[int, ...] = ()
    """Warps of a block, of any that it may have, of which a thread may start a tensor copy to shared memory."""


TENSOR_LOADS = ("UTMALDG", "UBLKCP")

Codes: TypeAlias = dict[str, Code]
"""By the name of the kernel."""


def codes_of(functions: Iterable[Function]) -> Codes:
    """What the functions of a listing hold."""
    return {each.name: _code_of(each) for each in functions}


def codes_of_cubin(cubin: Path) -> Codes:
    """What the kernels of a cubin in the cache hold, as it was read before, else as the disassembler lists it
    (DisassemblerUnavailable)."""
    kept = cubin.with_suffix(f".{_reader()}.json")
    try:
        text = cached_file(kept, lambda made: _write(made, codes_of(disassemble(cubin)))).read_text(encoding="utf-8")
    except CacheUnavailable:  # it is full: what is read is not kept, then
        return codes_of(disassemble(cubin))
    return {name: _from_json(each) for name, each in json.loads(text).items()}


def _code_of(function: Function) -> Code:
    kinds = [class_of(each) for each in function.instructions]
    return Code(
        products=kinds.count("products"),
        ldmatrix=kinds.count("ldmatrix"),
        async_copies=kinds.count("async copies"),
        local=kinds.count("local"),
        loop=main_loop(function),
        copying=warps_that_reach(function, TENSOR_LOADS),
    )


def _write(target: Path, codes: Codes) -> None:
    target.write_text(json.dumps({name: _as_json(code) for name, code in codes.items()}), encoding="utf-8")


def _as_json(code: Code) -> dict[str, Any]:
    loop = code.loop and {**vars(code.loop), "opcodes": dict(code.loop.opcodes)}
    return {**vars(code), "loop": loop}


def _from_json(code: dict[str, Any]) -> Code:
    loop, copying = code.pop("loop"), code.pop("copying")
    return Code(**code, loop=None if loop is None else LoopTable(**loop), copying=tuple(copying))


@cache
def _reader() -> str:
    """By the content of what reads listings, so that nothing is shown that another version of it made of them."""
    digest = hashlib.sha256(Path(__file__).read_bytes())
    for source in sorted(files("treadle.compiler.sass").iterdir(), key=lambda each: each.name):
        if source.name.endswith(".py"):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
