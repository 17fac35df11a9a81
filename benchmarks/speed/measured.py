"""Everybody on a case, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import results

from speed.cases import Case, cases
from speed.clock import Timer, measure
from speed.kernels import COPY, PEERS, Prepared, inputs_of, prepare_torch, prepare_treadle

OURS = "treadle"


@dataclass(frozen=True)
class Measured:
    """One kernel on one case: its time, or why there is none."""

    who: str
    seconds: results.Sample | None = None
    error: float | None = None
    """Largest difference from the first peer's result, None for what computes nothing."""
    reason: str = ""

    def as_json(self, case: Case) -> dict[str, Any]:
        if self.seconds is None:
            return {"who": self.who, "not measured": self.reason}
        rate = round(case.rate(self.seconds.median), 3)
        return {"who": self.who, case.unit: rate, "seconds": self.seconds.as_json(), "largest difference": self.error}


@dataclass(frozen=True)
class Found:
    """Everybody on one case."""

    case: Case
    measured: Sequence[Measured]

    @property
    def rates(self) -> Mapping[str, float]:
        """In the case's unit, of those that have a time."""
        return {each.who: self.case.rate(each.seconds.median) for each in self.measured if each.seconds}

    def ratio(self, beside: Sequence[str] = ()) -> float | None:
        """Treadle's rate over the best of these, or of all others; None if either has none."""
        rates = self.rates
        others = [rate for who, rate in rates.items() if (who in beside if beside else who not in (OURS, COPY))]
        return rates[OURS] / max(others) if others and OURS in rates else None

    def as_json(self) -> dict[str, Any]:
        kernels = [each.as_json(self.case) for each in self.measured]
        return {"case": str(self.case), "flop": self.case.flop, "bytes": self.case.bytes, "kernels": kernels}

    def rows(self) -> Iterator[list[str]]:
        others = [rate for who, rate in self.rates.items() if who not in (OURS, COPY)]
        for each in self.measured:
            name = f"{self.case}: {each.who}"
            if each.seconds is None:
                yield [name, "not measured", each.reason]
                continue
            rate = self.rates[each.who]
            yield [name, f"{rate:.4g} {self.case.unit}", f"{rate / max(others):.2f}" if others else ""]


def table(found: Sequence[Found]) -> str:
    return results.table(["", "median", "of the best other"], [row for each in found for row in each.rows()])


def measure_case(
    case: Case, makers: Mapping[str, Callable[[], Prepared]], timer: Timer, difference: Callable[[Any, Any], float]
) -> Found:
    """The first result that there is, treadle's aside, is what the others are compared with."""
    found: list[Measured] = []
    reference: Any = None
    for who in sorted(makers, key=lambda each: each == OURS):
        try:
            prepared = makers[who]()
            result = prepared.result()
            reference = result if reference is None else reference
            error = None if who == COPY else difference(result, reference)
            found.append(Measured(who, measure(prepared.call, timer), error))
        except Exception as error:
            # Whatever a peer raises is its own: it is told, and the others go on.
            said = str(error).strip().splitlines()
            found.append(Measured(who, reason=f"{type(error).__name__}: {said[0] if said else ''}"))
    return Found(case, found)


def largest_difference(one: Any, other: Any) -> float:
    import numpy as np

    return float(np.max(np.abs(one.astype(np.float32) - other.astype(np.float32)), initial=0))


def measure_all(quick: bool, timer: Timer, device: str) -> list[Found]:
    """Every case, told as it is found."""
    found: list[Found] = []
    for case in cases(quick):
        inputs = inputs_of(case)
        makers: dict[str, Callable[[], Prepared]] = {
            who: lambda case=case, inputs=inputs, who=who: prepare_torch(case, inputs, who) for who in PEERS[case.kind]
        }
        makers[OURS] = lambda case=case, inputs=inputs: prepare_treadle(case, inputs, device)
        found.append(measure_case(case, makers, timer, largest_difference))
        print(table(found[-1:]), flush=True)
    return found
