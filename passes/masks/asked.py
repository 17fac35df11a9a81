"""What a choice in a map asks of positions, as the text of a condition (`dialects.diagram.condition`).

A map compares integers that are made of positions (`diagram.index`) and sizes: sums, products with constants,
quotients and remainders by constants, in the forms in which `//` and `%` are written as well as shifts and bits, and
the larger or the smaller of two, as distances are. Truth
values may be numbers in between, 0 or 1, as PyTorch's masks are.

Maps compute in 32 bits, which wrap around; conditions say what is so of whole numbers. So what is compared or divided
must stay within 32 bits, for all positions that there may be."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import inf

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr, i1, i32
from xdsl.ir import Block, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ExtentOp, FillOp, IndexOp, MapOp
from treadle.dialects.diagram.array import DYNAMIC, format_of, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.dialects.diagram.formats import BYTES
from treadle.dialects.diagram.linear import Atom, ends_of, leaves_64_bits, quotient_of, remainder_of, spelled
from treadle.passes.expressions.inner import inner_expression
from treadle.passes.expressions.scalars import CASTS, Constant, Expression, Leaf, Node, inside_out, leaves


@dataclass(frozen=True)
class Asked:
    """The text of a condition, and the sizes that it names."""

    text: str
    join: str = field(default="", compare=False)
    """`and` or `or`, if that is what the text joins last."""
    inputs: Mapping[str, SSAValue] = field(default_factory=dict[str, SSAValue])
    axes: frozenset[str] = frozenset()
    """Those whose positions it compares."""


def asked(expression: Expression, *, negated: bool = False) -> Asked | None:
    """What a truth value (i1) asks of positions, or its negation; None where it asks for something else."""
    expression = opened(expression)
    if not isinstance(expression, Node) or expression.type != i1:
        return None
    if expression.kind in (arith.CmpiOp, arith.CmpfOp):
        return _comparison(expression, negated)
    if len(expression.operands) != 2:
        return None
    left, right = expression.operands
    if expression.kind is arith.XOrIOp and (rest := _other_than(1, left, right)) is not None:
        return asked(rest, negated=not negated)
    if expression.kind in (arith.AndIOp, arith.OrIOp):
        both = (expression.kind is arith.AndIOp) != negated
        return _joined("and" if both else "or", asked(left, negated=negated), asked(right, negated=negated))
    return None


def opened(expression: Expression) -> Expression:
    """The expression behind the names of maps of positions: what these say is part of whatever reads it. A cast that
    may change a number stays."""
    while isinstance(expression, Leaf) and is_of_positions(expression):
        owner = expression.value.owner
        if isinstance(owner, FillOp):
            return Constant(owner.value)
        inner = inner_expression(expression.value)
        if inner is None or (isinstance(owner, CastOp) and not is_of_whole_numbers(owner)):
            break
        expression = inner
    return expression


def is_of_whole_numbers(cast: CastOp) -> bool:
    """Whether a cast widens integers, or does nothing."""
    source, target = format_of(cast.operand.type), format_of(cast.result.type)
    return source == target or (str(source) in BYTES and target == i32)


def is_of_positions(expression: Expression) -> bool:
    """Whether an expression is made of positions, sizes and constants alone, of the block that is looked at."""
    known = _POSITIONS.get()
    return all(leaf.value in known for leaf in leaves(expression))


MOST_PARTS = 1000
"""Of what is made of positions. All of it is followed part by part, however often a part is used: a mask has a few."""

_POSITIONS: ContextVar[Mapping[SSAValue, float]] = ContextVar("positions", default={})  # noqa: B039 (nobody changes it)


@contextmanager
def positions_of(block: Block) -> Generator[None]:
    """Look at a block: find its arrays that are made of positions, sizes and constants alone, in one walk."""
    parts: dict[SSAValue, float] = {}
    for op in block.ops:
        if isinstance(op, IndexOp | ExtentOp | FillOp):
            parts[op.result] = 1
        elif isinstance(op, CastOp | MapOp) and (count := _parts(op, parts)) <= MOST_PARTS:
            parts[op.result] = count
    token = _POSITIONS.set(parts)
    try:
        yield
    finally:
        _POSITIONS.reset(token)


def _parts(op: CastOp | MapOp, known: Mapping[SSAValue, float]) -> float:
    """Of how many parts the result of an operation is made, each counted as often as it is used; infinite if it is made
    of something else than what is known."""
    if op.operands and known.keys().isdisjoint(op.operands):
        return inf
    inner = inner_expression(op.result)
    if inner is None or any(leaf.value not in known for leaf in leaves(inner)):
        return inf
    parts: dict[Expression, float] = {}
    for part in inside_out(inner):
        match part:
            case Leaf():
                parts[part] = known[part.value]
            case Node():
                parts[part] = 1 + sum(parts[operand] for operand in part.operands)
            case Constant():
                parts[part] = 1
    return 1 + parts[inner]


# -- truth values ----------------------------------------------------------------------------------

_PREDICATES = ("==", "!=", "<", "<=", ">", ">=")
"""Of `arith.cmpi`, by their numbers, but those of integers without a sign."""
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TURNED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

_OF_FLOATS = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 6: "!="}
"""Of `arith.cmpf`; those that hold of NaN, too, have the numbers from 8 on."""

_IF_ONE = ((">", 0), ("!=", 0), ("==", 1), (">=", 1))
_IF_ZERO = (("<=", 0), ("==", 0), ("!=", 1), ("<", 1))
_HOLDS: dict[tuple[str, float], bool] = {**dict.fromkeys(_IF_ONE, True), **dict.fromkeys(_IF_ZERO, False)}
"""Whether 1 is what is asked for where 0 or 1 is compared with a number."""


def _comparison(node: Node, negated: bool) -> Asked | None:
    relation = _relation(node)
    if relation is None:
        return None
    left, right = map(opened, node.operands)
    for one, other, said in ((left, right, relation), (right, left, _TURNED[relation])):
        if isinstance(other, Constant) and (holds := _HOLDS.get((said, other.number))) is not None:
            truth = _truth(one, negated=holds == negated)
            if truth is not None:
                return truth
    return _between(left, _OPPOSITE[relation] if negated else relation, right)


def _between(left: Expression, relation: str, right: Expression) -> Asked | None:
    """What is so of two integers."""
    for one, other, said in ((left, right, relation), (right, left, _TURNED[relation])):
        if isinstance(one, Node) and one.kind in (arith.MaxSIOp, arith.MinSIOp):
            return _of_extreme(one, said, other)
    forms = linear(left), linear(right)
    if forms[0] is None or forms[1] is None or _wraps(left, forms[0]) or _wraps(right, forms[1]):
        return None
    return _compared(forms[0], relation, forms[1])


def _of_extreme(node: Node, relation: str, other: Expression) -> Asked | None:
    """What is so of the larger or the smaller of two integers, as of a distance, the larger of `x` and `-x`."""
    if relation in ("==", "!="):
        ends, join = (("<=", ">="), "and") if relation == "==" else (("<", ">"), "or")
        return _joined(join, *(_of_extreme(node, each, other) for each in ends))
    is_both = (node.kind is arith.MaxSIOp) == (relation in ("<", "<="))
    return _joined("and" if is_both else "or", *(_between(opened(each), relation, other) for each in node.operands))


def _relation(node: Node) -> str | None:
    predicate = node.properties["predicate"]
    assert isinstance(predicate, IntegerAttr)
    number = predicate.value.data
    if node.kind is arith.CmpfOp:
        return _OF_FLOATS.get(number % 7) if number < 15 else None
    return _PREDICATES[number] if number < len(_PREDICATES) else None


def _truth(expression: Expression, *, negated: bool) -> Asked | None:
    """What a number that is 0 or 1 asks where it is 1; None if it is not told to be such a one."""
    expression = opened(expression)
    if not isinstance(expression, Node) or not expression.operands:
        return None
    kind, operands = expression.kind, expression.operands
    if kind is arith.SelectOp and {_number(each) for each in operands[1:]} == {0, 1}:
        return asked(operands[0], negated=negated != (_number(operands[1]) == 0))
    if kind in _WIDER:
        is_bit = operands[0].type == i1
        return (asked if is_bit and kind is not arith.ExtSIOp else _truth)(operands[0], negated=negated)
    if kind in _BOTH or kind in _ONE:
        if (rest := _other_than(1 if kind in _BOTH else 0, *operands)) is not None:
            return _truth(rest, negated=negated)
        join = "and" if (kind in _BOTH) != negated else "or"
        return _joined(join, *(_truth(each, negated=negated) for each in operands))
    is_other = kind in (arith.SubiOp, arith.SubfOp) and _number(operands[0]) == 1
    rest = operands[1] if is_other else _other_than(1, *operands) if kind is arith.XOrIOp else None
    return None if rest is None else _truth(rest, negated=not negated)


_BOTH: tuple[type[Operation], ...] = (arith.MuliOp, arith.AndIOp, arith.MinSIOp, arith.MulfOp, arith.MinimumfOp)
_ONE: tuple[type[Operation], ...] = (arith.MaxSIOp, arith.OrIOp, arith.MaximumfOp)
"""Of 0 and 1, that both are 1, and that one is."""
_WIDER: tuple[type[Operation], ...] = (arith.ExtSIOp, arith.ExtUIOp, arith.SIToFPOp, arith.UIToFPOp, *CASTS)


def _other_than(number: int, left: Expression, right: Expression) -> Expression | None:
    """What is joined with a constant (of one bit, 1 may be read as -1)."""
    for one, other in ((left, right), (right, left)):
        found = _number(one)
        if found is not None and (found == number or (one.type == i1 and abs(found) == number)):
            return other
    return None


def _joined(join: str, left: Asked | None, right: Asked | None) -> Asked | None:
    if left is None or right is None:
        return None
    parts = [f"({each.text})" if each.join not in ("", join) else each.text for each in (left, right)]
    return Asked(f" {join} ".join(parts), join, {**left.inputs, **right.inputs}, left.axes | right.axes)


def _compared(left: Linear, relation: str, right: Linear) -> Asked | None:
    if leaves_64_bits(left.plus(right, -1).plus(Linear({}, 1))):
        return None
    atoms = list(dict.fromkeys([*left.atoms, *right.atoms]))
    inputs = {_name_of(atom): atom for atom in atoms if isinstance(atom, SSAValue)}
    axes = frozenset(atom for atom in atoms if isinstance(atom, str))
    return Asked(f"{spelled(left, _name_of)} {relation} {spelled(right, _name_of)}", "", inputs, axes)


def _name_of(atom: Atom) -> str:
    """An axis by its name, a size by a name that no axis has: only axes of the program are short."""
    if isinstance(atom, SSAValue):
        assert isinstance(atom.owner, ExtentOp)
        return f"size_of_{atom.owner.axis.data}"
    return str(atom)


# -- integers --------------------------------------------------------------------------------------

MOST_POSITIONS = 2**28
"""Of an axis whose size is known only at launch: a few of them may be added and multiplied within 32 bits."""


def _wraps(expression: Expression, form: Linear) -> bool:
    """Whether an integer may leave 32 bits at some positions, where a map computes it. What is added to it on the way
    makes no difference, as numbers that wrap around are still equal up to multiples of 2^32."""
    sizes = dict(_positions(expression))

    def ends(atom: Atom) -> tuple[int, int]:
        size = sizes.get(atom, DYNAMIC) if isinstance(atom, str) else DYNAMIC
        return (0, MOST_POSITIONS) if size == DYNAMIC else (0, max(size - 1, 0))

    low, high = ends_of(form, ends)
    return low < -(2**31) or high >= 2**31


def _positions(expression: Expression) -> Iterator[tuple[str, int]]:
    """The axes whose positions an expression is made of, with their sizes."""
    for leaf in leaves(expression):
        inner = opened(leaf)
        if inner is not leaf:
            yield from _positions(inner)
        elif isinstance(owner := leaf.value.owner, IndexOp):
            yield owner.axis, sizes_of(leaf.value.type)[owner.axis]


def linear(expression: Expression) -> Linear | None:
    """An integer as a form of positions and sizes; None if it is something else."""
    expression = opened(expression)
    match expression:
        case Constant() if expression.type == i32:
            return Linear({}, int(expression.number))
        case Leaf(value=SSAValue(owner=IndexOp(axis=axis))):
            return Linear({axis: 1})
        case Leaf(value=SSAValue(owner=ExtentOp()) as size):
            return Linear({size: 1})
        case Node() if expression.type == i32:
            return _of_operation(expression)
        case _:
            return None


def _of_operation(node: Node) -> Linear | None:
    if (divided := _modulo(node)) is not None:
        return divided
    if len(node.operands) != 2:
        return None
    left, right = map(linear, node.operands)
    if left is None or right is None:
        return None
    if node.kind in (arith.AddiOp, arith.SubiOp):
        return left.plus(right, 1 if node.kind is arith.AddiOp else -1)
    if node.kind is arith.MuliOp and not (left.terms and right.terms):
        return left.times(right.constant) if left.terms else right.times(left.constant)
    if right.terms or (node.kind in _DIVIDES and _wraps(node.operands[0], left)):
        return None
    return _by_number(node.kind, left, right.constant)


_DIVIDES: tuple[type[Operation], ...] = (arith.ShRSIOp, arith.FloorDivSIOp)
"""Not the lowest bits, which no multiple of 2^32 changes."""


def _by_number(kind: type[Operation], form: Linear, number: int) -> Linear | None:
    """A form shifted, divided, or cut to its lowest bits, by a constant."""
    if kind is arith.ShLIOp and 0 <= number < 31:
        return form.times(1 << number)
    if kind is arith.ShRSIOp and 0 <= number < 31:
        return quotient_of(form, 1 << number)
    if kind is arith.FloorDivSIOp and number > 0:
        return quotient_of(form, number)
    if kind is arith.AndIOp and number > 0 and (number + 1).bit_count() == 1:
        return remainder_of(form, number + 1)
    return None


def _modulo(node: Node) -> Linear | None:
    """`a % n` as it is written where signs may differ: the remainder `r` of `a / n`, which has the sign of `a`, or
    `r + n` if it is below zero."""
    match node:
        case Node(kind=arith.SelectOp, operands=(test, Node(kind=arith.AddiOp, operands=(rest, added)), other)):
            pass
        case _:
            return None
    if rest is not other or not isinstance(rest, Node) or rest.kind is not arith.RemSIOp:
        return None
    divided, divisor = linear(rest.operands[0]), _whole(rest.operands[1])
    if divided is None or divisor is None or divisor <= 0 or _whole(added) != divisor:
        return None
    if _wraps(rest.operands[0], divided):
        return None
    return remainder_of(divided, divisor) if _is_below_zero(test, rest, divisor) else None


def _is_below_zero(test: Expression, rest: Node, divisor: int) -> bool:
    """Whether a test is `rest != 0 and (rest < 0) != (divisor < 0)`."""
    match test:
        case Node(kind=arith.AndIOp, operands=(differs, Node(kind=arith.XOrIOp, operands=(below, turned)))):
            is_constant = isinstance(turned, Node) and _compares(turned, "<", 0, constant=divisor)
            return _compares(differs, "!=", 0, rest) and _compares(below, "<", 0, rest) and is_constant
        case _:
            return False


def _compares(
    test: Expression, relation: str, number: int, of: Expression | None = None, *, constant: int | None = None
) -> bool:
    if not isinstance(test, Node) or test.kind is not arith.CmpiOp:
        return False
    predicate, (left, right) = test.properties["predicate"], test.operands
    assert isinstance(predicate, IntegerAttr)
    is_it = left is of if of is not None else _whole(left) == constant
    return is_it and predicate.value.data == _PREDICATES.index(relation) and _whole(right) == number


def _number(expression: Expression) -> float | None:
    """The number of a constant."""
    expression = opened(expression)
    return expression.number if isinstance(expression, Constant) else None


def _whole(expression: Expression) -> int | None:
    """The number of an integer constant."""
    expression = opened(expression)
    if isinstance(expression, Constant) and isinstance(expression.attribute, IntegerAttr):
        return int(expression.number)
    return None


__all__ = ["Asked", "asked", "is_of_positions", "linear", "opened", "positions_of"]
