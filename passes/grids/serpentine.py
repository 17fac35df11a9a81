"""Deal pieces of uneven length to blocks there and back, so that all have about as much to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.ir import SSAValue

from treadle.passes.grids.arithmetic import Arithmetic

Piece = Callable[[Arithmetic, SSAValue], SSAValue]


@dataclass(frozen=True)
class Serpentine:
    """Rows are taken in sections. The pieces of a section lie in a sequence that begins with the longest: column by
    column, the last first if `from_last`. Of each round the first block takes the longest and the last the shortest
    piece, of the next round it is the other way round, and each section begins at the other end. So if lengths grow
    evenly along a row, two rounds are as long for every block, and what a section leaves uneven the next evens out.

    Where a section is no whole number of rounds, the blocks to whom the end of the sequence would fall take one piece
    fewer. `at` a place among the blocks, a sequence of m pieces has 2 * (m // 2b) + (at < r) + (2b - 1 - at < r) of
    them, with r = m % 2b of b blocks."""

    section: int
    from_last: bool

    def taken_by(self, block: int, blocks: int, pieces: int, inner: int) -> list[int]:
        """The pieces that one of so many blocks takes, in order."""
        found: list[int] = []
        for number, begin in enumerate(range(0, pieces // inner, self.section)):
            rows = min(self.section, pieces // inner - begin)
            for round in range(-(-rows * inner // blocks)):
                at = blocks - 1 - block if (round + number) % 2 else block
                column, row = divmod(round * blocks + at, rows)
                if column < inner:
                    found.append((begin + row) * inner + (inner - 1 - column if self.from_last else column))
        return found

    # -- as operations -----------------------------------------------------------------------------

    def walk(
        self, block: SSAValue, blocks: SSAValue, pieces: SSAValue, inner: SSAValue, before: Arithmetic
    ) -> tuple[SSAValue, Piece]:
        """How many pieces the block takes, computed `before`, and the piece of a turn."""
        none, one, two = (before.constant(number) for number in range(3))
        section = before.constant(self.section)
        two_rounds = before.sum(blocks, blocks, "two_rounds")
        back = before.difference(before.difference(blocks, one), block, "place_back")
        rows = before.quotient(pieces, inner, "all_rows")
        sections = before.quotient(rows, section, "sections")
        whole = before.product(section, inner, "in_section")
        ahead = _count(whole, block, two_rounds, before, "taken_ahead")
        both = before.sum(ahead, _count(whole, back, two_rounds, before, "taken_back"), "taken_in_two")
        is_odd = before.is_less(none, before.rest(sections, two))
        odd = before.choice(is_odd, ahead, none)
        in_whole = before.sum(before.product(before.quotient(sections, two), both), odd, "taken_in_whole")
        left = before.product(before.difference(rows, before.product(sections, section)), inner, "in_last")
        in_last = _count(left, before.choice(is_odd, back, block, "place_last"), two_rounds, before, "taken_in_last")
        divisor = before.most(both, one)

        def piece(at: Arithmetic, turn: SSAValue) -> SSAValue:
            is_whole = at.is_less(turn, in_whole)
            of_two = at.rest(turn, divisor, "turn_of_two")
            is_ahead = at.is_less(of_two, ahead)
            second = at.choice(is_ahead, none, one)
            round_whole = at.choice(is_ahead, of_two, at.difference(of_two, ahead))
            section_whole = at.sum(at.product(at.quotient(turn, divisor), two), second)
            number = at.choice(is_whole, section_whole, sections, "section")
            round = at.choice(is_whole, round_whole, at.difference(turn, in_whole), "round")
            is_even = at.is_less(at.rest(at.sum(round, number), two), one)
            place = at.sum(at.product(round, blocks), at.choice(is_even, block, back), "place")
            begin = at.product(number, section, "first_row")
            here = at.least(section, at.difference(rows, begin), "rows")
            column, row = at.quotient(place, here), at.rest(place, here)
            if self.from_last:
                column = at.difference(at.difference(inner, one), column)
            return at.sum(at.product(at.sum(begin, row), inner), column, "piece")

        return before.sum(in_whole, in_last, "taken"), piece


def _count(pieces: SSAValue, place: SSAValue, two_rounds: SSAValue, at: Arithmetic, name: str) -> SSAValue:
    """How many pieces of a sequence fall to a place among the blocks."""
    none, one = at.constant(0), at.constant(1)
    rest = at.rest(pieces, two_rounds)
    back = at.difference(at.difference(two_rounds, one), place)
    extra = at.sum(at.choice(at.is_less(place, rest), one, none), at.choice(at.is_less(back, rest), one, none))
    return at.sum(at.product(at.quotient(pieces, two_rounds), at.constant(2)), extra, name)
