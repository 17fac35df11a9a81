"""Where the warpgroups of a loop start products, and where they compute: what taking turns needs to know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from xdsl.dialects import arith, scf
from xdsl.ir import Block, BlockArgument, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.compiler.cost.timing.ping_pong import computes
from treadle.dialects import cuda
from treadle.passes.loops.turns import SELECTS, is_of_each_warp
from treadle.passes.warps.laws import Reason

NUMBERS = cuda.BlockIndexOp | cuda.ClusterIndexOp | cuda.BlockInClusterOp | cuda.GridSizeOp | SELECTS
"""Of the block: alike for all its threads."""


@dataclass(frozen=True)
class Runs:
    """The products of a loop's turn, in runs between which the warpgroup computes."""

    loop: scf.ForOp
    runs: tuple[tuple[cuda.WarpgroupProductOp, ...], ...]
    around: bool
    """Whether nothing is computed between the last run and the first of the next turn, so that they are one."""


def runs_of(loop: scf.ForOp) -> Runs | Reason | None:
    """The runs of a loop, or why its warpgroups cannot take turns; None if it starts no products."""
    runs: list[list[cuda.WarpgroupProductOp]] = []
    first, last = True, True  # nothing has been computed in the turn; nothing since the last product
    new = True
    for op in loop.body.block.ops:
        if isinstance(op, cuda.WarpgroupProductOp):
            if new:
                runs.append([])
            runs[-1].append(op)
            new, last = False, True
        elif any(isinstance(inner, cuda.ProductOfWarpgroupsOp) for inner in op.walk()):
            return Reason("a turn starts its products one after another", f"'{op.name}' starts some of them")
        elif computes(op):
            first = first and bool(runs)
            new, last = True, False
    if not runs:
        return None
    around = first and last
    if len(runs) == 1 and around:
        return Reason("one warpgroup's products run while another computes", "a turn does nothing but products")
    if not _are_of_the_block(_steering(loop)):
        return Reason("all warpgroups take as many turns", "data decide how often the loop runs")
    return Runs(loop, tuple(map(tuple, runs)), around and len(runs) > 1)


def _steering(loop: scf.ForOp) -> list[SSAValue]:
    """What decides how often a loop runs, and the loops and branches around it."""
    values: list[SSAValue] = []
    op: Operation | None = loop
    while op is not None and not isinstance(op, cuda.RolesOp):
        values += [op.lb, op.ub, op.step] if isinstance(op, scf.ForOp) else list(op.operands)
        op = op.parent_op()
    return values


def _are_of_the_block(values: Iterable[SSAValue]) -> bool:
    """Whether numbers are alike for all threads of a block: made of sizes, of the numbers of blocks, and of what each
    warp loads alike. What a loop carries is if it begins so, and each turn makes it of such."""
    left, seen = list(values), set[SSAValue]()
    while left:
        value = left.pop()
        if value in seen:
            continue
        seen.add(value)
        made_of = _made_of(value)
        if made_of is None:
            return False
        left += made_of
    return True


def _made_of(value: SSAValue) -> Iterable[SSAValue] | None:
    """What a number depends on; None for one that threads may have of their own."""
    owner = value.owner
    if isinstance(value, BlockArgument):
        return _carried(value)
    if isinstance(owner, NUMBERS | arith.ConstantOp):
        return ()
    is_alike = isinstance(owner, Operation) and (owner.name.startswith("arith.") or is_of_each_warp(owner))
    return owner.operands if is_alike and isinstance(owner, Operation) else None


def _carried(value: BlockArgument) -> Iterable[SSAValue] | None:
    loop = value.owner.parent_op()
    if isinstance(loop, cuda.KernelOp):
        return ()
    if not isinstance(loop, scf.ForOp) or loop.body.block.last_op is None:
        return None
    steering = [loop.lb, loop.ub, loop.step]
    if value.index:
        steering += [loop.iter_args[value.index - 1], loop.body.block.last_op.operands[value.index - 1]]
    return steering


def take_turns(found: Runs) -> None:
    """Let warpgroups wait for their turn before each run of a loop, and give it on after."""
    loop, runs = found.loop, found.runs
    if not found.around:
        for run in runs:
            _before(run[0], cuda.OrderWaitOp())
            _after(run[-1], cuda.OrderArriveOp())
        return
    # The last run goes on in the next turn: what a turn of the loop takes, the next one gives on.
    _before(loop, cuda.OrderWaitOp())
    for this, following in pairwise(runs):
        _after(this[-1], cuda.OrderArriveOp())
        _before(following[0], cuda.OrderWaitOp())
    _after(loop, cuda.OrderArriveOp())


def bracket(block: Block) -> None:
    """Give the first turn before all that consumers do, and take the last one back after it."""
    first = block.first_op
    assert first is not None
    _before(first, cuda.OrderBeginOp())
    last = block.last_op
    assert last is not None
    _after(last, cuda.OrderEndOp())


def _before(op: Operation, new: Operation) -> None:
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.before(op))


def _after(op: Operation, new: Operation) -> None:
    new.location = op.location
    Rewriter.insert_op(new, InsertPoint.after(op))
