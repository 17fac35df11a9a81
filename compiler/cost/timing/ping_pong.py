"""What a step of a kernel's main loop costs where its warpgroups take turns at starting products, and where not: two
pipeline schedules, read off the loop.

Warpgroups that begin together and share every unit evenly stay side by side: all wait for products at once, and all
compute at once. So a step of so many of them is that of one for which everything takes so many times as long. In turns
they are as many workers, each of which has a unit for itself (`schedule`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.kernel.warpgroups import one_after_another
from treadle.compiler.cost.kernel.work import Labour, axes_touched, labours_of
from treadle.compiler.cost.timing.schedule import Stage, schedule
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import SUB_PARTITIONS, WARP
from treadle.dialects import cuda
from treadle.dialects.cuda.warpgroups import multiplied
from treadle.dialects.diagram.array import format_of, is_array, sizes_of
from treadle.dialects.diagram.formats import rated_as

WORTH = 0.05
"""The part of a step that taking turns must save: a warpgroup may wait for its turn. Not measured."""


@dataclass(frozen=True)
class Turns:
    """Clocks of one step of all warpgroups."""

    side_by_side: float
    in_turns: float

    def __str__(self) -> str:
        return f"{self.side_by_side:,.0f} clocks side by side, {self.in_turns:,.0f} in turns"

    @property
    def pays(self) -> bool:
        """Whether warpgroups should take turns."""
        return self.in_turns <= (1 - WORTH) * self.side_by_side


def turns_of(loop: scf.ForOp, groups: int, machine: Machine) -> Turns:
    """Of a loop of so many warpgroups that start products and compute."""
    stages = tuple(_stages(loop, groups, machine))
    shared = [replace(stage, clocks=stage.clocks * groups) for stage in stages]
    return Turns(schedule(shared, 1).clocks_of_step, schedule(stages, groups).clocks_of_step)


def _stages(loop: scf.ForOp, groups: int, machine: Machine) -> Iterator[Stage]:
    """What one warpgroup does in a step, in order: it starts products, and computes when those that it waits for are
    done."""
    found: list[Stage] = []
    computing: dict[str, float] = defaultdict(float)
    awaited: list[str] = []
    names: dict[SSAValue, str] = {}

    def compute() -> None:
        """Close a stage in which numbers are computed."""
        if computing or awaited:
            clocks = max(computing["float"], one_after_another(computing["special"], computing["issue"]))
            found.append(Stage(f"compute {len(found)}", "scalar", clocks, tuple((name, 0) for name in awaited)))
        computing.clear()
        awaited.clear()

    for op in loop.body.block.ops:
        if isinstance(op, cuda.WarpgroupProductOp):
            compute()
            names[op.result] = f"products {len(found)}"
            found.append(Stage(names[op.result], "tensor", _product_clocks(op, groups, machine)))
        elif isinstance(op, cuda.WarpgroupWaitOp):
            compute()
            awaited += [names[op.value]] if op.value in names else []
        else:
            for unit, clocks in _clocks_of(op, groups, machine):
                computing[unit] += clocks
    compute()
    return _in_order(found)


def _in_order(stages: Sequence[Stage]) -> Iterator[Stage]:
    """Stages that also come after what the warpgroup does before: products after what was computed for them and after
    the products before, what is computed after what was computed before."""
    for i, stage in enumerate(stages):
        before = [(other, 0) for other in stages[:i][::-1]] + [(other, 1) for other in stages[i:][::-1]]
        scalar = next(((other.name, lag) for other, lag in before if other.unit == "scalar"), None)
        same = next(((other.name, lag) for other, lag in before if other.unit == stage.unit), None)
        after = dict.fromkeys(each for each in (*stage.after, scalar, same) if each is not None)
        yield replace(stage, after=tuple(after))


def _product_clocks(op: cuda.WarpgroupProductOp, groups: int, machine: Machine) -> float:
    flop = 2 * multiplied(op.rhs.type, op.axis) * prod(sizes_of(op.result.type).values()) / groups
    return flop / machine.rates.products(rated_as(str(format_of(op.rhs.type))))


def _clocks_of(op: Operation, groups: int, machine: Machine) -> Iterator[tuple[str, float]]:
    """Clocks for which one warpgroup's part of an operation keeps units of an SM busy; `issue` is without special
    functions."""
    labours = labours_of(op)
    if isinstance(op, cuda.MaskOp):
        labours = [Labour("float", 1, axes_touched(op))]
    sizes = {
        axis: size
        for value in (*op.operands, *op.results)
        if is_array(value.type)
        for axis, size in sizes_of(value.type).items()
    }
    for labour in labours:
        results = labour.factor * prod(sizes[axis] for axis in labour.axes) / groups
        if labour.kind == "special":
            yield "special", results / machine.rates.special
            continue
        yield "issue", results / (SUB_PARTITIONS * WARP)
        if labour.kind in ("float", "lagging"):
            yield "float", results / machine.rates.float


def computes(op: Operation) -> bool:
    """Whether warpgroups compute numbers there, whose products then stand still."""
    found = (inner for inner in op.walk() if any(is_array(value.type) for value in inner.results))
    return any(not isinstance(each, cuda.WarpgroupProductOp | cuda.WarpgroupWaitOp | cuda.StageOp) for each in found)
