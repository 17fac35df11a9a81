"""Choosing the sizes of one kernel: of all candidates that fit the machine, the one with the best merit, which is the
least estimated time; and saying why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from treadle.compiler.amounts import Amount, is_many, least, most
from treadle.compiler.cost.choice.candidates import Candidate, Candidates, candidates
from treadle.compiler.cost.choice.merit import Merit, merit
from treadle.compiler.cost.choice.shares import part_fed, parts_fed
from treadle.compiler.cost.choice.sharing import sharing
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.warpgroups import WARPGROUP
from treadle.compiler.cost.levels.memory import Footprint
from treadle.compiler.cost.levels.residents import with_residents
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.cost.timing.lookahead import is_late
from treadle.compiler.cost.timing.time import Estimate, Timing, estimate, timing
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine

SAME = 0.019
"""Estimates this near to each other say nothing; then the rules of `_by_rank` decide."""

USUAL_WARPS = 4
TWO_WARPGROUPS = 8
"""Beside one that copies: one computes while products of the other run."""

CROWDED = 128
"""Registers of a thread with which an SM holds 16 warps, four in each quarter: enough that some load while others
compute, where there are no products."""

ROUNDED = 0.0005
"""And those that print alike."""

NEAR = 1.2
"""Of a stream that conditions limit, candidates within this of the best are estimated again with the part of the stream
that their own groups are fed; for the others it is interpolated between a few sizes, which is seldom off by more."""
EXACTLY = 8
"""And so many of the best piece by piece."""
PROMISING = 4
"""And so many that may be better, though they are not among these (`_promising`)."""
SHARING = 3
"""And so many of blocks that share an SM."""


@dataclass(frozen=True)
class Choice:
    candidate: Candidate
    estimate: Estimate
    reason: str


@dataclass(frozen=True)
class _Trial:
    """All candidates of a kernel, estimated together."""

    candidates: Candidates
    plan: Plan
    timing: Timing
    merit: Merit
    late: Amount
    ragged: Amount
    """How many streams end with a part of a piece, the rest of which is computed all the same."""
    uneven: Amount = 1.0
    """How many times the mean the group is fed that is fed most, as far as that was asked."""

    @property
    def fitting(self) -> Amount:
        """For each candidate, also where none has a size that another lacks (a program of scalars)."""
        return np.broadcast_to(self.timing.blocks_per_sm > 0, len(self.candidates))


def choose(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> Choice:
    """The sizes for one kernel (TreadleError if nothing fits, or a fixed size cannot be)."""
    trial = _try(sketch, candidates(sketch, sizes, fixed, machine.most_in_cluster), machine, sizes)
    if not np.any(trial.fitting):
        raise TreadleError(_nothing_fits(sketch, machine, trial, fixed))
    best, found = _best(sketch, machine, sizes, trial)
    return Choice(best, found, _reason(sketch, machine, sizes, trial, best, found))


def nearest(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], fixed: Mapping[str, int], count: int
) -> list[tuple[dict[str, int], float]]:
    """So many different sizes, where as many fit, those that are chosen first, and the estimated time of each, in us
    (TreadleError as `choose`). Of a stream that conditions limit the others are in the order of times that are
    interpolated between a few sizes; what is told is not."""
    chosen = choose(sketch, machine, sizes, fixed)
    found = {_key(sketch, chosen.candidate): (_free(sketch, chosen.candidate), chosen.estimate.time_us)}
    trial = _try(sketch, candidates(sketch, sizes, fixed, machine.most_in_cluster), machine, sizes)
    spills = np.broadcast_to(trial.merit.spills, len(trial.candidates))
    for place in _by_rank(trial):
        if len(found) == count:
            break
        candidate = trial.candidates[place]
        if trial.fitting[place] and not spills[place] and (key := _key(sketch, candidate)) not in found:
            found[key] = _free(sketch, candidate), _time(sketch, machine, sizes, trial, place)
    return list(found.values())


def _free(sketch: Sketch, candidate: Candidate) -> dict[str, int]:
    """The sizes of groups and of the stream."""
    return {axis: size for axis, size in candidate.tiles.items() if axis in (*sketch.group, sketch.stream)}


def _key(sketch: Sketch, candidate: Candidate) -> tuple[tuple[str, int], ...]:
    return tuple(_free(sketch, candidate).items())


def _try(sketch: Sketch, found: Candidates, machine: Machine, sizes: Mapping[str, int]) -> _Trial:
    part = part_fed(sketch, found.tiles, sizes)
    trial = _estimated(sketch, found, machine, sizes, part)
    if sketch.conditional is None:
        return trial
    near = np.flatnonzero(trial.timing.time_us <= NEAR * np.min(trial.timing.time_us[trial.fitting], initial=np.inf))
    if not len(near):
        return trial
    part, uneven = np.broadcast_to(part, len(found)).copy(), np.full(len(found), np.inf)
    part[near], longest = parts_fed(sketch, found.tiles, sizes, near.tolist())
    uneven[near] = longest / most(part[near], 1e-9)
    return replace(_estimated(sketch, found, machine, sizes, part), uneven=uneven)


def _estimated(sketch: Sketch, found: Candidates, machine: Machine, sizes: Mapping[str, int], part: Amount) -> _Trial:
    plan = sketch.plan(found.tiles, found.warps, about=part, rereads=found.rereads)
    times = timing(plan, machine, sizes)
    ragged = sum((sizes[pieces.axis] % pieces.size != 0) * 1 for pieces in plan.streams)
    return _Trial(found, plan, times, merit(times), is_late(plan, machine, sizes, times), ragged)


def _best(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], trial: _Trial) -> tuple[Candidate, Estimate]:
    order = [place for place in _by_rank(trial) if trial.fitting[place]]
    ranked: list[_Exact] = []
    for i, place in enumerate(order):
        if len(ranked) == (EXACTLY if sketch.conditional is not None else 1):
            break
        ranked += _exact(sketch, machine, sizes, trial.candidates[place], i)
    if not ranked:
        raise TreadleError(_nothing_fits(sketch, machine, trial, {}))
    if sketch.conditional is not None:
        ranked += _promising(sketch, machine, sizes, trial, order, ranked)
    least = min(each.merit for each in ranked)
    alike = [
        each
        for each in ranked
        if each.merit.spills == least.spills and each.merit.time_us <= least.time_us * (1 + ROUNDED)
    ]
    if len(alike) > 1:
        alike.sort(key=lambda each: (_lasting_time(each.plan, machine, sizes), each.rank))
    return _or_sharing(sketch, machine, sizes, trial.candidates, alike[0])


def _or_sharing(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], found: Candidates, best: _Exact
) -> tuple[Candidate, Estimate]:
    """The best, or small blocks that share an SM, if these take less time by both rates, of those the fastest by the
    rates that last: what bounds them is often L2, of whose rate a datasheet says least."""
    known, by_sheet = _lasting_time(best.plan, machine, sizes), best.merit
    for candidate in sharing(sketch, machine, sizes, found)[:SHARING]:
        plan = with_residents(_plan(sketch, candidate), machine, sizes)
        time = estimate(plan, machine, sizes)
        if time is None or merit(time) >= by_sheet:
            continue
        if (lasting := _lasting_time(plan, machine, sizes)) < known:
            best, known = _Exact(merit(time), 0, candidate, plan, time), lasting
    return best.candidate, best.estimate


def _plan(sketch: Sketch, candidate: Candidate) -> Plan:
    return sketch.plan(candidate.tiles, candidate.warps, rereads=candidate.rereads)


@dataclass(frozen=True)
class _Exact:
    """A candidate that was estimated by itself."""

    merit: Merit
    rank: int
    candidate: Candidate
    plan: Plan
    estimate: Estimate


def _exact(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], candidate: Candidate, rank: int) -> list[_Exact]:
    """Nothing where it does not fit after all."""
    plan = _plan(sketch, candidate)
    found = estimate(plan, machine, sizes)
    return [] if found is None else [_Exact(merit(found), rank, candidate, plan, found)]


def _promising(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], trial: _Trial, order: list[int], ranked: list[_Exact]
) -> list[_Exact]:
    """Others that may be faster still, by themselves: of many candidates at a time the last wave counts as a whole one,
    where processors that take pieces of different lengths may end together all the same."""
    slots = machine.sms * most(trial.timing.blocks_per_sm, 1)
    waves = np.broadcast_to(trial.timing.blocks / slots, len(trial.candidates))
    hoped = trial.merit.time_us * most(waves, least(trial.uneven, np.ceil(waves))) / most(np.ceil(waves), 1)
    spills = np.broadcast_to(trial.merit.spills, len(trial.candidates))
    best = min(each.merit for each in ranked)
    found: list[_Exact] = []
    known = {each.rank for each in ranked}
    others = [(hoped[place], i) for i, place in enumerate(order) if spills[place] <= best.spills and i not in known]
    for time_us, i in sorted(others)[:PROMISING]:
        if time_us < best.time_us:
            found += _exact(sketch, machine, sizes, trial.candidates[order[i]], i)
    return found


def _lasting_time(plan: Plan, machine: Machine, sizes: Mapping[str, int]) -> float:
    """In microseconds, by the rates that last: where memory is what all wait for, those of the datasheet leave out what
    else blocks do, by which kernels still differ."""
    found = estimate(plan, machine.as_sustained(), sizes)
    return float("inf") if found is None else float(found.time_us)


def _by_rank(trial: _Trial) -> list[int]:
    """Candidates, the best first. Among equals: pieces that the threads of a block share out evenly, where they copy;
    wide vectors, registers for some more warps, few warps that share a row, a usual number of warps, tiles that come
    in time, a whole last step, few steps and little memory."""
    its, needs, plan = trial.merit, trial.timing.footprint, trial.plan
    with np.errstate(divide="ignore"):
        keys = (
            its.spills,
            np.floor(np.log(its.time_us / _least(trial)) / SAME),
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


def _least(trial: _Trial) -> float:
    """The shortest time of what fits, in registers too if anything does."""
    spills, time = np.broadcast_arrays(*trial.merit, np.zeros(len(trial.candidates)))[:2]
    least = min(spills[trial.fitting], default=0)
    return min(time[trial.fitting & (spills == least)], default=1)


def _odd(found: Candidates) -> Amount:
    """Of how many axes the pieces are no power of two."""
    return sum((np.log2(size) % 1 != 0) * 1 for size in found.tiles.values() if is_many(size))


def sizes_text(tiles: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in tiles.items())


def _cut_sizes(sketch: Sketch, candidate: Candidate) -> dict[str, int]:
    return {axis: size for axis, size in candidate.tiles.items() if axis not in sketch.whole}


# -- why --------------------------------------------------------------------------------------------


def _reason(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], trial: _Trial, best: Candidate, found: Estimate
) -> str:
    needs = found.footprint
    room = int(machine.shared_of_block(needs.resident))
    cut = _cut_sizes(sketch, best)
    kept = ["left operands that all steps share stay in shared memory: registers are few"] if best.rereads else []
    where = f"{sizes_text(cut) or 'nothing to cut'} in {_warps(needs)}{_sharing(sketch, best)}"
    parts = [
        f"{where}: estimated {found.time_us:.3g} us on "
        f"{machine.name}, bound by {found.bottleneck}; {_rank(sketch, trial, found)} of "
        f"{int(np.sum(trial.fitting))} candidates that fit, of {len(trial.candidates)}",
        f"about {needs.registers_per_thread} of {needs.most_registers} registers a thread"
        f"{_spilled(needs)}, {_kib(needs.shared_bytes)} of {_kib(room)} KiB shared "
        f"memory{_stages(trial.plan, needs)}",
        _grid(found, machine),
        *kept,
        *_larger(sketch, machine, sizes, trial, cut),
    ]
    return "; ".join(parts)


def _rank(sketch: Sketch, trial: _Trial, found: Estimate) -> str:
    """Candidates that take about as long as the best are equals."""
    is_best = sketch.conditional is not None or found.time_us <= _least(trial) * (1 + ROUNDED)
    return "the best" if is_best else f"within {100 * (found.time_us / _least(trial) - 1):.1f} % of the best"


def _sharing(sketch: Sketch, best: Candidate) -> str:
    """The blocks that share a group, and what each has of it."""
    return "".join(
        f" of each of {-(-sketch.sizes[axis] // part)} blocks, a cluster that shares {axis} ({part} each)"
        for axis, part in sketch.parts_of_blocks(best.tiles).items()
    )


def _warps(needs: Footprint) -> str:
    warps = f"{needs.warps} warp{'s' * (needs.warps > 1)}"
    if not needs.producers:
        return warps
    groups = needs.warps // WARPGROUP
    return f"{warps}, {groups} warpgroup{'s' * (groups > 1)} beside one that copies"


def _grid(found: Estimate, machine: Machine) -> str:
    together = f", in clusters of {found.cluster}" if found.cluster else ""
    if found.in_turns:
        many = found.blocks_per_sm > 1
        each = f"{found.blocks_per_sm} blocks" if many else "a block"
        take = f"{each} on each of {machine.sms} SMs take{'' if many else 's'} one after another"
        return f"{found.blocks} pieces, which {take}{together}"
    held = f"{found.blocks_per_sm} on an SM (more do not fit: {found.limited_by})"
    return f"{found.blocks} block{'' if found.blocks == 1 else 's'}, {held}, {found.waves:.2f} waves{together}"


def _spilled(needs: Footprint) -> str:
    return f" and {needs.spilled} that it lacks, in local memory" if needs.spilled else ""


def _stages(plan: Plan, needs: Footprint) -> str:
    """How many pieces of a stream's tiles are there at once."""
    if all(tile.role != "staged" for tile in plan.tiles):
        return ""
    in_turn = ", tiles come in turn" if plan.phases > 1 and not needs.producers else ""
    return f" with {needs.stages} stages" if needs.stages > 1 else f" with 1 stage: no room for 2{in_turn}"


def _larger(
    sketch: Sketch, machine: Machine, sizes: Mapping[str, int], trial: _Trial, cut: Mapping[str, int]
) -> Iterator[str]:
    """What a piece twice as large would have done, of each axis, or the next larger one."""
    for axis, size in cut.items():
        pieces = np.broadcast_to(trial.candidates.tiles[axis], len(trial.candidates))
        larger = pieces[pieces >= 2 * size]
        larger = larger if len(larger) else pieces[pieces > size]
        if not len(larger):
            continue
        same = np.flatnonzero(pieces == larger.min())
        least = same[np.argmin(trial.timing.time_us[same])]
        if np.isfinite(trial.timing.time_us[least]):
            best = _time(sketch, machine, sizes, trial, int(least))
            spills = ", with spills" if np.ravel(trial.merit.spills + np.zeros(len(trial.candidates)))[least] else ""
            yield f"{axis} = {int(larger.min())} at best {best:.3g} us{spills}"
        else:
            needs = _needs(trial, _smallest(trial, machine, same))
            yield f"{axis} = {int(larger.min())} needs {_excess(needs, machine)}"


def _time(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], trial: _Trial, place: int) -> float:
    """Of one candidate, in us, piece by piece where a condition limits a stream, as the chosen one is estimated."""
    if sketch.conditional is None:
        return float(trial.timing.time_us[place])
    candidate = trial.candidates[place]
    found = estimate(_plan(sketch, candidate), machine, sizes)
    return float(trial.timing.time_us[place]) if found is None else found.time_us


def _nothing_fits(sketch: Sketch, machine: Machine, trial: _Trial, fixed: Mapping[str, int]) -> str:
    smallest = _smallest(trial, machine, np.arange(len(trial.candidates)))
    needs = _needs(trial, smallest)
    advice: list[str] = []
    if sketch.whole:
        axis = max(sketch.whole, key=lambda name: sketch.sizes[name])
        advice.append(
            f"axis '{axis}' (size {sketch.sizes[axis]}) is held whole by every group: make it smaller, or "
            "symbolic ('?') so that it can be streamed or cut"
        )
    if fixed:
        advice.append(f"leave the choice of {', '.join(fixed)} to the cost model")
    advice.append(f"{'or ' if advice else ''}choose a machine with more memory")
    return (
        f"kernel @{sketch.name} does not fit {machine.name}: even its smallest candidate "
        f"({sizes_text(trial.candidates[smallest].tiles)}, {_warps(needs)}) needs {_excess(needs, machine)}; "
        f"{', '.join(advice)}"
    )


def _smallest(trial: _Trial, machine: Machine, places: Amount) -> int:
    """Of some candidates the one that exceeds the machine least."""
    needs, limits = trial.timing.footprint, machine.limits
    excess = np.maximum(
        needs.registers_per_thread / limits.registers_per_thread, needs.shared_bytes / limits.shared_per_block
    )
    return int(places[np.argmin(np.broadcast_to(excess, len(trial.candidates))[places])])


def _needs(trial: _Trial, place: int) -> Footprint:
    return trial.timing.footprint.of(place)


def _excess(needs: Footprint, machine: Machine) -> str:
    limits = machine.limits
    parts: list[str] = []
    if needs.registers_per_thread > limits.registers_per_thread:
        parts.append(
            f"about {needs.registers_per_thread} registers a thread (level register: at most "
            f"{limits.registers_per_thread})"
        )
    if needs.shared_bytes > limits.shared_per_block:
        parts.append(
            f"{needs.shared_bytes} bytes of shared memory (level shared: at most {limits.shared_per_block} a block)"
        )
    if not parts:
        parts.append(
            f"{_warps(needs)} of about {needs.registers_per_thread} registers a thread (level register: "
            f"{limits.registers_per_sm} registers an SM)"
        )
    return " and ".join(parts)


def _kib(size: int) -> str:
    return f"{size / 1024:.4g}"
