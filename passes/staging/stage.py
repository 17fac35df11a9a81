"""Let loads and stores of fragments go through shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.kernel import is_for_sectors
from treadle.dialects.cuda.transfers import is_added
from treadle.passes.staging.meeting import may_meet
from treadle.passes.staging.places import Places
from treadle.passes.staging.stager import Stager
from treadle.passes.staging.widths import set_widths

MOST_ROUNDS = 4
"""How often variants are found anew, which are seven at most."""


def stage(
    accesses: Sequence[GlobalAccess], kernel: cuda.KernelOp, machine: Machine, most_bytes: int = WIDEST_VECTOR
) -> None:
    """Let each load and store of a fragment go through shared memory in those variants of its kernel where lanes, as
    they hold elements, would ask for a sector twice. Legal always: the same elements move, by other threads. All tiles
    begin where the kernel's own end, or where those are needed no more, with them, since the block meets around each
    (not with those that other blocks of a cluster read, which it does not meet);
    those of accesses that follow each other lie behind one another, so that the block meets once for all, as long as a
    multiprocessor holds the blocks that the kernel states. There is room as long as it holds two, or one if it never
    holds more.

    Results of words go through shared memory in all variants where that is the cheaper way to whole lines, and takes no
    block from a multiprocessor; if a thread may move `most_bytes` enough.

    Widths become those among which alignment chooses, of `most_bytes` at most. Where warps have roles, all meet before
    these, and the consumers before they take turns and behind their products:
    in between one warpgroup may wait for the turn that another hands on. What is loaded beside products goes through
    shared memory only where that spares more sectors than it costs, and so do the results of roles that would go so in
    every variant.

    In a kernel that is to have the fewest sectors nothing has to pay: what asks for a sector twice, or for a line twice
    of which a copy would ask once, goes through shared memory wherever all may meet, and if no other place is left, in
    all that a block may have."""
    known: tuple[int, ...] = ()
    moved = [each for each in accesses if not is_added(each)]
    for _ in range(MOST_ROUNDS):
        for access in accesses:
            access.staged = None
            set_widths(access, most_bytes)
        known = tuple(sorted({*known, *cuda.alignments(kernel)}, reverse=True))
        stager = Stager(kernel, machine, most_bytes, known)
        places = Places.of(kernel, machine)
        for run in _runs(moved, kernel):
            alone = {each: below for each in run if (below := stager.below(each, 0)) is not None}
            places.give(run, stager, max(alone.values(), default=0))
            if alone and all(each.staged is None for each in alone):  # the others were to meet with these
                places.give(run, stager, 0)
            for access in run:
                stager.widen(access)
        found = cuda.alignments(kernel)
        if not is_for_sectors(kernel) or set(found) <= set(known):
            return
        known = found  # wider vectors of copies make variants more, in which other accesses may ask too often


def _runs(accesses: Sequence[GlobalAccess], kernel: cuda.KernelOp) -> Iterator[Sequence[GlobalAccess]]:
    """Loads, or stores, of fragments that follow each other, wherever the block may meet."""
    run: list[GlobalAccess] = []
    for access in accesses:
        if isinstance(access, cuda.CopyOp) or not may_meet(access, kernel):
            continue
        if run and not (access.prev_op is run[-1] and type(access) is type(run[-1])):
            yield run
            run = []
        run.append(access)
    if run:
        yield run
