"""Two axes that a condition orders, `x <= q`, in chunks of one length: q as `(c, s)`, and x as `(b, t)`, or as `(c, t)`
in the chunk of its row."""

from __future__ import annotations

from dataclasses import dataclass

from treadle.dialects.diagram.array import sizes_of
from treadle.passes.axes.names import unused
from treadle.passes.products.conditions import Order
from treadle.passes.products.positions import Chunks, Parted, count_of
from treadle.passes.products.sums import Sum


@dataclass(frozen=True)
class Cut:
    """Two axes that a condition orders, in chunks of one length: rows `(c, s)`, and what is summed as `(b, t)`, and as
    `(c, t)` where it is in the chunk of its row."""

    order: Order
    rows: Chunks
    summed: Chunks
    inside: Chunks
    part: str
    """A name for the parts of a chunk."""
    part_inner: tuple[str, str]
    """Names for the positions along a part, of a row and of what is summed."""

    @property
    def chunks(self) -> dict[str, int]:
        """The axes of chunks, of rows and of what is summed."""
        return {self.rows.chunk: self.rows.count, self.summed.chunk: self.summed.count}

    def over(self, axes: tuple[str, ...], chunks: Chunks) -> list[str]:
        """The axes of a sum, within chunks."""
        return [chunks.inner if axis == self.order.summed else axis for axis in axes]

    def parted(self, length: int) -> tuple[Parted, Parted]:
        """Rows, and what is summed in the chunk of its row, where chunks are in parts of a length: of both in the same
        one."""
        rows, inside = (
            Parted(of.axis, of.size, of.length, of.count, of.chunk, inner, of.whole, self.part, length)
            for of, inner in zip((self.rows, self.inside), self.part_inner, strict=True)
        )
        return rows, inside


def cut_of(order: Order, chain: Sum, length: int, taken: set[str]) -> Cut:
    """Chunks with names of their own."""
    rows, summed = sizes_of(chain.outer.result.type)[order.row], sizes_of(chain.carried.type)[order.summed]
    names = [f"{order.row}_chunk", f"{order.row}_in", f"{order.summed}_chunk", f"{order.summed}_in"]
    c, s, b, t = (unused(name, taken) for name in names)
    q, x = (unused(f"{axis}_whole", taken) for axis in (order.row, order.summed))
    names = [f"{order.row}_part", f"{order.row}_in_part", f"{order.summed}_in_part"]
    part, *inner = (unused(name, taken) for name in names)
    count = count_of(rows, length)
    return Cut(
        order,
        Chunks(order.row, rows, length, count, c, s, q),
        Chunks(order.summed, summed, length, count_of(summed, length), b, t, x),
        Chunks(order.summed, summed, length, count, c, t, x),
        part,
        (inner[0], inner[1]),
    )


__all__ = ["Cut", "cut_of"]
