"""What is to be reached beside the others, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from speed.cases import Case
from speed.found import OURS, Found
from speed.kernels import COPY, UNFUSED


@dataclass(frozen=True)
class Goal:
    """Of some cases: treadle's rate is at least so many times that of the best of some others (none: of all), or so
    many times a rate that is given."""

    what: str
    least: float
    holds_for: Callable[[Case], bool]
    beside: tuple[str, ...] = ()
    rate: float | None = None
    """In the unit of the cases."""

    def judge(self, found: Sequence[Found]) -> Judged:
        mine = [each for each in found if self.holds_for(each.case)]
        ratios = {str(each.case): ratio for each in mine if (ratio := self._ratio(each)) is not None}
        return Judged(self, ratios, len(mine))

    def _ratio(self, found: Found) -> float | None:
        if self.rate is None:
            return found.ratio(self.beside)
        return found.rates[OURS] / self.rate if OURS in found.rates else None


@dataclass(frozen=True)
class Judged:
    """A goal, and the ratios that were measured of it."""

    goal: Goal
    ratios: dict[str, float]
    cases: int

    @property
    def met(self) -> int:
        return sum(ratio >= self.goal.least for ratio in self.ratios.values())

    def __str__(self) -> str:
        head = f"{self.goal.what}: at least {self.goal.least:g}"
        if not self.ratios:
            return f"{head}: not measured"
        told = f"{head}: met at {self.met} of {self.cases}, least {self._of(min)}"
        told += f", most {self._of(max)}" if len(self.ratios) > 1 else ""
        missing = self.cases - len(self.ratios)
        return told + (f"; {missing} not measured" if missing else "")

    def _of(self, extreme: Callable[..., str]) -> str:
        case = extreme(self.ratios, key=lambda case: self.ratios[case])
        return f"{self.ratios[case]:.2f} ({case})"

    def as_json(self) -> dict[str, Any]:
        rounded = {case: round(ratio, 3) for case, ratio in self.ratios.items()}
        return {"goal": self.goal.what, "least": self.goal.least, "met": self.met, "of": self.cases, "ratios": rounded}


MIXED_LIMIT = 1320.0
"""TFLOP/s of an H100 for attention of which one product has 8 bits and one 16: the harmonic mean of both rates."""

GOALS = (
    Goal(
        "attention beside the best of the others",
        1.0,
        lambda case: case.kind in ("attention", "causal attention"),
    ),
    Goal(
        "products beside cuBLAS at 4096 and 8192",
        1.0,
        lambda case: case.kind == "product" and case.sizes["m"] in (4096, 8192),
        ("cuBLAS",),
    ),
    Goal("a fused epilogue beside the unfused pair", 1.3, lambda case: case.kind == "layer", (UNFUSED,)),
    Goal("rows beside the copy of as many bytes", 0.95, lambda case: case.kind in ("softmax", "rms norm"), (COPY,)),
    Goal(
        "attention in two formats as a part of 1.32 PFLOP/s",
        0.75,
        lambda case: case.kind == "mixed attention",
        rate=MIXED_LIMIT,
    ),
)
