"""Structured operations of `linalg`, named or generic, in one form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    AnyFloat,
    DenseIntOrFPElementsAttr,
    FloatAttr,
    IntegerAttr,
    ShapedType,
    TensorType,
    UnknownLoc,
)
from xdsl.dialects.linalg.abstract_ops import LinalgStructuredOperation
from xdsl.dialects.linalg.attrs import IteratorType
from xdsl.dialects.linalg.ops import BroadcastOp, ReduceOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue
from xdsl.ir.affine import (
    AffineBinaryOpExpr,
    AffineBinaryOpKind,
    AffineConstantExpr,
    AffineDimExpr,
    AffineExpr,
)

from treadle.dialects.diagram.array import FORMATS, Number, format_of
from treadle.dialects.diagram.formats import number_format


class Stays(Exception):
    """Why an operation cannot be raised."""


@dataclass(frozen=True)
class Position:
    """Where along one dimension an operand is read: a sum of loops, each with a factor, and a constant."""

    terms: tuple[tuple[int, int], ...]
    constant: int = 0

    @property
    def loop(self) -> int | None:
        """The loop, if the position is one loop and nothing else."""
        return self.terms[0][0] if len(self.terms) == 1 and self.terms[0][1] == 1 and not self.constant else None


@dataclass(frozen=True)
class Structured:
    """Loops around a body that computes one element of each result from one element of each operand."""

    op: Operation
    places: tuple[tuple[Position, ...], ...]
    """For each operand its position along each of its dimensions."""
    loops: int
    reduced: frozenset[int]
    """Loops along which results are combined; the others are weaved."""
    body: Block

    @property
    def operands(self) -> Sequence[SSAValue]:
        """Inputs, then what each result starts from."""
        return self.op.operands

    @property
    def results(self) -> Sequence[SSAValue]:
        return self.op.results

    @property
    def inputs(self) -> int:
        """How many of the operands are no starts of results."""
        return len(self.operands) - len(self.results)

    @property
    def yielded(self) -> Sequence[SSAValue]:
        terminator = self.body.last_op
        assert terminator is not None
        return terminator.operands


STRUCTURED = (LinalgStructuredOperation, ReduceOp, BroadcastOp)


def structured(op: Operation) -> Structured:
    """The loops and the body of a structured operation (Stays)."""
    if not op.results:
        raise Stays("it writes to buffers: raise before bufferization, while operands are tensors")
    if isinstance(op, ReduceOp):
        return _reduce(op)
    if isinstance(op, BroadcastOp):
        return _broadcast(op)
    assert isinstance(op, LinalgStructuredOperation)
    maps = [attribute.data for attribute in op.get_indexing_maps()]
    kinds = [kind.data for kind in op.get_iterator_types()]
    if any(kind not in (IteratorType.PARALLEL, IteratorType.REDUCTION, IteratorType.WINDOW) for kind in kinds):
        raise Stays("a loop is neither parallel nor a reduction")
    reduced = frozenset(i for i, kind in enumerate(kinds) if kind is not IteratorType.PARALLEL)
    places = tuple(tuple(_position(result) for result in each.results) for each in maps)
    return Structured(op, places, len(kinds), reduced, op.body.block)


def check_results(op: Structured) -> None:
    """Refuse results that are not written once for each turn of the loops that are not reduced (Stays)."""
    for places in op.places[op.inputs :]:
        loops = [place.loop for place in places if place.terms or place.constant]
        if set(loops) != set(range(op.loops)) - op.reduced or len(set(loops)) != len(loops):
            raise Stays("a result is not written once for each turn of the parallel loops")


def _reduce(op: ReduceOp) -> Structured:
    rank = _rank(op.input)
    reduced = frozenset(op.dimensions.get_values())
    kept = tuple(_loop(i) for i in range(rank) if i not in reduced)
    places = (tuple(_loop(i) for i in range(rank)), kept)
    return Structured(op, places, rank, reduced, op.region.block)


def _broadcast(op: BroadcastOp) -> Structured:
    rank = _rank(op.init)
    added = op.dimensions.get_values()
    places = (tuple(_loop(i) for i in range(rank) if i not in added), tuple(_loop(i) for i in range(rank)))
    return Structured(op, places, rank, frozenset(), op.hidden_region.block)


def _rank(value: SSAValue) -> int:
    assert isinstance(value.type, ShapedType)
    return len(value.type.get_shape())


def _loop(number: int) -> Position:
    return Position(((number, 1),))


def _position(expression: AffineExpr) -> Position:
    terms, constant = _linear(expression)
    return Position(tuple((loop, factor) for loop, factor in sorted(terms.items()) if factor), constant)


def _linear(expression: AffineExpr) -> tuple[dict[int, int], int]:
    """Factors of the loops, and the constant (Stays)."""
    match expression:
        case AffineDimExpr():
            return {expression.position: 1}, 0
        case AffineConstantExpr():
            return {}, expression.value
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Add):
            (left, a), (right, b) = _linear(expression.lhs), _linear(expression.rhs)
            return {loop: left.get(loop, 0) + right.get(loop, 0) for loop in {**left, **right}}, a + b
        case AffineBinaryOpExpr(kind=AffineBinaryOpKind.Mul):
            (left, a), (right, b) = _linear(expression.lhs), _linear(expression.rhs)
            if left and right:
                raise Stays(f"position '{expression}' is not affine in the loops")
            terms, factor = (left, b) if left else (right, a)
            return {loop: number * factor for loop, number in terms.items()}, a * b
        case _:
            raise Stays(f"position '{expression}' is not a sum of loops with constant factors")


def needed(value: SSAValue, body: Block) -> list[Operation]:
    """The operations of a body that a value is computed by, in order."""
    found: set[Operation] = set()
    waiting = [value]
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, Operation) and owner.parent is body and owner not in found:
            found.add(owner)
            waiting += owner.operands
    return [op for op in body.ops if op in found]


def outside(value: SSAValue, body: Block) -> list[SSAValue]:
    """What a value is made of that the body does not compute: its arguments, and values of the function around."""
    ops = needed(value, body)
    made = {result for op in ops for result in op.results}
    used: Iterable[SSAValue] = (value, *(operand for op in ops for operand in op.operands))
    return [each for each in dict.fromkeys(used) if each not in made]


def argument_of(value: SSAValue, body: Block) -> int | None:
    """The number of the operand of which a scalar is an element."""
    return value.index if isinstance(value, BlockArgument) and value.owner is body else None


def constant_of(value: SSAValue) -> Number | None:
    """The number that a scalar is, or that every element of an array is."""
    owner = value.owner
    if isinstance(owner, arith.ConstantOp):
        return _number(owner.value)
    if getattr(owner, "name", None) == "linalg.fill" and isinstance(owner, Operation):
        number = constant_of(owner.operands[0])
        return number if number is not None and number.type == format_of(value.type) else None  # else it casts
    return None


def _number(attribute: Attribute) -> Number | None:
    if isinstance(attribute, DenseIntOrFPElementsAttr):
        numbers = cast("tuple[Attribute, ...]", attribute.get_attrs())
        return _number(numbers[0]) if len(set(numbers)) == 1 else None
    return cast(Number, attribute) if isinstance(attribute, FloatAttr | IntegerAttr) else None


def check_constant(value: SSAValue) -> None:
    """Refuse a dense constant that may have been misread (Stays). Our parser reads `dense<0xFF800000>` as upstream
    does, and gives every operation its place; that of xDSL 0.74 takes the bits for the number itself."""
    owner = value.owner
    if not isinstance(owner, arith.ConstantOp) or not is_tensor(value) or not isinstance(owner.location, UnknownLoc):
        return
    number = constant_of(value)
    if isinstance(number, FloatAttr) and format_of(value.type) in FORMATS and _may_be_bits(number):
        raise Stays(
            f"xDSL reads dense<0x...> as a number, and {number.value.data:g} may be the bits of an infinity or NaN: "
            "make a scalar constant and linalg.fill"
        )


def _may_be_bits(number: FloatAttr[AnyFloat]) -> bool:
    """Whether a number is what the bits of an infinity or NaN are as a whole number, rounded to the format."""
    format = number.type
    sign = 2 ** (8 * format.compile_time_size - 1)
    first = int.from_bytes(format.pack([float("inf")]), "little")
    largest = number_format(format).largest
    ranges = [(start, min(start | (sign - 1), largest)) for start in (first, first | sign)]
    return any(_rounded(low, format) <= number.value.data <= _rounded(high, format) for low, high in ranges)


def _rounded(number: float, format: AnyFloat) -> float:
    return FloatAttr(float(number), format).value.data


def is_tensor(value: SSAValue) -> bool:
    return isinstance(value.type, TensorType)
