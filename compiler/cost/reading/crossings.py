"""The arrays that cross between device memory and a group of a decorated kernel."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from treadle.compiler.cost.kernel.blocks import (
    ENTRY_BYTES,
    blocks_of,
    entries_added,
    entries_of,
    places_added,
    places_read,
    source_of,
    windows_of,
)
from treadle.compiler.cost.kernel.boxes import comes_by_lanes, comes_in_boxes
from treadle.compiler.cost.kernel.names import name_of
from treadle.compiler.cost.kernel.neighbours import order_in_memory
from treadle.compiler.cost.kernel.tasks import Crossing
from treadle.compiler.cost.kernel.work import width_of
from treadle.compiler.cost.reading.decorated import Decorated
from treadle.compiler.cost.reading.selected import blocks_that_spare
from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import axes_of


class Crossings:
    """Of one kernel: what it loads, the entries that tell where, and what it saves."""

    def __init__(self, at: Decorated):
        self.at = at

    def loads(self) -> list[Crossing]:
        return [
            Crossing(
                name_of(value, f"input{i}"),
                "shared" if self.at.comes_to_shared(value) else "register",
                False,
                axes_of(value.type),
                width_of(value.type),
                self.at.stream in axes_of(value.type),
                stream,
                self._tested_by(value, stream),
                self._in_boxes(value),
                blocks=blocks_of(value),
                windows=windows_of(value),
                near=order_in_memory(value),
                spared=self._spared_by(value, stream),
                by_lanes=comes_by_lanes(value, value),
                source=source_of(value),
                among=places_read(value),
            )
            for i, (value, times) in enumerate(self.at.use.inputs.items())
            for stream in self.at.use.fed_in.get(value, (None,) * times)
        ]

    def entries(self) -> list[Crossing]:
        """What is read to find the elements of arrays that are scattered."""
        return [
            Crossing(
                each.name,
                "register",
                False,
                each.axes,
                ENTRY_BYTES,
                self.at.stream in axes_of(value.type),
                stream,
                blocks=each.blocks,
                spared=self._spared_by(value, stream),
            )
            for value, times in self.at.use.inputs.items()
            for each in entries_of(value)
            for stream in self.at.use.fed_in.get(value, (None,) * times)
        ]

    def entries_added(self) -> list[Crossing]:
        """What is read to find where elements of results are added up."""
        return [
            Crossing(
                each.name, "register", False, each.axes, ENTRY_BYTES, self.at.stream in each.axes, blocks=each.blocks
            )
            for output in self.at.kernel.outputs
            for each in entries_added(output)
        ]

    def _in_boxes(self, value: SSAValue) -> tuple[bool, bool]:
        without, within = (
            comes_in_boxes(value, value, self.at.products, self.at.roles.row, self.at.stream, limited)
            for limited in (False, True)
        )
        return without, within

    def _tested_by(self, value: SSAValue, stream: int | None) -> frozenset[WhereOp]:
        if stream is None or self.at.use.plan is None:
            return frozenset()
        step = self.at.use.plan.step_of(stream)
        uses = [use for use in value.uses if use.operation in step]
        tests = frozenset(use.operation for use in uses if isinstance(use.operation, WhereOp) and use.index)
        return tests if len(tests) == len({use.operation for use in uses}) else frozenset()

    def _spared_by(self, value: SSAValue, stream: int | None) -> Mapping[str, int]:
        tests = self._tested_by(value, stream)
        if stream is None or self.at.use.plan is None or not tests:
            return {}
        return blocks_that_spare(
            self.at.use.plan, stream, tests, (*self.at.group, *self.at.whole, self.at.use.plan.axis)
        )

    def saves(self) -> list[Crossing]:
        return [
            Crossing(
                name_of(value, f"output{i}"),
                "register",
                True,
                axes_of(value.type),
                width_of(value.type),
                self.at.stream in axes_of(value.type),
                leaves=self.at.leaves(value),
                near=axes_of(value.type)[::-1],
                added=places_added(output),
            )
            for i, (value, output) in enumerate(zip(self.at.results, self.at.kernel.outputs, strict=True))
        ]
