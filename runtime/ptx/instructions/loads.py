"""Loads and stores (PTX ISA, sections "ld", "ld.global.nc" and "st")."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program
from treadle.runtime.ptx.machine.threads import Threads
from treadle.runtime.ptx.machine.windows import GENERIC
from treadle.runtime.ptx.text.instruction import Instruction, Modifiers, Vector
from treadle.runtime.ptx.types import TYPES, Array

_TYPES = (*(f"{kind}{size}" for kind in "bus" for size in (8, 16, 32, 64)), "f32", "f64")
_SPACES = ("global", "shared", "shared::cta", "shared::cluster", "local", "param")
_CACHES = ("ca", "cg", "cs", "lu", "cv", "wb", "wt")


def _shape(instruction: Instruction, modifiers: Modifiers, *spaces: str) -> tuple[str, str, int, bool]:
    """Space ("" is generic), type, elements of the vector, and whether the memory is only read."""
    modifiers.choice("weak", "volatile", default="")
    space = modifiers.choice(*spaces, default="")
    modifiers.choice(*_CACHES, default="")
    nc = space == "global" and instruction.parts[0] == "ld" and modifiers.flag("nc")
    vector = modifiers.choice("v2", "v4", default="v1")
    type = modifiers.choice(*_TYPES)
    modifiers.end()
    instruction.expect(2)
    return space, type, int(vector[1]), nc


@meaning("ld")
def load(instruction: Instruction, program: Program) -> Step:
    """ld{.space}{.nc}{.vec}.type d, [a]: the address is a multiple of the bytes of the whole access."""
    space, type, count, constant = _shape(instruction, instruction.modifiers, *_SPACES)
    to, source = instruction.operands
    writes = program.writers(to, type, instruction, wider=True)
    if len(writes) != count or isinstance(to, Vector) != (count > 1):
        instruction.unknown(f"{len(writes)} registers for {count} elements")
    address = program.address(source, instruction)
    nbytes = TYPES[type].itemsize
    get = _getter("constant" if constant else space)

    def step(threads: Threads) -> None:
        place = address(threads)
        values = [get(threads, place + np.uint64(i * nbytes), nbytes, _align(i, count, nbytes)) for i in range(count)]
        for write, each in zip(writes, values, strict=True):
            write(threads, each.view(TYPES[type]))

    return step


@meaning("st")
def store(instruction: Instruction, program: Program) -> Step:
    """st{.space}{.vec}.type [a], b"""
    space, type, count, _ = _shape(instruction, instruction.modifiers, *_SPACES[:-1])
    to, source = instruction.operands
    reads = program.readers(source, type, instruction, wider=True)
    if len(reads) != count or isinstance(source, Vector) != (count > 1):
        instruction.unknown(f"{len(reads)} registers for {count} elements")
    address = program.address(to, instruction)
    nbytes = TYPES[type].itemsize
    put = _putter(space)

    def step(threads: Threads) -> None:
        place = address(threads)
        for i, read in enumerate(reads):
            bits = threads.full(read(threads)).view(f"u{nbytes}")
            put(threads, place + np.uint64(i * nbytes), bits, _align(i, count, nbytes))

    return step


def _align(i: int, count: int, nbytes: int) -> int:
    """The first element of a vector is where the whole of it has to be aligned."""
    return nbytes * count if i == 0 else nbytes


_Get = Callable[[Threads, Array, int, int], Array]
_Put = Callable[[Threads, Array, Array, int], None]


def _getter(space: str) -> _Get:
    def get(threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        machine = threads.machine
        match space:
            case "global":
                return machine.memory.load(threads, addresses, nbytes, align)
            case "constant":
                return machine.memory.load_constant(threads, addresses, nbytes, align)
            case "shared" | "shared::cta":
                return machine.shared.load(threads, addresses, nbytes, align)
            case "shared::cluster":
                return machine.shared.load(threads, addresses, nbytes, align, cluster=True)
            case "local":
                return machine.local.load(threads, addresses, nbytes, align)
            case _:
                return machine.parameters.load(threads, addresses, nbytes, align)

    def generic(threads: Threads, addresses: Array, nbytes: int, align: int) -> Array:
        made = np.empty(threads.count, f"u{nbytes}")
        for each, which, inside in _by_space(threads, addresses):
            made[which] = _getter(each)(threads.subset(which), inside, nbytes, align)
        return made

    return get if space else generic


def _putter(space: str) -> _Put:
    def put(threads: Threads, addresses: Array, values: Array, align: int) -> None:
        machine = threads.machine
        match space:
            case "global":
                machine.memory.store(threads, addresses, values, align)
            case "local":
                machine.local.store(threads, addresses, values, align)
            case _:
                machine.shared.store(threads, addresses, values, align, cluster=space == "shared::cluster")

    def generic(threads: Threads, addresses: Array, values: Array, align: int) -> None:
        for each, which, inside in _by_space(threads, addresses):
            if each == "param":
                threads.fail(which, "a write to a parameter")
            _putter(each)(threads.subset(which), inside, values[which], align)

    return put if space else generic


def _by_space(threads: Threads, addresses: Array) -> list[tuple[str, Array, Array]]:
    """The memories that generic addresses are in: which threads', and their addresses there."""
    addresses = threads.full(addresses)
    kinds = addresses >> np.uint64(40)
    names = {base >> 40: "shared::cluster" if name == "shared" else name for name, base in GENERIC.items()}
    found: list[tuple[str, Array, Array]] = []
    for kind in np.unique(kinds):
        which = kinds == kind
        name = names.get(int(kind), "global")
        low = np.uint64((1 << 40) - 1)
        found.append((name, which, addresses[which] & low if name != "global" else addresses[which]))
    return found
