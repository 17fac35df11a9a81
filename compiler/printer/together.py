"""The blocks of a cluster that fill a ring together, as C: those whose numbers in it differ by multiples of a step."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.compiler.printer.indices import add, scaled


@dataclass(frozen=True)
class Together:
    """`blocks` of a `cluster`, `step` apart; `rank` is the number of this block in the cluster."""

    rank: str
    blocks: int
    step: int
    cluster: int

    @property
    def share(self) -> str:
        """Which of them this block is."""
        digit = self.rank if self.step == 1 else f"{self.rank} / {self.step}"
        return digit if self.step * self.blocks == self.cluster else f"{digit} % {self.blocks}"

    @property
    def first(self) -> str:
        """The number in the cluster of the first of them."""
        span = self.step * self.blocks
        below = f"{self.rank} % {self.step}" if self.step > 1 else "0"
        above = f"{self.rank} / {span} * {span}" if span < self.cluster else "0"
        return add([above, below])

    def member(self, number: str) -> str:
        """The number in the cluster of that one of them."""
        return add([self.first, scaled(f"({number})" if " " in number and self.step > 1 else number, self.step)])

    @property
    def mask(self) -> str:
        """All of them, a bit each."""
        bits = sum(1 << i * self.step for i in range(self.blocks))
        return str(bits) if self.first == "0" else f"{bits} << {_factor(self.first)}"


def _factor(text: str) -> str:
    return f"({text})" if " " in text else text
