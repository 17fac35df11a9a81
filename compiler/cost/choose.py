"""Choosing the sizes of one kernel: of the candidates that fit the machine, the one with the best merit,
which is the least estimated time unless the machine has warpgroups; and saying why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from treadle.compiler.cost.candidates import Candidate, candidates
from treadle.compiler.cost.memory import Footprint, footprint
from treadle.compiler.cost.merit import Merit, merit
from treadle.compiler.cost.plan import Plan
from treadle.compiler.cost.sketch import Sketch
from treadle.compiler.cost.time import Estimate, estimate
from treadle.compiler.counting import counted
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine

SAME = 0.02
"""Estimates this near to each other say nothing; then the rules of `_rank` decide."""

USUAL_WARPS = 4


@dataclass(frozen=True)
class Choice:
    candidate: Candidate
    estimate: Estimate
    reason: str


@dataclass(frozen=True)
class _Tried:
    candidate: Candidate
    plan: Plan
    estimate: Estimate | None


def choose(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], fixed: Mapping[str, int]) -> Choice:
    """The sizes for one kernel (TreadleError if nothing fits, or a fixed size cannot be)."""
    found = counted(tuple(candidates(sketch, sizes, fixed)), "candidates")
    tried = [_try(sketch, candidate, machine, sizes) for candidate in found]
    fitting = [(one, one.estimate) for one in tried if one.estimate is not None]
    if not fitting:
        raise TreadleError(_nothing_fits(sketch, machine, tried, fixed))
    merits = [merit(sketch, one.plan, machine, found) for one, found in fitting]
    (best, best_estimate), its_merit = min(
        zip(fitting, merits, strict=True), key=lambda ranked: _rank(*ranked[0], ranked[1])
    )
    alike = sum(each.single_warps == its_merit.single_warps for each in merits)
    among = _best_of(best_estimate, its_merit, alike, len(fitting))
    return Choice(best.candidate, best_estimate, _reason(sketch, machine, best, best_estimate, tried, among))


def _try(sketch: Sketch, candidate: Candidate, machine: Machine, sizes: Mapping[str, int]) -> _Tried:
    plan = sketch.plan(candidate.tiles, candidate.warps)
    return _Tried(candidate, plan, estimate(plan, machine, sizes))


def _rank(tried: _Tried, found: Estimate, its: Merit) -> tuple[float, ...]:
    """The best merit; among equals wide vectors, a usual number of warps, few steps and little memory."""
    needs = found.footprint
    return (
        its.single_warps,
        its.spills,
        round(log(its.time_us) / SAME),
        -tried.candidate.vector,
        abs(log(needs.warps / USUAL_WARPS)),
        -sum(pieces.size for pieces in tried.plan.streams),
        needs.shared_bytes,
        needs.registers_per_thread,
    )


def sizes_text(tiles: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in tiles.items())


def _cut_sizes(sketch: Sketch, candidate: Candidate) -> dict[str, int]:
    return {axis: size for axis, size in candidate.tiles.items() if axis not in sketch.whole}


def _reason(
    sketch: Sketch, machine: Machine, best: _Tried, found: Estimate, tried: Sequence[_Tried], among: str
) -> str:
    needs = found.footprint
    cut = _cut_sizes(sketch, best.candidate)
    parts = [
        f"{sizes_text(cut) or 'nothing to cut'} in {needs.warps} warp{'s' * (needs.warps > 1)}: estimated "
        f"{found.time_us:.3g} us on {machine.name}, bound by {found.bottleneck}; the {among}, "
        f"of {len(tried)}",
        f"about {needs.registers_per_thread} of {machine.limits.registers_per_thread} registers a thread"
        f"{_spilled(needs)}, {_kib(needs.shared_bytes)} of {_kib(machine.limits.shared_per_block)} KiB shared "
        f"memory{_stages(best.plan, needs)}",
        f"{found.blocks} blocks, {found.blocks_per_sm} on an SM (more do not fit: {found.limited_by}), "
        f"{found.waves:.2f} waves",
        *_larger(sketch, machine, best, tried),
    ]
    return "; ".join(parts)


def _best_of(found: Estimate, its: Merit, alike: int, fitting: int) -> str:
    """Among which candidates it is the best: where a machine has warpgroups, only those for them count, if any fit."""
    word = "least" if its.time_us == found.time_us else "best"
    few = f"{alike} candidates for warpgroups, of {fitting} that fit"
    return f"{word} of {few if alike < fitting else f'{fitting} candidates that fit'}"


def _spilled(needs: Footprint) -> str:
    return f" and {needs.spilled} that it lacks, in local memory" if needs.spilled else ""


def _stages(plan: Plan, needs: Footprint) -> str:
    """How many pieces of a stream's tiles are there at once."""
    if all(tile.role != "staged" for tile in plan.tiles):
        return ""
    return f" with {needs.stages} stages" if needs.stages > 1 else " with 1 stage: no room for 2"


def _larger(sketch: Sketch, machine: Machine, best: _Tried, tried: Sequence[_Tried]) -> list[str]:
    """What the next larger piece of each axis would have done."""
    texts: list[str] = []
    for axis, size in _cut_sizes(sketch, best.candidate).items():
        sizes = sorted({one.candidate.tiles[axis] for one in tried if one.candidate.tiles[axis] > size})
        if not sizes:
            continue
        same = [one for one in tried if one.candidate.tiles[axis] == sizes[0]]
        times = [one.estimate.time_us for one in same if one.estimate is not None]
        if times:
            texts.append(f"{axis} = {sizes[0]} at best {min(times):.3g} us")
        else:
            smallest = _smallest(same, machine)
            texts.append(f"{axis} = {sizes[0]} needs {_excess(footprint(smallest.plan, machine), machine)}")
    return texts


def _nothing_fits(sketch: Sketch, machine: Machine, tried: Sequence[_Tried], fixed: Mapping[str, int]) -> str:
    smallest = _smallest(tried, machine)
    candidate = smallest.candidate
    needs = footprint(smallest.plan, machine)
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
        f"({sizes_text(candidate.tiles)}, {needs.warps} warps) needs {_excess(needs, machine)}; "
        f"{', '.join(advice)}"
    )


def _smallest(tried: Sequence[_Tried], machine: Machine) -> _Tried:
    """The candidate that exceeds the machine least."""

    def excess(one: _Tried) -> float:
        needs = footprint(one.plan, machine)
        return max(
            needs.registers_per_thread / machine.limits.registers_per_thread,
            needs.shared_bytes / machine.limits.shared_per_block,
        )

    return min(tried, key=excess)


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
            f"{needs.warps} warps of about {needs.registers_per_thread} registers a thread (level register: "
            f"{limits.registers_per_sm} registers an SM)"
        )
    return " and ".join(parts)


def _kib(size: int) -> str:
    return f"{size / 1024:.4g}"
