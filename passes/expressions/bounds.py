"""What can be proved about the values of an array at compile time: linear forms, signs, magnitudes.

All of it is conservative: "unknown" is always a right answer, and passes refuse on it."""

from __future__ import annotations

import math as numbers
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import CastOp, ContractOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import format_of, is_array
from treadle.dialects.diagram.formats import NUMBER_FORMATS, holds, known_format, number_format
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    compare,
    expression_of,
    is_number,
    is_plain,
    leaves,
    positive_constant,
    same_predicate,
    strip_casts,
    walk,
)


@dataclass(frozen=True)
class Scaled:
    """A summand times a number above zero that is known only when the program runs: what computes it, and the
    summand."""

    by: Hashable
    atom: SSAValue | Leaf | None


Atom = SSAValue | Leaf | Scaled | int | None
"""A summand of a linear form: an array, an array at another moment, either times a number of the program, another
expression (by identity), or `None` for the constant."""


def inner_expression(value: SSAValue) -> Expression | None:
    """What a value computes from others, element by element: the body of its map, or through a cast. It speaks of the
    elements that are there; whether it tells which, `forgets_absences` knows."""
    owner = value.owner
    if isinstance(owner, MapOp) and is_plain(owner):
        return expression_of(owner)
    if isinstance(owner, CastOp):
        return Leaf(owner.operand)
    return None


def is_saturating(expression: Expression) -> bool:
    """Whether an expression is a cast to a format that saturates: where it does, it is not the identity."""
    if isinstance(expression, Leaf):
        owner = expression.value.owner
        source = format_of(owner.operand.type) if isinstance(owner, CastOp) else expression.type
    elif isinstance(expression, Node) and expression.kind is arith.TruncFOp:
        source = expression.operands[0].type
    else:
        return False
    known = known_format(expression.type)
    return known is not None and known.saturates and not holds(expression.type, source)


FAR_FROM_OVERFLOW = 2.0**90
"""A bound of elements of which as many as there may be have a finite sum in f32."""

LEAST = 2.0**-100
"""What a factor of a program must reach for what it scales not to vanish."""


# -- linear forms ---------------------------------------------------------------------------------


def linear_form(expression: Expression) -> dict[Atom, float]:
    """An expression as a sum of constant multiples, over the reals: `0.5 * (a - b)` is {a: 0.5, b: -0.5}.

    Maps that are linear themselves are looked through; anything else is one atom. An extremum for which a number stands
    while it is neutral is that extremum, for over the reals it is one."""
    form: dict[Atom, float] = {}
    _add_form(expression, 1.0, form)
    return {atom: factor for atom, factor in form.items() if factor}


def _add_form(expression: Expression, scale: float, form: dict[Atom, float]) -> None:
    if is_saturating(expression):
        return _count(form, _atom(expression), scale)
    if isinstance(expression, Node) and expression.kind in CASTS:
        return _add_form(expression.operands[0], scale, form)
    if isinstance(expression, Node) and (r := stood_for(expression)) is not None:
        return _count(form, r, scale)
    match expression:
        case Constant():
            _count(form, None, scale * expression.number)
        case Leaf():
            _add_leaf(expression, scale, form)
        case Node(kind=arith.AddfOp, operands=(left, right)):
            _add_form(left, scale, form)
            _add_form(right, scale, form)
        case Node(kind=arith.SubfOp, operands=(left, right)):
            _add_form(left, scale, form)
            _add_form(right, -scale, form)
        case Node(kind=arith.NegfOp, operands=(operand,)):
            _add_form(operand, -scale, form)
        case Node(kind=arith.MulfOp, operands=(Constant() as factor, other)):
            _add_form(other, scale * factor.number, form)
        case Node(kind=arith.MulfOp, operands=(other, Constant() as factor)):
            _add_form(other, scale * factor.number, form)
        case Node(kind=arith.DivfOp, operands=(other, Constant() as divisor)) if divisor.number:
            _add_form(other, scale / divisor.number, form)
        case Node(kind=arith.MulfOp, operands=(other, factor)) if is_positive_scalar(factor):
            _add_scaled(expression, other, factor, scale, form)
        case Node(kind=arith.MulfOp, operands=(factor, other)) if is_positive_scalar(factor):
            _add_scaled(expression, other, factor, scale, form)
        case _:
            _count(form, id(expression), scale)


def _add_scaled(
    whole: Expression, other: Expression, factor: Expression, scale: float, form: dict[Atom, float]
) -> None:
    """Each summand of `other` times a number of the program; the whole is one atom if that is none of them."""
    inner = linear_form(other)
    if any(isinstance(atom, int | Scaled) for atom in inner):
        return _count(form, id(whole), scale)
    by = _spelled(factor)
    for atom, size in inner.items():
        assert not isinstance(atom, int | Scaled)
        _count(form, Scaled(by, atom), scale * size)


def _spelled(expression: Expression) -> Hashable:
    """Equal for expressions of numbers that compute the same in the same way."""
    if isinstance(expression, Leaf):
        return (expression.value, expression.version)
    if isinstance(expression, Constant):
        return expression.number
    return (expression.kind, *(_spelled(operand) for operand in expression.operands))


def unscaled(form: dict[Atom, float]) -> dict[Atom, float]:
    """A form without the number above zero by which all of it is multiplied, if there is one: its sign is the same."""
    scales = {atom.by if isinstance(atom, Scaled) else None for atom in form}
    if len(scales) != 1 or None in scales:
        return form
    return {atom.atom if isinstance(atom, Scaled) else atom: size for atom, size in form.items()}


def is_positive_scalar(expression: Expression) -> bool:
    """Whether an expression is a number of the program, the same for all elements, that is not near zero either."""
    if isinstance(expression, Constant) or any(is_array(leaf.value.type) for leaf in leaves(expression)):
        return False
    return least(expression) >= LEAST


def _atom(expression: Expression) -> Atom:
    """A part that is not taken apart."""
    if not isinstance(expression, Leaf):
        return id(expression)
    return expression if expression.version else expression.value


def _add_leaf(leaf: Leaf, scale: float, form: dict[Atom, float]) -> None:
    if leaf.version:
        _count(form, leaf, scale)
        return
    inner = inner_expression(leaf.value)
    if inner is not None:
        expanded = linear_form(inner)
        if not any(isinstance(atom, int) for atom in expanded):
            for atom, factor in expanded.items():
                _count(form, atom, scale * factor)
            return
    _count(form, leaf.value, scale)


def _count(form: dict[Atom, float], atom: Atom, factor: float) -> None:
    form[atom] = form.get(atom, 0.0) + factor


def stood_for(expression: Expression) -> SSAValue | None:
    """The extremum that an expression is, but for the zero that stands for it while it is neutral: `r == -inf ? 0 :
    r`."""
    if isinstance(expression, Leaf) and not expression.version:
        inner = inner_expression(expression.value)
        return None if inner is None or isinstance(inner, Leaf) else stood_for(inner)
    match expression:
        case Node(
            kind=arith.SelectOp,
            operands=(Node(kind=arith.CmpfOp, operands=(Leaf() as tested, Constant() as neutral)) as test, yes, no),
        ):
            is_equal = same_predicate(test, compare(tested, "==", neutral))
            if not is_equal and not same_predicate(test, compare(tested, "!=", neutral)):
                return None
            instead, chosen = (yes, no) if is_equal else (no, yes)
            is_it = chosen == tested and is_number(instead, 0) and _is_neutral_of(neutral, tested.value)
            return tested.value if is_it else None
        case _:
            return None


def _is_neutral_of(constant: Constant, value: SSAValue) -> bool:
    owner = value.owner
    start = {"max": -numbers.inf, "min": numbers.inf}
    return isinstance(owner, ReduceOp) and owner.init is None and start.get(owner.kind.data) == constant.number


def same_form(left: dict[Atom, float], right: dict[Atom, float]) -> bool:
    return left.keys() == right.keys() and all(numbers.isclose(left[atom], right[atom]) for atom in left)


# -- exponentials of a distance from an extremum -------------------------------------------------


@dataclass(frozen=True)
class Distance:
    """An expression of the form `exp(k * (a - max a) + c)`, `k > 0`: at most `peak`, which it is where a is largest; or
    of a minimum, with `k < 0`. Each element that it has counts in the extremum."""

    extremum: ReduceOp
    peak: float = 1.0
    is_reached: bool = True
    """Whether it has all the elements of the extremum, so that one of a row is at the peak."""
    may_vanish: bool = False
    """Whether a number stands for the extremum while it is neutral, so that all of such a row is zero instead."""


def distance_of(expression: Expression) -> Distance | None:
    """The maximum, or the minimum, that an expression is an exponential distance from."""
    arrays = [leaf.value for leaf in leaves(expression)]
    expression = look_through(expression)
    if not isinstance(expression, Node) or expression.kind not in (math.ExpOp, math.Exp2Op):
        return None
    form = linear_form(expression.operands[0])
    raised = form.pop(None, 0.0)
    raised *= numbers.log2(numbers.e) if expression.kind is math.ExpOp else 1.0
    if not numbers.log2(LEAST) <= raised <= numbers.log2(FAR_FROM_OVERFLOW):
        return None  # f32 may have no number for it, or for sums of it
    peak = 2.0**raised
    form = unscaled(form)
    for atom, factor in form.items():
        if not isinstance(atom, SSAValue):
            continue
        extremum = atom.owner
        if not isinstance(extremum, ReduceOp) or extremum.init is not None:
            continue
        if extremum.kind.data != ("max" if factor < 0 else "min"):
            continue
        rest = {other: size for other, size in form.items() if other is not atom}
        operand = {o: -factor * s for o, s in linear_form(Leaf(extremum.operand)).items()}
        if same_form(rest, operand):
            stands = _has_stand_in(expression)
            return _compared(extremum, peak, arrays, stands)
    return None


def _has_stand_in(expression: Expression) -> bool:
    """Whether a number stands for an extremum somewhere in an expression."""
    for part in walk(expression):
        inner = inner_expression(part.value) if isinstance(part, Leaf) and not part.version else None
        if stood_for(part) is not None or (inner is not None and _has_stand_in(inner)):
            return True
    return False


def is_beyond(power: Expression) -> bool:
    """Whether a power is raised by a constant so large that sums of it may overflow in f32."""
    if not isinstance(power, Node) or power.kind not in (math.ExpOp, math.Exp2Op):
        return False
    raised = linear_form(power.operands[0]).get(None, 0.0)
    binary = raised * (numbers.log2(numbers.e) if power.kind is math.ExpOp else 1.0)
    return binary > numbers.log2(FAR_FROM_OVERFLOW)


def _compared(extremum: ReduceOp, peak: float, arrays: Iterable[SSAValue], stands: bool) -> Distance | None:
    """The distance of what is made of some arrays; None if it has elements that the extremum leaves out, which may be
    beyond it."""
    left_out, absent = absences_of([extremum.operand]), absences_of(arrays)
    if not left_out <= absent:
        return None
    return Distance(extremum, peak, is_reached=absent <= left_out, may_vanish=stands)


def peak_of(expression: Expression) -> float | None:
    """An upper bound of a power `exp(u)` with `u` at most a constant, whatever its arrays are, as in `exp(m - max(m,
    k))`; None if there is none, or f32 has no number for it."""
    expression = look_through(expression)
    if not isinstance(expression, Node) or expression.kind not in (math.ExpOp, math.Exp2Op):
        return None
    most = _most_of_form(expression.operands[0])
    if most is None:
        return None
    binary = most * (numbers.log2(numbers.e) if expression.kind is math.ExpOp else 1.0)
    return 2.0**binary if binary < numbers.log2(NUMBER_FORMATS["f32"].largest) else None


def _most_of_form(exponent: Expression) -> float | None:
    """A constant that an expression is at most, since a maximum is taken off of which the rest is a part, or a minimum
    added."""
    form = linear_form(exponent)
    nodes = {id(part): part for part in walk(exponent)}
    for atom, factor in form.items():
        whole = Leaf(atom) if isinstance(atom, SSAValue) else nodes.get(atom) if isinstance(atom, int) else None
        if whole is None:
            continue
        for part in _parts(look_through(whole), arith.MaximumfOp if factor < 0 else arith.MinimumfOp):
            rest = {other: size for other, size in form.items() if other != atom}
            for other, size in linear_form(part).items():
                rest[other] = rest.get(other, 0.0) + factor * size
            if not any(size for other, size in rest.items() if other is not None):
                return rest.get(None, 0.0)
    return None


def _parts(expression: Expression, kind: type[Operation]) -> list[Expression]:
    """Of what an extremum is the extremum; nothing where an expression is none."""
    if not isinstance(expression, Node) or expression.kind is not kind:
        return []
    return [each for part in expression.operands for each in _parts(look_through(part), kind) or [part]]


def look_through(expression: Expression) -> Expression:
    """The expression behind casts and behind the names of maps."""
    while True:
        expression = strip_casts(expression)
        if not isinstance(expression, Leaf) or (inner := inner_expression(expression.value)) is None:
            return expression
        expression = inner


# -- signs ----------------------------------------------------------------------------------------


def is_nonnegative(expression: Expression) -> bool:
    """Whether no value of an expression is below zero, proved from its form."""
    expression = look_through(expression)
    match expression:
        case Constant():
            return expression.number >= 0
        case Leaf():
            return _is_nonnegative_array(expression.value)
        case Node(kind=math.ExpOp | math.Exp2Op | math.AbsFOp | math.SqrtOp | math.RsqrtOp):
            return True
        case Node(kind=arith.MulfOp, operands=(left, right)) if left is right or left == right:
            return True
        case Node(kind=arith.MulfOp | arith.DivfOp | arith.AddfOp, operands=operands):
            return all(is_nonnegative(operand) for operand in operands)
        case Node(kind=arith.MaximumfOp, operands=operands):
            return any(is_nonnegative(operand) for operand in operands)
        case Node(kind=arith.SIToFPOp, operands=(operand,)):
            return is_nonnegative(operand)
        case _:
            return False


def _is_nonnegative_array(value: SSAValue) -> bool:
    owner = value.owner
    if not isinstance(owner, Operation):
        return False
    if isinstance(owner, WhereOp):
        return is_nonnegative(Leaf(owner.operand))
    if isinstance(owner, ReduceOp):
        return owner.kind.data in ("add", "mul") and owner.init is None and is_nonnegative(Leaf(owner.operand))
    if isinstance(owner, ContractOp):
        square = owner.lhs is owner.rhs and owner.init is None
        return square or (owner.init is None and is_nonnegative(Leaf(owner.lhs)) and is_nonnegative(Leaf(owner.rhs)))
    return owner.name == "diagram.extent"


def is_positive(expression: Expression) -> bool:
    """Whether every value is above zero *and* finite, for finite leaves: it has an inverse."""
    expression = look_through(expression)
    match expression:
        case Constant():
            return 0 < expression.number < numbers.inf
        case Node(kind=arith.AddfOp, operands=(left, right)):
            return (is_positive(left) and is_nonnegative(right)) or (is_positive(right) and is_nonnegative(left))
        case Node(kind=arith.MulfOp | arith.DivfOp, operands=operands):
            return all(is_positive(operand) for operand in operands)
        case Node(kind=math.SqrtOp | math.RsqrtOp | math.ExpOp | math.Exp2Op, operands=(operand,)):
            return expression.kind in (math.ExpOp, math.Exp2Op) or is_positive(operand)
        case Node(kind=arith.MaximumfOp, operands=operands):
            return any(is_positive(operand) for operand in operands)
        case _:
            return False


# -- magnitudes -----------------------------------------------------------------------------------


def magnitude(expression: Expression, unknown: float = numbers.inf) -> float:
    """An upper bound of the absolute value; where none is known, `unknown` stands for it."""
    expression = strip_casts(expression)
    if isinstance(expression, Leaf):
        inner = inner_expression(expression.value)
        known = known_format(expression.type)
        own = known.largest if known is not None and known.has_few_exponents else unknown
        return own if inner is None else min(own, magnitude(inner, unknown))
    if isinstance(expression, Constant):
        return abs(expression.number)
    if (near := distance_of(expression)) is not None:
        return near.peak
    return _magnitude_of_node(expression, unknown)


def most_in(format: Attribute, expression: Expression) -> float:
    """An upper bound of the absolute value of what is to be rounded to a format, computed in f32. Of what is beyond the
    largest f32 the plain form is infinite, too, so a format of as many exponents takes that where no bound is known."""
    is_narrow = number_format(format).has_few_exponents
    return magnitude(expression, numbers.inf if is_narrow else NUMBER_FORMATS["f32"].largest)


def _magnitude_of_node(node: Node, unknown: float) -> float:
    operands = node.operands
    match node.kind:
        case math.SinOp | math.CosOp | math.TanhOp | math.ErfOp:
            return 1.0
        case arith.NegfOp | math.AbsFOp:
            return magnitude(operands[0], unknown)
        case arith.AddfOp | arith.SubfOp:
            return sum(magnitude(operand, unknown) for operand in operands)
        case arith.MulfOp:
            return _times(magnitude(operands[0], unknown), magnitude(operands[1], unknown))
        case arith.DivfOp if is_share(operands[0], operands[1]):
            return 1.0
        case math.ExpOp if _is_share_by_logarithm(operands[0]):
            return 1.0
        case arith.DivfOp if (smallest := least(operands[1])) > 0:
            return magnitude(operands[0], unknown) / smallest
        case arith.MaximumfOp | arith.MinimumfOp:
            return max(magnitude(operand, unknown) for operand in operands)
        case arith.SelectOp:
            return max(magnitude(operand, unknown) for operand in operands[1:])
        case _:
            return unknown


def is_share(part: Expression, whole: Expression) -> bool:
    """Whether `whole` is the sum of values of which `part` is one, none of them negative."""
    part, whole = strip_casts(part), look_through(whole)
    if not isinstance(part, Leaf) or not isinstance(whole, Leaf):
        return False
    sum = whole.value.owner
    if not isinstance(sum, ReduceOp) or sum.kind.data != "add" or sum.init is not None:
        return False
    return sum.operand is part.value and is_nonnegative(part)


def _is_share_by_logarithm(exponent: Expression) -> bool:
    """Whether an exponent is that of powers, less the logarithm of their sum. Each element that it has counts in it."""
    form, absent = linear_form(exponent), absences_of(leaf.value for leaf in leaves(exponent))
    for atom, factor in form.items():
        sum = logarithm_of(atom) if isinstance(atom, SSAValue) and factor == -1 else None
        if sum is None or not isinstance(sum.owner, ReduceOp) or sum.owner.kind.data != "add" or sum.owner.init:
            continue
        power = look_through(Leaf(sum.owner.operand))
        if (
            not isinstance(power, Node)
            or power.kind is not math.ExpOp
            or not absences_of([sum.owner.operand]) <= absent
        ):
            continue
        rest = {other: size for other, size in form.items() if other is not atom}
        if same_form(rest, linear_form(power.operands[0])):
            return True
    return False


def logarithm_of(value: SSAValue) -> SSAValue | None:
    """The array that a value is the natural logarithm of, element by element."""
    match inner_expression(value):
        case Node(kind=math.LogOp, operands=(Leaf(value=inner),)):
            return inner
        case _:
            return None


def is_far_from_overflow(expression: Expression) -> bool:
    """Whether an expression is finite in f32: bounded, or a sum of bounded elements, or of such."""
    expression = look_through(expression)
    match expression:
        case Leaf(value=value) if isinstance(value.owner, ReduceOp) and value.owner.kind.data == "add":
            return value.owner.init is None and magnitude(Leaf(value.owner.operand)) <= FAR_FROM_OVERFLOW
        case Node(kind=arith.AddfOp, operands=operands):
            return all(is_far_from_overflow(each) for each in operands)
        case _:
            return magnitude(expression) <= FAR_FROM_OVERFLOW


def _times(left: float, right: float) -> float:
    return 0.0 if 0.0 in (left, right) else left * right


def least(expression: Expression) -> float:
    """A lower bound of an expression that is not negative; zero if none is known."""
    expression = look_through(expression)
    if isinstance(expression, Constant):
        return max(expression.number, 0.0)
    if isinstance(expression, Node) and expression.kind is arith.AddfOp and is_nonnegative(expression):
        return sum(least(operand) for operand in expression.operands)
    if isinstance(expression, Node) and expression.kind is arith.MaximumfOp:
        return max(least(operand) for operand in expression.operands)
    return 0.0


def misfit(expression: Expression, format: Attribute, over: Iterable[str]) -> str | None:
    """Why an expression may not be rounded to a narrower format before it is summed over `over` (and
    scaled afterwards), or None if it may.

    It must not overflow, nor saturate. In a format of few exponents it must not vanish either: a row that is tiny
    throughout would lose what the scale afterwards was to bring back. So it must come from that format, or reach 1
    somewhere along the sum: then the scale afterwards, a share of that sum, shrinks what rounding loses."""
    if is_exact_in(expression, format):
        return None
    known = number_format(format)
    if (bound := most_in(format, expression)) > known.largest:
        most = "no bound is known" if bound == numbers.inf else f"it may reach {bound:.3g}"
        return f"it may overflow {format} ({most})"
    if not known.has_few_exponents:
        return None
    scale, distance = _scaled_distance(_where_it_counts(expression, over))
    is_near = scale >= 1 and distance is not None and distance.is_reached
    if distance is None or not is_near or not set(distance.extremum.over_axes) <= set(over):
        return f"all of a sum may be too small for {format}: nothing keeps its largest element near 1"
    return None


def _where_it_counts(expression: Expression, over: Iterable[str]) -> Expression:
    """An expression in the rows that are not zero as a whole, which a condition says that does not vary along them."""
    expression = look_through(expression)
    while isinstance(expression, Node) and expression.kind is arith.SelectOp:
        condition, yes, no = expression.operands
        varies = bool(set(axes_in(condition)) & set(over))
        if varies or not any(is_number(part, 0) for part in (yes, no)):
            return expression
        expression = look_through(no if is_number(yes, 0) else yes)
    return expression


def _scaled_distance(expression: Expression) -> tuple[float, Distance | None]:
    """An expression as a positive constant times an exponential distance."""
    expression = look_through(expression)
    if not isinstance(expression, Node) or expression.kind is not arith.MulfOp:
        return _with_peak(distance_of(expression))
    for factor, other in (expression.operands, expression.operands[::-1]):
        if (constant := positive_constant(factor)) is not None:
            scale, distance = _scaled_distance(other)
            return constant * scale, distance
    return 1.0, None


def _with_peak(distance: Distance | None) -> tuple[float, Distance | None]:
    return (1.0 if distance is None else distance.peak), distance


def is_exact_in(expression: Expression, format: Attribute) -> bool:
    """Whether an expression is an array of that format, or of one that it holds, widened."""
    while True:
        if isinstance(expression, Leaf) and holds(format, expression.type):
            return True
        if isinstance(expression, Node) and expression.kind is arith.ExtFOp:
            expression = expression.operands[0]
        elif isinstance(expression, Leaf) and isinstance(expression.value.owner, CastOp):
            narrow = expression.value.owner.operand
            if not holds(expression.type, format_of(narrow.type)):
                return False
            expression = Leaf(narrow)
        else:
            return False
