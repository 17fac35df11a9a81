"""Choosing the sizes of one kernel: of all candidates that fit the machine, the one with the best merit, which is the
least estimated time; and saying why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from treadle.compiler.amounts import least, most
from treadle.compiler.cost.choice.candidate import Candidate
from treadle.compiler.cost.choice.candidates import candidates
from treadle.compiler.cost.choice.merit import Merit, merit
from treadle.compiler.cost.choice.reasons import ROUNDED, nothing_fits, reason, sizes_text, time_of
from treadle.compiler.cost.choice.setting import Setting
from treadle.compiler.cost.choice.small_blocks import small_blocks
from treadle.compiler.cost.choice.stated import FREE, Stated
from treadle.compiler.cost.choice.trial import Trial, by_rank, tried
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.residents import why_none_share
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.cost.timing.time import Estimate
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine

EXACTLY = 8
"""Of a stream that conditions limit, so many of the best are estimated again piece by piece."""
PROMISING = 4
"""And so many that may be better, though they are not among these (`_promising`)."""
SMALL = 3
"""And so many of blocks that share an SM."""
IN_TURNS = 3
"""And so many that take pieces in turns, beside a block for each piece."""
NEAR = 1.05
"""These if by the datasheet they take at most so many times as long: it counts nothing for how blocks begin and end."""


@dataclass(frozen=True)
class Choice:
    candidate: Candidate
    estimate: Estimate
    reason: str
    turns: int | None
    """How many blocks of a processor take pieces one after another: 0 where each piece has a block of its own, None
    where there are no roles, without which no block takes a second piece."""
    plan: Plan
    """With the sizes of the candidate, at any sizes of the axes: to estimate what was chosen elsewhere, too."""


def choose(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], fixed: Mapping[str, int], stated: Stated = FREE
) -> Choice:
    """The sizes for one kernel (TreadleError if nothing fits, or what is fixed or stated cannot be)."""
    trial = _tried(sketch, machine, sizes, fixed, stated)
    if not np.any(trial.fitting):
        raise TreadleError(nothing_fits(trial, [*fixed, *stated.names]))
    best = _best(trial)
    turns = _turns(best.estimate) if stated.turns is None else stated.turns
    told = "; ".join(part for part in (reason(trial, best.candidate, best.estimate), best.why) if part)
    return Choice(best.candidate, best.estimate, told, turns, best.plan)


def _tried(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], fixed: Mapping[str, int], stated: Stated
) -> Trial:
    found = stated.of(sketch, candidates(sketch, sizes, fixed, machine.most_in_cluster))
    return tried(Setting(sketch, machine, sizes, stated.turns), found)


def _turns(found: Estimate) -> int | None:
    if not found.footprint.producers:
        return None
    resident = int(found.footprint.resident)
    return resident if found.in_turns or resident > 1 else 0


def nearest(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], fixed: Mapping[str, int], stated: Stated, count: int
) -> list[tuple[dict[str, int], float]]:
    """So many different sizes, where as many fit, those that are chosen first and the others by the estimated time of
    each, in us (TreadleError as `choose`). Of a stream that conditions limit, which these are is told from times that
    are interpolated between a few sizes; those that are given are not."""
    chosen = choose(sketch, machine, sizes, fixed, stated)
    found = {_key(sketch, chosen.candidate): (_free(sketch, chosen.candidate), chosen.estimate.time_us)}
    trial = _tried(sketch, machine, sizes, fixed, stated)
    spills = trial.each(trial.merit.spills)
    for place in by_rank(trial):
        if len(found) == count:
            break
        candidate = trial.candidates[place]
        if trial.fitting[place] and not spills[place] and (key := _key(sketch, candidate)) not in found:
            found[key] = _free(sketch, candidate), time_of(trial, place)
    first, *others = found.values()
    return [first, *sorted(others, key=lambda each: each[1])]


def _free(sketch: Sketch, candidate: Candidate) -> dict[str, int]:
    """The sizes of groups and of the stream."""
    return {axis: size for axis, size in candidate.tiles.items() if axis in (*sketch.group, sketch.stream)}


def _key(sketch: Sketch, candidate: Candidate) -> tuple[tuple[str, int], ...]:
    return tuple(_free(sketch, candidate).items())


@dataclass(frozen=True)
class _Exact:
    """A candidate that was estimated by itself."""

    merit: Merit
    rank: int
    candidate: Candidate
    plan: Plan
    estimate: Estimate
    why: str = ""
    """It was taken, if that is not its merit."""


def _exact(trial: Trial, candidate: Candidate, rank: int) -> list[_Exact]:
    """Nothing where it does not fit after all."""
    plan = trial.setting.plan(candidate)
    found = trial.setting.estimate(plan)
    return [] if found is None else [_Exact(merit(found), rank, candidate, plan, found)]


def _best(trial: Trial) -> _Exact:
    setting = trial.setting
    if setting.turns is not None and setting.turns > 1:
        return _best_of_small_blocks(trial, setting.turns)
    best = _best_alone(trial)
    return _or_small_blocks(trial, _or_turns(trial, best)) if setting.turns is None else best


def _best_alone(trial: Trial) -> _Exact:
    """Of blocks that share no SM by moving registers."""
    conditional = trial.setting.sketch.conditional is not None
    order = [place for place in by_rank(trial) if trial.fitting[place]]
    ranked: list[_Exact] = []
    for i, place in enumerate(order):
        if len(ranked) == (EXACTLY if conditional else 1):
            break
        ranked += _exact(trial, trial.candidates[place], i)
    if not ranked:
        raise TreadleError(nothing_fits(trial, []))
    if conditional:
        ranked += _promising(trial, order, ranked)
    least = min(each.merit for each in ranked)
    alike = [
        each
        for each in ranked
        if each.merit.spills == least.spills and each.merit.time_us <= least.time_us * (1 + ROUNDED)
    ]
    if len(alike) > 1:
        alike.sort(key=lambda each: (trial.setting.lasting_time(each.plan), each.rank))
    return alike[0]


def _or_turns(trial: Trial, best: _Exact) -> _Exact:
    """The best; or, if that has a block for each piece, blocks that take pieces in turns and are nearly as fast by the
    datasheet, where these take less time by the rates that last, which count what each block waits for at its begin."""
    alone = best.estimate
    if not alone.footprint.producers or alone.in_turns or alone.footprint.resident > 1:
        return best
    near = trial.fitting & trial.timing.in_turns & (trial.merit.time_us <= NEAR * best.merit.time_us)
    places = [place for place in by_rank(trial) if near[place]]
    others = [each for i, place in enumerate(places[:IN_TURNS]) for each in _exact(trial, trial.candidates[place], i)]
    why = f"a block for each piece, {sizes_text(best.candidate.tiles)}, takes longer by the rates that last"
    alike = [each for each in others if each.estimate.in_turns and each.merit.spills <= best.merit.spills]
    return _lasting(trial, best, [replace(each, why=why) for each in alike])


def _or_small_blocks(trial: Trial, best: _Exact) -> _Exact:
    """The best, or small blocks that share an SM, if these take less time by both rates, of those the fastest by the
    rates that last: what bounds them is often L2, of whose rate a datasheet says least."""
    return _lasting(trial, best, [each for each in _small_blocks(trial) if each.merit < best.merit])


def _lasting(trial: Trial, best: _Exact, others: Sequence[_Exact]) -> _Exact:
    """The fastest by the rates that last, the best among equals."""
    return min([best, *others], key=lambda each: trial.setting.lasting_time(each.plan)) if others else best


def _best_of_small_blocks(trial: Trial, blocks: int) -> _Exact:
    if found := _small_blocks(trial):
        return min(found, key=lambda each: each.merit)
    name, machine = trial.setting.sketch.name, trial.setting.machine
    why = why_none_share(trial.plan, machine, blocks)
    raise TreadleError(
        f"no {blocks} blocks of @{name} can share a processor of {machine.name}: {why}; ask for turns=1, or leave that "
        "to the cost model"
    )


def _small_blocks(trial: Trial) -> list[_Exact]:
    """The first few of those that share an SM."""
    setting, found = trial.setting, list[_Exact]()
    for candidate in small_blocks(setting, trial.candidates)[:SMALL]:
        plan = setting.shared(setting.plan(candidate))
        if (estimate := setting.estimate(plan)) is not None:
            found.append(_Exact(merit(estimate), 0, candidate, plan, estimate))
    return found


def _promising(trial: Trial, order: list[int], ranked: list[_Exact]) -> list[_Exact]:
    """Others that may be faster still, by themselves: of many candidates at a time the last wave counts as a whole one,
    where processors that take pieces of different lengths may end together all the same."""
    slots = trial.setting.machine.sms * most(trial.timing.blocks_per_sm, 1)
    waves = trial.each(trial.timing.blocks / slots)
    hoped = trial.merit.time_us * most(waves, least(trial.uneven, np.ceil(waves))) / most(np.ceil(waves), 1)
    spills = trial.each(trial.merit.spills)
    best = min(each.merit for each in ranked)
    found: list[_Exact] = []
    known = {each.rank for each in ranked}
    others = [(hoped[place], i) for i, place in enumerate(order) if spills[place] <= best.spills and i not in known]
    for time_us, i in sorted(others)[:PROMISING]:
        if time_us < best.time_us:
            found += _exact(trial, trial.candidates[order[i]], i)
    return found
