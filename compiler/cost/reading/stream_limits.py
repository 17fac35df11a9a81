"""The limits of streams as the cost model asks for them: from ranges (decorated) and from operations (explicit)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.amounts import Amount, ceil_div, choice, least, most
from treadle.compiler.cost.kernel.blocks import blocks_of
from treadle.compiler.cost.kernel.plan import Pieces
from treadle.compiler.cost.reading.fed import Fed, Limit, Parted, Places, Routed, extent_of
from treadle.dialects.diagram import ExtentOp, ReduceOp, WhereOp
from treadle.dialects.diagram.condition import Divided, Entry, Read, Remainder, Term
from treadle.dialects.hierarchy import LoadOp, PieceOp, StreamOp
from treadle.dialects.hierarchy.bounded import bounds_of
from treadle.passes.streams.ranges import Corner, End, Extreme, Found, Gate, Quotient, Range, terms_of
from treadle.passes.streams.visits import Visits

ARITHMETIC: Mapping[type[Operation], Callable[[Amount, Amount], Amount]] = {
    arith.AddiOp: lambda a, b: a + b,
    arith.SubiOp: lambda a, b: a - b,
    arith.MuliOp: lambda a, b: a * b,
    arith.FloorDivSIOp: lambda a, b: a // b,
    arith.CeilDivSIOp: ceil_div,
    arith.CmpiOp: lambda a, b: a >= b,
}


class Side(Enum):
    """What is asked of an end that in part only data say: a number that it is never below, or never above, or none."""

    LEAST = auto()
    MOST = auto()
    EXACT = auto()

    def of_extreme(self, largest: bool, values: Sequence[Amount]) -> Amount:
        """Of the largest or the smallest of some ends, of which those that only data say are None."""
        known = [value for value in values if value is not None]
        is_told = len(known) == len(values) or self is (Side.LEAST if largest else Side.MOST)
        return (most if largest else least)(*known) if known and is_told else None


FED = Side.LEAST, Side.MOST
"""The most that a stream may be fed."""

WHOLE = Side.EXACT, Side.EXACT
"""What is not tested: of data nothing is known."""


# -- of a decorated kernel -------------------------------------------------------------------------


def routed_by(tests: Iterable[Operation], stream: str) -> Routed | Parted | None:
    """Of a stream with limits, the rows of which conditions tell a range for each of its positions, with both ends, or
    the axis of which each position has a range of the stream (`hierarchy.bounded`)."""
    for op in tests:
        bounds = bounds_of(op) if isinstance(op, WhereOp) else None
        if not isinstance(op, WhereOp) or bounds is None or not bounds.begins or not bounds.ends:
            continue
        if bounds.along == stream:
            arrays = (value.owner.source if isinstance(value.owner, LoadOp) else value for value in op.asked.values())
            blocks = (blocks_of(each).get(stream, 1) for each in arrays if isinstance(each, BlockArgument))
            return Routed(bounds.row, min(blocks, default=1))
        if bounds.row == stream:
            return Parted(bounds.along)
    return None


def fed_of_visits(
    visits: Visits, stream: Pieces, cut: tuple[Pieces, ...], tests: Iterable[Operation] = ()
) -> Fed | None:
    """None if the stream is fed all of its axis, and tests nothing or everything; `cut` says how others are cut, and
    `tests` are among the operations of a step."""
    if visits.are_all:
        return None
    ranges = [visits.some, *([visits.every] if visits.every is not None else [])]
    axes = {axis for range in ranges for end in (range.low, range.high) if end is not None for axis in _axes_of(end)}
    routed = routed_by(tests, stream.axis)
    around = tuple(pieces for pieces in cut if pieces.axis in axes or (routed and pieces.axis == routed.axis))
    every = None if visits.every is None else _limits_of(visits.every, stream.axis, WHOLE)
    by_data = any(_is_by_data(end) for range in ranges for end in (range.low, range.high) if end is not None)
    by_data = by_data or visits.selection is not None
    values = {term for range in ranges for end in (range.low, range.high) if end is not None for term in terms_of(end)}
    return Fed(stream, around, _limits_of(visits.some, stream.axis, FED), every, by_data, _extents(values), routed)


def _extents(values: Iterable[Term]) -> frozenset[str]:
    """The axes of which values are the sizes."""
    found = (_extent(value) for value in values if isinstance(value, SSAValue))
    return frozenset(axis for axis in found if axis is not None)


def _extent(value: SSAValue) -> str | None:
    """The axis of which a value is the size."""
    return value.owner.axis.data if isinstance(value.owner, ExtentOp) else None


def are_found_together(visits: Visits) -> bool:
    """Whether the limits of a stream are no numbers of arguments, but what all warps find first: in a search, say."""
    ranges = [visits.some, *([visits.every] if visits.every is not None else [])]
    return any(_is_found(end) for range in ranges for end in (range.low, range.high) if end is not None)


def is_limited_twice(visits: Visits) -> bool:
    """Whether conditions on positions limit a stream at both ends."""
    low, high = visits.some.low, visits.some.high
    return low is not None and high is not None and not _is_by_data(low) and not _is_by_data(high)


def _is_found(end: End) -> bool:
    if isinstance(end, Extreme):
        return any(map(_is_found, end.ends))
    if isinstance(end, Found):
        return True
    terms = [term for term in terms_of(end) if isinstance(term, SSAValue)]
    return any(not isinstance(term, BlockArgument) and _extent(term) is None for term in terms)


def _limits_of(range: Range, axis: str, sides: tuple[Side, Side]) -> tuple[Limit, Limit]:
    def low(places: Places) -> Amount:
        return 0 if range.low is None else _value(range.low, axis, places, sides[0])

    def high(places: Places) -> Amount:
        return places[axis][1] if range.high is None else _value(range.high, axis, places, sides[1])

    return low, high


def _axes_of(end: End) -> Iterator[str]:
    yield from (term for term in terms_of(end) if isinstance(term, str))


def _is_by_data(end: End) -> bool:
    if isinstance(end, Extreme):
        return any(_is_by_data(part) for part in end.ends)
    values = (term for term in terms_of(end) if isinstance(term, SSAValue))
    return isinstance(end, Found) or any(_extent(value) is None for value in values)


def _value(end: End, axis: str, places: Places, side: Side) -> Amount:
    match end:
        case Found():
            return None
        case Quotient(corner, divisor, up, added):
            value = _corner(corner, places)
            return None if value is None else (ceil_div(value, divisor) if up else value // divisor) + added
        case Gate(corner):
            value = _corner(corner, places)
            return None if value is None else choice(value >= 0, places[axis][1], 0)
        case Extreme(largest, ends):
            return side.of_extreme(largest, [_value(part, axis, places, side) for part in ends])


def _corner(corner: Corner, places: Places) -> Amount:
    total = corner.form.constant
    for term, factor in corner.form.terms.items():
        if isinstance(term, Divided):
            value = _divided(term, 1 if factor * corner.sign > 0 else -1, places)
            if value is None:
                return None
            total = total + factor * value
            continue
        axis = _extent(term) if isinstance(term, SSAValue) else term
        if axis is None or isinstance(axis, Read | Entry):
            return None
        if axis is not term:
            total = total + factor * places[extent_of(axis)][1]
            continue
        first, end = places[axis]
        total = total + factor * (end - 1 if factor * corner.sign > 0 else first)
    return total


def _divided(term: Divided, sign: int, places: Places) -> Amount:
    """As `LimitWriter` writes it."""
    low, high = (_corner(Corner(term.form, each), places) for each in (-1, 1))
    if low is None or high is None:
        return None
    if not isinstance(term, Remainder):
        return (high if sign > 0 else low) // term.divisor
    if sign > 0:
        return least(low % term.divisor + (high - low), term.divisor - 1)
    return most(high % term.divisor - (high - low), 0)


# -- of an explicit kernel -------------------------------------------------------------------------


def fed_of_stream(op: StreamOp, cut: tuple[Pieces, ...]) -> Fed | None:
    if op.fed is None:
        return None
    pieces = [value.owner for limit in op.limits for value in _behind(limit)]
    axes = {owner.axis.data for owner in pieces if isinstance(owner, PieceOp)}
    routed = routed_by(op.walk(), op.axis)
    around = tuple(pieces for pieces in cut if pieces.axis in axes or (routed and pieces.axis == routed.axis))
    low, high = map(_limit_of, op.fed, FED)
    every = None if op.whole is None else (_limit_of(op.whole[0], WHOLE[0]), _limit_of(op.whole[1], WHOLE[1]))
    behind = [value for limit in op.limits for value in _behind(limit)]
    by_data = op.selection is not None or any(map(_is_data, behind))
    return Fed(Pieces(op.axis, op.size), around, (low, high), every, by_data, _extents(behind), routed)


def is_stream_limited_twice(op: StreamOp) -> bool:
    """The same of a stream of an explicit kernel."""
    if op.fed is None or any(_is_data(value) for limit in op.fed for value in _behind(limit)):
        return False
    first, end = (limit.owner for limit in op.fed)
    return not isinstance(first, arith.ConstantOp) and not (isinstance(end, PieceOp) and end.axis.data == op.axis)


def are_limits_found_together(op: StreamOp) -> bool:
    """The same of a stream of an explicit kernel."""
    return any(not _is_of_argument(value) for limit in op.limits for value in _behind(limit))


def _is_of_argument(value: SSAValue) -> bool:
    """Whether a number is a size, or what a piece of an argument holds, or the least or the largest of that."""
    match value.owner:
        case PieceOp() | ExtentOp() | arith.ConstantOp() | LoadOp() | Block():
            return True
        case tensor.ExtractOp() | ReduceOp() as op:
            return _is_of_argument(op.operands[0])
        case _:
            return False


def _behind(value: SSAValue) -> Iterator[SSAValue]:
    """What a limit is computed from, before any arithmetic."""
    owner = value.owner
    if isinstance(owner, Operation) and owner.dialect_name() == "arith" and owner.operands:
        for operand in owner.operands:
            yield from _behind(operand)
        return
    yield value


def _is_data(value: SSAValue) -> bool:
    return not isinstance(value.owner, PieceOp | ExtentOp | arith.ConstantOp)


def _limit_of(value: SSAValue, side: Side) -> Limit:
    return lambda places: _evaluate(value, places, side)


def _evaluate(value: SSAValue, places: Places, side: Side = Side.EXACT) -> Amount:
    match value.owner:
        case PieceOp() as op:
            return places[op.axis.data][value is op.end]
        case ExtentOp() as op:
            return places[extent_of(op.axis.data)][1]
        case arith.IndexCastOp() as op:
            return _evaluate(op.input, places)
        case arith.ConstantOp(value=IntegerAttr() as number):
            return number.value.data
        case arith.SelectOp() as op:
            test, yes, no = (_evaluate(operand, places) for operand in op.operands)
            return None if test is None or yes is None or no is None else choice(test, yes, no)
        case arith.MaxSIOp() | arith.MinSIOp() as op:
            values = [_evaluate(operand, places, side) for operand in op.operands]
            return side.of_extreme(isinstance(op, arith.MaxSIOp), values)
        case Operation() as op if type(op) in ARITHMETIC:
            left, right = (_evaluate(operand, places) for operand in op.operands)
            return None if left is None or right is None else ARITHMETIC[type(op)](left, right)
        case _:
            return None
