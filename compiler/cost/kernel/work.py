"""The arithmetic of maps, reductions and casts, as instructions for each element.

A multiplication that only feeds an addition is part of it (FFMA), `exp` is one multiplication, which swallows such an
addition before it, and one `ex2`. What depends only on arrays with fewer axes is computed once for each of their
elements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import f32
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, RenameOp, ScanOp, YieldOp
from treadle.dialects.diagram.approximations import is_approximate, is_by_polynomial, is_by_reciprocal, is_one_plus
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import SIXTEEN_BIT, rated_as
from treadle.dialects.diagram.lagging import skips_ones, slack_of
from treadle.dialects.diagram.map import axes_in_body, is_square
from treadle.dialects.diagram.random import RandomOp
from treadle.dialects.diagram.sharing import sharing_of, tested_sharing_of
from treadle.passes.expressions.lagging import lag_of
from treadle.passes.kernels.outer import several_in

FUNCTIONS = {
    **{"math.sqrt": (1, 11), "math.rsqrt": (1, 3), "math.cbrt": (2, 14), "math.powf": (1, 69)},
    **{"math.expm1": (1, 27), "math.log": (0, 25), "math.log2": (0, 27), "math.log10": (0, 26), "math.log1p": (0, 29)},
    **{"math.sin": (0, 30), "math.cos": (0, 30), "math.tan": (1, 29)},
    **{"math.asin": (1, 21), "math.acos": (1, 22), "math.atan": (1, 17), "math.atan2": (1, 46)},
    **{"math.sinh": (2, 21), "math.cosh": (2, 13), "math.tanh": (2, 13), "math.erf": (1, 20)},
    **{"math.asinh": (2, 39), "math.acosh": (1, 41), "math.atanh": (1, 36), "math.round": (0, 3)},
}
"""Instructions of the special-function unit, and others, of what is more than one of them, as ptxas 13.0 has it; not
what only rare arguments take (large ones of `sin`, subnormal ones)."""

APPROXIMATED, ONE_PLUS_APPROXIMATED = {"math.tanh": (2, 3)}, {"math.tanh": (2, 1)}
"""The same where a shorter form is allowed (`diagram-allow-approximations`), with the constants that multiply it and
what it is of; and beside the addition of 1."""

OF_POLYNOMIAL = 10
"""Of `log(1 + exp(x))`, beside the power: a polynomial of degree 8, a maximum, and what puts both together."""

SLOW_FUNCTIONS = frozenset(name for name, (_, others) in FUNCTIONS.items() if others > 10)
"""Those that hold numbers of their own in registers meanwhile."""

CHEAP_FUNCTIONS = ("math.fma", "math.absf", "math.copysign", "math.floor", "math.ceil", "math.trunc", "math.roundeven")
"""One instruction of the ordinary units."""

MODIFIERS, MODIFIED = ("math.absf", "arith.negf"), ("arith.addf", "arith.subf", "arith.mulf")
"""Signs, and what takes operands with another one."""

EXPONENTIALS = ("math.exp", "math.exp2")

CHOICES = (arith.SelectOp, arith.CmpfOp)

DIVISION, OF_DIVISOR = {"float": 3}, {"special": 1, "float": 4}
"""What a quotient takes of what is divided, and of the divisor: `div.full` scales both into the range of the
reciprocal, which elements that one number divides have together (ptxas 13.0)."""

PRODUCT, QUARTER, RECIPROCAL = {"float": 1}, {"float": 1}, {"special": 1.0}
"""What it takes where the divisor is known to be in that range: of the quotient, of what is divided, of the divisor."""

QUARTER_OF_BOTH = {"float": 2}
"""Of a divisor of several elements, and of its reciprocal."""

MULTIPLICATIONS = 3
"""For each reciprocal that is shared: one takes the divisor into a product, and two take it out of the reciprocal."""

TEST = 2
"""For each reciprocal that is shared where divisors are tested: an addition, and its part of a comparison, of a branch
and of where threads meet again."""


RANDOM_WORD, RANDOM_BITS = 23, 8
"""Of a counter under a key: in each of seven rounds a product of 64 bits, which takes two places, and what joins three
words. Of 16 bits, where four elements of a fragment have one counter, and each picks its half."""


SCANNED = {"float": 5, "shuffle": 1}
"""Of an element that is scanned, in a fragment: a pair of neighbours meets with two lanes, each of which takes an
addition for what the lanes have in all and one, under a condition, for what lies before; three more put together what
stands before the pair and what the next one begins with, two add that, and one adds the pair."""


@dataclass(frozen=True)
class Labour:
    """So many instructions of a kind for each element that a lane has of an array with these axes."""

    kind: str
    factor: float
    axes: tuple[str, ...]


def width_of(type: Attribute) -> int:
    """Bytes of a value."""
    return format_of(type).size


def axes_touched(op: Operation) -> tuple[str, ...]:
    """Every axis of an operation's arrays, reduced ones included."""
    values = (*op.operands, *op.results)
    return tuple(dict.fromkeys(axis for value in values for axis in axes_of(value.type)))


def multiply_format(op: ContractOp) -> str:
    """The format that a product multiplies in; `f32` is for the CUDA cores."""
    return "tf32" if op.is_tf32 else rated_as(str(format_of(op.lhs.type)))


def is_tensor_product(op: ContractOp) -> bool:
    return multiply_format(op) in ("f8", "i8", *SIXTEEN_BIT, "tf32")


def keeps_left_operand(op: ContractOp) -> bool:
    """Whether what is computed becomes a left operand in registers; other operands go through shared memory."""
    return multiply_format(op) in ("f8", "i8", *SIXTEEN_BIT)


def labours_of(op: Operation) -> list[Labour]:
    """What an operation other than a product computes; nothing of what is seldom done."""
    if skips_ones(op):
        return []
    if isinstance(op, MapOp):
        return list(_of_map(op))
    if isinstance(op, ReduceOp):
        return [Labour("lagging" if _lags(op) else "float", 1, axes_touched(op))]
    if isinstance(op, ScanOp):
        return [Labour(kind, each, axes_touched(op)) for kind, each in SCANNED.items()]
    if isinstance(op, RenameOp):  # a word each to shared memory, and from there
        return [Labour("shared", 1, axes_of(value.type)) for value in (op.operand, op.result)]
    return [rounding_to(op.result.type)] if isinstance(op, CastOp) else []


def _lags(op: ReduceOp) -> bool:
    """Whether a stream may keep an older one than this extremum, or does."""
    users = [use.operation for use in op.result.uses]
    return slack_of(op) is not None or any(isinstance(user, MapOp) and bool(lag_of(user.result)) for user in users)


def rounding_to(type: Attribute) -> Labour:
    """One conversion makes a pair of narrow numbers."""
    pairs = 2 if width_of(type) <= 2 else 1
    return Labour("convert", 1 / pairs, axes_of(type))


def _of_map(op: MapOp) -> Iterator[Labour]:
    axes = axes_in_body(op)
    for scalar in op.body.block.ops:
        if isinstance(scalar, arith.DivfOp):
            yield from _of_division(scalar, axes)
            continue
        found = tuple(dict.fromkeys(axis for operand in scalar.operands for axis in axes[operand]))
        for kind, factor in _instructions(scalar, axes).items():
            if factor and found:
                yield Labour(kind, factor, found)


def _of_division(op: arith.DivfOp, axes: dict[SSAValue, tuple[str, ...]]) -> Iterator[Labour]:
    if isinstance(op.rhs.owner, arith.ConstantOp):  # a multiplication by what nvcc makes of it
        kinds = {op.result: {"float": 1}}
    elif not is_by_reciprocal(op):
        kinds = {op.result: DIVISION, op.rhs: OF_DIVISOR}
    elif tested_sharing_of(op) is not None and not isinstance(op.lhs.owner, arith.ConstantOp):
        kinds = {op.result: PRODUCT, op.rhs: _shared(op, is_quotient=True)}
    elif isinstance(op.lhs.owner, arith.ConstantOp):
        kinds = {op.rhs: _shared(op, is_quotient=True) or RECIPROCAL}
    elif set(axes[op.rhs]) < set(axes[op.lhs]):
        kinds = {op.result: PRODUCT, op.rhs: {**RECIPROCAL, **QUARTER_OF_BOTH}}
    else:
        kinds = {op.result: PRODUCT, op.lhs: QUARTER, op.rhs: RECIPROCAL}
    for value, factors in kinds.items():
        if axes.get(value):
            yield from (Labour(kind, factor, axes[value]) for kind, factor in factors.items())


def _shared(op: Operation, is_quotient: bool) -> dict[str, float]:
    """What an element takes of a reciprocal that several share; nothing where none do. That of a quotient is multiplied
    by a constant, once for all of them."""
    tested, sharing = tested_sharing_of(op), sharing_of(op)
    count = tested or (sharing[1] if sharing is not None else 1)
    if count == 1:
        return {}
    others = MULTIPLICATIONS * (count - 1) + is_quotient + (TEST if tested else 0)
    return {"special": 1 / count, "float": others / count}


def _instructions(scalar: Operation, axes: dict[SSAValue, tuple[str, ...]]) -> Mapping[str, float]:
    if isinstance(scalar, arith.ConstantOp) or scalar.name == "diagram.yield" or _is_swallowed(scalar, axes):
        return {}
    if isinstance(scalar, CHOICES):
        return {"select": 1}
    if is_approximate(scalar):
        one_plus = all(is_one_plus(use.operation) for use in scalar.results[0].uses)
        special, others = (ONE_PLUS_APPROXIMATED if one_plus else APPROXIMATED)[scalar.name]
        if shared := _shared(scalar, is_quotient=False):
            special, others = special - 1 + shared["special"], others + shared["float"]
        return {"special": special, "float": others}
    if is_by_polynomial(scalar):
        return {"float": OF_POLYNOMIAL}
    if isinstance(scalar, RandomOp):
        return {"float": RANDOM_BITS if scalar.are_shared else RANDOM_WORD}
    if scalar.name in FUNCTIONS:
        return dict(zip(("special", "float"), FUNCTIONS[scalar.name], strict=True))
    if scalar.name.startswith("math.") and scalar.name not in CHEAP_FUNCTIONS:
        return {"special": 1, "float": 0 if scalar.name == "math.exp2" and _argument_counts(scalar) else 1}
    return {"float": 1}


def _argument_counts(exponential: Operation) -> bool:
    """Whether the multiplication before an `ex2` stands there already."""
    return isinstance(exponential.operands[0].owner, Operation)


def _is_swallowed(scalar: Operation, axes: dict[SSAValue, tuple[str, ...]]) -> bool:
    """Whether an operation is part of the only one that uses it, which has the same axes, or of a shorter form."""
    if _scales_approximation(scalar) or _clips_divisor(scalar):
        return True
    uses = [use.operation for use in scalar.results[0].uses] if scalar.results else []
    if len(uses) != 1:
        return False
    (user,) = uses
    if isinstance(user, YieldOp) and _is_summed_square(scalar, user):
        return True
    if scalar.name in MODIFIERS and scalar.results[0].type == f32 and _takes_signs(user):
        return True
    at = {axis for operand in user.operands for axis in axes.get(operand, ())}
    if at != set(axes[scalar.results[0]]):
        return False
    if scalar.name == "arith.mulf":
        return user.name in ("arith.addf", "arith.subf") or _scales_exponent(scalar, axes)
    if scalar.name not in ("arith.addf", "arith.subf"):
        return False
    return user.name == "math.exp" or _shifts_exponent(user) or _scales_exponent(user, axes)


def _is_summed_square(scalar: Operation, end: YieldOp) -> bool:
    """Whether a square is made where it is summed (`printer.summands`), so that both are one multiply-add: of arrays of
    which none has all axes."""
    made = end.parent_op()
    if not isinstance(made, MapOp) or not is_square(made) or made.yielded.owner is not scalar:
        return False
    every = several_in(made.result)
    if any(every <= several_in(operand) for operand in made.inputs):
        return False
    users = [use.operation for use in made.result.uses]
    return len(users) == 1 and isinstance(users[0], ReduceOp) and users[0].kind.data == "add"


def _takes_signs(user: Operation) -> bool:
    """Whether an instruction takes operands with another sign: what adds, multiplies or compares; also if that is what
    reduces all that a map makes."""
    if not isinstance(user, YieldOp):
        return user.name in MODIFIED
    made = user.parent_op()
    reductions = [use.operation for use in made.results[0].uses] if isinstance(made, MapOp) else []
    kinds = {op.kind.data if isinstance(op, ReduceOp) else "" for op in reductions}
    return bool(kinds) and kinds <= {"add", "max", "min"}


def _scales_exponent(op: Operation, axes: dict[SSAValue, tuple[str, ...]]) -> bool:
    """Whether an exponent is multiplied by one number for all elements: it goes into the multiplication of `exp`."""
    users = [use.operation.name for use in op.results[0].uses] if op.results else []
    return op.name == "arith.mulf" and any(not axes.get(each) for each in op.operands) and users == ["math.exp"]


def _shifts_exponent(op: Operation) -> bool:
    """Whether a constant is added to an exponent: it goes into what all elements subtract."""
    users = [use.operation.name for use in op.results[0].uses] if op.results else []
    is_sum = op.name == "arith.addf" and any(isinstance(each.owner, arith.ConstantOp) for each in op.operands)
    return is_sum and users == ["math.exp"]


def _clips_divisor(op: Operation) -> bool:
    """Whether an operation keeps a divisor in the range of those that share a reciprocal: a flag of what makes it."""
    users = [use.operation for use in op.results[0].uses] if isinstance(op, arith.MinimumfOp) else []
    return bool(users) and all(sharing_of(user) is not None for user in users)


def _scales_approximation(op: Operation) -> bool:
    """Whether a constant multiplies what a shorter form is of, or that: both have such a factor anyway."""
    if op.name != "arith.mulf" or not any(isinstance(each.owner, arith.ConstantOp) for each in op.operands):
        return False
    users = [use.operation for use in op.results[0].uses]
    owners = [each.owner for each in op.operands if isinstance(each.owner, Operation)]
    return all(map(is_approximate, users)) or any(map(is_approximate, owners))
