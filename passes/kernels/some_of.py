"""Which of some rewrites to make together, by the time that kernels take with them: all, without those that cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import TypeVar

from treadle.compiler.cost.choice.reasons import sizes_text
from treadle.passes.kernels.by_time import WORTH, is_faster

Times = tuple[float, float]
"""In microseconds, with launches: at the sizes that a program states, and where axes known only at launch are long."""

T = TypeVar("T")


def fastest_of(
    found: Sequence[T], times: Callable[[Sequence[T]], Times], longer: Mapping[str, int], worth: float = WORTH
) -> tuple[Sequence[T], str]:
    """Those to make, none where that does not pay, and what was estimated; `longer`: the long axes,
    `worth`: of the time before, what is little enough."""
    before, chosen = times([]), list(found)
    least = times(chosen)
    for each in found if len(found) > 1 else ():
        fewer = [other for other in chosen if other is not each]
        left = times(fewer) if fewer else before
        if left <= least:
            chosen, least = fewer, left
    told = times_text(least, before, longer)
    return (chosen if least[0] < inf and is_faster(least, before, worth) else ()), told


def times_text(times: Times, before: Times, longer: Mapping[str, int]) -> str:
    """What was estimated with a rewrite and before it; `longer`: the long axes."""
    told = f"estimated {times[0]:.3g} us, {before[0]:.3g} us as it is"
    return f"{told}; at {sizes_text(longer)} {times[1]:.3g} us, {before[1]:.3g} us" if longer else told
