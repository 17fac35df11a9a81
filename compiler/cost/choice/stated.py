"""What is decided of a kernel beside the sizes of its pieces, before the model chooses the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from treadle.compiler.cost.choice.candidates import Candidates
from treadle.compiler.cost.reading.sketch import Sketch
from treadle.compiler.errors import TreadleError


@dataclass(frozen=True)
class Stated:
    """Empty, or None, where the model is to choose."""

    warps: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many lie along an axis; one along those that are not named."""
    left: str = ""
    """Where left operands that all steps of a stream share are: `registers` or `shared`."""
    parts: Mapping[str, int] = field(default_factory=dict[str, int])
    """What each block of a cluster has of an axis that they share."""
    turns: int | None = None
    """How many blocks of a processor take pieces one after another; 0: each piece has a block of its own."""

    @property
    def names(self) -> list[str]:
        """Of what is stated, as options call it."""
        stated = {"warps": self.warps, "left": self.left, "cluster": self.parts}
        return [name for name, what in stated.items() if what]

    def of(self, sketch: Sketch, found: Candidates) -> Candidates:
        """Those candidates of a kernel of which nothing is otherwise (TreadleError where there is none)."""
        if self.warps:
            found = _with(found, _along(found, self.warps), self._no_warps(sketch, found))
        if self.left and sketch.keeps_left:
            found = _with(found, found.rereads == (self.left == "shared"), "")
        for axis, part in self.parts.items():
            why = (
                f"blocks of a cluster cannot have {part} of axis '{axis}' each in @{sketch.name}: "
                "leave that to the cost model"
            )
            found = _with(found, found.tiles[axis] == part, why)
        return found

    def _no_warps(self, sketch: Sketch, found: Candidates) -> str:
        told = ", ".join(f"{axis} = {count}" for axis, count in self.warps.items())
        may = "; ".join(
            f"{axis} = {', '.join(map(str, np.unique(many).tolist()))}" for axis, many in found.warps.items()
        )
        return (
            f"warps of @{sketch.name} cannot lie as {told} with these pieces: there may be {may or 'one'}; "
            "or leave them to the cost model"
        )


def _along(found: Candidates, warps: Mapping[str, int]) -> np.ndarray:
    """Of which candidates so many warps lie along each axis."""
    are = np.full(len(found), True)
    for axis, many in found.warps.items():
        are &= np.broadcast_to(many == warps.get(axis, 1), len(found))
    others = (count for axis, count in warps.items() if axis not in found.warps)
    return are & all(count == 1 for count in others)


def _with(found: Candidates, are: np.ndarray, why: str) -> Candidates:
    places = np.flatnonzero(np.broadcast_to(are, len(found)))
    if not len(places):
        raise TreadleError(why)
    return found.at(places)


FREE = Stated()
