"""The candidates whose blocks can share an SM, since they are of one consumer warpgroup (`levels/residents.py`)."""

from __future__ import annotations

import numpy as np

from treadle.compiler.cost.choice.candidate import Candidate
from treadle.compiler.cost.choice.candidates import Candidates
from treadle.compiler.cost.choice.setting import Setting
from treadle.compiler.cost.choice.shares import part_fed
from treadle.compiler.cost.kernel.warpgroups import shared_by


def small_blocks(setting: Setting, found: Candidates) -> list[Candidate]:
    """Those that take least time first; none where no blocks can."""
    if not setting.machine.has_warpgroups or not setting.sketch.has_products:
        return []
    plan = setting.shared(setting.plans(found, 1))
    places = np.flatnonzero(np.broadcast_to(shared_by(plan), len(found)) > 1)
    if not len(places):
        return []
    few = found.at(places)
    plan = setting.shared(setting.plans(few, part_fed(setting.sketch, few.tiles, setting.sizes)))
    times = np.broadcast_to(setting.timing(plan).time_us, len(few))
    return [few[place] for place in np.argsort(times, kind="stable") if np.isfinite(times[place])]
