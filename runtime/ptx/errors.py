"""What can go wrong when PTX is run."""

from __future__ import annotations


class PtxUnknown(Exception):
    """The text has something that this machine does not know; the message names the line."""


class PtxFault(Exception):
    """A kernel did something that no correct kernel does. Where, is added on the way out (`at`)."""

    def __init__(self, message: str, lane: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.lane = lane
        """Of the machine, of a thread that did it."""
        self.place = ""

    def at(self, place: str) -> PtxFault:
        """The same, said to be there; a fault that has a place keeps it."""
        self.place = self.place or place
        return self

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message
