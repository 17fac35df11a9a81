"""The ends of ranges of positions (`streams.ranges.Range`): as operations in a group, as static sizes, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IndexType, i32
from xdsl.ir import Operation, SSAValue

from treadle.dialects.diagram import ReduceOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.condition import Divided, Entry, Linear, Read, Remainder, Term
from treadle.dialects.hierarchy import PieceOp
from treadle.passes._functions import label
from treadle.passes.streams.ranges import Corner, End, Extreme, Found, Gate, Quotient, Range, Search
from treadle.passes.streams.searches import Ends, SearchWriter, spell_search

# -- as operations --------------------------------------------------------------------------------


class LimitWriter:
    """Writes ends into the body of a group, each operation once; `add` appends one, `resolve` gives the tile or scalar
    that a value of the kernel became there. `load` is the load of a piece of an argument, of `piece` positions along
    the axis, and `searched` what searches have found before in this group."""

    def __init__(
        self,
        axis: str,
        piece: int,
        add: Callable[[Operation], SSAValue],
        resolve: Callable[[SSAValue], SSAValue],
        load: Callable[[SSAValue], Operation],
        searched: dict[Search, Ends],
    ):
        self.axis = axis
        self.search = SearchWriter(axis, piece, load, self._number)
        self.searched = searched
        self.add = add
        self.resolve = resolve
        self.constants: dict[int, SSAValue] = {}
        self.pieces: dict[str, PieceOp] = {}
        self.scalars: dict[tuple[SSAValue, bool], SSAValue] = {}

    def limits(self, range: Range) -> tuple[SSAValue, SSAValue]:
        low = self.constant(0) if range.low is None else self.end(range.low)
        high = self._piece(self.axis).end if range.high is None else self.end(range.high)
        return low, high

    def constant(self, number: int) -> SSAValue:
        if number not in self.constants:
            self.constants[number] = self.add(arith.ConstantOp.from_int_and_width(number, IndexType()))
        return self.constants[number]

    def _piece(self, axis: str) -> PieceOp:
        if axis not in self.pieces:
            op = PieceOp(axis)
            op.first.name_hint, op.end.name_hint = f"{axis}_first", f"{axis}_end"
            self.add(op)
            self.pieces[axis] = op
        return self.pieces[axis]

    def end(self, end: End) -> SSAValue:
        """One end, as a position."""
        match end:
            case Quotient(corner, divisor, up, added):
                if divisor == 1:
                    return self._corner(corner, added)
                return self._plus(self._divided(self._corner(corner), divisor, up), added)
            case Gate(corner):
                zero = self.constant(0)
                open = self.add(arith.CmpiOp(self._corner(corner), zero, "sge"))
                return self.add(arith.SelectOp(open, self._piece(self.axis).end, zero))
            case Found(search, sign, last):
                if search not in self.searched:
                    self.searched[search] = self.search.ends(search, self.add)
                return self.searched[search][sign, last]
            case Extreme(largest, ends):
                kind = arith.MaxSIOp if largest else arith.MinSIOp
                first, *others = (self.end(part) for part in ends)
                for other in others:
                    first = self.add(kind(first, other))
                return first

    def _divided(self, value: SSAValue, divisor: int, up: bool) -> SSAValue:
        kind = arith.CeilDivSIOp if up else arith.FloorDivSIOp
        return self.add(kind(value, self.constant(divisor)))

    def _corner(self, corner: Corner, added: int = 0) -> SSAValue:
        """The terms with factor 1 first, so that most corners are one addition."""
        total: SSAValue | None = None
        constant = corner.form.constant + added
        for term, factor in sorted(corner.form.terms.items(), key=lambda item: -item[1]):
            assert not isinstance(term, Read | Entry)
            if isinstance(term, Divided):
                value = self._divided_term(term, 1 if factor * corner.sign > 0 else -1)
            elif isinstance(term, str) and factor * corner.sign > 0:
                value, constant = self._piece(term).end, constant - factor
            elif isinstance(term, str):
                value = self._piece(term).first
            else:
                value = self._scalar(term, largest=factor * corner.sign > 0)
            total = self._times(value, factor) if total is None else self._add(total, value, factor)
        return self.constant(constant) if total is None else self._plus(total, constant)

    def _divided_term(self, term: Divided, sign: int) -> SSAValue:
        """The largest or smallest value of a quotient or a remainder. Between the smallest and the largest that is
        divided, remainders grow from the first as far as all do, unless they are the largest that they can be."""
        if not isinstance(term, Remainder):
            return self._divided(self._corner(Corner(term.form, sign)), term.divisor, up=False)
        low, high = (self._corner(Corner(term.form, each)) for each in (-1, 1))
        if low is high:
            return self._remainder(low, term.divisor)
        between = self.add(arith.SubiOp(high, low))
        if sign > 0:
            grown = self.add(arith.AddiOp(self._remainder(low, term.divisor), between))
            return self.add(arith.MinSIOp(grown, self.constant(term.divisor - 1)))
        shrunk = self.add(arith.SubiOp(self._remainder(high, term.divisor), between))
        return self.add(arith.MaxSIOp(shrunk, self.constant(0)))

    def _remainder(self, value: SSAValue, divisor: int) -> SSAValue:
        whole = self._times(self._divided(value, divisor, up=False), divisor)
        return self.add(arith.SubiOp(value, whole))

    def _scalar(self, term: SSAValue, largest: bool) -> SSAValue:
        """The largest or smallest value that an input has in the piece of the group."""
        wide = _wide_axes(self.resolve(term))
        place = (term, largest and bool(wide))
        if place not in self.scalars:
            self.scalars[place] = self.add(arith.IndexCastOp(self._of_input(term, largest), IndexType()))
            which = ("most" if largest else "least") if wide else "here"
            self.scalars[place].name_hint = term.name_hint and f"{term.name_hint}_{which}"
        return self.scalars[place]

    def _number(self, term: Term, largest: bool) -> SSAValue:
        """The largest or smallest value of a term in the piece of the group, in i32."""
        if isinstance(term, SSAValue):
            value = self._of_input(term, largest)
            if value is not self.resolve(term):
                value.name_hint = term.name_hint and f"{term.name_hint}_{'largest' if largest else 'smallest'}"
            return value
        assert isinstance(term, str)
        piece = self._piece(term)
        place = self._plus(piece.end, -1) if largest else piece.first
        return self.add(arith.IndexCastOp(place, i32))

    def _of_input(self, term: SSAValue, largest: bool) -> SSAValue:
        value = self.resolve(term)
        return self._one(value, _wide_axes(value), largest)

    def _one(self, value: SSAValue, wide: Sequence[str], largest: bool) -> SSAValue:
        if not is_array(value.type):
            return value
        if wide:
            sizes = {axis: size for axis, size in sizes_of(value.type).items() if axis not in wide}
            type = array_type(format_of(value.type), sizes, "register")
            value = self.add(ReduceOp("max" if largest else "min", value, wide, type))
        zeros = [self.constant(0)] * len(axes_of(value.type))
        return self.add(tensor.ExtractOp(value, zeros, i32))

    def _times(self, value: SSAValue, factor: int) -> SSAValue:
        return value if factor == 1 else self.add(arith.MuliOp(value, self.constant(factor)))

    def _add(self, total: SSAValue, value: SSAValue, factor: int) -> SSAValue:
        if factor == -1:
            return self.add(arith.SubiOp(total, value))
        return self.add(arith.AddiOp(total, self._times(value, factor)))

    def _plus(self, value: SSAValue, number: int) -> SSAValue:
        return value if number == 0 else self.add(arith.AddiOp(value, self.constant(number)))


def _wide_axes(value: SSAValue) -> list[str]:
    return [axis for axis, size in sizes_of(value.type).items() if size != 1]


# -- as static sizes ------------------------------------------------------------------------------


def may_hold_a_piece(range: Range, size: int, pieces: Mapping[str, int]) -> bool:
    """Whether a range can be as long as a piece of `size`; `pieces` gives the pieces of the axes around. False only if
    its length is known."""
    lows = [_first_form(end, pieces) for end in _ends(range.low, largest=True)]
    highs = [_first_form(end, pieces) for end in _ends(range.high, largest=False)]
    for low in lows:
        for high in highs:
            if low is None or high is None:
                continue
            length = high.plus(low, -1)
            if not length.terms and length.constant < size:
                return False
    return True


def _ends(end: End | None, largest: bool) -> Sequence[End]:
    """The ends all of which limit a range."""
    if end is None:
        return ()
    return end.ends if isinstance(end, Extreme) and end.largest == largest else (end,)


def _first_form(end: End, pieces: Mapping[str, int]) -> Linear | None:
    """An end as a linear form of where the pieces begin, if it is one."""
    if not isinstance(end, Quotient) or end.divisor != 1:
        return None
    corner = end.corner
    reach = sum(
        factor * (pieces[term] - 1)
        for term, factor in corner.form.terms.items()
        if isinstance(term, str) and term in pieces and factor * corner.sign > 0
    )
    if corner.form.divided:
        return None
    unknown = (term for term, factor in corner.form.terms.items() if isinstance(term, str) and factor * corner.sign > 0)
    if any(term not in pieces for term in unknown):
        return None
    return corner.form.plus(Linear(constant=reach + end.added))


# -- in words -------------------------------------------------------------------------------------


def spell_range(range: Range, axis: str) -> str:
    """`x from 0 to q_end + 1`"""
    low = "0" if range.low is None else spell_end(range.low)
    high = f"{axis}_end" if range.high is None else spell_end(range.high)
    return f"{axis} from {low} to {high}"


def spell_end(end: End) -> str:
    match end:
        case Quotient(corner, divisor, up, added):
            text = _spell_corner(corner, added if divisor == 1 else 0)
            if divisor == 1:
                return text
            text = f"{'ceil' if up else 'floor'}(({text}) / {divisor})"
            return f"{text} + {added}" if added else text
        case Gate(corner):
            return f"(all if {_spell_corner(corner, 0)} >= 0)"
        case Extreme(largest, ends):
            return f"{'max' if largest else 'min'}({', '.join(spell_end(part) for part in ends)})"
        case Found(search, sign, last):
            how = "may hold" if sign > 0 else "holds throughout"
            return f"({'one past the last' if last else 'the first'} where '{spell_search(search)}' {how})"


def _spell_corner(corner: Corner, added: int) -> str:
    constant = corner.form.constant + added
    text = ""
    for term, factor in sorted(corner.form.terms.items(), key=lambda item: -item[1]):
        name = _spell_term(term, factor * corner.sign)
        if isinstance(term, str) and factor * corner.sign > 0:
            name, constant = f"{term}_end", constant - factor
        size = name if abs(factor) == 1 else f"{abs(factor)} {name}"
        text += f" {'+' if factor > 0 else '-'} {size}" if text else f"{'' if factor > 0 else '-'}{size}"
    if not text:
        return str(constant)
    return f"{text} {'+' if constant > 0 else '-'} {abs(constant)}" if constant else text


def _spell_term(term: Term, sign: int) -> str:
    if isinstance(term, SSAValue):
        return label(term)[1:]
    if isinstance(term, Divided) and not isinstance(term, Remainder):
        return f"floor(({_spell_corner(Corner(term.form, sign), 0)}) / {term.divisor})"
    if isinstance(term, Divided):
        return f"({'most' if sign > 0 else 'least'} {term})"
    return f"{term}_first"
