"""The barriers by which consumer warpgroups take turns, while a static check walks the roles (`compiler/rings.py`).

At the barrier of a warpgroup one waits and one arrives, so what one order of execution shows holds for all."""

from __future__ import annotations

from dataclasses import dataclass, field

from treadle.dialects import cuda


@dataclass(frozen=True)
class Handing:
    """What one of `groups` consumer warpgroups does to the turn."""

    op: cuda.ORDERING
    group: int
    groups: int

    def __str__(self) -> str:
        return f"'{self.op.name}' of consumer warpgroup {self.group}"


@dataclass
class Turns:
    """The barriers of the warpgroups at which the one before has arrived."""

    arrived: set[int] = field(default_factory=set[int])

    def may(self, event: Handing) -> bool:
        """Whether a warpgroup can go on there."""
        waits = isinstance(event.op, cuda.OrderWaitOp) or (isinstance(event.op, cuda.OrderEndOp) and event.group == 0)
        return not waits or event.group in self.arrived

    def do(self, event: Handing) -> str | None:
        """Go on; what is wrong with that, if anything is."""
        last = event.groups - 1
        match event.op:
            case cuda.OrderBeginOp():
                return self._arrive(event, 0) if event.group == last else None
            case cuda.OrderArriveOp():
                return self._arrive(event, 0 if event.group == last else event.group + 1)
            case cuda.OrderEndOp() if event.group > 0:
                return None
            case _:
                self.arrived.remove(event.group)
                return None

    def _arrive(self, event: Handing, group: int) -> str | None:
        if group in self.arrived:
            return f"{event} gives a turn to warpgroup {group}, which has not taken the one before"
        self.arrived.add(group)
        return None

    def left(self) -> list[str]:
        """What is wrong when all have ended."""
        return [f"consumer warpgroup {group} never takes the turn that it is given" for group in sorted(self.arrived)]
