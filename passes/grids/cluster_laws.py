"""Which copies the blocks of a cluster can make together: the laws that must hold, and the fact that shows where one
does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.timing.clusters import Feeding, Shape
from treadle.compiler.execution import counted
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.tensor_maps import share_of
from treadle.dialects.cuda.warpgroups import multiplied
from treadle.dialects.diagram.array import format_of, sizes_of
from treadle.dialects.diagram.formats import rated_as
from treadle.passes.grids.coordinates import Coordinate
from treadle.passes.grids.sharing import Numbers, depending
from treadle.passes.warps.laws import Reason

ALIKE = "the blocks of a cluster bring together what they read alike"


Sides = Shape[Coordinate]


@dataclass(frozen=True)
class Together:
    """The blocks of a cluster that copy a tile together: their numbers in it are `step` apart."""

    blocks: int
    step: int


def alike(kernel: cuda.KernelOp, roles: cuda.RolesOp, shape: Sides) -> dict[cuda.TensorLoadOp, Together] | Reason:
    """The copies that blocks of a cluster make alike, those that differ in some of its coordinates or in all, and whose
    tiles have as many shares: of each ring all or none."""
    loads = [op for op in roles.producer.walk() if isinstance(op, cuda.TensorLoadOp)]
    depends = {place: depending(kernel.body.block, place.value) for place, _ in shape.sides}
    rings: dict[SSAValue, Together | str] = {}
    for ring in dict.fromkeys(op.ring for op in loads):
        rings[ring] = _of_ring([op for op in loads if op.ring is ring], depends, shape)
    while (ring := next(filter(lambda ring: _maps_differ(ring, loads, rings), rings), None)) is not None:
        rings[ring] = "another copy takes other boxes by its tensor map"
    shared: dict[cuda.TensorLoadOp, Together] = {}
    for op in loads:
        if isinstance(together := rings[op.ring], Together):
            shared[op] = together
    if shared:
        return shared
    facts = [f"%{ring.name_hint}: {reason}" for ring, reason in rings.items()]
    return Reason(ALIKE, "; ".join(facts) or "no tensor copy brings anything")


def _of_ring(
    ops: Sequence[cuda.TensorLoadOp], depends: Mapping[Coordinate, set[SSAValue]], shape: Sides
) -> Together | str:
    """Which blocks make all copies of a ring together, or why each makes them by itself."""
    reasons = {place: next(filter(None, (_own(op, values) for op in ops)), None) for place, values in depends.items()}
    own = [place for place, reason in reasons.items() if reason is not None]
    together = _members(shape, own)
    if together.blocks == 1:
        return next(filter(None, reasons.values()))
    if (problem := next(filter(None, (_no_shares(op, together.blocks) for op in ops)), None)) is not None:
        return problem
    return together


def _members(shape: Sides, own: Sequence[Coordinate]) -> Together:
    """The blocks of a cluster that differ in the other coordinates only; the last coordinate is the fastest in it. A
    cluster lies along two at most, so that they are equally far apart."""
    step = 1
    for place, count in reversed(shape.sides):
        if place not in own:
            break
        step *= count
    return Together(shape.together(own), step)


def _maps_differ(ring: SSAValue, loads: Sequence[cuda.TensorLoadOp], rings: Mapping[SSAValue, Together | str]) -> bool:
    """Whether the stages of a ring are filled together by a tensor map whose boxes, which all are alike, are not the
    shares of another copy."""
    here = rings[ring]
    if isinstance(here, str):
        return False
    maps = {op.map for op in loads if op.ring is ring}
    others = [rings[op.ring] for op in loads if op.map in maps]
    return any(isinstance(other, str) or other.blocks != here.blocks for other in others)


def _own(load: cuda.TensorLoadOp, depends: set[SSAValue]) -> str | None:
    """Why blocks that differ in what these values depend on do not make a copy alike; None if they do."""
    if any(offset in depends for offset in load.offsets):
        return "every block reads elsewhere"
    if load.turn in depends or any(_differs(op, depends) for op in _around(load)):
        return "blocks take different numbers of turns"
    return None


def _no_shares(load: cuda.TensorLoadOp, blocks: int) -> str | None:
    """Why so many blocks cannot take a share of a copy each; None if they can."""
    if load.multicast is not None:
        return "it is made together already"
    if load.is_by_rows:
        return "it ends before a position that data tells"
    if share_of(load.boxes, blocks) is None:
        return f"{load.boxes.rows} rows of a box are no {blocks} shares of whole swizzles"
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


@dataclass(frozen=True)
class Piece:
    """What the first piece brings, and the clocks of an SM's tensor cores that it multiplies."""

    loads: Sequence[tuple[cuda.TensorLoadOp | cuda.TensorGatherOp, int]]
    """And how many times each is executed."""
    product_clocks: float

    def feeding(self, shape: Sides | None, shared: Mapping[cuda.TensorLoadOp, Together]) -> Feeding:
        """What a block brings by itself, and together with how many of its cluster."""
        found: dict[int, int] = {1: 0}
        for op, times in self.loads:
            together = shared[op].blocks if isinstance(op, cuda.TensorLoadOp) and op in shared else 1
            found[together] = found.get(together, 0) + op.bytes * times
        return Feeding(found, 1 if shape is None else shape.blocks)


def first_piece(kernel: cuda.KernelOp, roles: cuda.RolesOp, arguments: Numbers, machine: Machine) -> Piece | None:
    """None if a number is not known."""
    known = dict(arguments)
    try:
        list(counted(kernel.body.block, known))
        brought = counted(roles.producer.block, dict(known))
        loads = [(op, times) for op, times in brought if isinstance(op, cuda.TensorLoadOp | cuda.TensorGatherOp)]
        products = [
            (op, times)
            for op, times in counted(roles.consumers.block, dict(known))
            if isinstance(op, cuda.ProductOfWarpgroupsOp)
        ]
    except KeyError:
        return None
    return Piece(loads, sum(times * _flop(op) / machine.rates.products(_rate_of(op)) for op, times in products))


def _flop(op: cuda.ProductOfWarpgroupsOp) -> int:
    size = 2 * multiplied(op.rhs.type, op.axis)
    for side in sizes_of(op.result.type).values():
        size *= side
    return size


def _rate_of(op: cuda.ProductOfWarpgroupsOp) -> str:
    """What the machine calls the format of the operands."""
    return rated_as(str(format_of(op.rhs.type)))
