"""Which accesses of a kernel go through shared memory, in which of its variants."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from xdsl.dialects.builtin import ArrayAttr, IntAttr
from xdsl.ir import Attribute, SSAValue

from treadle.compiler.cost.levels.memory import PRODUCT_BASE
from treadle.compiler.layouts.vectors import ladder
from treadle.compiler.lowering.conversions import staging_rows
from treadle.compiler.lowering.leaving import Ways, ways_of
from treadle.compiler.lowering.whole_lines import lines_of
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.dialects.cuda.accesses import WIDEST_VECTOR, GlobalAccess
from treadle.dialects.cuda.kernel import is_for_sectors
from treadle.dialects.cuda.layout import LANES
from treadle.dialects.cuda.meetings import have_met
from treadle.dialects.cuda.staging import EVERYWHERE
from treadle.dialects.cuda.tiles import format_bytes, layout_of
from treadle.dialects.cuda.transfers import is_added
from treadle.passes.staging.costs import moved_as_held, way_costs
from treadle.passes.staging.meeting import is_last, multiplies

ALL_OF_SHARED = 1 << 20
"""More bytes than a block can have."""


_Alike = tuple[SSAValue, Attribute, int]
"""An array, its piece, and where those that its load goes with meet anyway."""


@dataclass(frozen=True)
class Stager:
    """What decides on the accesses of one kernel: its variants, and whether what it loads stands beside products."""

    kernel: cuda.KernelOp
    machine: Machine | None = None
    most_bytes: int = WIDEST_VECTOR
    among: tuple[int, ...] = ()
    """The variants that are decided for; none for those that the accesses ask for as they are."""
    known: dict[_Alike, int | None] = field(default_factory=dict[_Alike, int | None])

    @cached_property
    def variants(self) -> tuple[int, ...]:
        return self.among or cuda.alignments(self.kernel)

    @cached_property
    def has_products(self) -> bool:
        return any(map(multiplies, self.kernel.walk()))

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
        """Both ways of a result of words that leaves behind all products; if nothing has to pay, of any fragment. What
        is added has one."""
        if is_added(op):
            return None
        if self.is_for_sectors:
            is_fragment = isinstance(op, cuda.LoadOp | cuda.StoreOp) and self.most_bytes >= WIDEST_VECTOR
            return lines_of(op, cuda.threads_at(op, self.kernel)) if is_fragment else None
        if not isinstance(op, cuda.StoreOp) or not self.has_products or self.most_bytes < WIDEST_VECTOR:
            return None
        if not is_last(op, self.kernel):
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
            found = [self._below_alone(each, together) or 0 for each in self.alike(op)]
            self.known[alike] = min(found) or None
        return self.known[alike]

    def alike(self, op: GlobalAccess) -> list[GlobalAccess]:
        every = [each for each in self.kernel.walk() if isinstance(each, type(op))]
        return [each for each in every if _array_and_piece(each) == _array_and_piece(op)]

    def _below_alone(self, op: GlobalAccess, together: int) -> int | None:
        """The same for one place: the bytes, those of a variant if there is one, such that it asks too often in
        variants for rows aligned to fewer; None if it never does, or if the way costs more than it spares where it has
        to gain. In variants for rows aligned to fewer than `together` bytes all meet for another access anyway."""
        if self.has_no_say(op):
            # What is accessed by single elements has no say in which variant is launched: it may lie anywhere in each.
            # The widest is also that for whole sectors, where others go through shared memory below those.
            widest = max(self.variants[0], cuda.WHOLE_SECTORS if self.of_roles or together == cuda.WHOLE_SECTORS else 0)
            asks = self._asks_too_often(op, format_bytes(op.buffer_type), widest, together)
            return EVERYWHERE if asks else None
        every = sorted({cuda.WHOLE_SECTORS, *self.variants, EVERYWHERE})
        asking = [each for each in every[:-1] if self._asks_too_often(op, each, each, together)]
        return min((each for each in every if each > max(asking)), default=None) if asking else None

    def has_no_say(self, op: GlobalAccess) -> bool:
        """Whether an access is by single elements while the alignment of others chooses the variant."""
        return max(op.width_list) == 1 and len(self.variants) > 1

    def _asks_too_often(self, op: GlobalAccess, alignment: int, entry: int, together: int) -> bool:
        """Whether lanes, as they hold elements, ask for a sector twice where rows are aligned to so many bytes; beside
        products, more often than is worth it."""
        moved, barriers = moved_as_held(op, alignment, self.kernel), 0 if entry < together else self.meetings(op)
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
        return self.is_beside_products(op)

    def is_beside_products(self, op: GlobalAccess) -> bool:
        """Whether others may have more to do than to wait for an access."""
        return (self.has_products and isinstance(op, cuda.LoadOp)) or (self.of_roles and max(op.width_list) == 1)


def _array_and_piece(op: GlobalAccess) -> tuple[SSAValue, Attribute]:
    return next(value for value in op.operands if value.type == op.buffer_type), op.piece_type
