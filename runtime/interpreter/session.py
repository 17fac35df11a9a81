"""The state of one run, which the functions of all dialects share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation

from treadle.runtime.foreign import Foreign
from treadle.runtime.interpreter.scope import Scope


@dataclass(frozen=True)
class TransferCounts:
    """What one run of a kernel moved between `device` and each nearer level, as its loads and saves say. A
    kernel that is still decorated has none, and counts nothing."""

    kernel: str
    loaded: Mapping[str, int]
    """Values brought to each level."""
    saved: Mapping[str, int]
    """Values written back from each level."""
    loaded_bytes: Mapping[str, int]
    saved_bytes: Mapping[str, int]
    steps: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many pieces went through the `step` of a stream, and how many through its `border`."""

    @property
    def values(self) -> int:
        return sum(self.loaded.values()) + sum(self.saved.values())

    @property
    def bytes(self) -> int:
        return sum(self.loaded_bytes.values()) + sum(self.saved_bytes.values())


@dataclass
class Tally:
    """Transfers of a kernel while it runs, and the number of the group that is running."""

    kernel: str
    loaded: Counter[str] = field(default_factory=Counter[str])
    saved: Counter[str] = field(default_factory=Counter[str])
    loaded_bytes: Counter[str] = field(default_factory=Counter[str])
    saved_bytes: Counter[str] = field(default_factory=Counter[str])
    steps: Counter[str] = field(default_factory=Counter[str])
    group: int = 0

    def counts(self) -> TransferCounts:
        return TransferCounts(
            self.kernel,
            dict(self.loaded),
            dict(self.saved),
            dict(self.loaded_bytes),
            dict(self.saved_bytes),
            dict(self.steps),
        )


@dataclass
class Session:
    """`bounded` asks for error bounds beside the values, `exact` for fractions in place of floats; `coarse` says how
    many products of 8-bit operands tensor cores add up of which they keep few bits: none (0), all (`inf`), or so many
    before their sum is promoted to f32; `lenient` that a kernel may multiply a zero where a factor is absent, so that
    nothing is said where the other is no finite number; `likely` that the errors of what is summed are taken as
    independent, so that their squares add up."""

    bounded: bool = False
    exact: bool = False
    coarse: float = 0
    lenient: bool = True
    likely: bool = False
    scope: Scope = field(default_factory=Scope)
    transfers: list[TransferCounts] = field(default_factory=list[TransferCounts])
    tally: Tally = field(default_factory=lambda: Tally(""))
    foreign: Foreign = field(default_factory=dict[type[Operation], Callable[..., Any]])

    @contextmanager
    def bounding(self, bounded: bool) -> Generator[None]:
        """With error bounds beside the values, or without."""
        outer = self.bounded
        self.bounded = bounded
        try:
            yield
        finally:
            self.bounded = outer

    @contextmanager
    def in_scope(self, scope: Scope) -> Generator[None]:
        outer = self.scope
        self.scope = scope
        try:
            yield
        finally:
            self.scope = outer
