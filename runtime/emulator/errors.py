"""What can go wrong with an emulated kernel."""

from __future__ import annotations

from dataclasses import dataclass

_SHOWN = 5


class EmulatorUnavailable(Exception):
    """There is no C++ compiler to build kernels with."""


class CompileFailure(Exception):
    """The host's compiler refused the printed kernel."""


@dataclass(frozen=True)
class Fault:
    """One thing a kernel did wrong, and where. `thread` is the linear index within the block."""

    kind: str
    message: str
    kernel: str
    block: tuple[int, int, int]
    thread: int | None
    line: int | None

    def __str__(self) -> str:
        place = f"{self.kernel}" + (f" line {self.line}" if self.line is not None else "")
        who = f"block {self.block}" + (f" thread {self.thread}" if self.thread is not None else "")
        return f"{self.kind}: {place}, {who}: {self.message}"


class EmulationError(Exception):
    """A kernel did something that no correct kernel does."""

    def __init__(self, faults: tuple[Fault, ...], total: int | None = None) -> None:
        self.faults = faults
        self.total = max(total or 0, len(faults))
        lines = [str(fault) for fault in faults[:_SHOWN]]
        if self.total > len(lines):
            lines.append(f"and {self.total - len(lines)} more")
        super().__init__("\n".join(lines))
