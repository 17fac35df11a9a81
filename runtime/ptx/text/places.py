"""Lines of the CUDA C, by the `.loc` directives (PTX ISA section 11.5.3)."""

from __future__ import annotations

import re

from treadle.runtime.ptx.text.instruction import Place

_LOC = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_FILE = 1
"""The printed file; others are headers of the toolkit."""

_Spot = tuple[int, int, int]


class Places:
    """Where the instructions that come now are from."""

    def __init__(self) -> None:
        self.place: Place | None = None
        self._outer: dict[_Spot, _Spot | None] = {}

    def see(self, directive: str) -> None:
        found = _LOC.match(directive)
        if found is None:
            return
        numbers = [int(each) if each else 0 for each in found.groups()]
        here, outer = (numbers[0], numbers[1], numbers[2]), (numbers[3], numbers[4], numbers[5])
        self._outer[here] = outer if outer[0] else None
        lines: list[int] = []
        spot: _Spot | None = here
        while spot is not None and len(lines) < 20:
            if spot[0] == _FILE and spot[1]:
                lines.append(spot[1])
            spot = self._outer.get(spot)
        self.place = Place(tuple(lines)) if lines else self.place
