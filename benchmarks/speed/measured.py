"""Everybody on a case, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import results

from speed.cases import Case
from speed.clock import Timer, measure
from speed.kernels import COPY, PEERS, SLOW, Prepared, inputs_of, prepare_torch, prepare_treadle

OURS = "treadle"


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


WRONG = 0.02
"""Of the largest element of the first result: what differs by more is wrong, and its time is none."""


def measure_case(
    case: Case,
    makers: Mapping[str, Callable[[], Prepared]],
    timer: Timer,
    difference: Callable[[Any, Any], float],
    keep: Callable[[Found], object] = lambda found: None,
) -> Found:
    """The first result that there is, treadle's aside, is what the others are compared with; who compiles for minutes
    comes behind treadle. What is known is told to `keep` before each, so that it is kept if that one never ends."""
    found: list[Measured] = []
    reference: Any = None
    for who in sorted(makers, key=lambda each: (each in SLOW, each == OURS)):
        keep(Found(case, [*found, Measured(who, reason="it did not end")]))
        launched: tuple[str, ...] = ()
        try:
            prepared = makers[who]()
            launched = prepared.launched()
            result = prepared.result()
            if who != COPY:
                reference = result if reference is None else reference
            error = None if who == COPY else difference(result, reference)
            if error is not None and not error <= WRONG * difference(reference, 0 * reference):
                found.append(Measured(who, reason=f"WRONG: it differs by {error:.3g}", launched=launched))
                continue
            found.append(Measured(who, measure(prepared.call, timer), error, launched=launched))
        except Exception as error:
            # Whatever a peer raises is its own: it is told, and the others go on.
            said = str(error).strip().splitlines()
            told = f"{type(error).__name__}: {said[0] if said else ''}"
            found.append(Measured(who, reason=told, launched=launched))
    keep(Found(case, found))
    return Found(case, found)


def largest_difference(one: Any, other: Any) -> float:
    import numpy as np

    return float(np.max(np.abs(one.astype(np.float32) - other.astype(np.float32)), initial=0))


def measure_one_case(
    case: Case, timer: Timer, device: str, without: Sequence[str], keep: Callable[[Found], object]
) -> Found:
    """All but some on a case."""
    inputs = inputs_of(case)
    makers: dict[str, Callable[[], Prepared]] = {
        who: partial(prepare_torch, case, inputs, who) for who in PEERS[case.kind] if who not in without
    }
    makers[OURS] = partial(prepare_treadle, case, inputs, device)
    return measure_case(case, makers, timer, largest_difference, keep)
