"""What was measured on a case, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import results

from speed.cases import Case
from speed.kernels import COPY

OURS = "treadle"


def of_older(machine: str) -> str:
    """What our kernels for an older machine are called."""
    return f"{OURS} for {machine}"


def is_ours(who: str) -> bool:
    return who == OURS or who.startswith(of_older(""))


def is_other(who: str) -> bool:
    """Does the same, and not by a kernel of ours."""
    return who != COPY and not is_ours(who)


@dataclass(frozen=True)
class Measured:
    """One kernel on one case: its time, or why there is none."""

    who: str
    seconds: results.Sample | None = None
    error: float | None = None
    """Largest difference from the first peer's result, None for what computes nothing."""
    reason: str = ""
    launched: tuple[str, ...] = ()
    """The kernels of ours that ran: their variants."""

    def as_json(self, case: Case) -> dict[str, Any]:
        names = {"launched": list(self.launched)} if self.launched else {}
        if self.seconds is None:
            return {"who": self.who, "not measured": self.reason, **names}
        rate = round(case.rate(self.seconds.median), 3)
        sample = {"seconds": self.seconds.as_json(), "largest difference": self.error}
        return {"who": self.who, case.unit: rate, **sample, **names}


@dataclass(frozen=True)
class Found:
    """Everybody on one case."""

    case: Case
    measured: Sequence[Measured]
    span: tuple[float, float] | None = None
    """When they were measured, in seconds of the host's clock."""

    @property
    def rates(self) -> Mapping[str, float]:
        """In the case's unit, of those that have a time."""
        return {each.who: self.case.rate(each.seconds.median) for each in self.measured if each.seconds}

    def ratio(self, beside: Sequence[str] = ()) -> float | None:
        """Treadle's rate over the best of these, or of all others; None if either has none."""
        rates = self.rates
        others = [rate for who, rate in rates.items() if (who in beside if beside else is_other(who))]
        return rates[OURS] / max(others) if others and OURS in rates else None

    def as_json(self) -> dict[str, Any]:
        kernels = [each.as_json(self.case) for each in self.measured]
        return {"case": str(self.case), "flop": self.case.flop, "bytes": self.case.bytes, "kernels": kernels}

    def rows(self) -> Iterator[list[str]]:
        others = [rate for who, rate in self.rates.items() if is_other(who)]
        for each in self.measured:
            name = f"{self.case}: {each.who}"
            if each.seconds is None:
                yield [name, "not measured", each.reason]
                continue
            rate = self.rates[each.who]
            yield [name, f"{rate:.4g} {self.case.unit}", f"{rate / max(others):.2f}" if others else ""]


def table(found: Sequence[Found]) -> str:
    return results.table(["", "median", "of the best other"], [row for each in found for row in each.rows()])
