"""Why an access goes through shared memory, or does not, in words."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.compiler.layouts.box_order import is_ordered
from treadle.compiler.layouts.operations import strides_at, traffic_of
from treadle.compiler.layouts.sectors import Traffic
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.tiles import is_boxed
from treadle.dialects.cuda.transfers import is_added
from treadle.passes.staging.costs import Balance, moved_as_held, way_costs
from treadle.passes.staging.meeting import has_runs, may_meet
from treadle.passes.staging.stager import Stager

ADDED = "it is added to what lies there, by the threads that have it"
BY_LANES = (
    "its rows lie at quotients, or in a view that leaves its array: lanes fill boxes row by row, which share sectors"
)


def why_not_staged(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int) -> str:
    """Why an access that asks for sectors twice, in the variant for rows aligned to so many bytes, does not go through
    shared memory there."""
    return _why_not(Stager(kernel), op, alignment)


def told_of_sectors(op: GlobalAccess, kernel: cuda.KernelOp, most_bytes: int = WIDEST_VECTOR) -> str:
    """In a kernel that is to have the fewest sectors: what it costs that an access goes through shared memory for them,
    and where it asks for more, or for lines in parts, why; nothing elsewhere."""
    stager = Stager(kernel, most_bytes=most_bytes)
    if not stager.is_for_sectors or isinstance(op, cuda.CopyOp):
        return ""
    return "".join(f"; {each}" for each in _told_of_sectors(stager, op))


def told_of_lines(op: GlobalAccess, kernel: cuda.KernelOp) -> str:
    """What a result of words costs a block that leaves in whole lines, beside what it costs as lanes hold it, or why it
    does not; nothing of other accesses, and where nothing has to pay."""
    stager = Stager(kernel)
    if stager.is_for_sectors or (ways := stager.ways(op)) is None:
        return ""
    at = 0 if op.staged is None else op.staged.at.data
    through = ways.with_meetings(stager.meetings_at(op, at))
    costs = (
        f"instructions, wavefronts and waits of a block: {through:,} for whole lines, {ways.held:,} as lanes hold it"
    )
    if through >= ways.held:
        return f"; stays so, for {costs}"
    if stager.is_in_lines(op):
        return f"; {costs}"
    return f"; whole lines would spare a block {ways.held - through:,}, and their tile has no room beside its blocks"


def _why_not(stager: Stager, op: GlobalAccess, alignment: int) -> str:
    """Why an access that asks for sectors twice where rows are aligned to so many bytes goes no other way."""
    if is_added(op):
        return ADDED
    if op.place is not None and not has_runs(op):
        return "its elements lie one by one where data or steps of positions say, and may share sectors"
    if isinstance(op, cuda.CopyOp):
        return BY_LANES if is_boxed(op.tile.type) and not is_ordered(op) else "its rows overlap"
    if isinstance(op.parent_op(), cuda.SelectOp):
        return "each thread loads what says whether a piece of its own counts"
    if not may_meet(op, stager.kernel):
        return "warps with roles do not meet there for a tile on the way"
    if stager.has_to_gain(op):
        for each in stager.alike(op):
            if (found := _loss(stager, each, alignment)) is not None:
                return found
    return "shared memory has no room for a tile on the way"


def _told_of_sectors(stager: Stager, op: GlobalAccess) -> Iterator[str]:
    """Of an access to whose sectors all else comes second."""
    variants = cuda.alignments(stager.kernel)
    beyond = [(each, moved) for each in variants if not (moved := _asked(stager, op, each)).is_fewest]
    for alignment, moved in beyond[:1]:
        told = f"{moved.sectors:,} sectors, the fewest are {moved.fewest_sectors:,}"
        where = f"where rows are aligned to {alignment} bytes" if alignment else "with any strides"
        yield f"{where} {told}: {_why_not(stager, op, alignment)}"
    if (ways := stager.ways(op)) is not None:
        if stager.is_in_lines(op):
            through = ways.with_meetings(stager.meetings_at(op, 0 if op.staged is None else op.staged.at.data))
            told = f"{through:,} through a tile, {ways.held:,} as lanes hold it"
            yield f"instructions, wavefronts and waits of a block: {told}"
        elif not beyond:
            yield f"lines come in parts: {_why_not(stager, op, variants[0])}"
    elif op.staged is not None and stager.is_beside_products(op):
        every = [_balance(stager, op, each) for each in variants if op.is_staged(each)]
        if any(each.loses for each in every):
            most = max(every, key=lambda each: each.spared)
            yield f"of a block, a tile on the way spares {most.spares} and costs {most.costs}"


def _asked(stager: Stager, op: GlobalAccess, alignment: int) -> Traffic:
    """What an access asks for, the way that it goes."""
    strides, base = strides_at(op, alignment)
    return traffic_of(op, cuda.threads_at(op, stager.kernel), alignment, strides, base)


def _loss(stager: Stager, op: GlobalAccess, alignment: int) -> str | None:
    """Why the way does not pay; None if it does."""
    found = _balance(stager, op, alignment)
    return f"a tile on the way would spare {found.spares}, and cost {found.costs}" if found.loses else None


def _balance(stager: Stager, op: GlobalAccess, alignment: int) -> Balance:
    moved, meetings = moved_as_held(op, alignment, stager.kernel), stager.meetings(op)
    entry = stager.variants[0] if stager.has_no_say(op) else alignment
    cost = way_costs(op, stager.kernel, alignment, entry, meetings)
    return Balance(moved.sectors - moved.fewest_sectors, moved.requests, cost, meetings)
