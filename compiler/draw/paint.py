"""A layout as shapes: wires, labels, parting lines, boxes, tinted kernels and phases."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.compiler.draw.diagram import Diagram, Node, Wire
from treadle.compiler.draw.layout import ROW, SCALAR, Layout, PlacedArrays, PlacedStep, axes_shown, label_of, rows_of
from treadle.compiler.draw.svg import Band, Box, Line, Shape, Text
from treadle.compiler.draw.svg import Wire as Curve
from treadle.compiler.draw.theme import LEVEL_TITLES

BASELINE = 5.0
"""From the middle of a line of mathematics to its baseline."""


def paint(layout: Layout, diagram: Diagram) -> list[Shape]:
    """All shapes of a layout, from back to front."""
    return [
        *_tints(layout),
        *(shape for step, before, after in _steps(layout) for shape in _step_wires(step, before, after)),
        *(curve for column in layout.arrays for curve in _column_wires(column)),
        *(shape for column in layout.arrays for shape in _column(column)),
        *(shape for step in layout.steps for shape in _boxes(step)),
        *(shape for step in layout.steps for shape in _tags(step)),
    ]


def _steps(layout: Layout) -> Iterator[tuple[PlacedStep, PlacedArrays, PlacedArrays]]:
    yield from zip(layout.steps, layout.arrays, layout.arrays[1:], strict=False)


def wire_kind(wire: Wire, axis: str) -> str:
    unit = " unit" if wire.pieces.get(axis) == "1" else ""
    return f"w-{wire.level}{' scalar' if axis == SCALAR else ''}{unit}"


def about_wire(wire: Wire, axis: str) -> str:
    axes = ", ".join(wire.axes)
    size = wire.sizes.get(axis)
    said = f" = {size}" if size is not None and size > 0 else ""
    where = LEVEL_TITLES.get(wire.level, wire.level)
    return f"axis {axis}{said} of {wire.name or 'an array'}[{axes}], {wire.format}, in {where}"


# -- columns of arrays ------------------------------------------------------------------------------


def _column_wires(column: PlacedArrays) -> Iterator[Curve]:
    """Wires, broken where their labels stand."""
    for (wire, axis), y in column.rows.items():
        half = _label(column, wire, axis).width / 2 + 2
        for x0, x1 in ((column.x, column.middle - half), (column.middle + half, column.end)):
            if x1 - x0 > 0.5:
                yield Curve(((x0, y), (x1, y)), wire_kind(wire, axis))


def _label(column: PlacedArrays, wire: Wire, axis: str) -> Text:
    kind = f"m mid l-{wire.level}{_unit(wire, axis)}"
    y = column.rows[wire, axis] + BASELINE
    return Text(column.middle, y, label_of(wire, axis), kind, about_wire(wire, axis))


def _column(column: PlacedArrays) -> Iterator[Shape]:
    """Labels; arrays are parted by dashed lines."""
    yield from (_label(column, wire, axis) for wire, axis in column.rows)
    for upper, lower in zip(column.wires, column.wires[1:], strict=False):
        y = (column.rows[upper, axes_shown(upper)[-1]] + column.rows[lower, axes_shown(lower)[0]]) / 2
        yield Line(((column.x - 6, y), (column.end + 6, y)), "parting")


def _unit(wire: Wire, axis: str) -> str:
    return " unit" if wire.pieces.get(axis) == "1" else ""


# -- columns of functions ---------------------------------------------------------------------------


def _step_wires(step: PlacedStep, before: PlacedArrays, after: PlacedArrays) -> Iterator[Shape]:
    for row, y in step.passing.items():
        yield Curve(
            ((step.x, before.rows[row]), (step.left, y), (step.right, y), (step.end, after.rows[row])), wire_kind(*row)
        )
    for slot in step.step.slots:
        if slot.node is None:
            continue
        if slot.node.kind == "function":
            yield from _function_wires(slot.node, step, before, after)
        else:
            yield from _change_wires(slot.node, step, before, after)


def _function_wires(node: Node, step: PlacedStep, before: PlacedArrays, after: PlacedArrays) -> Iterator[Shape]:
    box = step.boxes[node]
    for row in rows_of(list(node.inputs)):
        wire, axis = row
        start = (step.x, before.rows[row])
        if (node, axis) in step.lanes:
            lane = step.lanes[node, axis]
            yield Curve((start, (step.left, lane), (step.right, lane)), wire_kind(wire, axis))
        else:
            port = box.port(box.enters, row)
            yield Curve((start, (step.left, port), (box.x, port)), wire_kind(wire, axis))
    for row in rows_of(list(node.outputs)):
        if row not in after.rows:
            continue
        wire, axis = row
        end = (step.end, after.rows[row])
        if (node, axis) in step.lanes:
            yield Curve(((step.right, step.lanes[node, axis]), end), wire_kind(wire, axis))
        else:
            port = box.port(box.leaves, row)
            yield Curve(((box.x + box.width, port), (step.right, port), end), wire_kind(wire, axis))


def _change_wires(node: Node, step: PlacedStep, before: PlacedArrays, after: PlacedArrays) -> Iterator[Shape]:
    """The colour changes in the middle, or around the tag that stands there."""
    (source,), (target,) = node.inputs, node.outputs
    changes = {axis: y for (other, axis), y in step.changes.items() if other is node}
    for axis, y in _with_scalar(node, changes).items():
        middle = (step.left + step.right) / 2
        half = _tag_half(node, axis)
        if (source, axis) in before.rows:
            start = (step.x, before.rows[source, axis])
            yield Curve((start, (step.left, y), (middle - half, y)), wire_kind(source, axis))
        if (target, axis) in after.rows:
            yield Curve(
                ((middle + half, y), (step.right, y), (step.end, after.rows[target, axis])), wire_kind(target, axis)
            )


def _with_scalar(node: Node, changes: dict[str, float]) -> dict[str, float]:
    """An array of which one element is left goes on from its first axis."""
    return changes | ({SCALAR: min(changes.values())} if axes_shown(near_wire(node)) == (SCALAR,) else {})


def near_wire(node: Node) -> Wire:
    """The nearer side of a level change."""
    return node.outputs[0] if node.kind == "load" else node.inputs[0]


def _tag_half(node: Node, axis: str) -> float:
    tag = next(iter(node.tags.values()), None) if axis == SCALAR else node.tags.get(axis)
    return 0.0 if tag is None else Text(0, 0, tag, "m").width / 2 + 2


def _tags(step: PlacedStep) -> Iterator[Shape]:
    for (node, axis), y in step.changes.items():
        near = near_wire(node)
        middle = (step.left + step.right) / 2
        if tag := node.tags.get(axis):
            about = f"{node.glyph.about}: axis {axis} in pieces of {near.sizes.get(axis, '?')}"
            yield Text(middle, y + BASELINE, tag, f"m mid l-{near.level}{_unit(near, axis)}", about)
        else:
            yield Line(((middle, y - 4), (middle, y + 4)), f"phase w-{near.level}")


def _boxes(step: PlacedStep) -> Iterator[Shape]:
    for node, box in step.boxes.items():
        top = box.y - box.height / 2
        mark = (node.outputs[0].name if node.outputs else "") or node.glyph.label
        yield Box(box.x, top, box.width, box.height, node.glyph.shape, node.glyph.about, mark)
        x = box.x + box.width / 2 + (2 if node.glyph.shape == "cast" else 0)
        yield Text(x, box.y + 4.5, node.glyph.label, "cell mid inside")


# -- kernels ----------------------------------------------------------------------------------------


def _tints(layout: Layout) -> Iterator[Shape]:
    """A region behind each kernel, from its loads to its saves."""
    for name in dict.fromkeys(step.step.phase.kernel for step in layout.steps if step.step.phase.kernel):
        steps = [i for i, step in enumerate(layout.steps) if step.step.phase.kernel == name]
        yield from _tint(layout, steps[0], steps[-1])


def _tint(layout: Layout, first: int, last: int) -> Iterator[Shape]:
    upper: list[tuple[float, float]] = []
    lower: list[tuple[float, float]] = []
    for i in range(first, last + 1):
        step = layout.steps[i]
        ys = _near_heights(layout, i)
        if not ys:
            continue
        begins = step.left if i > first else (step.left + step.right) / 2
        ends = step.right if i < last else (step.left + step.right) / 2
        top, bottom = min(ys) - ROW * 0.7, max(ys) + ROW * 0.7
        upper += [(begins, top), (ends, top)]
        lower += [(begins, bottom), (ends, bottom)]
        column = layout.arrays[i + 1]
        near = [y for (wire, _), y in column.rows.items() if wire.level != "device"]
        if i < last and near:
            upper += [(column.x, min(near) - ROW * 0.7), (column.end, min(near) - ROW * 0.7)]
            lower += [(column.x, max(near) + ROW * 0.7), (column.end, max(near) + ROW * 0.7)]
    if len(upper) > 1:
        yield Band(upper, lower, "t-register")


def _near_heights(layout: Layout, index: int) -> list[float]:
    step = layout.steps[index]
    ys = [y for (wire, _), y in step.passing.items() if wire.level != "device"]
    ys += [y for (node, axis), y in step.changes.items() if axis in near_wire(node).axes_cut]
    for box in step.boxes.values():
        ys += [box.y - box.height / 2, box.y + box.height / 2]
    return [*ys, *step.lanes.values()]
