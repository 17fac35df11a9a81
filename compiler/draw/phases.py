"""The pseudocode form: what of a kernel runs once, what in every turn of a loop, and what at the end."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from treadle.compiler.draw.diagram import Phase
from treadle.compiler.draw.layout import Layout
from treadle.compiler.draw.svg import Line, Shape, Text

HEIGHT = 30.0


def stretches(layout: Layout) -> list[tuple[Phase, int, int]]:
    """Phases with a name and their first and last column of functions."""
    found: list[tuple[Phase, int, int]] = []
    for _, group in groupby(enumerate(layout.steps), key=lambda item: id(item[1].step.phase)):
        steps = list(group)
        phase = steps[0][1].step.phase
        if phase.name:
            found.append((phase, steps[0][0], steps[-1][0]))
    return found


def phases_height(layout: Layout) -> float:
    return HEIGHT if stretches(layout) else 0.0


def paint_phases(layout: Layout, top: float, bottom: float) -> Iterator[Shape]:
    """Names above, borders between, and an arrow back below every loop."""
    for phase, first, last in stretches(layout):
        x0 = layout.arrays[first].end + 1
        x1 = layout.arrays[last + 1].end + 1
        middle = (x0 + x1) / 2
        name = Text(middle, top - 12, phase.name, "bold mid")
        if phase.turns:
            turns = Text(0, 0, phase.turns, "m cell")
            name = Text(middle - turns.width / 2 - 6, top - 12, phase.name, "bold mid")
            yield Text(name.bounds[2] + 8, top - 12, f"{phase.turns} \\rm{{×}}", "m cell")
        if phase.name.startswith("loop"):
            yield from _back(x0, x1, bottom)
        yield name
        yield Line(((x0 + 3, top), (x0 + 3, top - 6), (x1 - 3, top - 6), (x1 - 3, top)), "phase")
        yield Line(((x0, top - 24), (x0, bottom)), "parting")
        yield Line(((x1, top - 24), (x1, bottom)), "parting")


def _back(x0: float, x1: float, y: float) -> Iterator[Shape]:
    """From the end of a loop to its beginning."""
    left, right, low = x0 + 4, x1 - 4, y + 12
    yield Line(((right, y), (right, low), (left, low), (left, y)), "phase")
    yield Line(((left - 4, y + 6), (left, y - 1), (left + 4, y + 6)), "phase")
