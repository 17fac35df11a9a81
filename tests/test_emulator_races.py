"""The race detector against the definition of a race, on random programs.

One kernel reads its program from a table, so that it is compiled once. The oracle looks at all pairs of
accesses; the emulator must say "race" and "uninitialised" exactly when the oracle does, whatever the
order in which it runs the threads.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from treadle.compiler.primitives import source
from treadle.runtime.emulator import Array, EmulatedModule, EmulationError, compile_source

COMPILER = os.environ.get("CXX") or next(filter(shutil.which, ("g++", "clang++", "c++")), "")
pytestmark = pytest.mark.skipif(not COMPILER, reason="no C++ compiler is installed")

THREADS, STEPS, BYTES = 64, 6, 16
LOAD, STORE = 1, 2
NO_BARRIER, WARP_BARRIER, BLOCK_BARRIER = 0, 1, 2
KERNEL = (
    source(
        [
            "shared_memory",
            "load_global",
            "load_shared",
            "store_shared",
            "barrier_warp",
            "barrier_block",
        ]
    )
    + """
template <class T>
__device__ void act(int kind, unsigned char* at) {
  if (kind == 1) load_shared(reinterpret_cast<T*>(at));
  if (kind == 2) store_shared(reinterpret_cast<T*>(at), T(1));
}
__global__ void interpret(const int* program, const int* barriers, int steps) {
  for (int step = 0; step < steps; ++step) {
    const int code = load_global(program + step * blockDim.x + threadIdx.x);
    const int kind = code & 15, width = code >> 4 & 15, at = code >> 8;
    if (width == 1) act<uint8_t>(kind, shared_memory() + at);
    if (width == 2) act<uint16_t>(kind, shared_memory() + at);
    if (width == 4) act<uint32_t>(kind, shared_memory() + at);
    const int barrier = load_global(barriers + step);
    if (barrier == 1) barrier_warp();
    if (barrier == 2) barrier_block();
  }
}
"""
)


@dataclass(frozen=True)
class Step:
    """One thread's access to some bytes of shared memory."""

    number: int
    thread: int
    kind: int
    at: int
    width: int

    def overlaps(self, other: Step) -> bool:
        return self.at < other.at + other.width and other.at < self.at + self.width


def ordered(first: Step, second: Step, barriers: list[int]) -> bool:
    """Whether `second` happens after `first`: by program order, or across a barrier of both."""
    if first.thread == second.thread:
        return first.number < second.number
    between = barriers[first.number : second.number]
    same_warp = first.thread // 32 == second.thread // 32
    return BLOCK_BARRIER in between or (same_warp and WARP_BARRIER in between)


def is_racy(steps: list[Step], barriers: list[int]) -> bool:
    return any(
        STORE in (a.kind, b.kind) and a.overlaps(b) and not ordered(a, b, barriers) and not ordered(b, a, barriers)
        for a, b in combinations(steps, 2)
    )


def reads_unwritten(steps: list[Step], barriers: list[int]) -> bool:
    """In a program without races: whether some byte is read that no write came before."""
    for read in (step for step in steps if step.kind == LOAD):
        for byte in range(read.at, read.at + read.width):
            if not any(
                step.kind == STORE and step.at <= byte < step.at + step.width and ordered(step, read, barriers)
                for step in steps
            ):
                return True
    return False


def random_program(rng: np.random.Generator) -> tuple[list[Step], list[int]]:
    """A few accesses among many barriers, so that about half the programs are sound."""
    steps: list[Step] = []
    taken: set[tuple[int, int]] = set()
    for _ in range(rng.integers(2, 9)):
        width = int(rng.choice([1, 2, 4]))
        number, thread = int(rng.integers(STEPS)), int(rng.choice([0, 1, 2, 31, 32, 33, 63]))
        if (number, thread) not in taken:
            taken.add((number, thread))
            at = int(rng.integers(BYTES // width)) * width
            steps.append(Step(number, thread, int(rng.choice([LOAD, STORE])), at, width))
    weights = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.2, 0.8, 0.0]][rng.integers(3)]
    barriers = [int(barrier) for barrier in rng.choice(3, STEPS, p=weights)]
    if rng.random() < 0.5:  # all is written before
        steps = [Step(s.number, s.thread, s.kind, s.at, s.width) for s in steps if s.number > 0]
        steps += [Step(0, thread, STORE, 4 * thread, 4) for thread in range(BYTES // 4)]
        barriers[0] = BLOCK_BARRIER
    return steps, barriers


@pytest.fixture(scope="module")
def interpreter() -> EmulatedModule:
    return compile_source(KERNEL, ["interpret"])


def kinds_found(module: EmulatedModule, steps: list[Step], barriers: list[int], seed: int) -> set[str]:
    program = np.zeros((STEPS, THREADS), np.int32)
    for step in steps:
        program[step.number, step.thread] = step.kind | step.width << 4 | step.at << 8
    arguments = [Array(program, False), Array(np.array(barriers, np.int32), False)]
    try:
        module.launch(
            "interpret",
            (1, 1, 1),
            (THREADS, 1, 1),
            BYTES,
            [*arguments, ctypes.c_int32(STEPS)],
            seed=seed,
        )
    except EmulationError as error:
        return {fault.kind for fault in error.faults}
    return set()


def test_races_are_what_the_definition_says(interpreter: EmulatedModule) -> None:
    rng = np.random.default_rng(2024)
    tally = {"race": 0, "uninitialised": 0, "sound": 0}
    for trial in range(1500):
        steps, barriers = random_program(rng)
        found = kinds_found(interpreter, steps, barriers, seed=trial % 7)
        if is_racy(steps, barriers):
            assert "race" in found, (steps, barriers)
            tally["race"] += 1
        elif reads_unwritten(steps, barriers):
            assert found == {"uninitialised"}, (steps, barriers)
            tally["uninitialised"] += 1
        else:
            assert found == set(), (steps, barriers)
            tally["sound"] += 1
    assert min(tally.values()) > 200, tally
