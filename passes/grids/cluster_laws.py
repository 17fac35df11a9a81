"""Which copies the blocks of a cluster can make together: the laws that must hold, and the fact that shows where one
does not."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.clusters import Feeding
from treadle.compiler.execution import executed
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.tensor_maps import share_of
from treadle.dialects.diagram.array import format_of, sizes_of
from treadle.passes.grids.sharing import Numbers, depending
from treadle.passes.warps.laws import Reason

ALIKE = "the blocks of a cluster bring together what they read alike"


@dataclass(frozen=True)
class Neighbours:
    """What blocks that are neighbours in the grid differ in."""

    coordinate: SSAValue
    """The innermost coordinate of a piece: the only one, or a remainder of the block's number."""
    count: SSAValue | None
    """How many pieces there are along it; None if that is all of the grid."""

    @property
    def name(self) -> str:
        """What it is called, or what is made of it: where the piece begins."""
        made = [result.name_hint for use in self.coordinate.uses for result in use.operation.results]
        return f"%{self.coordinate.name_hint or next(filter(None, made), 'block')}"


def neighbours_in(kernel: cuda.KernelOp) -> Neighbours | None:
    """None for a kernel that does not ask which block it is."""
    block = next((op for op in kernel.body.block.ops if isinstance(op, cuda.BlockIndexOp)), None)
    if block is None:
        return None
    users = [use.operation for use in block.result.uses]
    inner = next((op for op in users if isinstance(op, arith.RemUIOp) and op.lhs is block.result), None)
    return Neighbours(block.result, None) if inner is None else Neighbours(inner.result, inner.rhs)


def alike(kernel: cuda.KernelOp, roles: cuda.RolesOp, found: Neighbours, size: int) -> list[cuda.TensorLoadOp] | Reason:
    """The copies that blocks which differ in the innermost coordinate make alike, and whose tiles have as many shares
    as a cluster of `size` has blocks: of each ring all or none."""
    loads = [op for op in roles.producer.walk() if isinstance(op, cuda.TensorLoadOp)]
    depends = depending(kernel.body.block, found.coordinate)
    by_ring: dict[SSAValue, list[cuda.TensorLoadOp]] = {}
    for load in loads:
        by_ring.setdefault(load.ring, []).append(load)
    reasons = {ring: next(filter(None, (_own(op, depends, size) for op in ops)), None) for ring, ops in by_ring.items()}
    for ring, ops in by_ring.items():  # a tensor map has one box
        maps = {op.map for op in ops}
        if any(op.map in maps and reasons[op.ring] is not None for op in loads):
            reasons[ring] = reasons[ring] or "another copy takes whole boxes by its tensor map"
    shared = [op for op in loads if reasons[op.ring] is None]
    if shared:
        return shared
    facts = [f"%{ring.name_hint}: {reason}" for ring, reason in reasons.items()]
    return Reason(ALIKE, "; ".join(facts) or "nothing is copied")


def _own(load: cuda.TensorLoadOp, depends: set[SSAValue], size: int) -> str | None:
    """Why each block makes a copy by itself; None if it need not."""
    if any(offset in depends for offset in load.offsets):
        return "every block reads elsewhere"
    if load.turn in depends or any(_differs(op, depends) for op in _around(load)):
        return "blocks take different numbers of turns"
    if load.multicast is not None:
        return "it is made together already"
    if load.is_by_rows:
        return "it ends before a position that data tells"
    if share_of(load.boxes, size) is None:
        return f"{load.boxes.rows} rows of a box are no {size} shares of whole swizzles"
    return None


def _around(op: Operation) -> list[Operation]:
    found: list[Operation] = []
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, cuda.RolesOp):
        found.append(parent)
        parent = parent.parent_op()
    return found


def _differs(op: Operation, depends: set[SSAValue]) -> bool:
    if isinstance(op, scf.ForOp):
        return any(value in depends for value in (op.lb, op.ub, op.step))
    return isinstance(op, scf.IfOp) and op.cond in depends


def feeding(
    kernel: cuda.KernelOp, roles: cuda.RolesOp, arguments: Numbers, shared: list[cuda.TensorLoadOp], machine: Machine
) -> Feeding | None:
    """What the first piece brings and multiplies; None if a number is not known."""
    known = dict(arguments)
    try:
        list(executed(kernel.body.block, known))
        loads = [op for op in executed(roles.producer.block, dict(known)) if isinstance(op, cuda.TensorLoadOp)]
        products = [
            op for op in executed(roles.consumers.block, dict(known)) if isinstance(op, cuda.WarpgroupProductOp)
        ]
    except KeyError:
        return None
    together = sum(op.bytes for op in loads if op in shared)
    clocks = sum(_flop(op) / machine.rates.products(_rate_of(op)) for op in products)
    return Feeding(together, sum(op.bytes for op in loads) - together, clocks)


def _flop(op: cuda.WarpgroupProductOp) -> int:
    size = 2 * sizes_of(op.rhs.type)[op.axis]
    for side in sizes_of(op.result.type).values():
        size *= side
    return size


def _rate_of(op: cuda.WarpgroupProductOp) -> str:
    """What the machine calls the format of the operands."""
    format = str(format_of(op.rhs.type))
    return "f8" if format.startswith("f8") else format
