"""Matrices of a warp: ldmatrix and mma (PTX ISA, section "Warp Level Matrix Instructions")."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np

from treadle.runtime.ptx.instructions.fragments import Places, places_a, places_b, places_c
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.program import Program, Read
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.text.instruction import Instruction
from treadle.runtime.ptx.types import TYPES, Array

_ROWS = 8


@meaning("ldmatrix", "sync", "aligned")
def load_matrix(instruction: Instruction, program: Program) -> Step:
    """ldmatrix.sync.aligned.m8n8.x1/.x2/.x4{.trans}.shared.b16: lane 8 i + j has the address of row j, 16 bytes, of
    matrix i; register i of a lane gets elements 2 (lane % 4) and the next of row lane // 4 of it, or of its
    transposed."""
    modifiers = instruction.modifiers
    modifiers.require("sync", "aligned", "m8n8")
    count = int(modifiers.choice("x1", "x2", "x4")[1:])
    transposed = modifiers.flag("trans")
    modifiers.choice("shared", "shared::cta")
    modifiers.require("b16")
    modifiers.end()
    instruction.expect(2)
    writes = program.writers(instruction.operands[0], "b32", instruction)
    if len(writes) != count:
        instruction.unknown(f"{len(writes)} registers for {count} matrices")
    address = program.address(instruction.operands[1], instruction)

    def step(threads: Threads) -> None:
        threads.check_full_warps()
        gives = threads.machine.thread_index[threads.select] % WARP < _ROWS * count
        giving = threads if gives.all() else threads.subset(gives)
        addresses = address(giving)
        begin = threads.machine.shared.locate(giving, addresses, 2 * _ROWS, 2 * _ROWS)
        words = threads.machine.shared.views[2][begin[:, None] // 2 + np.arange(_ROWS)]
        matrices = words.reshape(-1, count, _ROWS, _ROWS)
        if transposed:
            matrices = matrices.swapaxes(2, 3)
        pairs = np.ascontiguousarray(matrices).view(np.uint32).reshape(-1, count, WARP)
        for i, write in enumerate(writes):
            write(threads, pairs[:, i].reshape(-1))

    return program.converged(step, instruction)


def _table(dtype: type) -> Array:
    """Every number of a format by its bits, in f32, which holds all of them."""
    bits = np.arange(1 << 8 * np.dtype(dtype).itemsize).astype(f"u{np.dtype(dtype).itemsize}")
    with np.errstate(all="ignore"):
        return bits.view(dtype).astype(np.float32)


def _tf32(bits: Array) -> Array:
    """tf32 in 32 bits, of which the low 13 are no part of the number."""
    return (bits & np.uint32(0xFFFFE000)).view(np.float32)


_TABLES = {
    "f16": _table(np.float16),
    "bf16": _table(ml_dtypes.bfloat16),
    "e4m3": _table(ml_dtypes.float8_e4m3fn),
    "e5m2": _table(ml_dtypes.float8_e5m2),
}


_INTEGERS = {"s8": np.int8, "u8": np.uint8}


def numbers(bits: Array, format: str) -> Array:
    """Bits of a format as f32, exactly."""
    if format in _INTEGERS:
        return bits.view(_INTEGERS[format]).astype(np.float32)
    return _tf32(bits) if format == "tf32" else _TABLES[format][bits]


_SHAPES: dict[tuple[str, str], tuple[int, tuple[str, ...]]] = {
    ("m16n8k8", "f32"): (8, ("tf32", "f16", "bf16")),
    ("m16n8k16", "f32"): (16, ("f16", "bf16")),
    ("m16n8k32", "f32"): (32, ("e4m3", "e5m2")),
    ("m16n8k32", "s32"): (32, ("s8", "u8")),
}
"""k, formats."""

_BYTES = {"tf32": 4, "f16": 2, "bf16": 2}
"""Of an element; 1 of other formats."""


@meaning("mma", "sync", "aligned")
def multiply(instruction: Instruction, program: Program) -> Step:
    """mma.sync.aligned.shape.row.col.type.format.format.type d, a, b, c: d = a b + c.

    The ISA leaves the order and the precision of the sum open, from f32 on. Here products are exact, their sum and c
    are added in float64, and the total is rounded to f32 once. Integers are exact, and wrap around in 32 bits."""
    modifiers = instruction.modifiers
    modifiers.require("sync", "aligned")
    shape = modifiers.choice(*(shape for shape, _ in _SHAPES))
    modifiers.require("row", "col")
    type = modifiers.choice(*(type for known, type in _SHAPES if known == shape))
    k, formats = _SHAPES[shape, type]
    of_a, of_b = modifiers.choice(*formats), modifiers.choice(*formats)
    modifiers.require(type)
    modifiers.end()
    instruction.expect(4)
    nbytes = _BYTES.get(of_a, 1)
    if of_a != of_b and nbytes > 1:
        instruction.unknown("the factors have one format")
    d, a, b, c = instruction.operands
    writes = program.writers(d, type, instruction)
    reads_c = program.readers(c, type, instruction)
    reads_a, reads_b = program.readers(a, "b32", instruction), program.readers(b, "b32", instruction)
    if (len(writes), len(reads_a), len(reads_b), len(reads_c)) != (4, k * nbytes // 8, k * nbytes // 16, 4):
        instruction.unknown("the fragments have other sizes")
    packed = 4 // nbytes
    into_a, into_b, into_c = places_a(k, packed), places_b(k, packed), places_c()

    def step(threads: Threads) -> None:
        threads.check_full_warps()
        left = numbers(_matrix(threads, reads_a, nbytes, into_a), of_a).reshape(-1, 16, k)
        right = numbers(_matrix(threads, reads_b, nbytes, into_b), of_b).reshape(-1, k, 8)
        before = _matrix(threads, reads_c, 4, into_c).view(TYPES[type]).reshape(-1, 16, 8)
        with np.errstate(all="ignore"):
            sums = np.matmul(left.astype(np.float64), right.astype(np.float64)) + before
        made = _rounded(sums, type)
        after = made.reshape(-1, 128)[:, into_c]
        for i, write in enumerate(writes):
            write(threads, after[:, :, i].reshape(-1))

    return program.converged(step, instruction)


def _rounded(sums: Array, type: str) -> Array:
    """To f32, or the low 32 bits of exact integers."""
    if type == "s32":
        return sums.astype(np.int64).astype(np.int32)
    with np.errstate(all="ignore"):
        return sums.astype(np.float32)


def _matrix(threads: Threads, reads: Sequence[Read], nbytes: int, places: Places) -> Array:
    """What the lanes of each warp hold, in the order of the matrix: [warps, elements]."""
    held = np.empty((threads.count, len(reads)), np.uint32)
    for i, read in enumerate(reads):
        held[:, i] = read(threads).view(np.uint32)
    elements = held.view(f"u{nbytes}").reshape(-1, WARP * places.shape[1])
    return elements[:, _order(places)]


_orders: dict[bytes, Places] = {}


def _order(places: Places) -> Places:
    """For each place of the matrix, which element of a warp's it is."""
    key = places.tobytes()
    if key not in _orders:
        _orders[key] = np.argsort(places.reshape(-1))
    return _orders[key]
