"""How transfers scale: with the number format, with several levels, and with levels beside each other.

All of it follows from one power law, `H* = alpha M^-beta` in values (see `leading.py`)."""

from __future__ import annotations

from collections.abc import Sequence


def format_factor(beta: float, before: float, after: float) -> float:
    """By how much a term's cost in bytes falls if a value takes `after` bytes and not `before`: fewer bytes for a
    value, and more values in the same memory."""
    return (before / after) ** (1 + beta)


def several_levels(alpha: float, beta: float, memories: Sequence[float], bandwidths: Sequence[float]) -> float:
    """Time of transfers through several levels, one after another: values each level's groups hold, and values a
    second into that level."""
    return sum(alpha * memory**-beta / bandwidth for memory, bandwidth in zip(memories, bandwidths, strict=True))


def cached_memory(memory_of_child: float, children: int) -> float:
    """What an upper level behaves as if it had, where results stay in its children until they are complete."""
    return memory_of_child * children


def cross_transfer(beta: float, children: int, from_above: float, across: float) -> float:
    """The cost of a level whose groups of `children` share what they load, relative to one where each loads for
    itself. `from_above` and `across` are bandwidths: into a child from above, and between children."""
    share = from_above / across
    return (1 - share) * children**-beta + share
