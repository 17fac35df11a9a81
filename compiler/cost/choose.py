"""Choosing the sizes of one kernel: of the candidates that fit the machine, the one with the least estimated
time; and saying why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from treadle.compiler.cost.candidates import Candidate, candidates
from treadle.compiler.cost.memory import Footprint, footprint
from treadle.compiler.cost.plan import Plan
from treadle.compiler.cost.sketch import Sketch
from treadle.compiler.cost.time import Estimate, estimate
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine

SAME = 0.02
"""Estimates this near to each other say nothing; then the rules of `_rank` decide."""

USUAL_WARPS = 4

NEAR = 1.1
"""Estimates for warpgroups this near to each other are not told apart."""

WARPGROUP_CAPABILITY = 90
WARPGROUP_DEPTH = 16
WARPGROUP_WARPS = (4, 8, 12)
"""Warps of one, two or three warpgroups. Only their products (`wgmma`) reach the whole rate of the tensor cores, so
that where they can work, only sizes for them are compared."""


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
    tried = [_try(sketch, candidate, machine, sizes) for candidate in candidates(sketch, sizes, fixed)]
    fitting = [(one, one.estimate) for one in tried if one.estimate is not None]
    if not fitting:
        raise TreadleError(_nothing_fits(sketch, machine, tried, fixed))
    best, best_estimate = _for_warpgroups(sketch, machine, fitting) or min(
        fitting, key=lambda pair: _rank(pair[0], pair[1])
    )
    return Choice(best.candidate, best_estimate, _reason(sketch, machine, best, best_estimate, tried))


def suits_warpgroups(sketch: Sketch, candidate: Candidate) -> bool:
    """Whether warpgroups can multiply: each has 64 rows of 16-bit operands, and pieces are as wide as tensor copies
    and their swizzles take them."""
    row = sketch.roles.row
    if row is None or sketch.alignment != WARPGROUP_DEPTH:
        return False
    warps = candidate.warps.get(row, 0)
    alone = len([axis for axis, count in candidate.warps.items() if count > 1]) <= 1
    return alone and warps in WARPGROUP_WARPS and candidate.tiles[row] == WARPGROUP_DEPTH * warps


def _for_warpgroups(
    sketch: Sketch, machine: Machine, fitting: Sequence[tuple[_Tried, Estimate]]
) -> tuple[_Tried, Estimate] | None:
    """The best of the candidates for warpgroups, if there are any. Where a step works on scores, what it does once a
    step and row weighs less in larger pieces, which the estimate, made for products of single warps, does not see: of
    those that are near the fastest the one with the largest pieces is taken."""
    if machine.capability < WARPGROUP_CAPABILITY:
        return None
    suited = [pair for pair in fitting if suits_warpgroups(sketch, pair[0].candidate)]
    if not suited:
        return None
    fastest = min(found.time_us for _, found in suited)
    near = [pair for pair in suited if pair[1].time_us <= NEAR * fastest]
    if any(tile.role == "passing" for tile in suited[0][0].plan.tiles):
        return min(near, key=lambda pair: (-sum(pieces.size for pieces in pair[0].plan.streams), *_rank(*pair)))
    return min(suited, key=lambda pair: _rank(*pair))


def _try(sketch: Sketch, candidate: Candidate, machine: Machine, sizes: Mapping[str, int]) -> _Tried:
    plan = sketch.plan(candidate.tiles, candidate.warps)
    return _Tried(candidate, plan, estimate(plan, machine, sizes))


def _rank(tried: _Tried, found: Estimate) -> tuple[float, ...]:
    """Least time; among equals wide vectors, a usual number of warps, few steps and little memory."""
    needs = found.footprint
    return (
        needs.spilled > 0,
        round(log(found.time_us) / SAME),
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


def _reason(sketch: Sketch, machine: Machine, best: _Tried, found: Estimate, tried: Sequence[_Tried]) -> str:
    needs = found.footprint
    fitting = sum(one.estimate is not None for one in tried)
    cut = _cut_sizes(sketch, best.candidate)
    parts = [
        f"{sizes_text(cut) or 'nothing to cut'} in {needs.warps} warp{'s' * (needs.warps > 1)}: estimated "
        f"{found.time_us:.3g} us on {machine.name}, bound by {found.bottleneck}; the least of "
        f"{fitting} candidates that fit, of {len(tried)}",
        f"about {needs.registers_per_thread} of {machine.limits.registers_per_thread} registers a thread"
        f"{_spilled(needs)}, {_kib(needs.shared_bytes)} of {_kib(machine.limits.shared_per_block)} KiB shared "
        f"memory{_stages(best.plan, needs)}",
        f"{found.blocks} blocks, {found.blocks_per_sm} on an SM (more do not fit: {found.limited_by}), "
        f"{found.waves:.2f} waves",
        *_larger(sketch, machine, best, tried),
    ]
    return "; ".join(parts)


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
