"""The candidates whose blocks can share an SM (`levels/residents.py`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from treadle.compiler.cost.choice.candidates import Candidate, Candidates
from treadle.compiler.cost.choice.shares import part_fed
from treadle.compiler.cost.kernel.warpgroups import shared_by
from treadle.compiler.cost.levels.residents import with_residents
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.cost.timing.time import timing
from treadle.compiler.machines import Machine


def sharing(sketch: Sketch, machine: Machine, sizes: Mapping[str, int], found: Candidates) -> list[Candidate]:
    """Those that take least time first; none where no blocks can."""
    if not machine.has_warpgroups or not sketch.has_products:
        return []
    plan = with_residents(sketch.plan(found.tiles, found.warps, about=1, rereads=found.rereads), machine, sizes)
    places = np.flatnonzero(np.broadcast_to(shared_by(plan), len(found)) > 1)
    if not len(places):
        return []
    few = found.at(places)
    about = part_fed(sketch, few.tiles, sizes)
    plan = with_residents(sketch.plan(few.tiles, few.warps, about=about, rereads=few.rereads), machine, sizes)
    times = np.broadcast_to(timing(plan, machine, sizes).time_us, len(few))
    return [few[place] for place in np.argsort(times, kind="stable") if np.isfinite(times[place])]
