"""The table above a picture: H where an array changes its level, M where it is alive, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from treadle.compiler.draw.columns import Columns
from treadle.compiler.draw.costs import Total
from treadle.compiler.draw.layout import Layout, LeastWidths
from treadle.compiler.draw.mathtext import joined, math_width
from treadle.compiler.draw.svg import Line, Shape, Text

LINE = 17.0
PADDING = 7.0
SIZE = 13.0
BETWEEN = 12.0
"""Between the cells of neighbouring columns."""
HEADING = 20.0
TOTAL_LEAST = 40.0

Terms = tuple[str, ...]


@dataclass
class Row:
    """One row: its cells by column, each a sum with one term a line."""

    head: str
    kernel: str
    level: str
    is_transfer: bool
    cells: dict[int, Terms] = field(default_factory=dict[int, Terms])
    crossings: list[str] = field(default_factory=list[str])
    """Of H: every term, in the order of the columns."""
    amounts: dict[int, int] = field(default_factory=dict[int, int])

    @property
    def lines(self) -> int:
        return max((len(terms) for terms in self.cells.values()), default=1)

    @property
    def total(self) -> Terms:
        """Of H the sum of all columns, of M the column with the most."""
        if self.is_transfer:
            return summed(self.crossings)
        return self.cells.get(self.peak, ()) if self.peak is not None else ()

    @property
    def peak(self) -> int | None:
        """The column with the most; the one with the most terms where sizes are not known."""
        known = self.amounts or {i: len(terms) for i, terms in self.cells.items()}
        return max(known, key=lambda i: known[i], default=None)


@dataclass
class Table:
    rows: list[Row]
    totals: Mapping[tuple[str, str], Total]

    @property
    def height(self) -> float:
        return sum(self.height_of(row) for row in self.rows) + HEADING + 16 if self.rows else 0.0

    @property
    def head_width(self) -> float:
        return max((math_width(row.head, SIZE) for row in self.rows), default=0.0)

    @property
    def total_width(self) -> float:
        widths = [text.width for row in self.rows for text in self.total_texts(row)]
        return max([*widths, TOTAL_LEAST]) if self.rows else 0.0

    def total_texts(self, row: Row) -> list[Text]:
        """H of all columns together, or M of the largest; then in bytes, where all sizes are known."""
        texts = [Text(0, 0, f"{'+ ' if i else ''}{term}", "m cell mid bold") for i, term in enumerate(row.total)]
        total = self.totals.get((row.kernel, row.level))
        said = "" if total is None else total.transfer if row.is_transfer else total.memory
        return [*texts, *([Text(0, 0, said, "mid")] if said else [])]

    def height_of(self, row: Row) -> float:
        return max(row.lines, len(self.total_texts(row))) * LINE + 2 * PADDING

    def least_widths(self) -> LeastWidths:
        """So that no cell touches its neighbour."""
        least = LeastWidths()
        for row in self.rows:
            into = least.steps if row.is_transfer else least.arrays
            for i, terms in row.cells.items():
                width = max(math_width(term, SIZE) for term in terms) + BETWEEN
                into[i] = max(into.get(i, 0.0), width)
        return least


def table_of(columns: Columns, totals: Mapping[tuple[str, str], Total]) -> Table:
    """Rows for every level that something is loaded to; kernels share the rows, being side by side."""
    levels = dict.fromkeys(
        node.outputs[0].level if node.kind == "load" else node.inputs[0].level
        for step in columns.steps
        for slot in step.slots
        if (node := slot.node) is not None and node.kind != "function"
    )
    kernels = list(dict.fromkeys(step.phase.kernel for step in columns.steps if step.phase.kernel))
    if not levels or not kernels:
        return Table([], {})
    single = kernels[0] if len(kernels) == 1 else ""
    alive = dict.fromkeys(wire.level for step in columns.steps for wire in step.after if wire.level != "device")
    rows = [_transfers(columns, single)]
    rows += [_memory(columns, single, level) for level in ("shared", "register") if level in alive]
    return Table([row for row in rows if row.cells], totals)


def _transfers(columns: Columns, kernel: str) -> Row:
    row = Row("H", kernel, "device", True)
    for i, step in enumerate(columns.steps):
        terms = [
            joined(slot.node.transfer)
            for slot in step.slots
            if slot.node is not None and slot.node.transfer
            for _ in range(slot.node.times)
        ]
        if terms:
            row.cells[i] = summed(terms)
            row.crossings += terms
    return row


def _memory(columns: Columns, kernel: str, level: str) -> Row:
    row = Row(f"M_{{{level}}}", kernel, level, False)
    for i, step in enumerate(columns.steps):
        near = [wire for wire in step.after if wire.level == level]
        if not near or step.phase.kernel is None:
            continue
        row.cells[i + 1] = summed(joined(wire.size_term) for wire in near)
        amounts = [wire.amount for wire in near]
        if all(amount is not None for amount in amounts):
            row.amounts[i + 1] = sum(amount or 0 for amount in amounts)
    return row


def summed(terms: Iterable[str]) -> Terms:
    """Equal terms as one with its count."""
    counted = Counter(terms)
    return tuple(term if n == 1 else f"{n} {term}" for term, n in counted.items())


def paint_table(table: Table, layout: Layout, top: float, left: float, right: float) -> Iterator[Shape]:
    """The table with its first line at `top`; heads end at `left`, totals begin at `right`."""
    y = top
    middle = right + table.total_width / 2
    if table.rows:
        yield Text(middle, y + 12, "total", "mid muted")
        y += HEADING
    for row in table.rows:
        height = table.height_of(row)
        yield Line(((left - table.head_width - 12, y), (right + table.total_width, y)), "rule")
        yield Text(left - 6, _first(y, height, 1), row.head, "m cell end")
        for i, terms in row.cells.items():
            x = layout.arrays[i].middle if not row.is_transfer else _middle(layout, i)
            peak = " bold" if i == row.peak and not row.is_transfer else ""
            yield from _cell(terms, x, y, height, f"m cell mid{peak}")
        totals = table.total_texts(row)
        first = _first(y, height, len(totals))
        yield from (replace(text, x=middle, y=first + i * LINE) for i, text in enumerate(totals))
        y += height
    if table.rows:
        yield Line(((left - table.head_width - 12, y), (right + table.total_width, y)), "rule")


def _middle(layout: Layout, index: int) -> float:
    step = layout.steps[index]
    return (step.left + step.right) / 2


def _first(y: float, height: float, lines: int) -> float:
    """The baseline of the first of so many lines, in the middle of a row."""
    return y + (height - lines * LINE) / 2 + 0.75 * LINE


def _cell(terms: Sequence[str], x: float, y: float, height: float, kind: str) -> Iterator[Text]:
    first = _first(y, height, len(terms))
    for i, term in enumerate(terms):
        plus = "+ " if i else ""
        yield Text(x, first + i * LINE, f"{plus}{term}", kind)
