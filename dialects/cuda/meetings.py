"""When a block has to meet before it touches a tile on the way of fragments."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, scf
from xdsl.ir import Operation

from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import KernelOp
from treadle.dialects.cuda.rings import ReadyOp
from treadle.dialects.cuda.roles import RolesOp
from treadle.dialects.cuda.waits import BarrierOp

LESS = (2, 6)
"""The predicates `slt` and `ult` of `arith.cmpi`."""

Place = tuple[int, int]
"""Bytes of shared memory: the first, and the end."""


def meets_before(op: GlobalAccess) -> bool:
    """Whether all who meet around an access that goes through shared memory must do so before its tile is touched, and
    those of the accesses that go with it: not if they have met since that place was last used, on every way that leads
    there. Where a tile lies in the place of the kernel's own, these may still be read."""
    kernel = next(each for each in _around(op) if isinstance(each, KernelOp))
    ways = [(each.staged, each.piece_type) for each in op.meets_with if each.staged is not None]
    begin = min(staged.at.data for staged, _ in ways)
    end = max(staged.end(type) for staged, type in ways)
    return begin < kernel.shared_bytes.data or not have_met(op.meets_with[0], (begin, end))


def have_met(op: GlobalAccess, place: Place) -> bool:
    """Whether on every way to an access a meeting lies behind the last one whose tile reaches into a place, that access
    itself in an earlier turn among them."""
    here: Operation = op
    for around in _around(op):
        found = _met_since(here.prev_op, op, place)
        if found is not None:
            return found
        match around:
            case scf.ForOp() if _met_since(around.body.block.last_op, op, place) is False:
                return False
            case scf.ForOp() | scf.IfOp() | RolesOp():
                here = around
            case _:
                return isinstance(around, KernelOp)
    return False


def _around(op: Operation) -> Iterator[Operation]:
    """The operations that an operation lies in, from the inside out."""
    while (around := op.parent_op()) is not None:
        yield around
        op = around


def _met_since(last: Operation | None, asking: Operation, place: Place) -> bool | None:
    """Of the operations of a block up to one: whether a meeting comes behind the last that uses a place; None if there
    is neither."""
    met: list[scf.ForOp] = []  # loops of which each turn ends with a meeting behind it
    while last is not None:
        if isinstance(last, ReadyOp) or (isinstance(last, BarrierOp) and last.by_groups is None):
            return True
        if last is asking or (isinstance(last, GlobalAccess) and _reaches(last, place)):
            return False
        found = [_met_since(block.last_op, asking, place) for region in last.regions for block in region.blocks]
        if False in found and not any(_begins(last, loop) for loop in met):
            return False
        if True in found and isinstance(last, scf.ForOp):
            met.append(last)
        last = last.prev_op
    return None


def _begins(branch: Operation, loop: scf.ForOp) -> bool:
    """Whether a branch is taken just where a loop behind it has a turn, as one that loads ahead for the first."""
    if not isinstance(branch, scf.IfOp) or not isinstance(test := branch.cond.owner, arith.CmpiOp):
        return False
    return test.predicate.value.data in LESS and (test.lhs, test.rhs) == (loop.lb, loop.ub)


def _reaches(op: GlobalAccess, place: Place) -> bool:
    if op.staged is None:
        return False
    return op.staged.at.data < place[1] and place[0] < op.staged.end(op.piece_type)
