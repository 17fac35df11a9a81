"""Sizes as symbols: `g_q` where an axis is grouped, `s_x` where it is streamed, its name where it is whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Self

from xdsl.ir import Attribute, SSAValue

from treadle.compiler.cost.kernel.roles import contractions_of, product_axes
from treadle.compiler.draw.costs import divisor_of_products, product_axis_names
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import UNDECIDED
from treadle.passes.kernels.near import comes_to_shared


@dataclass(frozen=True)
class Pieces:
    """How the axes of the kernel that is being read are cut; outside of kernels nothing is."""

    group: Mapping[str, int] = field(default_factory=dict[str, int])
    stream: Mapping[str, int] = field(default_factory=dict[str, int])
    whole: Mapping[str, int] = field(default_factory=dict[str, int])
    warps: Mapping[str, int] = field(default_factory=dict[str, int])
    subloop: Mapping[str, int] = field(default_factory=dict[str, int])
    cluster: Mapping[str, int] = field(default_factory=dict[str, int])
    """What each block of a cluster has of an axis, where they share a group."""
    promote: Mapping[str, int] = field(default_factory=dict[str, int])
    """The most products along an axis that are added up before their sum is promoted."""
    divisor: int = 1
    """Of every tile axis of a product, from the shape of the instructions."""
    product_axes: frozenset[str] = frozenset()
    streaming: str | None = None
    """The axis of the stream that is being read, in an expanded kernel."""
    expanded: bool = False
    inside: bool = False

    @classmethod
    def of_kernel(cls, kernel: KernelOp) -> Self:
        schedule = kernel.schedule
        if schedule is None:
            return cls(inside=True)
        return cls(
            schedule.group.as_dict(),
            schedule.stream.as_dict(),
            schedule.whole.as_dict(),
            schedule.warps.as_dict(),
            schedule.subloop.as_dict(),
            schedule.cluster.as_dict(),
            schedule.promote.as_dict(),
            divisor_of_products(kernel),
            frozenset(product_axis_names(kernel)),
            expanded=kernel.is_expanded,
            inside=True,
        )

    def symbol(self, axis: str, size: int | None = None) -> str:
        """The size of a piece of an axis; `1` where a group takes one index."""
        if axis in self.group:
            return "1" if self.group[axis] == 1 else f"g_{{{axis}}}"
        if axis in self.stream and (not self.expanded or self.streaming == axis):
            return f"s_{{{axis}}}"
        return axis

    def symbols(self, type: Attribute, level: str) -> dict[str, str]:
        if level == "device" or not self.inside:
            return {}
        return {axis: self.symbol(axis, size) for axis, size in sizes_of(type).items()}

    def labels(self, type: Attribute, level: str) -> dict[str, str]:
        """Axis labels with what must divide their pieces."""
        if level != "shared" or self.divisor == 1:
            return {}
        return {
            axis: f"{axis}^{{{self.divisor}}}"
            for axis in axes_of(type)
            if axis in self.product_axes and self.symbol(axis) != "1"
        }

    def amount(self, type: Attribute, level: str) -> int | None:
        """Values of a tile, if all its sizes are chosen."""
        if level == "device" or not self.inside:
            return None
        cut = {**self.group, **self.stream, **self.whole}
        sizes = [size if size > 0 else cut.get(axis, size) for axis, size in sizes_of(type).items()]
        return prod(sizes) if all(size > 0 for size in sizes) else None

    def tag(self, axis: str, size: int | None = None) -> str | None:
        """What stands on an axis where its level changes."""
        if axis in self.group:
            return f"g_{{{axis}}}"
        if axis in self.stream and (not self.expanded or self.streaming == axis):
            return f"s_{{{axis}}}"
        return None

    def crossing(self, axes: Sequence[str], visited: Sequence[str] = ()) -> tuple[str, ...]:
        """The factors of H of an array far away. `visited` are axes of which a condition leaves out pairs of pieces:
        in their place stands how many positions the visited pieces hold."""
        own = [axis for axis in axes if axis not in visited]
        again = self.repeats([*axes, *visited])
        return (*own, *again, *([f"\\rm{{visited}}({', '.join(visited)})"] if visited else []))

    def repeats(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Why a whole crossing happens again: the groups of every axis that the array does not have."""
        own = set(axes)
        return tuple(
            axis if size == 1 else f"⌈{axis}/g_{{{axis}}}⌉" for axis, size in self.group.items() if axis not in own
        )

    def turns(self, axis: str) -> str:
        return f"⌈{axis}/s_{{{axis}}}⌉"

    def inside_stream(self, axis: str) -> Self:
        return replace(self, streaming=axis)

    def outside_stream(self) -> Self:
        return replace(self, streaming=None)

    def of_destinations(self, destinations: Sequence[SSAValue]) -> Self:
        return self

    def near_level(self, kernel: KernelOp, argument: SSAValue) -> str:
        """Where an argument goes when it is loaded."""
        stream = next(iter(self.stream), None)
        row = product_axes(kernel, self.group, stream, self.stream.get(stream or "")).row
        return "shared" if comes_to_shared(argument, contractions_of(kernel), row, stream) else "register"

    def caption(self) -> str:
        """`g_q = 64, s_x = 128; d whole; 4 warps along q`, as mathematics."""
        parts = [f"g_{{{axis}}} = {_size(size)}" for axis, size in self.group.items()]
        parts += [f"s_{{{axis}}} = {_size(size)}" for axis, size in self.stream.items()]
        parts += [f"{axis} = {_size(size)}" for axis, size in self.whole.items()]
        parts += [f"u_{{{axis}}} = {_size(size)}" for axis, size in self.subloop.items()]
        parts += [f"c_{{{axis}}} = {_size(size)}" for axis, size in self.cluster.items()]
        parts += [f"p_{{{axis}}} = {_size(size)}" for axis, size in self.promote.items()]
        warps = [f"{n} \\rm{{warps along}} {axis}" for axis, n in self.warps.items() if n > 0]
        return " ,  ".join([*parts, *warps])


def _size(size: int) -> str:
    return "?" if size in (UNDECIDED, DYNAMIC) else str(size)
