"""Where in a kernel all threads that come to an access may meet, and whose tiles are needed no more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xdsl.dialects import scf
from xdsl.ir import Block, Operation, SSAValue

from treadle.compiler.layouts.run_order import runs_of
from treadle.compiler.lowering.conversions import staging_rows
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import GlobalAccess
from treadle.dialects.cuda.kernel import NARROW, is_for_sectors
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import is_shared, layout_of


def may_meet(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether all threads that come to an access may meet there: the block, before its roles if it has some, or behind
    their products, its consumers. Of pieces that are selected each thread has one of its own; and what is scattered may
    have no runs to copy in the order of sectors."""
    if isinstance(op.parent_op(), cuda.SelectOp) or (op.place is not None and not has_runs(op)):
        return False
    roles = cuda.roles_of(kernel)
    if roles is None or not roles.is_ancestor(op):
        return True
    if is_last(op, kernel):
        return not _take_turns(_behind(op))
    if not is_for_sectors(kernel):
        return False
    if _walks_pieces(op.parent_op(), roles):  # then turns come in the same order in each, all before this
        return not _take_turns(_behind(op))
    return op.parent is roles.consumers.block and not _take_turns(_before(op))


def _walks_pieces(around: Operation | None, roles: cuda.RolesOp) -> bool:
    """Whether all consumers take the turns of a loop together, for it is over the pieces of their block."""
    return isinstance(around, scf.ForOp) and NARROW in around.attributes and around.parent is roles.consumers.block


def _take_turns(ops: Iterable[Operation]) -> bool:
    return any(isinstance(each, cuda.ORDERING) for op in ops for each in op.walk())


def has_runs(op: GlobalAccess) -> bool:
    """Whether rows of what is scattered follow each other, in its tile or the one on its way."""
    type = op.piece_type
    if is_shared(type):
        return runs_of(op, type) is not None
    layout = layout_of(type)
    return runs_of(op, cuda.StagedAttr(0, EVERYWHERE, staging_rows(layout, layout, type)).tile(type)) is not None


def is_last(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether an access stands on the level of the threads that work, behind all products."""
    if op.parent is not _working_block(kernel):
        return False
    return not any(multiplies(each) for later in _behind(op) for each in later.walk())


def multiplies(op: Operation) -> bool:
    return isinstance(op, cuda.ProductOp | cuda.ProductOfWarpgroupsOp)


def is_in_turn(op: Operation) -> bool:
    """Whether a loop or a branch around an operation multiplies: its turns, or the last piece."""
    around = op.parent_op()
    while around is not None and not isinstance(around, cuda.KernelOp):
        if isinstance(around, scf.ForOp | scf.IfOp) and any(map(multiplies, around.walk())):
            return True
        around = around.parent_op()
    return False


def _working_block(kernel: cuda.KernelOp) -> Block:
    roles = cuda.roles_of(kernel)
    return kernel.body.block if roles is None else roles.consumers.block


def is_after_tiles(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether no tile of the kernel is needed from an access on, nor any copy to or from one under way. Tiles that are
    written anew behind a barrier are not: what was staged is read by then."""
    if op.parent is not _working_block(kernel) or not _begin_anew(_behind(op)):
        return False
    if any(isinstance(each, cuda.TensorStoreOp) for before in _before(op) for each in before.walk()):
        return False
    if any(isinstance(each, cuda.AwaitOp | cuda.WarpgroupWaitOp) for later in _behind(op) for each in later.walk()):
        return False
    # What a producer brings, its consumers await (`compiler/rings.py`).
    copies = [each for each in kernel.walk() if isinstance(each, cuda.CopyOp) and each.asynchronous is not None]
    roles = cuda.roles_of(kernel)
    return all(_is_awaited(copy, op) for copy in copies if roles is None or not roles.producer.is_ancestor(copy))


def _begin_anew(ops: Iterable[Operation]) -> bool:
    """Whether operations need of shared memory only what they write themselves, behind a barrier."""
    met, written = False, set[SSAValue]()
    for op in ops:
        tiles = {value for each in op.walk() for value in each.operands if is_shared(value.type)}
        if isinstance(op, cuda.WriteOp) and met:
            written |= tiles
        if not tiles <= written:
            return False
        met |= isinstance(op, cuda.BarrierOp) and op.by_groups is None
    return True


def _is_awaited(copy: cuda.CopyOp, op: GlobalAccess) -> bool:
    """Whether on every way from an asynchronous copy to an access on the kernel's own level all copies are awaited."""
    place: Operation | None = copy
    while place is not None:
        for later in _behind(place):
            if later is op:
                return False
            if isinstance(later, cuda.WaitOp) and later.pending.data == 0:
                return True
        place = place.parent_op()
    return False


def _before(op: Operation) -> Iterator[Operation]:
    """The operations of its block that stand before an operation."""
    earlier = op.prev_op
    while earlier is not None:
        yield earlier
        earlier = earlier.prev_op


def _behind(op: Operation) -> Iterator[Operation]:
    """The operations of its block that follow an operation."""
    later = op.next_op
    while later is not None:
        yield later
        later = later.next_op
