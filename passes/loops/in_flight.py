"""Let the products of a turn run on while the next turn starts its own, where a turn does nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from treadle.dialects import cuda
from treadle.dialects.cuda.tiles import is_shared
from treadle.passes.loops.delay import clone_into, closure, last_position

Mapping = dict[SSAValue, SSAValue]

LEAST_STAGES = 3
"""Of each ring. With two, one is read and the other awaited, and nothing comes: on an H100 a product of 4096^3 in steps
of 128 took 293 us so; where each turn waits for its own products, 201, in an earlier run."""


@dataclass(frozen=True)
class Running:
    """The products of a loop's turn, and what belongs to them."""

    loop: scf.ForOp
    products: tuple[cuda.WarpgroupProductOp, ...]
    waits: tuple[cuda.WarpgroupWaitOp, ...]
    releases: tuple[cuda.ReleaseOp, ...]


def running(loop: scf.ForOp) -> Running | None:
    """The products of a loop that can run on; None if there are none.

    A turn adds each of them to what the turn before has made, hands the sums on, and does nothing else: nobody reads a
    sum before the loop ends, and products that add to the same registers keep their order (PTX ISA 9.7.15.6.2). Their
    operands lie in shared memory, where they stay until a later wait says that they were read: that comes when the next
    turn has its own, so there is a third stage, which fills meanwhile."""
    body = loop.body.block
    *ops, end = body.ops
    products = tuple(op for op in ops if isinstance(op, cuda.WarpgroupProductOp))
    waits = tuple(op for op in ops if isinstance(op, cuda.WarpgroupWaitOp))
    releases = tuple(op for op in ops if isinstance(op, cuda.ReleaseOp))
    others = (op for op in ops if not isinstance(op, cuda.WarpgroupProductOp | cuda.WarpgroupWaitOp | cuda.ReleaseOp))
    if not products or not all(isinstance(op, cuda.AwaitOp | cuda.StageOp) or _is_number(op) for op in others):
        return None
    if len(products) >= 8 or not all(is_shared(op.lhs.type) for op in products):
        return None
    if not _hand_on(products, waits, end, body.args[1:]) or any(_stages(op) < LEAST_STAGES for op in releases):
        return None
    return Running(loop, products, waits, releases)


def _is_number(op: Operation) -> bool:
    return op.dialect_name() == "arith"


def _hand_on(
    products: Sequence[cuda.WarpgroupProductOp],
    waits: Sequence[cuda.WarpgroupWaitOp],
    end: Operation,
    states: Sequence[SSAValue],
) -> bool:
    """Whether each state is the sum of one product, or of several that follow each other, which begins with it, and is
    waited for at the end of a turn."""
    summed: dict[SSAValue, SSAValue | None] = {product.result: product.accumulator for product in products}
    ends = [wait.result for wait in waits]
    begins = [_begun_with(wait.value, summed) for wait in waits]
    alone = all(len(list(value.uses)) == 1 for value in (*summed, *ends, *states))
    return alone and len(states) == len(waits) and ends == list(end.operands) and begins == list(states)


def _begun_with(sum: SSAValue | None, summed: dict[SSAValue, SSAValue | None]) -> SSAValue | None:
    while sum is not None and sum in summed:
        sum = summed[sum]
    return sum


def _stages(op: cuda.ReleaseOp) -> int:
    assert isinstance(op.ring.type, cuda.RingType)
    return op.ring.type.stages.data


def let_run(found: Running) -> None:
    """Rewrite the loop: its first turn starts its products; each later one starts its own, waits for those of the turn
    before, and gives back what these have read; the last are awaited after the loop. Nothing where there is no turn."""
    loop = found.loop
    test = arith.CmpiOp(loop.lb, loop.ub, "ult")
    test.result.name_hint = "has_turns"
    some = Block()
    started = _start(found, some, loop.lb, list(loop.iter_args))
    main = _loop(found, some, started)
    some.add_op(scf.YieldOp(*_end(found, some, main)))
    none = Block([scf.YieldOp(*loop.iter_args)])
    branch = scf.IfOp(test.result, [result.type for result in loop.results], Region(some), Region(none))
    branch.location = loop.location
    for old, new in zip(loop.results, branch.results, strict=True):
        new.name_hint = old.name_hint
    Rewriter.replace_op(loop, [test, branch], list(branch.results))


def _start(found: Running, target: Block, position: SSAValue, states: Sequence[SSAValue]) -> list[SSAValue]:
    """A turn without its waits and releases: the sums, on their way."""
    body = found.loop.body.block
    mapping: Mapping = dict(zip(body.args, (position, *states), strict=True))
    left_out = {*found.waits, *found.releases, body.last_op}
    for op in body.ops:
        if op not in left_out:
            clone_into(op, target, mapping)
    return [mapping[wait.value] for wait in found.waits]


def _loop(found: Running, target: Block, started: Sequence[SSAValue]) -> scf.ForOp:
    loop, body = found.loop, found.loop.body.block
    block = Block(arg_types=[IndexType(), *(state.type for state in started)])
    for old, new in zip(body.args, block.args, strict=True):
        new.name_hint = old.name_hint
    position, *states = block.args
    sums = _start(found, block, position, states)
    block.add_op(cuda.WarpgroupDrainOp(len(found.products)))
    before = arith.SubiOp(position, loop.step)
    before.result.name_hint = f"{position.name_hint or 'position'}_before"
    block.add_op(before)
    _release(found, block, before.result)
    block.add_op(scf.YieldOp(*sums))
    second = arith.AddiOp(loop.lb, loop.step)
    second.result.name_hint = "second"
    main = scf.ForOp(second.result, loop.ub, loop.step, list(started), block)
    main.location = loop.location
    main.attributes |= loop.attributes
    for old, new in zip(loop.results, main.results, strict=True):
        new.name_hint = old.name_hint
    target.add_ops([second, main])
    return main


def _end(found: Running, target: Block, main: scf.ForOp) -> list[SSAValue]:
    """The sums, once they are there; what the last turn has read is given back."""
    mapping: Mapping = {wait.value: sum for wait, sum in zip(found.waits, main.results, strict=True)}
    sums: list[SSAValue] = [clone_into(wait, target, mapping).results[0] for wait in found.waits]
    _release(found, target, last_position(found.loop, target))
    return sums


def _release(found: Running, target: Block, position: SSAValue) -> None:
    """Give back what the turn at that position has read."""
    body = found.loop.body.block
    mapping: Mapping = {body.args[0]: position}
    needed = closure(body, [value for op in found.releases for value in op.operands])
    for op in body.ops:
        if op in needed or op in found.releases:
            clone_into(op, target, mapping)


def let_products_run(kernel: cuda.KernelOp) -> list[str]:
    """In each loop of a kernel's consumers whose products can; the names of their sums."""
    roles = cuda.roles_of(kernel)
    if roles is None:
        return []
    names: list[str] = []
    for loop in [op for op in roles.consumers.block.ops if isinstance(op, scf.ForOp)]:
        found = running(loop)
        if found is not None:
            names += [f"%{wait.result.name_hint}" for wait in found.waits]
            let_run(found)
    return names
