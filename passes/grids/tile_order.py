"""In which order the blocks of a persistent grid take pieces: a bijection of their numbers, as index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType
from xdsl.ir import Block, Operation, SSAValue


@dataclass(frozen=True)
class TileOrder:
    """Pieces are numbered row by row, `inner` to a row. Rows are taken in sections of `section`, all of a section
    column by column before the next; with `longest_first`, from the last column to the first.

    What the pieces of a row share, and what those of a column share, is then used again while it is in the L2 cache.
    So many neighbours in a row as a `cluster` has blocks are taken together, as if they were one piece."""

    section: int
    longest_first: bool = False
    cluster: int = 1

    @property
    def is_plain(self) -> bool:
        return self.section == 1 and not self.longest_first

    @property
    def _alone(self) -> TileOrder:
        return TileOrder(self.section, self.longest_first)

    def place(self, number: int, pieces: int, inner: int) -> int:
        """The piece that is taken as number so many, of so many pieces."""
        if self.cluster > 1:
            unit, block = divmod(number, self.cluster)
            return self._alone.place(unit, pieces // self.cluster, inner // self.cluster) * self.cluster + block
        begin = number // (self.section * inner) * self.section
        rows = min(self.section, pieces // inner - begin)
        column, row = divmod(number - begin * inner, rows)
        return (begin + row) * inner + (inner - 1 - column if self.longest_first else column)

    def emit(self, block: Block, number: SSAValue, pieces: SSAValue, inner: SSAValue) -> SSAValue:
        """The same as index arithmetic at the end of a block."""

        def add(op: Operation) -> SSAValue:
            block.add_op(op)
            return op.results[0]

        def constant(value: int) -> SSAValue:
            return add(arith.ConstantOp.from_int_and_width(value, IndexType()))

        if self.cluster > 1:
            blocks = constant(self.cluster)
            unit, block_in = add(arith.DivUIOp(number, blocks)), add(arith.RemUIOp(number, blocks))
            units, columns = add(arith.DivUIOp(pieces, blocks)), add(arith.DivUIOp(inner, blocks))
            found = add(arith.MuliOp(self._alone.emit(block, unit, units, columns), blocks))
            return add(arith.AddiOp(found, block_in))
        section = constant(self.section)
        begin = add(arith.MuliOp(add(arith.DivUIOp(number, add(arith.MuliOp(section, inner)))), section))
        begin.name_hint = "section"
        rows = add(arith.MinSIOp(section, add(arith.SubiOp(add(arith.DivUIOp(pieces, inner)), begin))))
        rows.name_hint = "rows"
        rest = add(arith.SubiOp(number, add(arith.MuliOp(begin, inner))))
        column, row = add(arith.DivUIOp(rest, rows)), add(arith.RemUIOp(rest, rows))
        if self.longest_first:
            column = add(arith.SubiOp(add(arith.SubiOp(inner, constant(1))), column))
        found = add(arith.AddiOp(add(arith.MuliOp(add(arith.AddiOp(begin, row)), inner)), column))
        found.name_hint = "piece"
        return found
