"""What a process that measures is told, and what it says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from speed.ahead import Lowered
from speed.cases import Case
from speed.found import Found
from speed.sampled import Sampled


@dataclass(frozen=True)
class Job:
    """A case, who is not measured on it, and what is known of it."""

    case: Case
    without: tuple[str, ...] = ()
    lowered: Lowered | None = None
    """Our kernels, if they are there already."""
    ways: Mapping[str, Lowered] = field(default_factory=dict[str, Lowered])
    """Where these are to be measured beside each other: the first is what others are compared with."""
    reference: Sampled | None = None
    """What their results must be at some places."""
    older: Mapping[str, Lowered] = field(default_factory=dict[str, Lowered])
    """Our kernels for older machines, measured beside ours and the others', by what they are called."""
    beside: tuple[str, ...] = ()
    """Who else is measured beside `ways`."""


@dataclass(frozen=True)
class News:
    """Said before each step of a case, and when it is done."""

    at: str = ""
    """Who is at work now; nobody when the case is done."""
    limit: float = 0.0
    """Seconds after which there are other news, unless something hangs."""
    found: Found | None = None
    """What is known, where that is more than before."""


Tell = Callable[[News], object]
