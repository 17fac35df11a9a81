# pyright: standard
"""What became of a PyTorch module: see `treadle.explain`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch.fx import Node

    from treadle.compiled import Kernel


@dataclass(frozen=True)
class Taken:
    """One program: its kernels, the operations that it stands for, and the lines they were written in."""

    kernel: Kernel
    operations: tuple[str, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Left:
    """An operation that stays with PyTorch."""

    operation: str
    line: str
    reason: str


@dataclass
class GraphReport:
    """One graph that `torch.compile` made of the module."""

    taken: list[Taken] = field(default_factory=list[Taken])
    left: list[Left] = field(default_factory=list[Left])
    anew: list[Left] = field(default_factory=list[Left])
    """Of what was taken, what is compiled anew for each size that comes."""
    kind: Literal["inference", "forward", "backward"] = "inference"
    """Where gradients are asked for, there are two graphs, forward and backward."""
    saved_bytes: int = 0
    """What a forward writes for its backward alone, beside arguments and results."""


@dataclass
class Report:
    """All graphs of a module, and why it is not one."""

    graphs: list[GraphReport] = field(default_factory=list[GraphReport])
    breaks: list[str] = field(default_factory=list[str])

    @property
    def taken(self) -> list[Taken]:
        """What became kernels, of all graphs."""
        return [each for graph in self.graphs for each in graph.taken]

    @property
    def left(self) -> list[Left]:
        """What stays with PyTorch, and why, of all graphs."""
        return [each for graph in self.graphs for each in graph.left]

    @property
    def anew(self) -> list[Left]:
        """Of what was taken, what is compiled anew for each size that comes, of all graphs."""
        return [each for graph in self.graphs for each in graph.anew]

    def __str__(self) -> str:
        backward = sum(graph.kind == "backward" for graph in self.graphs)
        graphs = f"{len(self.graphs)} graph(s)" + (f", {backward} of them backward" if backward else "")
        lines = [f"{len(self.taken)} program(s) in {graphs}"]
        number = 0
        for graph in self.graphs:
            of = ", backward" if graph.kind == "backward" else ""
            for each in graph.taken:
                lines += ["", f"program {number}{of}: {_counted(each.operations)}"]
                lines += [f"    {line}" for line in each.lines]
                number += 1
        if backward:
            saved = sum(graph.saved_bytes for graph in self.graphs)
            lines += ["", f"saved for the backward, beside arguments and results: {saved:,} bytes"]
        lines += _by_reason("left to PyTorch:", self.left)
        lines += _by_reason("compiled anew for each size:", self.anew)
        if not self.graphs and not self.breaks:
            lines += ["", "PyTorch made no graph of it, so all of it stays there (TORCH_LOGS=graph_breaks says why)"]
        if self.breaks:
            lines += ["", "graph breaks (each ends a program):", *(f"    {reason}" for reason in self.breaks)]
        return "\n".join(lines)


def said(node: Node) -> str:
    """The operation of a node, as a report names it."""
    return str(node.target).removeprefix("aten.")


def source(node: Node) -> str:
    """The line of the user's program that the node comes from."""
    for line in reversed(str(node.meta.get("stack_trace") or "").strip().splitlines()):
        if (text := line.strip(" ^~\t")) and not text.startswith("File"):
            return text
    return ""


def _by_reason(title: str, operations: Sequence[Left]) -> list[str]:
    lines = ["", title] if operations else []
    for reason in dict.fromkeys(each.reason for each in operations):
        these = [each for each in operations if each.reason == reason]
        lines.append(f"    {reason}: {_counted(each.operation for each in these)}")
        lines += [f"        {line}" for line in dict.fromkeys(each.line for each in these) if line]
    return lines


def _counted(operations: Iterable[str]) -> str:
    counts = Counter(name.removesuffix(".default") for name in operations)
    return ", ".join(f"{name} x {n}" if n > 1 else name for name, n in counts.items())


__all__ = ["GraphReport", "Left", "Report", "Taken", "said", "source"]
