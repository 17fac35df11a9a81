"""Between which powers of two the sums of a contraction lie, by the formats of what it multiplies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import frexp, inf, prod

from xdsl.dialects.builtin import f32
from xdsl.ir import Block, BlockArgument, Region, SSAValue

from treadle.dialects.diagram import ContractOp, FillOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.dialects.hierarchy import StreamOp, YieldOp
from treadle.passes.expressions.lagging import kept_for

LONGEST = 2**31
"""No axis is longer."""


@dataclass(frozen=True)
class Span:
    """Exponents of two."""

    apart: int
    """All finite sums are multiples of this power, rounded or not: two that differ are so far apart, at least."""
    most: int
    """And no finite one is above this power."""


def past_conditions(value: SSAValue) -> SSAValue:
    """What the elements of a value are that a condition leaves."""
    while isinstance(value.owner, WhereOp):
        value = value.owner.operand
    return value


def span_of_maximum(maximum: SSAValue, of: SSAValue) -> Span | None:
    """Of a finite maximum over sums; where a stream takes it on from piece to piece, over those of all pieces."""
    owner = maximum.owner
    if not isinstance(owner, ReduceOp) or owner.operand is not of:
        return None
    if owner.init is None:
        return span_of(past_conditions(of))
    parts = [None if each is None else span_of(past_conditions(each)) for each in _all_pieces(owner.init)]
    known = [each for each in parts if each is not None]
    if not known or len(known) < len(parts):
        return None
    return Span(min(each.apart for each in known), max(each.most for each in known))


def _all_pieces(state: SSAValue) -> Sequence[SSAValue | None]:
    """What the pieces of a stream give to a maximum that is a state of it and begins with -inf: None for what is
    something else, nothing at all where no stream is."""
    stream = state.owner.parent_op() if isinstance(state.owner, Block) else None
    if not isinstance(stream, StreamOp) or not isinstance(state, BlockArgument):
        return ()
    start = _yielded(stream.initialise, state.index).owner
    if not isinstance(start, FillOp) or start.number != -inf:
        return ()
    return [_piece(region, state.index) for region in (stream.step, stream.border) if region is not None]


def _piece(region: Region, place: int) -> SSAValue | None:
    owner = kept_for(_yielded(region, place)).owner
    if not isinstance(owner, ReduceOp) or owner.kind.data != "max" or owner.init is not region.block.args[place]:
        return None
    return owner.operand


def _yielded(region: Region, place: int) -> SSAValue:
    last = region.block.last_op
    assert isinstance(last, YieldOp)
    return last.operands[place]


def span_of(value: SSAValue) -> Span | None:
    """Of sums that begin with nothing, in f32; None where the formats have as many exponents as f32."""
    op = value.owner
    if not isinstance(op, ContractOp) or op.init is not None or op.accumulate != f32 or op.multiply is not None:
        return None
    sides = [number_format(format_of(side.type)) for side in (op.lhs, op.rhs)]
    if not all(side.is_float and side.has_few_exponents for side in sides):
        return None
    sizes = dict(sizes_of(op.lhs.type)) | dict(sizes_of(op.rhs.type))
    count = prod(LONGEST if sizes[axis] == DYNAMIC else sizes[axis] for axis in op.over_axes)
    apart = sum(_exponent(side.tiny) - 1 for side in sides)
    # Each addition may round up: all together to less than e times the sum, for beyond 2^24 of them nothing is added.
    most = sum(_exponent(side.largest) for side in sides) + _exponent(count) + 2
    return Span(apart, most)


def _exponent(size: float) -> int:
    """The exponent of the least power of two above a number, which is one more than that of a power itself."""
    return frexp(size)[1]
