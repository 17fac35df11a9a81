"""CUDA C of the order of consumer warpgroups: arrivals and waits at a named barrier of each."""

from __future__ import annotations

from xdsl.ir import Operation

from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.order import FIRST_BARRIER
from treadle.dialects.cuda.roles import WARPGROUP

THREADS = 2 * WARPGROUP
"""That a barrier waits for: of the warpgroup whose turn it is, and of the one before it."""


def print_order(writer: KernelWriter, op: Operation) -> bool:
    """Print an operation, if it is one of these."""
    roles = cuda.roles_of(writer.kernel)
    if roles is None or not isinstance(op, cuda.ORDERING):
        return False
    last = roles.consumer_groups.data - 1
    match op:
        case cuda.OrderBeginOp():
            line = f"if (warpgroup == {last}) {_call(writer, '_arrive', str(FIRST_BARRIER))}"
        case cuda.OrderWaitOp():
            line = _call(writer, "", f"{FIRST_BARRIER} + warpgroup")
        case cuda.OrderArriveOp():
            after = f"{FIRST_BARRIER + 1} - warpgroup"  # of two
            if last > 1:
                after = f"warpgroup == {last} ? {FIRST_BARRIER} : {FIRST_BARRIER + 1} + warpgroup"
            line = _call(writer, "_arrive", after)
        case cuda.OrderEndOp():
            line = f"if (warpgroup == 0) {_call(writer, '', str(FIRST_BARRIER))}"
    writer.text.line(line)
    return True


def _call(writer: KernelWriter, kind: str, barrier: str) -> str:
    return f"{writer.call(f'barrier_numbered{kind}')}({barrier}, {THREADS});"
