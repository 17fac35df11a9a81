"""What a schedule does with each axis of a kernel: which are cut into groups, and which a group holds whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED, ScheduleAttr
from treadle.passes._parts import Part, part_of_kernel
from treadle.passes.kernels.roles import (
    WHOLE_LIMIT,
    group_axes,
    may_repeat,
    not_grouped,
    repeated_products,
    too_many_columns,
)

Axes: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Groups:
    """Those of a kernel with a schedule that says something of its axes, or nothing yet."""

    part: Part
    old: ScheduleAttr
    repeated: Axes = ()
    """The short axes along which groups repeat products that lack them; they hold others whole."""

    def repeating(self, axes: Axes) -> Groups:
        return replace(self, repeated=axes)

    @cached_property
    def able(self) -> Axes:
        """The axes along which groups may repeat products or not: the schedule does not say."""
        decided = (*self.old.group.as_dict(), *self.old.whole.as_dict())
        return tuple(axis for axis in may_repeat(self.part) if axis not in decided)

    @cached_property
    def refused(self) -> dict[str, str]:
        """For each axis that is not cut into groups: why."""
        part, repeated = self.part, (*self.repeated, *self.old.group.as_dict())
        reasons = {axis: not_grouped(part, axis, WHOLE_LIMIT, repeated) for axis in part.sizes}
        # whoever wrote the schedule has decided that groups hold it
        held = [axis for axis in self.old.whole.as_dict() if repeated_products(part, axis)]
        stated = dict.fromkeys(held, "its schedule holds it whole")
        return {axis: reason for axis, reason in reasons.items() if reason is not None} | stated

    @property
    def whole(self) -> dict[str, int]:
        streamed, sizes = self.old.stream.as_dict(), self.part.sizes
        held = {axis: size for axis, size in sizes.items() if axis in self.refused and axis not in streamed}
        return {axis: size for axis, size in held.items() if size not in (DYNAMIC, 0)}

    def group(self, axis: str = "") -> dict[str, int]:
        """The axes that are cut, in their order (`kernels.roles.group_axes`): all that can be, or of those of which the
        schedule says nothing only `axis`."""
        others = (*self.refused, *self.old.stream.as_dict())
        free = [name for name in group_axes(self.part, others) if axis in ("", name)]
        return dict.fromkeys(free, UNDECIDED) | self.old.group.as_dict()

    @property
    def schedule(self) -> ScheduleAttr:
        return self.old.but(group=self.group(), whole=self.whole)

    @property
    def impossible(self) -> str | None:
        """Why there is no kernel with these groups, or None."""
        return too_many_columns(self.part, next(iter(self.old.stream.as_dict()), None), self.whole)


def groups_of(kernel: KernelOp) -> Groups:
    """With nothing repeated along axes that groups can hold, unless the schedule cuts them."""
    return Groups(part_of_kernel(kernel), kernel.schedule or ScheduleAttr({}, {}, {}))
