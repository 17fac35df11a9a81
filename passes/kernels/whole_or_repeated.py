"""Whether groups hold an axis whole or repeat a product along it, where they may do either: the cost model tells.

Held whole, an axis that a map spreads a product along (`kernels.spread`) costs registers for everything behind that
product; cut, it costs that product once for each group. To be cut, it has to save a tenth at the sizes that the program
states, and lose less than that where axes known only at launch are long; or there is no kernel that holds it whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.compiler.cost.reading.sketch import axes_of_kernel
from treadle.compiler.errors import TreadleError
from treadle.compiler.machines import Machine, machine_of
from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr
from treadle.passes.kernels.by_time import WORTH
from treadle.passes.kernels.groups import Axes, Groups
from treadle.passes.kernels.sized import LONG
from treadle.passes.kernels.spread import subsets
from treadle.passes.kernels.trial import Scheduled


@dataclass(frozen=True)
class Timed:
    """What a kernel takes one way, in microseconds: at the sizes that the program states, and where axes known only at
    launch are long; infinite where it does not fit."""

    stated: float
    longer: float

    def is_faster(self, than: Timed) -> bool:
        return self.stated <= WORTH * than.stated and WORTH * self.longer <= than.longer

    def __str__(self) -> str:
        return "nothing fits" if self.stated == inf else f"{self.stated:.3g} us"


@dataclass(frozen=True)
class Found:
    """The best way, and what each takes that was tried, by the axes along which groups repeat products."""

    repeated: Axes
    timed: Mapping[Axes, Timed]

    def told(self, axis: str) -> str:
        """What the best way takes, and the best of those that treat an axis otherwise; nothing if there is none."""
        others = [each for axes, each in self.timed.items() if (axis in axes) != (axis in self.repeated)]
        if not others:
            return ""
        best, instead = self.timed[self.repeated], min(others, key=lambda each: each.stated)
        if best.stated == inf:
            return "nothing fits, cut or held whole"
        how, other = ("cut", "held whole") if axis in self.repeated else ("held whole", "cut")
        return f"estimated {best} {how}, {instead} {other}"


def best_groups(
    module: ModuleOp, function: func.FuncOp, kernel: KernelOp, given: Groups
) -> tuple[Groups, Mapping[str, str]]:
    """The groups that take least time, and for each axis that they may cut or hold, why they do that."""
    ways = {axes: groups for axes in subsets(given.able) if (groups := given.repeating(axes)).impossible is None}
    if not given.able or not ways:
        return given, {}
    machine = machine_of(module)
    timed = {axes: _timed(function, kernel, groups.schedule, machine) for axes, groups in ways.items()}
    found = Found(_best(timed), timed)
    needed = dict.fromkeys(found.repeated, given.impossible)
    why = {axis: "; ".join(filter(None, (needed.get(axis), found.told(axis)))) for axis in given.able}
    return ways[found.repeated], why


def _best(timed: Mapping[Axes, Timed]) -> Axes:
    """Of several ways, the fewest repeated axes first: the first that fits, or one that is faster. Where none fits, the
    last, which holds least."""
    fitting = [axes for axes, each in timed.items() if each.stated < inf]
    if not fitting:
        return list(timed)[-1]
    faster = [axes for axes in fitting if timed[axes].is_faster(timed[fitting[0]])]
    return min(faster, key=lambda axes: timed[axes].stated, default=fitting[0])


def _timed(function: func.FuncOp, kernel: KernelOp, schedule: ScheduleAttr, machine: Machine) -> Timed:
    # imported here, for it comes later in the pipeline
    from treadle.passes.hierarchy_choose_sizes import choice_for, likely_sizes

    try:
        choice = choice_for(kernel, schedule, machine)
    except (PassFailedException, TreadleError):
        return Timed(inf, inf)
    axes = axes_of_kernel(kernel)
    likely = likely_sizes(axes, function)
    longer = {axis: max(LONG, likely.get(axis, UNKNOWN_SIZE)) for axis, size in axes.items() if size == DYNAMIC}
    return Timed(choice.estimate.time_us, Scheduled(function, kernel, choice, machine).time_at(longer))
