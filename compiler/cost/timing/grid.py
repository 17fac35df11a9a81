"""How long a grid of blocks keeps the processors busy: blocks run in waves, as many on an SM at a time as it holds, or
as many blocks as run at a time take one piece after another, if that takes less time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.memory import Footprint
from treadle.compiler.cost.timing.between import ends_of_block, exposed, exposed_loops, mean_drains, waits_for_tiles
from treadle.compiler.cost.timing.rounds import Round, waited_of_step
from treadle.compiler.cost.timing.turns import Made, can_take_turns, clocks_in_turns, holds_twice, uneven_share
from treadle.compiler.machines import Machine
from treadle.compiler.machines.machine import SUB_PARTITIONS


@dataclass(frozen=True)
class Grid:
    """The blocks of a launch, and the round of a warp of one of them; `made` says what is known of a kernel that is
    there already."""

    plan: Plan
    machine: Machine
    sizes: Mapping[str, int]
    made: Made | None
    needs: Footprint
    blocks: Amount
    round: Round
    powers_first: Amount

    @cached_property
    def resident(self) -> Amount:
        """How many blocks an SM holds at a time."""
        return self.needs.blocks_on(self.machine)

    def clocks(self, known: Amount | None = None) -> tuple[Amount, Amount]:
        """How long the processors are busy, and whether blocks take turns for that, unless that is `known`."""
        in_waves = self._in_waves()
        turns = can_take_turns(self.plan, self.machine, self.blocks, self.needs.shared_bytes)
        if not np.any(turns):
            return in_waves, turns
        in_turns, begun = self._in_turns()
        by_piece = choice(turns & (self.resident == self.needs.resident), begun, in_waves)
        # Blocks that share an SM have room for what leaves beside their tiles: nothing is left to gain without turns.
        are_faster = (in_turns < by_piece) | (self.needs.resident > 1)
        turns = turns & (are_faster if self.made is None else self.made.in_turns) if known is None else known
        return choice(turns, in_turns, by_piece), turns

    def _in_waves(self) -> Amount:
        slots = self.machine.sms * most(self.resident, 1)
        full, rest = self.blocks // slots, self.blocks % slots
        of_rest, only = self._beside(ceil_div(rest, self.machine.sms))
        on_sms = choice(rest > 0, choice(full > 0, of_rest, only), 0.0)
        if np.any(full):
            next_, first = self._beside(self.resident)
            on_sms = choice(full > 0, on_sms + first + (full - 1) * next_, on_sms)
            if share := self._uneven_share(self.resident, False):
                on_sms = first + (share * self.blocks / slots - 1) * next_
        return on_sms

    def _beside(self, count: Amount) -> tuple[Amount, Amount]:
        """So many blocks on one SM, and the same when a launch begins."""
        # Beside a block that has an SM to itself nothing hides how it begins and ends.
        lone = self.round.orderly & (self.resident == 1) if self.machine.counts_ends else False
        round_ = replace(self.round, exposed=self._drained + choice(lone, self._ends, 0))
        warps = most(1, ceil_div(count * self.needs.warps, SUB_PARTITIONS))
        clocks = round_.clocks(warps)
        first = most(clocks, round_.first(warps))
        return choice(lone, first, clocks), first

    def _in_turns(self) -> tuple[Amount, Amount]:
        """Where as many blocks as run at a time take the pieces, and where each takes one only and the next begins when
        it has ended."""
        plan, machine, piece = self.plan, self.machine, self.round.piece
        overlaps = self.made is None or self.made.pieces_overlap
        twice = holds_twice(plan, self.needs.shared_bytes, machine) & (self.made is None or self.made.twice)
        lost = exposed(plan, machine, piece, overlaps, twice)
        lost = lost + exposed_loops(
            plan, machine, self.sizes, piece, self._waited, self.powers_first, self._tested_first
        )
        beside, slots = self.needs.resident, self.machine.sms * self.needs.resident
        lost = lost / beside  # others of the SM hide the rest
        following = replace(self.round, fill=0, exposed=self._drained + lost)
        warps = ceil_div(beside * self.needs.warps, SUB_PARTITIONS)
        filled = following.clocks(warps)
        filled = filled + waits_for_tiles(plan, machine, piece, overlaps, twice) / beside
        begins = replace(self.round, exposed=self._drained + self._ends)
        warps = most(1, warps)
        first = most(begins.clocks(warps), begins.first(warps))
        if share := self._uneven_share(self.resident, True):
            begun = first * self._uneven_share(beside, False) * self.blocks / slots
            return first + (share * self.blocks / slots - 1) * filled, begun
        in_turns = clocks_in_turns(first, filled, self.blocks, slots)
        return in_turns, clocks_in_turns(first, first, self.blocks, slots)

    def filled_by_others(self, on_sms: Amount, memory: Amount) -> Amount:
        """Without products: threads wait for what their block loads, so that device memory works or the block computes;
        others fill in, as many as there are."""
        round_ = replace(self.round, exposed=self._drained)
        shared = self.blocks / self.machine.sms
        alone = most(shared, 1) * round_.clocks(ceil_div(self.needs.warps, SUB_PARTITIONS))
        others = most(least(self.resident, ceil_div(self.blocks, self.machine.sms)), 1)
        return most(on_sms, (memory + alone) / others)

    def _uneven_share(self, resident: Amount, in_turns: bool) -> float:
        return uneven_share(self.plan, self.machine, self.sizes, resident, in_turns, self.made)

    @property
    def _tested_first(self) -> bool:
        return self.made is not None and self.made.tested_first

    @cached_property
    def _waited(self) -> Amount:
        return waited_of_step(self.plan) if self.plan.has_scores else 0

    @cached_property
    def _drained(self) -> Amount:
        """What a piece loses between its loops, if they carry nothing on; other blocks of an SM hide it."""
        if self.made is None or self.made.loops_carry:
            return 0
        return choice(self.resident == 1, mean_drains(self.plan, self.sizes) * self.round.piece.drained(), 0)

    @cached_property
    def _ends(self) -> Amount:
        """What a block loses as it begins and ends."""
        return ends_of_block(
            self.plan,
            self.machine,
            self.sizes,
            self.round.piece,
            self._waited,
            self.powers_first,
            self._tested_first,
        )
