"""What is drawn, before anything has a place: arrays as wires, functions and level changes as nodes, phases."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.ir import Operation

from treadle.compiler.draw.glyphs import Glyph


@dataclass(eq=False)
class Wire:
    """An array: a value of the program, at one level."""

    name: str
    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    level: str
    format: str
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """What stands on an axis instead of its name, as mathematics."""
    pieces: Mapping[str, str] = field(default_factory=dict[str, str])
    """The size of each axis as a symbol: `q`, `g_{q}`, `s_{x}`, or `1`, at this level."""
    amount: int | None = None
    """Its values at this level, if they are known."""

    @property
    def axes_cut(self) -> tuple[str, ...]:
        """Axes without those of which a group takes one index."""
        return tuple(axis for axis in self.axes if self.pieces.get(axis) != "1")

    @property
    def size_term(self) -> tuple[str, ...]:
        """The factors of its size."""
        return tuple(piece for axis in self.axes if (piece := self.pieces.get(axis, axis)) != "1")


@dataclass(eq=False)
class Node:
    """A function, or a change of level (`load`, `save`), which has no box."""

    kind: str
    glyph: Glyph
    inputs: tuple[Wire, ...]
    outputs: tuple[Wire, ...]
    op: Operation | None = None
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    """On a level change: `g_{q}` on the axis that is cut there."""
    transfer: tuple[str, ...] = ()
    """On a level change: the factors of H, for the whole launch."""
    times: int = 1
    """On a level change: how often it happens, once for each stream that reads the array."""


@dataclass
class Phase:
    """A stretch of nodes that runs once, once a group, or in every turn of a stream."""

    name: str
    kernel: str | None
    nodes: list[Node] = field(default_factory=list[Node])
    turns: str = ""
    """How often it runs, as mathematics: `⌈x/s_{x}⌉`."""


@dataclass(frozen=True)
class KernelLevel:
    """What a picture says of one kernel besides its wires."""

    name: str
    caption: str
    """How its axes are cut, as mathematics."""


@dataclass
class Diagram:
    """A whole program."""

    name: str
    inputs: list[Wire]
    phases: list[Phase]
    outputs: list[Wire]
    kernels: dict[str, KernelLevel] = field(default_factory=dict[str, KernelLevel])

    @property
    def nodes(self) -> list[Node]:
        return [node for phase in self.phases for node in phase.nodes]
