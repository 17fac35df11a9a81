"""What sizes are chosen for, and what the model says of some sizes there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from treadle.compiler.amounts import Amount
from treadle.compiler.cost.choice.candidate import Candidate
from treadle.compiler.cost.choice.candidates import Candidates
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.residents import with_residents
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.cost.timing.time import Estimate, Timing, estimate, timing
from treadle.compiler.cost.timing.turns import Made
from treadle.compiler.machines import Machine


@dataclass(frozen=True)
class Setting:
    """A kernel, at these sizes of its axes; `turns` says how many blocks of a processor take pieces one after another,
    where that is stated (0: each piece has a block of its own)."""

    sketch: Sketch
    machine: Machine
    sizes: Mapping[str, int]
    turns: int | None = None

    @cached_property
    def _lasting(self) -> Machine:
        return replace(self.machine.as_sustained(), counts_queues=False)

    @property
    def _made(self) -> Made | None:
        return None if self.turns is None else Made(self.turns > 0)

    def plan(self, candidate: Candidate) -> Plan:
        return self.sketch.plan(candidate.tiles, candidate.warps, rereads=candidate.rereads)

    def plans(self, found: Candidates, about: Amount) -> Plan:
        """Of many candidates, whose groups are fed `about` this part of the stream."""
        return self.sketch.plan(found.tiles, found.warps, about=about, rereads=found.rereads)

    def shared(self, plan: Plan) -> Plan:
        """The plan whose blocks share a processor, if they can."""
        return with_residents(plan, self.machine, self.sizes, self.turns)

    def timing(self, plan: Plan) -> Timing:
        return timing(plan, self.machine, self.sizes, self._made)

    def estimate(self, plan: Plan) -> Estimate | None:
        return estimate(plan, self.machine, self.sizes, self._made)

    def lasting_time(self, plan: Plan) -> float:
        """In microseconds, by the rates that last: where memory is what all wait for, those of the datasheet leave out
        what else blocks do, by which kernels still differ. What tiles wait in line is left out: that smaller ones wait
        less, since they are more, was measured of few kernels."""
        found = estimate(plan, self._lasting, self.sizes, self._made)
        return float("inf") if found is None else float(found.time_us)
