"""CUDA C of the turns of consumer warpgroups: arrivals and waits at a named barrier of each."""

from __future__ import annotations

from xdsl.ir import Operation

from treadle.compiler.printer.writer import KernelWriter
from treadle.dialects import cuda
from treadle.dialects.cuda.order import FIRST_BARRIER
from treadle.dialects.cuda.roles import WARPGROUP

THREADS = 2 * WARPGROUP
"""That a barrier waits for: of the warpgroup whose turn it is, and of the one before it."""


class OrderPrinter:
    """Prints the operations by which the warpgroups of one kernel take turns."""

    def __init__(self, writer: KernelWriter):
        self.writer = writer
        self.mine = self.next = ""
        """The barriers of a warpgroup and of the one after it."""

    def print(self, op: Operation) -> bool:
        """Print an operation, if it is one of these."""
        match op:
            case cuda.OrderBeginOp():
                self.begin()
            case cuda.OrderWaitOp():
                self._meet("", self.mine)
            case cuda.OrderArriveOp():
                self._meet("_arrive", self.next)
            case cuda.OrderEndOp():
                self._meet("", str(FIRST_BARRIER), "if (warpgroup == 0) ")
            case _:
                return False
        return True

    def begin(self) -> None:
        """Name the barriers, in registers of each thread: a barrier takes no others, and each turn would move them."""
        writer, last = self.writer, self.last
        self.mine, self.next = (writer.names.fresh(name) for name in ("my_turn", "next_turn"))
        kept, first = writer.call("kept"), FIRST_BARRIER - 1
        number = f"int(threadIdx.x / {WARPGROUP})"
        following = f"{FIRST_BARRIER + 2} - {number}"  # of two
        if last > 1:
            following = f"{number} == {last + 1} ? {FIRST_BARRIER} : {number} + {FIRST_BARRIER}"
        writer.text.line(f"const int {self.mine} = {kept}({number} + {first});  // barriers, of this warpgroup")
        writer.text.line(f"const int {self.next} = {kept}({following});  // and of the next")
        self._meet("_arrive", str(FIRST_BARRIER), f"if (warpgroup == {last}) ")

    @property
    def last(self) -> int:
        """The number of the last warpgroup."""
        roles = cuda.roles_of(self.writer.kernel)
        assert roles is not None
        return roles.consumer_groups.data - 1

    def _meet(self, kind: str, barrier: str, condition: str = "") -> None:
        self.writer.text.line(f"{condition}{self.writer.call(f'barrier_numbered{kind}')}({barrier}, {THREADS});")
