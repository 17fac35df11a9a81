"""Fragments that go through shared memory where lanes, as they hold elements, would ask for a sector twice."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod

from xdsl.dialects import scf
from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, Block, Operation, SSAValue

from treadle.compiler.cost.levels.memory import PRODUCT_BASE
from treadle.compiler.layouts.box_order import is_ordered
from treadle.compiler.layouts.conversions import BARRIER
from treadle.compiler.layouts.operations import is_dealt_by_sectors, strides_at, traffic_of, widest, width_at
from treadle.compiler.layouts.run_order import runs_of
from treadle.compiler.layouts.sectors import Traffic
from treadle.compiler.layouts.vectors import ladder
from treadle.compiler.lowering.conversions import staging_rows, staging_wavefronts
from treadle.compiler.lowering.leaving import Ways, ways_of
from treadle.compiler.lowering.whole_lines import lines_of
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.kernel import FEWEST_SECTORS, NARROW
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.meetings import have_met
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import format_bytes, is_boxed, is_shared, layout_of
from treadle.dialects.diagram.array import sizes_of

FEW_BLOCKS = 2
"""Blocks on a multiprocessor of which one computes while the other meets."""

ALL_OF_SHARED = 1 << 20
"""More bytes than a block can have."""

BY_LANES = (
    "its rows lie at quotients, or in a view that leaves its array: lanes fill boxes row by row, which share sectors"
)

MOST_ROUNDS = 4
"""How often variants are found anew, which are seven at most."""

TILE_UNIT = 128
"""Bytes that tiles begin at multiples of."""


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
    for _ in range(MOST_ROUNDS):
        for access in accesses:
            access.staged = None
            set_widths(access, most_bytes)
        known = tuple(sorted({*known, *cuda.alignments(kernel)}, reverse=True))
        stager = _Stager.of(kernel, machine, most_bytes, known)
        places = _Places.of(kernel, machine)
        for run in _runs(accesses, kernel):
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


def is_for_sectors(kernel: cuda.KernelOp) -> bool:
    """Whether the accesses of a kernel are to ask for the fewest sectors whatever that takes."""
    return FEWEST_SECTORS in kernel.attributes


def why_not_staged(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int) -> str:
    """Why an access that asks for sectors twice, in the variant for rows aligned to so many bytes, does not go through
    shared memory there."""
    return _Stager.of(kernel).why_not(op, alignment)


def told_of_sectors(op: GlobalAccess, kernel: cuda.KernelOp, most_bytes: int = WIDEST_VECTOR) -> str:
    """In a kernel that is to have the fewest sectors: what it costs that an access goes through shared memory for them,
    and where it asks for more, or for lines in parts, why; nothing elsewhere."""
    stager = _Stager.of(kernel, most_bytes=most_bytes)
    if not stager.is_for_sectors or isinstance(op, cuda.CopyOp):
        return ""
    return "".join(f"; {each}" for each in stager.told_of_sectors(op))


def told_of_lines(op: GlobalAccess, kernel: cuda.KernelOp) -> str:
    """What a result of words costs a block that leaves in whole lines, beside what it costs as lanes hold it, or why it
    does not; nothing of other accesses, and where nothing has to pay."""
    stager = _Stager.of(kernel)
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


def always_staged(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether lanes, as they hold the elements of an access, ask for sectors twice however rows are aligned, so that it
    goes through shared memory in every variant. The widths of accesses need not be known yet."""
    with _planned_widths(kernel):
        return _may_meet(op, kernel) and _Stager.of(kernel).below(op, 0) == EVERYWHERE


def always_dealt(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether copies to the tile of an access look where in its sector each row begins, however rows are aligned: the
    kernel then states no blocks, and takes registers for that."""
    layout = layout_of(op.piece_type)
    with _planned_widths(kernel):
        op.staged = cuda.StagedAttr(0, EVERYWHERE, staging_rows(layout, layout, op.piece_type))
        try:
            return is_dealt_by_sectors(op, cuda.WHOLE_SECTORS)
        finally:
            op.staged = None


@contextmanager
def _planned_widths(kernel: cuda.KernelOp) -> Generator[None]:
    """All accesses of a kernel have their widths meanwhile, but are no wiser after."""
    every = [each for each in kernel.walk() if isinstance(each, GlobalAccess)]
    known = [each.widths for each in every]
    for each in every:
        set_widths(each, WIDEST_VECTOR)
    try:
        yield
    finally:
        for each, widths in zip(every, known, strict=True):
            each.widths = widths


def set_widths(access: GlobalAccess, max_bytes: int) -> None:
    """Give an access the vector widths among which alignment chooses, of so many bytes at most."""
    widths = ladder(widest(access, max_bytes), format_bytes(access.buffer_type), is_boxed(access.piece_type))
    access.widths = ArrayAttr(IntAttr(width) for width in widths)


def _runs(accesses: Sequence[GlobalAccess], kernel: cuda.KernelOp) -> Iterator[Sequence[GlobalAccess]]:
    """Loads, or stores, of fragments that follow each other, wherever the block may meet."""
    run: list[GlobalAccess] = []
    for access in accesses:
        if isinstance(access, cuda.CopyOp) or not _may_meet(access, kernel):
            continue
        if run and not (access.prev_op is run[-1] and type(access) is type(run[-1])):
            yield run
            run = []
        run.append(access)
    if run:
        yield run


@dataclass(frozen=True)
class _Places:
    """Where tiles on the way lie: behind the kernel's own, or in their place where those are needed no more."""

    kernel: cuda.KernelOp
    rooms: tuple[int, int]
    """Bytes for what lies behind an access it meets with, and for what begins anew."""
    most: int
    """Bytes for what has to have a place, and finds none there."""
    dead: int
    """Bytes that the kernel's own tiles take, without the barriers behind them."""

    @classmethod
    def of(cls, kernel: cuda.KernelOp, machine: Machine) -> _Places:
        stated = FEW_BLOCKS if kernel.resident is None else max(FEW_BLOCKS, kernel.resident.data)
        rooms = most_bytes(kernel, machine, stated), most_bytes(kernel, machine, FEW_BLOCKS)
        rings = [op.offset.data for op in kernel.body.block.ops if isinstance(op, cuda.RingOp)]
        most = machine.limits.shared_per_block if is_for_sectors(kernel) else 0
        return cls(kernel, rooms, most, min(rings, default=max(rooms)))

    def give(self, run: Sequence[GlobalAccess], stager: _Stager, together: int) -> None:
        """Let accesses that follow each other go through tiles, if there is room: side by side, or in one place. In
        variants for rows aligned to fewer than `together` bytes the block meets for one of them anyway."""
        before: GlobalAccess | None = None
        for access in run:
            access.staged = None
            anew = together if before is None else 0
            if before is not None and before.staged is not None:
                begin = _rounded(before.staged.end(before.piece_type))
                room = self.dead if before.staged.at.data < self._behind else self.rooms[0]
                access.staged = stager.staged(access, begin, min(room, self.rooms[0]), together)
            if access.staged is None and _is_after_tiles(access, self.kernel):
                access.staged = stager.staged(access, self._behind_those_of_others, min(self.dead, self.rooms[1]), anew)
            if access.staged is None:
                access.staged = stager.staged(access, self._behind, self.rooms[1], anew)
            if access.staged is None and self.most:
                access.staged = stager.staged(access, self._behind, self.most, anew)
            before = access

    @property
    def _behind_those_of_others(self) -> int:
        """Where no tile lies that other blocks of the cluster read: they may until the kernel ends."""
        tiles = [op.source.owner for op in self.kernel.body.block.ops if isinstance(op, cuda.ReadClusterOp)]
        ends = (op.offset.data + op.stages.data * op.stage_bytes for op in tiles if isinstance(op, cuda.SharedOp))
        return _rounded(max(ends, default=0))

    @property
    def _behind(self) -> int:
        return _rounded(self.kernel.shared_bytes.data)


_Alike = tuple[SSAValue, Attribute, int]
"""An array, its piece, and where those that its load goes with meet anyway."""


@dataclass(frozen=True)
class _Stager:
    """What decides on the accesses of one kernel: its variants, and whether what it loads stands beside products."""

    kernel: cuda.KernelOp
    variants: tuple[int, ...]
    has_products: bool
    most_bytes: int = WIDEST_VECTOR
    machine: Machine | None = None
    known: dict[_Alike, int | None] = field(default_factory=dict[_Alike, int | None])

    @classmethod
    def of(
        cls,
        kernel: cuda.KernelOp,
        machine: Machine | None = None,
        most_bytes: int = WIDEST_VECTOR,
        variants: tuple[int, ...] | None = None,
    ) -> _Stager:
        multiplies = any(map(_multiplies, kernel.walk()))
        return cls(kernel, variants or cuda.alignments(kernel), multiplies, most_bytes, machine)

    @property
    def of_roles(self) -> bool:
        return cuda.roles_of(self.kernel) is not None

    @property
    def is_for_sectors(self) -> bool:
        return is_for_sectors(self.kernel)

    def staged(self, op: GlobalAccess, at: int, room: int, together: int) -> cuda.StagedAttr | None:
        """How an access goes through a tile that lies `at` so many bytes, and ends within `room`; None if it need not,
        or there is none."""
        if (in_lines := self._in_lines(op, at, room)) is not None:
            return in_lines
        if (below := self._below(op, together)) is None:
            return None
        layout = layout_of(op.piece_type)
        staged = cuda.StagedAttr(at, below, staging_rows(layout, layout, op.piece_type))
        return staged if staged.end(op.piece_type) <= room else None

    def _in_lines(self, op: GlobalAccess, at: int, room: int) -> cuda.StagedAttr | None:
        """How a result of words leaves in whole lines, 16 bytes a thread, in all variants; None if lanes make it as
        cheap as they hold it, or if the tile would take a block from a multiprocessor (where it has to pay)."""
        ways = self.ways(op)
        if ways is None or not self._pays(ways, self.meetings_at(op, at)):
            return None
        staged = cuda.StagedAttr(at, EVERYWHERE, ways.rows)
        end, own = staged.end(op.piece_type), self.kernel.shared_bytes.data
        keeps_blocks = self.is_for_sectors or self._blocks(op, max(end, own)) >= self._blocks(op, own)
        return staged if end <= room and keeps_blocks else None

    def _pays(self, ways: Ways, meetings: int) -> bool:
        """Whether what goes in whole lines is to, around which all meet so often."""
        return self.is_for_sectors or ways.with_meetings(meetings) < ways.held

    def ways(self, op: GlobalAccess) -> Ways | None:
        """Both ways of a result of words that leaves behind all products; if nothing has to pay, of any fragment."""
        if self.is_for_sectors:
            is_fragment = isinstance(op, cuda.LoadOp | cuda.StoreOp) and self.most_bytes >= WIDEST_VECTOR
            return lines_of(op, cuda.threads_at(op, self.kernel)) if is_fragment else None
        if not isinstance(op, cuda.StoreOp) or not self.has_products or self.most_bytes < WIDEST_VECTOR:
            return None
        if not _is_last(op, self.kernel):
            return None
        return ways_of(op, cuda.threads_at(op, self.kernel))

    def meetings_at(self, op: GlobalAccess, at: int) -> int:
        """Of a tile in the place of others, which are read until then, or behind them."""
        return 2 if at < self.kernel.shared_bytes.data else self.meetings(op)

    def _blocks(self, op: GlobalAccess, shared: int) -> int:
        """That a multiprocessor holds at most if they take so many bytes: of threads that have at least what leaves in
        registers, and what products need beside."""
        assert self.machine is not None
        threads = self.kernel.threads.data
        held = prod(layout_of(op.piece_type).register_shape) + PRODUCT_BASE
        return int(self.machine.blocks_on_sm(threads // LANES, held, shared))

    def is_in_lines(self, op: GlobalAccess) -> bool:
        """Whether the tile of an access is the one from which words leave in whole lines."""
        ways, staged = self.ways(op), op.staged
        if ways is None or staged is None or (staged.below.data, staged.rows) != (EVERYWHERE, ways.rows):
            return False
        return self._pays(ways, self.meetings_at(op, staged.at.data))

    def widen(self, op: GlobalAccess) -> None:
        """Give what leaves in lines the vectors of its copy."""
        if (ways := self.ways(op)) is not None and self.is_in_lines(op):
            op.widths = ArrayAttr(IntAttr(width) for width in ladder(ways.vector, format_bytes(op.buffer_type), True))

    def below(self, op: GlobalAccess, together: int) -> int | None:
        """The bytes such that an access goes through shared memory in variants for rows aligned to fewer, if there is
        room; None if in none."""
        ways = self.ways(op)
        if ways is not None and self._pays(ways, 1):
            return EVERYWHERE
        return self._below(op, together)

    def _below(self, op: GlobalAccess, together: int) -> int | None:
        """The bytes such that an access goes through shared memory in variants for rows aligned to fewer; None if in
        none. The same for all places that load alike (what a loop begins with, its turns, the last piece): where in one
        of them the way does not pay, in none, so that an array is asked for as often in each."""
        if not self.has_to_gain(op):
            return self._below_alone(op, together)
        alike = (*_array_and_piece(op), together)
        if alike not in self.known:
            found = [self._below_alone(each, together) or 0 for each in self._alike(op)]
            self.known[alike] = min(found) or None
        return self.known[alike]

    def _alike(self, op: GlobalAccess) -> list[GlobalAccess]:
        every = [each for each in self.kernel.walk() if isinstance(each, type(op))]
        return [each for each in every if _array_and_piece(each) == _array_and_piece(op)]

    def _below_alone(self, op: GlobalAccess, together: int) -> int | None:
        """The same for one place: the bytes, those of a variant if there is one, such that it asks too often in
        variants for rows aligned to fewer; None if it never does, or if the way costs more than it spares where it has
        to gain. In variants for rows aligned to fewer than `together` bytes all meet for another access anyway."""
        if self._has_no_say(op):
            # What is accessed by single elements has no say in which variant is launched: it may lie anywhere in each.
            # The widest is also that for whole sectors, where others go through shared memory below those.
            widest = max(self.variants[0], cuda.WHOLE_SECTORS if self.of_roles or together == cuda.WHOLE_SECTORS else 0)
            asks = self._asks_too_often(op, format_bytes(op.buffer_type), widest, together)
            return EVERYWHERE if asks else None
        every = sorted({cuda.WHOLE_SECTORS, *self.variants, EVERYWHERE})
        asking = [each for each in every[:-1] if self._asks_too_often(op, each, each, together)]
        return min((each for each in every if each > max(asking)), default=None) if asking else None

    def _has_no_say(self, op: GlobalAccess) -> bool:
        """Whether an access is by single elements while the alignment of others chooses the variant."""
        return max(op.width_list) == 1 and len(self.variants) > 1

    def _asks_too_often(self, op: GlobalAccess, alignment: int, entry: int, together: int) -> bool:
        """Whether lanes, as they hold elements, ask for a sector twice where rows are aligned to so many bytes; beside
        products, more often than is worth it."""
        moved, barriers = _moved(op, alignment, self.kernel), 0 if entry < together else self.meetings(op)
        most = way_costs(op, self.kernel, alignment, entry, barriers) - moved.requests if self.has_to_gain(op) else 0
        return moved.sectors - moved.fewest_sectors > most

    def meetings(self, op: GlobalAccess) -> int:
        """How often all meet around an access behind the tiles of the kernel: between the two sides of its tile, and
        before, unless they have met since others used the place."""
        return 1 if have_met(op, (self.kernel.shared_bytes.data, ALL_OF_SHARED)) else 2

    def has_to_gain(self, op: GlobalAccess) -> bool:
        """Whether the way through shared memory must spare more than it costs."""
        if self.is_for_sectors:
            return False
        return self._is_beside_products(op)

    def _is_beside_products(self, op: GlobalAccess) -> bool:
        """Whether others may have more to do than to wait for an access."""
        return (self.has_products and isinstance(op, cuda.LoadOp)) or (self.of_roles and max(op.width_list) == 1)

    def why_not(self, op: GlobalAccess, alignment: int) -> str:
        """Why an access that asks for sectors twice where rows are aligned to so many bytes goes no other way."""
        if op.place is not None and not _has_runs(op):
            return "its elements lie one by one where data or steps of positions say, and may share sectors"
        if isinstance(op, cuda.CopyOp):
            return BY_LANES if is_boxed(op.tile.type) and not is_ordered(op) else "its rows overlap"
        if isinstance(op.parent_op(), cuda.SelectOp):
            return "each thread loads what says whether a piece of its own counts"
        if not _may_meet(op, self.kernel):
            return "warps with roles do not meet there for a tile on the way"
        if self.has_to_gain(op):
            for each in self._alike(op):
                if (found := self._loss(each, alignment)) is not None:
                    return found
        return "shared memory has no room for a tile on the way"

    def told_of_sectors(self, op: GlobalAccess) -> Iterator[str]:
        """Of an access to whose sectors all else comes second."""
        variants = cuda.alignments(self.kernel)
        beyond = [(each, moved) for each in variants if not (moved := self._asked(op, each)).is_fewest]
        for alignment, moved in beyond[:1]:
            told = f"{moved.sectors:,} sectors, the fewest are {moved.fewest_sectors:,}"
            where = f"where rows are aligned to {alignment} bytes" if alignment else "with any strides"
            yield f"{where} {told}: {self.why_not(op, alignment)}"
        if (ways := self.ways(op)) is not None:
            if self.is_in_lines(op):
                through = ways.with_meetings(self.meetings_at(op, 0 if op.staged is None else op.staged.at.data))
                told = f"{through:,} through a tile, {ways.held:,} as lanes hold it"
                yield f"instructions, wavefronts and waits of a block: {told}"
            elif not beyond:
                yield f"lines come in parts: {self.why_not(op, variants[0])}"
        elif op.staged is not None and self._is_beside_products(op):
            every = [self._balance(op, each) for each in variants if op.is_staged(each)]
            if any(each.loses for each in every):
                most = max(every, key=lambda each: each.spared)
                yield f"of a block, a tile on the way spares {most.spares} and costs {most.costs}"

    def _asked(self, op: GlobalAccess, alignment: int) -> Traffic:
        """What an access asks for, the way that it goes."""
        strides, base = strides_at(op, alignment)
        return traffic_of(op, cuda.threads_at(op, self.kernel), alignment, strides, base)

    def _loss(self, op: GlobalAccess, alignment: int) -> str | None:
        """Why the way does not pay; None if it does."""
        found = self._balance(op, alignment)
        return f"a tile on the way would spare {found.spares}, and cost {found.costs}" if found.loses else None

    def _balance(self, op: GlobalAccess, alignment: int) -> _Balance:
        moved, entry = _moved(op, alignment, self.kernel), self.variants[0] if self._has_no_say(op) else alignment
        meetings, spared = self.meetings(op), moved.sectors - moved.fewest_sectors
        return _Balance(spared, moved.requests, way_costs(op, self.kernel, alignment, entry, meetings), meetings)


@dataclass(frozen=True)
class _Balance:
    """What the way through shared memory spares a block, and what it costs."""

    spared: int
    """Sectors."""
    requests: int
    cost: int
    meetings: int

    @property
    def loses(self) -> bool:
        return self.spared <= self.cost - self.requests

    @property
    def spares(self) -> str:
        return f"{self.spared:,} and {self.requests:,} requests"

    @property
    def costs(self) -> str:
        barriers = "a barrier" if self.meetings == 1 else "two barriers"
        return f"{self.cost:,} (requests, wavefronts, waits of warps at {barriers})"


def _array_and_piece(op: GlobalAccess) -> tuple[SSAValue, Attribute]:
    return next(value for value in op.operands if value.type == op.buffer_type), op.piece_type


def most_bytes(kernel: cuda.KernelOp, machine: Machine, blocks: int) -> int:
    """Of shared memory, for a block of an entry with tiles on the way, if a multiprocessor is to hold so many blocks,
    or as many as without."""
    capacity, reserved = int(machine.levels["shared"].capacity), machine.limits.shared_reserved
    held = min(capacity // (kernel.shared_bytes.data + reserved), blocks)
    return min(capacity // max(held, 1) - reserved, machine.limits.shared_per_block)


def _rounded(bytes: int) -> int:
    return -(-bytes // TILE_UNIT) * TILE_UNIT


def _may_meet(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether all threads that come to an access may meet there: the block, before its roles if it has some, or behind
    their products, its consumers. Of pieces that are selected each thread has one of its own; and what is scattered may
    have no runs to copy in the order of sectors."""
    if isinstance(op.parent_op(), cuda.SelectOp) or (op.place is not None and not _has_runs(op)):
        return False
    roles = cuda.roles_of(kernel)
    if roles is None or not roles.is_ancestor(op):
        return True
    if _is_last(op, kernel):
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


def _has_runs(op: GlobalAccess) -> bool:
    """Whether rows of what is scattered follow each other, in its tile or the one on its way."""
    type = op.piece_type
    if is_shared(type):
        return runs_of(op, type) is not None
    layout = layout_of(type)
    return runs_of(op, cuda.StagedAttr(0, EVERYWHERE, staging_rows(layout, layout, type)).tile(type)) is not None


def _is_last(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
    """Whether an access stands on the level of the threads that work, behind all products."""
    if op.parent is not _working_block(kernel):
        return False
    return not any(_multiplies(each) for later in _behind(op) for each in later.walk())


def _multiplies(op: Operation) -> bool:
    return isinstance(op, cuda.ProductOp | cuda.ProductOfWarpgroupsOp)


def _is_in_turn(op: Operation) -> bool:
    """Whether a loop or a branch around an operation multiplies: its turns, or the last piece."""
    around = op.parent_op()
    while around is not None and not isinstance(around, cuda.KernelOp):
        if isinstance(around, scf.ForOp | scf.IfOp) and any(map(_multiplies, around.walk())):
            return True
        around = around.parent_op()
    return False


def _working_block(kernel: cuda.KernelOp) -> Block:
    roles = cuda.roles_of(kernel)
    return kernel.body.block if roles is None else roles.consumers.block


def _is_after_tiles(op: GlobalAccess, kernel: cuda.KernelOp) -> bool:
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


def way_costs(op: GlobalAccess, kernel: cuda.KernelOp, alignment: int, entry: int, barriers: int) -> int:
    """Of the way through shared memory for the whole block, as conversions are counted: requests that copy the tile,
    wavefronts of what threads read or write of it, and meetings. In entries for the widest vectors tensor cores are
    what a turn waits for, so that the wait of each warp counts; in narrower ones, and where nothing multiplies, it is
    memory, and warps wait side by side."""
    bytes = width_at(op, alignment) * format_bytes(op.buffer_type)
    copied = -(-prod(sizes_of(op.piece_type).values()) * format_bytes(op.buffer_type) // (LANES * bytes))
    waiting = cuda.threads_at(op, kernel) // LANES if entry >= WIDEST_VECTOR and _is_in_turn(op) else 1
    return copied + staging_wavefronts(layout_of(op.piece_type), op.piece_type) + barriers * BARRIER * waiting


def _moved(op: GlobalAccess, alignment: int, kernel: cuda.KernelOp) -> Traffic:
    """What lanes ask for, as they hold elements, where rows are aligned to so many bytes."""
    strides, base = strides_at(op, alignment)
    staged, op.staged = op.staged, None
    try:
        return traffic_of(op, cuda.threads_at(op, kernel), alignment, strides, base)
    finally:
        op.staged = staged
