"""Coordinates: where each axis of each column, each box and each passing wire stands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import mean, median_low
from typing import TypeAlias

from treadle.compiler.draw.columns import Columns, Slot, Step
from treadle.compiler.draw.diagram import Node, Wire
from treadle.compiler.draw.mathtext import math_width, text_width
from treadle.compiler.draw.spacing import spaced

ROW = 23.0
"""Between the axes of an array."""
PARTING = 34.0
"""Between the last axis of an array and the first of the next; the dashed line is half way."""
LANE = 15.0
"""Between weaved axes that pass over a box."""
PORT = 17.0
"""Between wires that enter a box."""
CLEAR = 13.0
"""Between a box and what passes by it."""
LEAST_BOX = 26.0
BEND = 30.0
"""Width in which wires find their way from a column to the next."""

SCALAR = ""
"""The axis name that stands for an array without axes."""

Row: TypeAlias = tuple[Wire, str]


def axes_shown(wire: Wire) -> tuple[str, ...]:
    """All axes but those of which a group takes one index: these end where they are cut."""
    return wire.axes_cut or (SCALAR,)


def rows_of(wires: list[Wire]) -> list[Row]:
    return [(wire, axis) for wire in wires for axis in axes_shown(wire)]


def label_of(wire: Wire, axis: str) -> str:
    return "1" if axis == SCALAR else wire.labels.get(axis, axis)


@dataclass(eq=False)
class PlacedBox:
    node: Node
    x: float = 0.0
    width: float = 0.0
    y: float = 0.0
    """Of its middle."""
    height: float = 0.0
    enters: list[Row] = field(default_factory=list[Row])
    leaves: list[Row] = field(default_factory=list[Row])

    def port(self, rows: list[Row], row: Row) -> float:
        return self.y + (rows.index(row) - (len(rows) - 1) / 2) * PORT


@dataclass
class PlacedStep:
    """A column of functions: from `x` to `end`, its flat part from `left` to `right`."""

    step: Step
    x: float
    left: float
    right: float
    end: float
    boxes: dict[Node, PlacedBox] = field(default_factory=dict[Node, PlacedBox])
    passing: dict[Row, float] = field(default_factory=dict[Row, float])
    lanes: dict[tuple[Node, str], float] = field(default_factory=dict[tuple[Node, str], float])
    changes: dict[tuple[Node, str], float] = field(default_factory=dict[tuple[Node, str], float])
    """Axes of a level change."""


@dataclass
class PlacedArrays:
    """A column of arrays: labels from `x` to `end`."""

    wires: list[Wire]
    x: float
    end: float
    rows: dict[Row, float] = field(default_factory=dict[Row, float])

    @property
    def middle(self) -> float:
        return (self.x + self.end) / 2


@dataclass
class Layout:
    arrays: list[PlacedArrays]
    steps: list[PlacedStep]

    @property
    def width(self) -> float:
        return self.arrays[-1].end

    def heights(self) -> Iterator[float]:
        for column in self.arrays:
            yield from column.rows.values()
        for step in self.steps:
            yield from step.passing.values()
            yield from step.lanes.values()
            yield from step.changes.values()
            for box in step.boxes.values():
                yield box.y - box.height / 2
                yield box.y + box.height / 2


@dataclass
class LeastWidths:
    """Room that columns need for what stands above them."""

    arrays: dict[int, float] = field(default_factory=dict[int, float])
    steps: dict[int, float] = field(default_factory=dict[int, float])


def lay_out(columns: Columns, least: LeastWidths | None = None) -> Layout:
    """Place everything; y grows downward and the first row of the first column is at 0."""
    least = least or LeastWidths()
    first = _first_column(columns.inputs, least.arrays.get(0, 0.0))
    layout = Layout([first], [])
    for i, step in enumerate(columns.steps):
        placed = _place_step(step, layout.arrays[-1], least.steps.get(i, 0.0))
        layout.steps.append(placed)
        layout.arrays.append(_place_after(step, placed, least.arrays.get(i + 1, 0.0)))
    return layout


def _first_column(wires: list[Wire], least: float) -> PlacedArrays:
    column = PlacedArrays(wires, 0.0, max(least, _labels_width(wires)))
    y = 0.0
    for i, wire in enumerate(wires):
        y += PARTING if i else 0.0
        for j, axis in enumerate(axes_shown(wire)):
            y += ROW if j else 0.0
            column.rows[wire, axis] = y
    return column


def _labels_width(wires: list[Wire]) -> float:
    return 10 + max((math_width(label_of(*row), 16) for row in rows_of(wires)), default=10.0)


# -- columns of functions ---------------------------------------------------------------------------


@dataclass(eq=False)
class _Item:
    """One thing in a column of functions: where it wants to be, and how much room it takes above and below."""

    wanted: float
    above: float
    below: float
    wire: Wire | None = None
    box: PlacedBox | None = None
    row: Row | None = None
    lane: tuple[Node, str] | None = None
    change: tuple[Node, str] | None = None


def _place_step(step: Step, before: PlacedArrays, least: float) -> PlacedStep:
    items = [item for slot in step.slots for item in _items(slot, before)]
    gaps = [_gap(a, b) for a, b in pairwise(items)]
    ys = spaced([item.wanted for item in items], gaps)
    boxes = [item.box for item in items if item.box is not None]
    width = max([*(box.width for box in boxes), _tags_width(step)])
    start = before.end
    bend = max(BEND + min(26.0, 0.09 * _steepest(items, ys)), (least - width) / 2)
    placed = PlacedStep(step, start, start + bend, start + bend + width, start + 2 * bend + width)
    for item, y in zip(items, ys, strict=True):
        _settle(placed, item, y)
    return placed


def _steepest(items: list[_Item], ys: list[float]) -> float:
    return max((abs(item.wanted - y) for item, y in zip(items, ys, strict=True)), default=0.0)


def _settle(placed: PlacedStep, item: _Item, y: float) -> None:
    if item.row is not None:
        placed.passing[item.row] = y
    elif item.lane is not None:
        placed.lanes[item.lane] = y
    elif item.change is not None:
        placed.changes[item.change] = y
    elif item.box is not None:
        item.box.y, item.box.x = y, (placed.left + placed.right - item.box.width) / 2
        placed.boxes[item.box.node] = item.box


def _gap(upper: _Item, lower: _Item) -> float:
    if upper.row and lower.row and upper.wire is not lower.wire:
        return PARTING * 0.8
    return upper.below + lower.above


def _tags_width(step: Step) -> float:
    tags = [tag for slot in step.slots if slot.node for tag in slot.node.tags.values()]
    level_change = any(slot.node and slot.node.kind != "function" for slot in step.slots)
    return max((math_width(tag, 16) + 12 for tag in tags), default=18.0 if level_change else 0.0)


def _items(slot: Slot, before: PlacedArrays) -> Iterator[_Item]:
    if slot.wire is not None:
        for axis in axes_shown(slot.wire):
            row = (slot.wire, axis)
            yield _Item(before.rows[row], ROW / 2, ROW / 2, wire=slot.wire, row=row)
        return
    node = slot.node
    assert node is not None
    if node.kind != "function":
        yield from _changes(node, before)
        return
    for axis in weaved_axes(node):
        wanted = min(before.rows[wire, axis] for wire in node.inputs if (wire, axis) in before.rows)
        yield _Item(wanted, LANE / 2, LANE / 2, lane=(node, axis))
    box = box_of(node)
    targets = [before.rows[row] for row in box.enters] or [before.rows[row] for row in rows_of(list(node.inputs))]
    wanted = mean(targets) if targets else _above(before)
    yield _Item(wanted, box.height / 2 + CLEAR - LANE / 2, box.height / 2 + CLEAR - LANE / 2, box=box)


def _above(before: PlacedArrays) -> float:
    return min(before.rows.values(), default=0.0) - PARTING


def _changes(node: Node, before: PlacedArrays) -> Iterator[_Item]:
    (wire,) = node.inputs
    axes = _rows_of_change(node)
    known = {i: before.rows[wire, axis] for i, axis in enumerate(axes) if (wire, axis) in before.rows}
    anchor, y = next(iter(known.items()), (0, before.rows[wire, axes_shown(wire)[0]]))
    for i, axis in enumerate(axes):
        yield _Item(known.get(i, y + (i - anchor) * ROW), ROW / 2, ROW / 2, wire=wire, change=(node, axis))


def _rows_of_change(node: Node) -> tuple[str, ...]:
    """What stands on a level change: all axes of the array far away, where none has been cut yet."""
    return axes_shown(node.inputs[0] if node.kind == "load" else node.outputs[0])


def weaved_axes(node: Node) -> tuple[str, ...]:
    """Axes of the results that the function is mapped over, in the order of the first result."""
    acts = node.glyph.acts_on
    if acts is None:
        return ()
    given = {axis for wire in node.inputs for axis in wire.axes_cut}
    results = dict.fromkeys(axis for wire in node.outputs for axis in wire.axes_cut)
    return tuple(axis for axis in results if axis in given and axis not in acts)


def box_of(node: Node) -> PlacedBox:
    """The box of a function with the wires that enter and leave it."""
    weaved = weaved_axes(node)
    enters = [row for row in rows_of(list(node.inputs)) if row[1] not in weaved]
    leaves = [row for row in rows_of(list(node.outputs)) if row[1] not in weaved]
    ports = max(len(enters), len(leaves), 1)
    label = node.glyph.label
    width = text_width(label, 13) + (30 if node.glyph.shape in ("map", "cast", "contract") else 20)
    return PlacedBox(
        node, width=max(width, 30.0), height=max(LEAST_BOX, ports * PORT + 6), enters=enters, leaves=leaves
    )


# -- columns of arrays ------------------------------------------------------------------------------


def _place_after(step: Step, placed: PlacedStep, least: float) -> PlacedArrays:
    wanted = {row: _wanted(row, placed) for row in rows_of(step.after)}
    tops = _block_tops(step.after, wanted)
    rows = {
        (wire, axis): top + i * ROW
        for wire, top in zip(step.after, tops, strict=True)
        for i, axis in enumerate(axes_shown(wire))
    }
    width = max(least, _labels_width(step.after))
    bend = min(26.0, 0.09 * max((abs(wanted[row] - y) for row, y in rows.items()), default=0.0))
    placed.end += bend
    return PlacedArrays(step.after, placed.end, placed.end + width, rows)


def _block_tops(wires: list[Wire], wanted: Mapping[Row, float]) -> list[float]:
    """Where the first axis of each array stands. An array stays together, at a place where most of its wires come in
    straight."""
    heights = [(len(axes_shown(wire)) - 1) * ROW for wire in wires]
    tops = [median_low(wanted[wire, axis] - i * ROW for i, axis in enumerate(axes_shown(wire))) for wire in wires]
    return spaced(tops, [height + PARTING for height in heights[:-1]])


def _wanted(row: Row, placed: PlacedStep) -> float:
    wire, axis = row
    if row in placed.passing:
        return placed.passing[row]
    for slot in placed.step.slots:
        if slot.node is not None and wire in slot.node.outputs:
            return _of_node(slot.node, row, placed)
    raise AssertionError(f"axis {axis} of {wire.name} comes from nowhere")


def _of_node(node: Node, row: Row, placed: PlacedStep) -> float:
    if (node, row[1]) in placed.changes:
        return placed.changes[node, row[1]]
    if node.kind != "function":  # all axes are cut to one index
        return min(y for (other, _), y in placed.changes.items() if other is node)
    if (node, row[1]) in placed.lanes:
        return placed.lanes[node, row[1]]
    box = placed.boxes[node]
    return box.port(box.leaves, row)
