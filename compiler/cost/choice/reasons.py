"""Why a kernel has its sizes, or can have none, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.choice.candidate import Candidate
from treadle.compiler.cost.choice.trial import Trial
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.kernel.warpgroups import WARPGROUP
from treadle.compiler.cost.levels.memory import Footprint
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.cost.timing.time import Estimate
from treadle.compiler.machines import Machine

ROUNDED = 0.0005
"""Estimates this near to each other print alike."""


def sizes_text(tiles: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in tiles.items())


def _cut_sizes(sketch: Sketch, candidate: Candidate) -> dict[str, int]:
    return {axis: size for axis, size in candidate.tiles.items() if axis not in sketch.whole}


def reason(trial: Trial, best: Candidate, found: Estimate) -> str:
    sketch, machine, needs = trial.setting.sketch, trial.setting.machine, found.footprint
    room = int(machine.shared_of_block(needs.resident))
    cut = _cut_sizes(sketch, best)
    kept = ["left operands that all steps share stay in shared memory: registers are few"] if best.rereads else []
    where = f"{sizes_text(cut) or 'nothing to cut'} in {_warps(needs)}{_sharing(sketch, best)}"
    parts = [
        f"{where}: estimated {found.time_us:.3g} us on "
        f"{machine.name}, bound by {found.bottleneck}; {_rank(trial, found)} of "
        f"{int(np.sum(trial.fitting))} candidates that fit, of {len(trial.candidates)}",
        f"about {needs.registers_per_thread} of {needs.most_registers} registers a thread"
        f"{_spilled(needs)}, {_kib(needs.shared_bytes)} of {_kib(room)} KiB shared "
        f"memory{_stages(trial.plan, needs)}",
        _grid(found, machine),
        *kept,
        *_larger(trial, cut),
    ]
    return "; ".join(parts)


def _rank(trial: Trial, found: Estimate) -> str:
    """Candidates that take about as long as the best are equals."""
    least = trial.least_time
    is_best = trial.setting.sketch.conditional is not None or found.time_us <= least * (1 + ROUNDED)
    return "the best" if is_best else f"within {100 * (found.time_us / least - 1):.1f} % of the best"


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


def _larger(trial: Trial, cut: Mapping[str, int]) -> Iterator[str]:
    """What a piece twice as large would have done, of each axis, or the next larger one."""
    for axis, size in cut.items():
        pieces = trial.each(trial.candidates.tiles[axis])
        larger = pieces[pieces >= 2 * size]
        larger = larger if len(larger) else pieces[pieces > size]
        if not len(larger):
            continue
        same = np.flatnonzero(pieces == larger.min())
        least = same[np.argmin(trial.timing.time_us[same])]
        if np.isfinite(trial.timing.time_us[least]):
            spills = ", with spills" if trial.each(trial.merit.spills)[least] else ""
            yield f"{axis} = {int(larger.min())} at best {time_of(trial, int(least)):.3g} us{spills}"
        else:
            needs = _needs(trial, _smallest(trial, same))
            yield f"{axis} = {int(larger.min())} needs {_excess(needs, trial.setting.machine)}"


def time_of(trial: Trial, place: int) -> float:
    """Of one candidate, in us, piece by piece where a condition limits a stream, as the chosen one is estimated."""
    setting = trial.setting
    if setting.sketch.conditional is None:
        return float(trial.timing.time_us[place])
    found = setting.estimate(setting.plan(trial.candidates[place]))
    return float(trial.timing.time_us[place]) if found is None else found.time_us


def nothing_fits(trial: Trial, fixed: Sequence[str]) -> str:
    """Advice, where so much was fixed."""
    sketch, machine = trial.setting.sketch, trial.setting.machine
    smallest = _smallest(trial, np.arange(len(trial.candidates)))
    needs = _needs(trial, smallest)
    if not np.any(trial.fitting) and np.any(trial.timing.blocks_per_sm > 0):  # but for the turns that are stated
        return (
            f"no block of @{sketch.name} can take pieces one after another on {machine.name}: beside the tiles of the "
            f"next piece ({_kib(needs.shared_bytes)} KiB of shared memory) the result of this one has no room; ask for "
            "turns=0 or smaller pieces, or leave that to the cost model"
        )
    advice: list[str] = []
    if sketch.whole:
        axis = max(sketch.whole, key=lambda name: sketch.sizes[name])
        instead = "make it smaller, or symbolic ('?') so that it can be streamed or cut"
        if sketch.recurs:
            instead = "make it smaller, or what is the same at all positions narrower, which stays in registers"
        advice.append(f"axis '{axis}' (size {sketch.sizes[axis]}) is held whole by every group: {instead}")
    if fixed:
        advice.append(f"leave the choice of {', '.join(fixed)} to the cost model")
    advice.append(f"{'or ' if advice else ''}choose a machine with more memory")
    return (
        f"kernel @{sketch.name} does not fit {machine.name}: even its smallest candidate "
        f"({sizes_text(trial.candidates[smallest].tiles)}, {_warps(needs)}) needs {_excess(needs, machine)}; "
        f"{', '.join(advice)}"
    )


def _smallest(trial: Trial, places: Amount) -> int:
    """Of some candidates the one that exceeds the machine least."""
    needs, limits = trial.timing.footprint, trial.setting.machine.limits
    excess = np.maximum(
        needs.registers_per_thread / limits.registers_per_thread, needs.shared_bytes / limits.shared_per_block
    )
    return int(places[np.argmin(trial.each(excess)[places])])


def _needs(trial: Trial, place: int) -> Footprint:
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
