"""Bring what a piece holds before the piece begins, so that tensor cores do not wait for it between two pieces.

A tile that a piece holds has one place, to which that of the next piece can come when the last product of this one has
read it. Two things let it come later. The consumers give it back behind all loops, after what they compute with the
last product; and the producer asks for it before all else of the next piece, so that rings stand empty meanwhile."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, BlockArgument, Region, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects import cuda
from treadle.dialects.cuda.rings import stages_of
from treadle.passes.grids.arithmetic import Arithmetic
from treadle.passes.grids.held import ON_RING, Held, loop_of_pieces
from treadle.passes.warps.laws import Reason, constant_of

LAW = "what a piece holds is free once the ring has its last turn back that all products with it read beside it"
ALONE = (1, 1)
"""A block that brings a tile by itself."""


def why_not_early(held: Held) -> Reason | None:
    name = f"%{held.tile.name_hint}"
    if held.beside is None:
        return Reason(LAW, f"{name} is not read beside one ring")
    if _together(held.ring) not in (ALONE, _together(held.beside)):
        return Reason("blocks that bring a tile together walk the same loops", f"other blocks bring {name}")
    return None


def _together(ring: SSAValue) -> tuple[int, int]:
    assert isinstance(ring.owner, cuda.RingOp)
    return ring.owner.filled_by, ring.owner.apart


def bring_early(roles: cuda.RolesOp, held: Held) -> None:
    """Let the producer bring the tile of the next piece as soon as the ring beside it has the last turn of this one
    back, behind those turns of the next that find their places free no later. The consumers give it back no more.

    A piece without a turn has no product that reads the tile, nor a turn to be given back: it takes none of the tile's
    ring, either. `why_not_early` must have found nothing."""
    assert held.beside is not None
    counts_itself = not constant_of(_turns_of_piece(roles.producer.block, held.beside))
    for role in (roles.producer.block, roles.consumers.block):
        if counts_itself:
            _count_itself(role, held, held.beside)
    _bring(roles.producer.block, held, held.beside)
    if counts_itself:
        _await_if_any(roles.consumers.block, held, held.beside)
    Rewriter.erase_op(held.release)


def _bring(role: Block, held: Held, beside: SSAValue) -> None:
    """All stages of the ring but one are free when the last product with the tile begins, and the tile and that stage
    when it ends: so the tile comes behind the turns that take those. In the first piece of a block, for which nothing
    is there, it comes behind the first."""
    numbers = Arithmetic.before(held.acquire)
    stages, total, zero = stages_of(beside), _turns_of_piece(role, beside), numbers.constant(0)
    acquires = [op for op in role.walk() if isinstance(op, cuda.AcquireOp) and op.ring is beside]
    done, turn = _done(acquires[0].turn), zero
    if stages > 2:
        least = numbers.least(numbers.difference(total, numbers.constant(1)), numbers.constant(stages - 2))
        turn = numbers.choice(numbers.is_less(zero, done), least, zero, "ahead")
    last_stage = numbers.sum(numbers.constant(stages - 1), done, "turn_beside")
    for op in acquires:
        assert op.parent is not None
        filled = [each for each in op.parent.ops if isinstance(each, ON_RING) and each.ring is beside]
        acquire = cuda.AcquireBesideOp(held.ring, held.acquire.turn, beside, last_stage)
        ops = [acquire, *(each.clone() for each in held.fill)]
        for each in ops:
            each.location = held.acquire.location
        test = arith.CmpiOp(_own(op.turn), turn, "eq")
        branch = scf.IfOp(test.result, [], Region(Block([*ops, scf.YieldOp()])))
        branch.location = held.acquire.location
        Rewriter.insert_op([test, branch], InsertPoint.after(filled[-1]))
    for each in (held.acquire, *held.fill):
        Rewriter.erase_op(each)


def _await_if_any(role: Block, held: Held, beside: SSAValue) -> None:
    numbers = Arithmetic.before(held.awaited)
    has_turns = numbers.is_less(numbers.constant(0), _turns_of_piece(role, beside))
    branch = scf.IfOp(has_turns, [], Region(Block([held.awaited.clone(), scf.YieldOp()])))
    branch.location = held.awaited.location
    Rewriter.replace_op(held.awaited, branch, [])


def _count_itself(role: Block, held: Held, beside: SSAValue) -> None:
    """Let the loop over pieces count how many had a turn of the ring: so many turns the tile's own ring has taken."""
    loop = loop_of_pieces(role)
    assert loop is not None
    body = loop.detach_region(loop.body)
    last = body.block.last_op
    assert last is not None
    done = body.block.insert_arg(IndexType(), len(body.block.args))
    done.name_hint = f"{held.tile.name_hint}_done"
    for op in [op for op in body.walk() if isinstance(op, ON_RING | cuda.AwaitOp) and op.ring is held.ring]:
        op.operands[list(op.operands).index(op.turn)] = done
    begin = Arithmetic.before(loop).constant(0)
    new = scf.ForOp(loop.lb, loop.ub, loop.step, [*loop.iter_args, begin], body)
    new.attributes |= loop.attributes
    new.location = loop.location
    Rewriter.replace_op(loop, new, new.results[:-1])
    numbers = Arithmetic.before(last)
    zero = numbers.constant(0)
    has_turns = numbers.is_less(zero, _turns_of_piece(role, beside))
    following = numbers.sum(done, numbers.choice(has_turns, numbers.constant(1), zero))
    Rewriter.replace_op(last, scf.YieldOp(*last.operands, following))


def _turns_of_piece(role: Block, ring: SSAValue) -> SSAValue:
    """How many turns of a ring a piece takes."""
    loop = loop_of_pieces(role)
    assert loop is not None
    on_ring = next(op for op in loop.body.walk() if isinstance(op, cuda.AcquireOp | cuda.AwaitOp) and op.ring is ring)
    last = loop.body.block.last_op
    assert last is not None
    sum = last.operands[_done(on_ring.turn).index - 1].owner
    assert isinstance(sum, arith.AddiOp)
    return sum.rhs


def _own(turn: SSAValue) -> SSAValue:
    """The number of a turn in its piece."""
    assert isinstance(turn.owner, arith.AddiOp)
    return turn.owner.lhs


def _done(turn: SSAValue) -> BlockArgument:
    """How many turns were taken before the piece."""
    assert isinstance(turn.owner, arith.AddiOp)
    assert isinstance(turn.owner.rhs, BlockArgument)
    return turn.owner.rhs
