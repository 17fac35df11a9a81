"""What stands below a picture: expressions too long for their boxes, and what the colours mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from treadle.compiler.draw.columns import Columns
from treadle.compiler.draw.diagram import Diagram
from treadle.compiler.draw.svg import Shape, Text
from treadle.compiler.draw.svg import Wire as Curve
from treadle.compiler.draw.theme import LEVEL_TITLES, LEVELS

LINE = 18.0
SAMPLE = 26.0


def notes(diagram: Diagram, at: str, top: float) -> Iterator[Text]:
    """One line for each function that only has its name in its box, and one for the sizes of the numbers."""
    texts = dict.fromkeys(node.glyph.note for node in diagram.nodes if node.glyph.note)
    if at:
        texts[f"bytes of H: at {at}"] = None
    for i, text in enumerate(texts):
        yield Text(0, top + (i + 1) * LINE, text, "small muted")


def legend(columns: Columns, capacities: Mapping[str, str], top: float) -> Iterator[Shape]:
    """One line: the levels that occur, with what they hold."""
    wires = [wire for state in (columns.inputs, *(step.after for step in columns.steps)) for wire in state]
    used = {wire.level for wire in wires}
    if used <= {"device"}:
        return
    x, y = 0.0, top + 1.6 * LINE
    for level in (level for level in LEVELS if level in used):
        capacity = f" ({capacities[level]})" if level in capacities else ""
        text = Text(x + SAMPLE + 6, y, f"{LEVEL_TITLES[level]}{capacity}", "small")
        yield Curve(((x, y - 4), (x + SAMPLE, y - 4)), f"w-{level}")
        yield text
        x = text.bounds[2] + 18
