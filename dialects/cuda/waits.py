"""Waiting for one's own copies, and for the other threads of the block."""

from __future__ import annotations

from typing import Self

from xdsl.dialects.builtin import (
    IntAttr,
    UnitAttr,
)
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from treadle.dialects.cuda.roles import check_by_groups


@irdl_op_definition
class CommitOp(IRDLOperation):
    """Close a group: the asynchronous copies that this thread started since the last (PTX ISA 9.7.9.25.3.2)."""

    name = "cuda.commit"
    assembly_format = "attr-dict"

    def __init__(self) -> None:
        super().__init__()


class Pending(IRDLOperation):
    """A wait for all but the newest of the groups of copies that this thread started."""

    pending = prop_def(IntAttr)

    def __init__(self, pending: int = 0):
        super().__init__(properties={"pending": IntAttr(pending)})

    def verify_(self) -> None:
        if self.pending.data < 0:
            raise VerifyException("fewer than no groups cannot be pending")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        parser.parse_keyword("pending")
        op = cls(parser.parse_integer())
        op.attributes |= parser.parse_optional_attr_dict()
        return op

    def print(self, printer: Printer) -> None:
        printer.print_string(f" pending {self.pending.data}")
        printer.print_op_attributes(self.attributes)


@irdl_op_definition
class WaitOp(Pending):
    """Wait until at most `pending` of this thread's newest groups of copies are under way (PTX ISA 9.7.9.25.3.3); a
    barrier must follow before another thread reads what they brought."""

    name = "cuda.wait"


@irdl_op_definition
class BarrierOp(IRDLOperation):
    """All threads of the block meet, or in a role all of the role; what they wrote to shared memory before is seen
    after. `cuda.barrier by groups`: those of each consumer warpgroup meet among themselves."""

    name = "cuda.barrier"

    by_groups = opt_prop_def(UnitAttr)

    assembly_format = "(`by` `groups` $by_groups^)? attr-dict"

    def __init__(self, by_groups: bool = False) -> None:
        super().__init__(properties={"by_groups": UnitAttr() if by_groups else None})

    def verify_(self) -> None:
        check_by_groups(self, self.by_groups)
