"""Positions along a line: as near as can be to where each item wants to be, in order and never too close."""

from __future__ import annotations

from collections.abc import Sequence


def spaced(wanted: Sequence[float], gaps: Sequence[float]) -> list[float]:
    """Positions p with `p[i + 1] - p[i] >= gaps[i]` and the least sum of squares of `p[i] - wanted[i]`.

    Without the gaps, which are taken off first, this is isotonic regression: pool neighbours that are out of order."""
    if not wanted:
        return []
    offsets = [0.0]
    for gap in gaps:
        offsets.append(offsets[-1] + gap)
    pools: list[tuple[float, int]] = []
    for target, offset in zip(wanted, offsets, strict=True):
        mean, count = target - offset, 1
        while pools and pools[-1][0] > mean:
            before, size = pools.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        pools.append((mean, count))
    flat = [mean for mean, count in pools for _ in range(count)]
    return [position + offset for position, offset in zip(flat, offsets, strict=True)]
