"""What candidates are compared by: the choice of sizes and every search that judges it ask `merit` alone."""

from __future__ import annotations

from typing import NamedTuple

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.timing.time import Estimate, Timing


class Merit(NamedTuple):
    """Less is better, the first difference counts."""

    spills: Amount
    """Whether threads lack registers: what that costs, the model knows too little of."""
    time_us: Amount


def merit(found: Timing | Estimate) -> Merit:
    return Merit(found.footprint.spilled > 0, found.time_us)
