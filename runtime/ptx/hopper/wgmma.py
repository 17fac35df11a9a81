"""Products of warpgroups: wgmma (PTX ISA 9.7.15)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from treadle.runtime.ptx.hopper.wgmma_operands import Accumulators, InRegisters, InShared
from treadle.runtime.ptx.hopper.wgmma_products import INTEGERS, Product
from treadle.runtime.ptx.hopper.wgmma_queue import NONE, Issue, Queue
from treadle.runtime.ptx.machine.meanings import Step, meaning
from treadle.runtime.ptx.machine.threads import WARP, Threads
from treadle.runtime.ptx.machine.topics import topic
from treadle.runtime.ptx.text.instruction import Immediate, Instruction, Operand, Register, Vector
from treadle.runtime.ptx.types import Array

if TYPE_CHECKING:
    from treadle.runtime.ptx.machine.program import Program

_SHAPE = re.compile(r"m64n(\d+)k(16|32)")
_TYPES = {("16", "f32"): ("f16", "bf16"), ("32", "f32"): ("e4m3", "e5m2"), ("32", "s32"): INTEGERS}
"""Of operands, by the depth and the type of sums. Integers wrap: `.satfinite` is not known."""


@meaning("wgmma", "fence", "sync", "aligned")
def fence(instruction: Instruction, program: Program) -> Step:
    """Orders accesses to registers before products that use them (9.7.15.7.1). Asked for before the first product and
    after each wait, which is a little more than the ISA asks for."""
    _end(instruction, 4, 0)

    def step(threads: Threads) -> None:
        queue_of(threads).fenced[warps_of(threads)] = True

    return program.converged(step, instruction)


@meaning("wgmma", "commit_group", "sync", "aligned")
def commit_group(instruction: Instruction, program: Program) -> Step:
    """Closes the group of a warp's products (9.7.15.7.2)."""
    _end(instruction, 4, 0)
    return program.converged(lambda threads: queue_of(threads).commit(warps_of(threads)), instruction)


@meaning("wgmma", "wait_group", "sync", "aligned")
def wait_group(instruction: Instruction, program: Program) -> Step:
    """Waits until at most so many of the newest groups are in flight (9.7.15.7.3), and for the other warps of the
    warpgroup until they have issued theirs."""
    _end(instruction, 4, 1)
    pending = _number(instruction.operands[0], instruction, range(8))

    def step(threads: Threads) -> int | None:
        queue, warps = queue_of(threads), warps_of(threads)
        ready = queue.can_wait(warps, pending)
        queue.wait(warps[ready], pending)
        return None if ready.all() else threads.sleep_here(np.repeat(~ready, WARP), instruction.index)

    return program.converged(step, instruction)


@meaning("wgmma", "mma_async", "sync", "aligned")
def mma_async(instruction: Instruction, program: Program) -> Step:
    """Starts a product of two matrices that is added to accumulators of f32 or s32, or takes their place
    (9.7.15.5.2)."""
    product = _product(instruction)
    sums, left, right, more = instruction.operands[:4]
    held = _registers(sums, product.columns // 2, instruction)
    names = tuple(each.name for each in held)
    accumulators = Accumulators(names, [program.view(each, product.sum_type, instruction) for each in held])
    words = (
        [program.view(each, "b32", instruction) for each in _registers(left, 4, instruction)]
        if _is_vector(left)
        else []
    )
    left_descriptor = None if words else program.reader(left, "u64", instruction)
    right_descriptor, adds = program.reader(right, "u64", instruction), program.reader(more, "pred", instruction)

    def step(threads: Threads) -> None:
        operand = InRegisters(product, words)
        if left_descriptor is not None:
            operand = InShared(product, _of_warps(threads, left_descriptor(threads), "descriptors of A"))
        descriptors = _of_warps(threads, right_descriptor(threads), "descriptors of B")
        more = _of_warps(threads, adds(threads), "values of scale-d")
        groups = np.full(program.machine.warps, NONE)
        queue_of(threads).issue(
            warps_of(threads), Issue(instruction, product, accumulators, operand, descriptors, more, groups)
        )

    return program.converged(step, instruction)


def queue_of(threads: Threads) -> Queue:
    return topic(threads.machine, Queue)


def warps_of(threads: Threads) -> Array:
    """Of whole warps."""
    return threads.warp[::WARP]


def _of_warps(threads: Threads, values: Array, what: str) -> Array:
    """What all threads of a warpgroup must give alike, as an array with an element for each warp of the batch."""
    machine, given = threads.machine, threads.full(values)
    group = machine.slot[threads.select] * machine.warps + machine.thread_index[threads.select] // (4 * WARP)
    first = np.searchsorted(group, group)
    threads.check(given == given[first], f"{what} that differ within a warpgroup")
    result = np.zeros(machine.warps, given.dtype)
    result[warps_of(threads)] = given[::WARP]
    return result


def _product(instruction: Instruction) -> Product:
    """By qualifiers and immediate operands (PtxUnknown)."""
    found = _SHAPE.fullmatch(instruction.parts[4]) if len(instruction.parts) == 8 else None
    types = None if found is None else _TYPES.get((found[2], instruction.parts[5]))
    if found is None or types is None:
        instruction.unknown("only products of m64nNk16 or m64nNk32 in f32, or of m64nNk32 in s32, are known")
    columns, integers = int(found[1]), types is INTEGERS
    left, right = instruction.parts[6:]
    if columns % 8 or not 8 <= columns <= 256:
        instruction.unknown("N is a multiple of 8 up to 256")
    if integers and columns > 32 and columns % 16:
        instruction.unknown("N of integers is 8, 16, 24, or a multiple of 16")
    if left not in types or right not in types or (found[2] == "16" and left != right):
        instruction.unknown(f"no product of .{left} and .{right} has this shape")
    in_registers = _is_vector(instruction.operands[1])
    transposes = 0 if found[2] == "32" else 1 if in_registers else 2
    instruction.expect(4 if integers else 6 + transposes)
    if integers:
        return Product(columns, left, right)
    signs = [_number(each, instruction, (-1, 1)) for each in instruction.operands[4:6]]
    flags = [_number(each, instruction, (0, 1)) == 0 for each in instruction.operands[6:]]
    k_major = [True] * (2 - transposes) + flags
    return Product(columns, left, right, signs[0], signs[1], k_major[0], k_major[1])


def _is_vector(operand: Operand) -> bool:
    return isinstance(operand, Vector)


def _registers(operand: Operand, count: int, instruction: Instruction) -> list[Register]:
    elements = operand.elements if isinstance(operand, Vector) else ()
    found = [each for each in elements if isinstance(each, Register)]
    if len(elements) != count or len(found) != count:
        instruction.unknown(f"expected a vector of {count} registers")
    return found


def _number(operand: Operand, instruction: Instruction, known: Sequence[int]) -> int:
    """An immediate operand that is one of these."""
    number = int(operand.text) if isinstance(operand, Immediate) and operand.text.lstrip("-").isdigit() else None
    if number is None or number not in known:
        instruction.unknown("an immediate operand that is not known")
    return number


def _end(instruction: Instruction, parts: int, operands: int) -> None:
    if len(instruction.parts) != parts:
        instruction.unknown(f"unknown modifier '.{instruction.parts[parts]}'")
    instruction.expect(operands)
