"""A diagram as columns: arrays, functions, arrays, functions ... and the order of what stands in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from treadle.compiler.draw.diagram import Diagram, Node, Phase, Wire


@dataclass(eq=False)
class Slot:
    """What stands in a column of functions: a node, or a wire that passes."""

    node: Node | None
    wire: Wire | None


@dataclass(eq=False)
class Step:
    """A column of functions with the arrays before it and after it, from top to bottom."""

    before: list[Wire]
    slots: list[Slot]
    after: list[Wire]
    phase: Phase


@dataclass
class Columns:
    inputs: list[Wire]
    steps: list[Step] = field(default_factory=list[Step])

    @property
    def outputs(self) -> list[Wire]:
        return self.steps[-1].after if self.steps else self.inputs


def columns_of(diagram: Diagram) -> Columns:
    """Neighbouring nodes of a phase that do not depend on each other share a column."""
    grouped = list(_grouped(diagram))
    last_use = _last_uses(diagram, grouped)
    columns = Columns(_alive(_ordered_inputs(diagram), -1, last_use))
    state = columns.inputs
    for i, (phase, nodes) in enumerate(grouped):
        step = _step(state, nodes, phase, i, last_use)
        columns.steps.append(step)
        state = step.after
    return columns


def _ordered_inputs(diagram: Diagram) -> list[Wire]:
    """In the order of their first uses, so that what meets first stands together; unused ones stand last."""
    used = [wire for node in diagram.nodes for wire in node.inputs]
    known = set(diagram.inputs)
    ordered = [wire for wire in dict.fromkeys(used) if wire in known]
    return [*ordered, *(wire for wire in diagram.inputs if wire not in set(ordered))]


def _grouped(diagram: Diagram) -> Iterable[tuple[Phase, list[Node]]]:
    for phase in diagram.phases:
        column: list[Node] = []
        for node in phase.nodes:
            made = {wire for other in column for wire in other.outputs}
            level_change = node.kind != "function"
            mixed = any((other.kind != "function") != level_change for other in column)
            if column and (mixed or made & set(node.inputs)):
                yield phase, column
                column = []
            column.append(node)
        if column:
            yield phase, column


def _last_uses(diagram: Diagram, grouped: Sequence[tuple[Phase, list[Node]]]) -> dict[Wire, int]:
    last: dict[Wire, int] = {}
    for i, (_, nodes) in enumerate(grouped):
        for node in nodes:
            last.update(dict.fromkeys(node.inputs, i))
    last.update(dict.fromkeys(diagram.outputs, len(grouped)))
    return last


def _alive(wires: Iterable[Wire], index: int, last_use: dict[Wire, int]) -> list[Wire]:
    return [wire for wire in wires if last_use.get(wire, -1) > index]


def _step(state: list[Wire], nodes: Sequence[Node], phase: Phase, index: int, last_use: dict[Wire, int]) -> Step:
    """A node stands where its topmost operand stood; what it reads and others need later passes above it. What comes
    from nowhere, the beginning of a state, stands on top, so that near levels stay together."""
    place = {wire: i for i, wire in enumerate(state)}
    waiting = [node for node in nodes if node.inputs]
    slots = [Slot(node, None) for node in nodes if not node.inputs]
    for i, wire in enumerate(state):
        if last_use.get(wire, -1) > index:
            slots.append(Slot(None, wire))
        slots += [Slot(node, None) for node in waiting if min(place[w] for w in node.inputs) == i]
    after: list[Wire] = []
    for slot in slots:
        made = [slot.wire] if slot.wire is not None else list(slot.node.outputs) if slot.node else []
        after += [wire for wire in made if last_use.get(wire, -1) > index]
    return Step(state, slots, after, phase)
