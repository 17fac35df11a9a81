"""What it costs a thread that a tile leaves shared memory: by its own loads and stores, or by a tensor copy."""

from __future__ import annotations

from treadle.compiler.cost.issue import VECTOR

COPY_STEPS = 3
"""Instructions of a thread for each vector that it copies itself: LDS, STG, and the step of the address."""

STORE_STEPS = 6
"""Of a thread where one of them starts a tensor copy: the fence, what that thread does for all, and the wait at the
end. Counted in what ptxas 13.0 makes of a matrix product; not measured on a GPU."""


def copying_slots(bytes: int, threads: int) -> int:
    """Instructions of a thread that copies its part of a tile of so many bytes."""
    return COPY_STEPS * -(-bytes // (VECTOR * threads))


def saved_by_tensor_store(bytes: int, threads: int) -> int:
    """Instructions of a thread that a tensor copy saves; below 1 it does not pay."""
    return copying_slots(bytes, threads) - STORE_STEPS
