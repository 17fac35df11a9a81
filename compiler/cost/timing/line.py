"""A closed line of stations, round which so many customers go: mean value analysis (M. Reiser and S. S. Lavenberg,
"Mean-Value Analysis of Closed Multichain Queuing Networks", Journal of the ACM 27(2), 1980).

Who comes to a station finds there, on average, as many as would be there if he were not one of them. How long a station
works for a customer is taken to be random (exponential): in perfect order two of them would keep it busy always."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.compiler.amounts import Amount, choice


def clocks_of_line(stations: Sequence[Amount], customers: Amount, away: Amount = 0) -> Amount:
    """In which each of the customers goes round once, where a station works so long for one of them, and each is `away`
    so long, waiting for no other; 0 if there are none."""
    queues: list[Amount] = [0 for _ in stations]
    clocks: Amount = 0
    for count in range(1, int(np.max(customers)) + 1):
        times = [works * (1 + queue) for works, queue in zip(stations, queues, strict=True)]
        found = away + sum(times)
        clocks = choice(count <= customers, found, clocks)
        queues = [count * time / found for time in times]
    return clocks
