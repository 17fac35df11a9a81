"""All candidates of a kernel, estimated together, and in which order they are asked one by one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from treadle.compiler.amounts import Amount, is_many, most
from treadle.compiler.cost.choice.candidates import Candidates
from treadle.compiler.cost.choice.merit import Merit, merit
from treadle.compiler.cost.choice.setting import Setting
from treadle.compiler.cost.choice.shares import part_fed, parts_fed
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.warpgroups import are_of_warpgroups
from treadle.compiler.cost.levels.memory import Footprint
from treadle.compiler.cost.timing.lookahead import is_late
from treadle.compiler.cost.timing.time import Timing
from treadle.compiler.cost.timing.turns import has_turns

SAME = 0.019
"""Estimates this near to each other say nothing; then the rules of `_by_rank` decide."""

USUAL_WARPS = 4
TWO_WARPGROUPS = 8
"""Beside one that copies: one computes while products of the other run."""

CROWDED = 128
"""Registers of a thread with which an SM holds 16 warps, four in each quarter: enough that some load while others
compute, where there are no products."""

NEAR = 1.2
"""Of a stream that conditions limit, candidates within this of the best are estimated again with the part of the stream
that their own groups are fed; for the others it is interpolated between a few sizes, which is seldom off by more."""


@dataclass(frozen=True)
class Trial:
    """All candidates of a kernel, estimated together."""

    setting: Setting
    candidates: Candidates
    plan: Plan
    timing: Timing
    merit: Merit
    late: Amount
    ragged: Amount
    """How many streams end with a part of a piece, the rest of which is computed all the same."""
    uneven: Amount = 1.0
    """How many times the mean the group is fed that is fed most, as far as that was asked."""
    as_stated: Amount = True
    """Whether blocks can take pieces as it is stated."""

    @cached_property
    def fitting(self) -> Amount:
        """For each candidate, also where none has a size that another lacks (a program of scalars)."""
        return self.each((self.timing.blocks_per_sm > 0) & self.as_stated)

    def each(self, amount: Amount) -> Amount:
        """One number for each candidate."""
        return np.broadcast_to(amount, len(self.candidates))

    @property
    def least_time(self) -> float:
        """The shortest time of what fits, in registers too if anything does."""
        spills, time = np.broadcast_arrays(*self.merit, np.zeros(len(self.candidates)))[:2]
        least = min(spills[self.fitting], default=0)
        return min(time[self.fitting & (spills == least)], default=1)


def tried(setting: Setting, found: Candidates) -> Trial:
    part = part_fed(setting.sketch, found.tiles, setting.sizes)
    trial = _estimated(setting, found, part)
    if setting.sketch.conditional is None:
        return trial
    near = np.flatnonzero(trial.timing.time_us <= NEAR * np.min(trial.timing.time_us[trial.fitting], initial=np.inf))
    if not len(near):
        return trial
    part, uneven = np.broadcast_to(part, len(found)).copy(), np.full(len(found), np.inf)
    part[near], longest = parts_fed(setting.sketch, found.tiles, setting.sizes, near.tolist())
    uneven[near] = longest / most(part[near], 1e-9)
    return replace(_estimated(setting, found, part), uneven=uneven)


def _estimated(setting: Setting, found: Candidates, part: Amount) -> Trial:
    plan, sizes = setting.plans(found, part), setting.sizes
    times = setting.timing(plan)
    ragged = sum((sizes[pieces.axis] % pieces.size != 0) * 1 for pieces in plan.streams)
    late = is_late(plan, setting.machine, sizes, times)
    return Trial(setting, found, plan, times, merit(times), late, ragged, as_stated=_as_stated(setting, plan, times))


def _as_stated(setting: Setting, plan: Plan, found: Timing) -> Amount:
    """Of warpgroups that are to take pieces in turns, which have room for what leaves meanwhile. Without roles no block
    takes a second piece, whatever is stated."""
    if setting.turns != 1:
        return True
    grouped = are_of_warpgroups(plan, setting.machine)
    return ~np.asarray(grouped) | has_turns(plan, setting.machine, found.footprint.shared_bytes)


def by_rank(trial: Trial) -> list[int]:
    """Candidates, the best first. Among equals: pieces that the threads of a block share out evenly, where they copy;
    wide vectors, registers for some more warps, few warps that share a row, a usual number of warps, tiles that come
    in time, a whole last step, few steps and little memory."""
    its, needs, plan = trial.merit, trial.timing.footprint, trial.plan
    with np.errstate(divide="ignore"):
        keys = (
            its.spills,
            np.floor(np.log(its.time_us / trial.least_time) / SAME),
            trial.candidates.rereads,
            _odd(trial.candidates) * (needs.producers == 0),
            -trial.candidates.vector,
            plan.cluster,
            _crowded(needs) * (not plan.has_products),
            plan.sharing,
            _unusual(needs),
            trial.late,
            trial.ragged,
            -sum(pieces.size for pieces in plan.streams),
            # Without products all that there is in shared memory are a few numbers on their way between warps.
            needs.shared_bytes * plan.has_products,
            needs.registers_per_thread,
        )
    whole = np.zeros(len(trial.candidates))
    return np.lexsort([key + whole for key in reversed(keys)]).tolist()


def _crowded(needs: Footprint) -> Amount:
    """By how much more than the half of the registers of an SM few warps would take."""
    return needs.registers_per_thread // CROWDED


def _unusual(needs: Footprint) -> Amount:
    """How far the warps are from a usual number: of one warpgroup beside one that copies as far as of four alone."""
    alone = needs.producers == 0
    usual = np.where(alone, USUAL_WARPS, TWO_WARPGROUPS)
    return np.abs(np.log(needs.warps / usual)) + np.where(alone, np.log(TWO_WARPGROUPS / USUAL_WARPS), 0.0)


def _odd(found: Candidates) -> Amount:
    """Of how many axes the pieces are no power of two."""
    return sum((np.log2(size) % 1 != 0) * 1 for size in found.tiles.values() if is_many(size))
