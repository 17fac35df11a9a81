"""The picture of a program: table, phases, columns, notes and legend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.draw.columns import columns_of
from treadle.compiler.draw.costs import Total, capacities_of, sizes_text, totals_of
from treadle.compiler.draw.diagram import Diagram, Wire
from treadle.compiler.draw.layout import PlacedArrays, axes_shown, lay_out
from treadle.compiler.draw.legend import LINE, legend, notes
from treadle.compiler.draw.paint import paint
from treadle.compiler.draw.phases import paint_phases, phases_height
from treadle.compiler.draw.read import read_program
from treadle.compiler.draw.svg import Picture, Shape, Text, moved
from treadle.compiler.draw.table import paint_table, table_of

MARGIN = 16.0
CAPTION = 24.0


@dataclass(frozen=True)
class Surroundings:
    """What is told of a program besides its wires."""

    totals: Mapping[tuple[str, str], Total] = field(default_factory=dict[tuple[str, str], Total])
    capacities: Mapping[str, str] = field(default_factory=dict[str, str])
    at: str = ""
    """The sizes for which the totals are."""
    table: bool = True
    legend: bool = True


def draw_module(
    module: ModuleOp, sizes: Mapping[str, int] | None = None, *, table: bool = True, legend: bool = True
) -> Picture:
    """The program of a module, at whatever level it is; costs at the default sizes of its axes or those given."""
    totals = totals_of(module, sizes or {}) if table else {}
    at = sizes_text(module, sizes or {}) if totals else ""
    around = Surroundings(totals, capacities_of(module), at, table, legend)
    return draw_diagram(read_program(module), around)


def draw_diagram(diagram: Diagram, around: Surroundings | None = None) -> Picture:
    around = around or Surroundings()
    columns = columns_of(diagram)
    table = table_of(columns, around.totals)
    if not around.table:
        table.rows.clear()
    layout = lay_out(columns, table.least_widths())
    names = [*_names(layout.arrays[0], left=True), *_names(layout.arrays[-1], left=False)]
    side = max((text.width for text in names), default=0.0) + 14
    left = max(side, table.head_width + 20)
    right = layout.width + side
    picture = Picture(0, 0, f"diagram of {diagram.name}")
    top = _captions(diagram, picture)
    picture.shapes += paint_table(table, layout, top, -6.0, right)
    top += table.height
    phases = phases_height(layout)
    heights = list(layout.heights()) or [0.0]
    top += phases + 18 - min(heights)
    shapes: list[Shape] = [*paint(layout, diagram), *names]
    picture.shapes[:0] = [moved(shape, 0, top) for shape in shapes]
    bottom = top + max(heights) + 18
    picture.shapes += paint_phases(layout, top + min(heights) - 18, bottom)
    bottom += 22 if phases else 0
    below = [
        *notes(diagram, around.at, bottom),
        *(legend(columns, around.capacities, bottom + _notes_height(diagram, around.at)) if around.legend else ()),
    ]
    picture.shapes += below
    return _framed(picture, left, right + table.total_width + 8)


def _notes_height(diagram: Diagram, at: str) -> float:
    return sum(1 for _ in notes(diagram, at, 0.0)) * LINE


def _framed(picture: Picture, left: float, right: float) -> Picture:
    """Everything moved so that it begins at 0, 0, with a margin all around."""
    bounds = [text.bounds for text in picture.texts()]
    bounds += [(box.x, box.y, box.x + box.width, box.y + box.height) for box in picture.boxes()]
    bounds += [(x, y, x, y) for wire in picture.wires() for x, y in wire.points]
    x0 = min([-left, *(b[0] for b in bounds)]) - MARGIN
    y0 = min(b[1] for b in bounds) - MARGIN if bounds else 0.0
    x1 = max([right, *(b[2] for b in bounds)]) + MARGIN
    y1 = max((b[3] for b in bounds), default=0.0) + MARGIN
    return Picture(x1 - x0, y1 - y0, picture.title, [moved(shape, -x0, -y0) for shape in picture.shapes])


def _captions(diagram: Diagram, picture: Picture) -> float:
    """One line a kernel: how its axes are cut. Gives where the next thing may begin."""
    y = 0.0
    for kernel in diagram.kernels.values():
        name = Text(0, y + 14, f"@{kernel.name}", "title")
        picture.shapes += [name, Text(name.width + 16, y + 14, kernel.caption, "m cell")]
        y += CAPTION
    return y


def _names(column: PlacedArrays, left: bool) -> list[Text]:
    return [_name(column, wire, left) for wire in column.wires if wire.name]


def _name(column: PlacedArrays, wire: Wire, left: bool) -> Text:
    ys = [column.rows[wire, axis] for axis in axes_shown(wire)]
    y = (min(ys) + max(ys)) / 2 + 4
    return Text(column.x - 8, y, wire.name, "end muted") if left else Text(column.end + 8, y, wire.name, "muted")
