"""The order in which the consumer warpgroups of a block start products, kept by named barriers (PTX ISA 9.7.13.1).

Each warpgroup has a barrier of its own, at which it waits for its turn, and where the one before it arrives when it
has started what it had to start; the first comes after the last. So while one computes, another's products run.
(FlashAttention-3, arXiv 2407.08608, section 3.1, calls that ping-pong scheduling.)"""

from __future__ import annotations

from xdsl.irdl import IRDLOperation, irdl_op_definition
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.roles import RolesOp

FIRST_BARRIER = 2
"""The named barrier of the first warpgroup; the others' follow. At barrier 1 all consumers meet."""

FIRST_OF_GROUP = 5
"""The named barrier at which the first warpgroup meets for itself; the others' follow."""


class _Ordering(IRDLOperation):
    """What only consumers do, of which there are two warpgroups or more."""

    assembly_format = "attr-dict"

    def verify_(self) -> None:
        parent = self.parent_op()
        inner = self.parent
        while parent is not None and not isinstance(parent, RolesOp):
            inner, parent = parent.parent, parent.parent_op()
        if parent is None or inner is not parent.consumers.block:
            raise VerifyException(f"'{self.name}' orders consumers: expected among the consumers of cuda.roles")
        if parent.consumer_groups.data < 2:
            raise VerifyException(f"'{self.name}' of a single warpgroup: there is nobody to take turns with")


@irdl_op_definition
class OrderBeginOp(_Ordering):
    """The last warpgroup arrives for the first, whose turn it is then (PTX ISA 9.7.13.1, `bar.arrive`)."""

    name = "cuda.order_begin"


@irdl_op_definition
class OrderWaitOp(_Ordering):
    """A warpgroup waits for its turn (PTX ISA 9.7.13.1, `bar.sync`)."""

    name = "cuda.order_wait"


@irdl_op_definition
class OrderArriveOp(_Ordering):
    """A warpgroup gives the turn to the next one, and goes on (PTX ISA 9.7.13.1, `bar.arrive`)."""

    name = "cuda.order_arrive"


@irdl_op_definition
class OrderEndOp(_Ordering):
    """The first warpgroup waits for the last turn to come back, so that no barrier is left with an arrival
    (PTX ISA 9.7.13.1, `bar.sync`)."""

    name = "cuda.order_end"


ORDERING = OrderBeginOp | OrderWaitOp | OrderArriveOp | OrderEndOp
