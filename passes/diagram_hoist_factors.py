"""`diagram-hoist-factors`: move factors out of sums, and positive scales out of maxima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects import arith, func
from xdsl.dialects.builtin import Float16Type, Float32Type, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass

from treadle.dialects.diagram import CastOp, ContractOp, ExtentOp, MapOp, ReduceOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import (
    array_type,
    axes_of,
    format_of,
    level_of,
    sizes_of,
    with_format,
)
from treadle.passes._functions import (
    diagram_blocks,
    erase_dead,
    erase_unused,
    fresh_hint,
    functions,
    label,
    note,
    replace,
)
from treadle.passes.expressions.bounds import (
    distance_of,
    inner_expression,
    is_exact_in,
    is_nonnegative,
    is_positive_scalar,
    misfit,
    peak_of,
)
from treadle.passes.expressions.infinities import is_number_of_nothing, may_be_infinite
from treadle.passes.expressions.moments import without_late_parts
from treadle.passes.expressions.peaks import Peaks
from treadle.passes.expressions.powers import raise_power
from treadle.passes.expressions.reductions import operands_of, rebuilt
from treadle.passes.expressions.scalars import (
    CASTS,
    Constant,
    Expression,
    Leaf,
    Node,
    axes_in,
    build_map,
    compare,
    convert,
    expression_of,
    factors,
    forgets_absences,
    is_number,
    is_plain,
    is_same,
    leaves,
    number,
    positive_constant,
    product,
    quotient,
    select,
    spell,
    strip_casts,
    substitute,
)
from treadle.passes.streams.present_rows import PresentRows

PASS = "diagram-hoist-factors"


@dataclass(frozen=True)
class DiagramHoistFactorsPass(ModulePass):
    """Move a factor that is constant along a summed axis past the sum, if it is known only when a
    reduction over the same axis is finished; and a constant positive scale past a maximum.

    Before:

    ```
    !E = tensor<?x8xf32, #diagram.array<[q, x]>>
    !l = tensor<?xf32, #diagram.array<[q]>>
    !V = tensor<8x?xf32, #diagram.array<[x, e]>>
    !O = tensor<?x?xf32, #diagram.array<[q, e]>>
    func.func @f(%E: !E, %V: !V) -> !O {
      %l = diagram.reduce add %E over [x] : !E -> !l
      %P = diagram.map (%a = %E : !E, %b = %l : !l) -> !E {
        %p = arith.divf %a, %b : f32
        diagram.yield %p : f32
      }
      %O = diagram.contract %P, %V over [x] accumulate f32 : !E, !V -> !O
      func.return %O : !O
    }
    ```

    After:

    ```
    !E = tensor<?x8xf32, #diagram.array<[q, x]>>
    !l = tensor<?xf32, #diagram.array<[q]>>
    !V = tensor<8x?xf32, #diagram.array<[x, e]>>
    !O = tensor<?x?xf32, #diagram.array<[q, e]>>
    func.func @f(%E: !E, %V: !V) -> !O {
      %l = diagram.reduce add %E over [x] : !E -> !l
      %O_sum = diagram.contract %E, %V over [x] accumulate f32 : !E, !V -> !O
      %O = diagram.map (%O_sum_1 = %O_sum : !O, %l_1 = %l : !l) -> !O {
        %0 = arith.divf %O_sum_1, %l_1 : f32
        diagram.yield %0 : f32
      }
      func.return %O : !O
    }
    ```

    Legal over the reals: sum(f * g(x)) = f * sum(g(x)), also of what a condition that is constant along the axis makes
    zero (f is 1 there); and max(c * s(x)) = c * max(s(x)) for c > 0, which holds in floating point as well, because
    rounding is monotone. c may be a number of the program, if it says that it is above zero, as in
    `maximumf(c, 1.0e-30)`. A power is told from its peak, which is a factor that is constant along the axis:
    `exp(s - max(m, k)) = exp(s - m) exp(m - max(m, k))` with m = max(s) (`expressions.peaks`). At last a factor of
    powers below their maximum moves into their exponents (`expressions.powers`).

    Guards:

    - A moved division is not done where the axis may be empty (0 / 0 would be NaN, the plain sum is 0), nor in rows of
      which a condition leaves nothing, if a sum tells which these are: the divisor, or in it one of powers that are 1
      at their extremum.
    - Past a rounding a factor moves only if what stays behind provably fits the narrower format
      (`expressions.bounds.misfit`).
    - The sum itself must not be kept in f16, where it might overflow without the factor.
    - A factor that may be absent stays, for the sum of nothing is there. A peak is 1 in rows without elements, if a
      formula tells which these are."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for block in diagram_blocks(function):
                peaks = Peaks(function)
                for item in list(block.ops):
                    if item.parent is not None:
                        _rewrite(function, item, peaks)
                for item in list(block.ops):
                    if isinstance(item, MapOp):
                        raise_power(function, item)
                erase_dead(block)


def _rewrite(function: func.FuncOp, op: Operation, peaks: Peaks) -> None:
    if isinstance(op, ContractOp) or (isinstance(op, ReduceOp) and op.kind.data == "add"):
        _hoist_from_sum(function, op, peaks)
    elif isinstance(op, ReduceOp) and op.kind.data in ("max", "min"):
        _hoist_from_maximum(function, op)
    if isinstance(op, ReduceOp) and op.parent is not None:
        _move_late_parts(function, op)


def _move_late_parts(function: func.FuncOp, sum: ReduceOp) -> None:
    what = without_late_parts(sum, lambda value: depends_on_reduction(value, sum.over_axes))
    if what is not None:
        note(function, PASS, what, "Taylor's formula, exact for polynomials", "summed about what it is so far")


# -- sums -----------------------------------------------------------------------------------------


@dataclass
class _Split:
    """A summand taken apart: `rest * product(above) / product(below)`, the factors constant along the sum."""

    rest: Expression
    above: list[Expression] = field(default_factory=list[Expression])
    below: list[Expression] = field(default_factory=list[Expression])
    rounded: list[str] = field(default_factory=list[str])
    """What is now rounded before it is scaled, in words."""

    @property
    def moves(self) -> bool:
        return bool(self.above or self.below)


class _Splitter:
    """Looks for factors that are constant along `over`, through maps, products, quotients and casts."""

    def __init__(self, function: func.FuncOp, sum: ContractOp | ReduceOp, peaks: Peaks):
        self.function = function
        self.sum = sum
        self.peaks = peaks
        self.over = sum.over_axes

    def split(self, expression: Expression) -> _Split:
        if not set(axes_in(expression)) & set(self.over):
            return self._split_factor(expression)
        if isinstance(expression, Leaf):
            return self._split_array(expression)
        if not isinstance(expression, Node):
            return _Split(expression)
        if expression.kind in CASTS:
            return self._past_cast(expression.operands[0], expression, str(expression.hint or "it"))
        if expression.kind in (arith.MulfOp, arith.DivfOp):
            return self._split_product(expression)
        if expression.kind is arith.SelectOp:
            return self._split_choice(expression)
        if (told := self.peaks.of(expression, self.sum)) is not None:
            return _Split(told.below, above=[told.peak])
        return _Split(expression)

    def _split_choice(self, node: Node) -> _Split:
        """What is zero where a condition says so that does not vary along the sum: its factors are 1 there."""
        condition, yes, no = node.operands
        if set(axes_in(condition)) & set(self.over) or not (is_number(yes, 0) or is_number(no, 0)):
            return _Split(node)
        split = self.split(no if is_number(yes, 0) else yes)
        if not split.moves:
            return _Split(node)

        def chosen(part: Expression, other: float) -> Expression:
            instead = number(other, part.type)
            return select(condition, *((instead, part) if is_number(yes, 0) else (part, instead)))

        above, below = ([chosen(factor, 1) for factor in factors] for factors in (split.above, split.below))
        return _Split(chosen(split.rest, 0), above, below, split.rounded)

    def _split_factor(self, factor: Expression) -> _Split:
        """What does not vary along the sum moves if it is known late. It must be there in every row: a sum of nothing
        is zero, and its product with what is absent is absent."""
        arrays = [leaf.value for leaf in leaves(factor)]
        if not any(depends_on_reduction(array, self.over) for array in arrays):
            return _Split(factor)
        moved = _Split(number(1), above=[factor])
        if not absences_of(arrays):
            return moved
        self._refuse(_names(moved), "rows of it may be absent, where the sum is zero")
        return _Split(factor)

    def _split_array(self, leaf: Leaf) -> _Split:
        inner = inner_expression(leaf.value)
        if inner is None:
            return _Split(leaf)
        if isinstance(map := leaf.value.owner, MapOp) and forgets_absences(map, inner):
            return _Split(leaf)
        if isinstance(cast := leaf.value.owner, CastOp):
            return self._past_cast(inner, leaf, label(leaf.value), cast.fixed is not None)
        split = self.split(inner)
        return split if split.moves else _Split(leaf)

    def _split_product(self, node: Node) -> _Split:
        left, right = (self.split(operand) for operand in node.operands)
        if not left.moves and not right.moves:
            return _Split(node)
        rounded = [*left.rounded, *right.rounded]
        if node.kind is arith.MulfOp:
            rest = product(left.rest, right.rest)
            return _Split(rest, [*left.above, *right.above], [*left.below, *right.below], rounded)
        rest = quotient(left.rest, right.rest)
        return _Split(rest, [*left.above, *right.below], [*left.below, *right.above], rounded)

    def _past_cast(self, operand: Expression, whole: Expression, name: str, fixed: bool = False) -> _Split:
        """A cast is the identity over the reals; rounding what stays behind must do no harm."""
        split = self.split(operand)
        if not split.moves:
            return _Split(whole)
        if fixed:
            self._refuse(_names(split), f"the program fixes how {name} is rounded")
            return _Split(whole)
        split.rest = convert(split.rest, whole.type)
        if isinstance(whole.type, Float32Type):
            return split
        inner = strip_casts(split.rest)
        if (reason := misfit(inner, whole.type, self.over)) is not None:
            self._refuse(_names(split), f"{name} would be rounded to {whole.type} without it, and {reason}")
            return _Split(whole)
        exact = is_exact_in(inner, whole.type)
        split.rounded.append(f"{name} {'needs no rounding' if exact else 'is rounded'} before it is scaled")
        return split

    def _refuse(self, factor: str, reason: str) -> None:
        subject = f"{factor} stays in the sum {label(self.sum.result)}"
        note(self.function, PASS, subject, "refused", reason)


def _names_in(factor: Expression) -> list[str]:
    return [spell(factor)] if isinstance(factor, Constant) else [label(leaf.value) for leaf in leaves(factor)]


def _names(split: _Split) -> str:
    return ", ".join(label(leaf.value) for e in (*split.above, *split.below) for leaf in leaves(e))


def depends_on_reduction(value: SSAValue, over: Sequence[str]) -> bool:
    """Whether a value is known only when a reduction over one of the axes is finished."""
    seen: set[SSAValue] = set()
    stack = [value]
    while stack:
        op = stack.pop().owner
        if not isinstance(op, Operation):
            continue
        if isinstance(op, ContractOp | ReduceOp) and set(op.over_axes) & set(over):
            return True
        new = [operand for operand in op.operands if operand not in seen]
        seen.update(new)
        stack.extend(new)
    return False


def _hoist_from_sum(function: func.FuncOp, sum: ContractOp | ReduceOp, peaks: Peaks) -> None:
    if sum.init is not None:
        return
    operands = operands_of(sum)
    splitter = _Splitter(function, sum, peaks)
    splits = [splitter.split(Leaf(operand)) for operand in operands]
    if not any(split.moves for split in splits) or any(isinstance(split.rest, Constant) for split in splits):
        return
    if isinstance(_sum_format(sum), Float16Type):
        _stays(function, sum, None, "it is kept in f16 and might overflow without them")
        return
    above, below = _without_constants_of_both(
        [factor for split in splits for factor in split.above], [factor for split in splits for factor in split.below]
    )
    if (infinite := next(filter(may_be_infinite, above), None)) is not None:
        _stays(function, sum, infinite, "it may be infinite, and zero times infinity is no number")
        return
    guarded = bool(absences_of(operands))
    if guarded and (none := next((each for each in above if not is_number_of_nothing(each)), None)) is not None:
        reason = "every element of a row may be absent, where it may be no number and the sum is zero"
        _stays(function, sum, none, reason)
        return
    if (lost := _axis_lost(sum, splits)) is not None:
        _stays(function, sum, None, f"nothing that would be left to sum varies along '{lost}'")
        return
    rests_of = [split.rest for split in splits]
    witnesses = [_witness(each, sum, rests_of, operands) for each in below] if guarded else []
    untold = next((each for each, found in zip(below, witnesses, strict=False) if found is None), None)
    peak = next((each for each in above if _is_peak(each) and not isinstance(each, Constant)), None)
    rows = PresentRows(sum)
    there = rows.write() if guarded and peak is not None else None
    if guarded and there is None and (unsafe := untold or peak) is not None:
        reason = "every element of a row may be absent, and then nothing says what it would divide"
        _stays(function, sum, unsafe, reason if untold is not None else "a row without elements may make it no number")
        return
    rests = [_Materialised(split.rest, operand) for split, operand in zip(splits, operands, strict=True)]
    new_sum = _sum_of(sum, [rest.value for rest in rests])
    guards = [] if guarded else [ExtentOp(axis) for axis in sum.over_axes if _may_be_empty(axis, operands)]
    if not below and all(isinstance(factor, Constant) for factor in above):
        guards = []
    for extent in guards:
        extent.location = sum.location
        extent.result.name_hint = fresh_hint(sum.result, f"extent_{extent.axis.data}")
    guard = _RowGuard(guards, there, witnesses)
    scaled = _scale(Leaf(new_sum.results[0]), above, below, guard)
    hint = sum.result.name_hint
    new = build_map(scaled, sum.result.type, hint, sum.location)
    noted = _noted_of_sum(sum, [*above, *below], splits, guards, guarded and bool(below))
    made = [*(op for rest in rests for op in rest.ops), new_sum, *guards, *rows.made, new]
    replace(sum, made, new.result)
    erase_unused(operands)
    note(function, PASS, *noted)


def _without_constants_of_both(
    above: Sequence[Expression], below: Sequence[Expression]
) -> tuple[list[Expression], list[Expression]]:
    """Factors and divisors without a constant factor of both: `(c a) / (c b) = a / b` of any number but zero."""
    factors, divisors = list(above), list(below)
    for factor in above:
        for i, divisor in enumerate(divisors):
            if isinstance(factor, Constant) and (rest := _rest_without(divisor, factor)) is not None:
                factors.remove(factor)
                divisors[i] = rest
                break
    return factors, divisors


def _rest_without(divisor: Expression, factor: Constant) -> Expression | None:
    """What a product is, but for a constant factor; None where it has none."""
    whole = divisor
    while isinstance(whole, Leaf) and (inner := inner_expression(whole.value)) is not None:
        whole = inner
    if not isinstance(whole, Node) or whole.kind is not arith.MulfOp:
        return None
    left, right = whole.operands
    return left if is_number(right, factor.number) else right if is_number(left, factor.number) else None


def _axis_lost(sum: ContractOp | ReduceOp, splits: Sequence[_Split]) -> str | None:
    """An axis of the sum that none of the arrays has which stay: only the map that takes them apart brings it."""
    kept = {axis for split in splits for axis in axes_in(split.rest)}
    return next((axis for axis in sum.over_axes if axis not in kept), None)


def _stays(function: func.FuncOp, sum: ContractOp | ReduceOp, factor: Expression | None, reason: str) -> None:
    """Note why a factor stays in a sum, or all of them."""
    names = "factors" if factor is None else ", ".join(label(leaf.value) for leaf in leaves(factor))
    verb = "stay" if factor is None else "stays"
    note(function, PASS, f"{names} {verb} in the sum {label(sum.result)}", "refused", reason)


def _sum_format(sum: ContractOp | ReduceOp) -> Attribute:
    return sum.accumulate if isinstance(sum, ContractOp) else format_of(sum.result.type)


def _witness(
    divisor: Expression, sum: ContractOp | ReduceOp, rests: Sequence[Expression], operands: Sequence[SSAValue]
) -> Expression | None:
    """What is zero where every element of a row is absent, and tells that nothing is to be divided: the divisor itself,
    or a sum in it that is above zero in each row that has an element."""
    if _is_sum_of_what_counts(divisor, rests):
        return divisor
    return next((leaf for leaf in leaves(divisor) if _tells_of_each_row(leaf.value, sum, operands)), None)


def _tells_of_each_row(value: SSAValue, sum: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> bool:
    """Whether a value sums, over the very elements that `sum` has, powers of distances from their extremum: that of the
    extremum is one."""
    owner = value.owner
    if not isinstance(owner, ReduceOp) or owner.kind.data != "add" or owner.init is not None:
        return False
    distance = distance_of(Leaf(owner.operand))
    if distance is None or not distance.is_reached or distance.may_vanish or distance.peak < SMALLEST_PEAK:
        return False
    over = set(sum.over_axes)
    same_rows = set(owner.over_axes) == over and set(distance.extremum.over_axes) == over
    return same_rows and absences_of([owner.operand]) == absences_of(operands)


SMALLEST_PEAK = 2.0**-6
"""Of powers in a sum that tells whether a row has an element: no format rounds it to zero."""


def _is_sum_of_what_counts(divisor: Expression, rests: Sequence[Expression]) -> bool:
    """Whether a divisor is a sum of what is never negative and is a factor of all that it divides: it is zero only if
    nothing was there to sum, or all of it was zero, where the plain form divides zero by zero. (Of another factor, or
    other elements, something else than zero might be divided by zero.)"""
    if not isinstance(divisor, Leaf) or not isinstance(sum := divisor.value.owner, ReduceOp):
        return False
    if not is_nonnegative(divisor):
        return False
    return any(_is_array(factor, sum.operand) for rest in rests for factor in factors(strip_casts(rest))[0])


def _is_array(expression: Expression, value: SSAValue) -> bool:
    """Whether an expression is what an array holds, but for casts."""
    inner = inner_expression(value)
    return is_same(expression, Leaf(value)) or (inner is not None and is_same(expression, inner))


def _may_be_empty(axis: str, operands: Sequence[SSAValue]) -> bool:
    """Whether an axis is symbolic or has no element."""
    return any(sizes_of(operand.type).get(axis, 1) < 1 for operand in operands)


class _Materialised:
    """What stays in the sum, as an array: an existing one, a cast of one, or a new map."""

    def __init__(self, rest: Expression, instead_of: SSAValue):
        self.ops: list[Operation] = []
        self.instead_of = instead_of
        self.value = self._array(rest)

    def _array(self, rest: Expression) -> SSAValue:
        if isinstance(rest, Leaf):
            return rest.value
        if isinstance(rest, Node) and rest.kind in CASTS:
            return self._cast(self._array(rest.operands[0]), rest.type)
        sizes = sizes_of(self.instead_of.type)
        order = {axis: sizes[axis] for axis in sizes}
        new = build_map(rest, array_type(rest.type, order), self._hint(), self._location())
        self.ops.append(new)
        return new.result

    def _cast(self, value: SSAValue, format: Attribute) -> SSAValue:
        widened = value.owner
        if isinstance(widened, CastOp) and format_of(widened.operand.type) == format:
            return widened.operand
        cast = CastOp(value, with_format(value.type, format))
        cast.location = self._location() or cast.location
        cast.result.name_hint = self._hint()
        self.ops.append(cast)
        return cast.result

    def _hint(self) -> str | None:
        """The name of what it replaces, if nothing else needs that."""
        name = self.instead_of.name_hint
        return name if self.instead_of.uses.get_length() == 1 else fresh_hint(self.instead_of, name)

    def _location(self):
        owner = self.instead_of.owner
        return owner.location if isinstance(owner, Operation) else None


def _sum_of(sum: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> ContractOp | ReduceOp:
    """The sum of what stays behind, in the format in which it is accumulated: it is rounded once, at the
    end, after scaling. An axis that only the factors have is theirs."""
    left = {axis for operand in operands for axis in axes_of(operand.type)}
    kept = {axis: size for axis, size in sizes_of(sum.result.type).items() if axis in left}
    type = array_type(_sum_format(sum), kept, level_of(sum.result.type))
    new = rebuilt(sum, operands, type)
    base = sum.result.name_hint
    new.result.name_hint = fresh_hint(sum.result, f"{base}_sum" if base else None)
    return new


@dataclass(frozen=True)
class _RowGuard:
    """What tells of a row that it has elements, so that what is scaled of one without stays 0."""

    extents: Sequence[ExtentOp]
    there: Expression | None
    witnesses: Sequence[Expression | None]
    """What is zero in rows without elements, for each divisor; None where `there` tells."""

    def safe(self, factor: Expression) -> Expression:
        """A factor; 1 where a row has no element. One choice a row, not one for each element, which becomes a branch
        around all of them with every result in registers twice."""
        for extent in self.extents:
            size = Leaf(extent.result)
            factor = select(compare(size, ">", number(0, size.type)), factor, number(1, factor.type))
        return factor if self.there is None else select(self.there, factor, number(1, factor.type))

    def of_all(self, scaled: Expression, *, everywhere: bool) -> Expression:
        """What is scaled by factors that were not made safe."""
        for witness in self.witnesses:
            if witness is not None:
                scaled = select(compare(witness, "!=", number(0, witness.type)), scaled, number(0, scaled.type))
        for extent in self.extents if everywhere else ():
            size = Leaf(extent.result)
            scaled = select(compare(size, ">", number(0, size.type)), scaled, number(0, scaled.type))
        return scaled


def _scale(sum: Expression, above: Sequence[Expression], below: Sequence[Expression], guard: _RowGuard) -> Expression:
    """The sum with its factors; of an empty axis it is 0, and stays so. A peak is divided first: what it makes of a
    divisor is the share of the largest power, which no other is above."""
    peaks = [factor for factor in above if _is_peak(factor)]
    others = [factor for factor in above if not _is_peak(factor)]
    scaled = sum
    for factor in others:
        scaled = product(scaled, factor)
    divisors = [divisor if others and guard.there is None else guard.safe(divisor) for divisor in below]
    if peaks:
        height: Expression = number(1)
        for peak in peaks:
            height = product(height, peak if isinstance(peak, Constant) else guard.safe(peak))
        for divisor in divisors:
            height = quotient(height, divisor)
        scaled = product(scaled, height)
    else:
        for divisor in divisors:
            scaled = quotient(scaled, divisor)
    return guard.of_all(scaled, everywhere=bool(others))


def _is_peak(factor: Expression) -> bool:
    """Whether a factor is the finite peak of powers (`expressions.peaks`)."""
    return isinstance(factor, Constant) or peak_of(factor) is not None


def _noted_of_sum(
    sum: ContractOp | ReduceOp,
    moved: Sequence[Expression],
    splits: Sequence[_Split],
    guards: Sequence[ExtentOp],
    guarded: bool,
) -> tuple[str, str, str]:
    """What moved, by which law, and what that does to numbers."""
    names = dict.fromkeys(name for factor in moved for name in _names_in(factor))
    subject = f"{', '.join(names)} past the sum {label(sum.result)} over [{', '.join(sum.over_axes)}]"
    reasons = [text for split in splits for text in split.rounded]
    reasons += [f"where axis '{extent.axis.data}' is empty the result stays 0" for extent in guards]
    reasons += ["where every element is absent the result stays 0"] if guarded else []
    return subject, "linearity of the sum", "; ".join(reasons)


# -- maxima ---------------------------------------------------------------------------------------


def _hoist_from_maximum(function: func.FuncOp, maximum: ReduceOp) -> None:
    scaled = maximum.operand.owner
    if maximum.init is not None or not isinstance(scaled, MapOp) or not is_plain(scaled):
        return
    expression = expression_of(scaled)
    source = _scaled_leaf(expression)
    if source is None or forgets_absences(scaled, expression):
        return
    if format_of(scaled.result.type) != format_of(maximum.result.type):
        return
    if not set(maximum.over_axes) <= set(axes_of(source.value.type)):
        return
    inner = _maximum_of(maximum, source.value)
    outer = substitute(expression, lambda leaf: Leaf(inner.result) if leaf == source else leaf)
    new = build_map(outer, maximum.result.type, maximum.result.name_hint, maximum.location)
    kind = maximum.kind.data
    before = maximum.operand
    subject = f"the positive scale of {label(scaled.result)} past the {kind} {label(maximum.result)}"
    replace(maximum, [inner, new], new.result)
    erase_unused([before])
    note(function, PASS, subject, f"monotonicity of {kind}", "exact: rounding is monotone")


def _scaled_leaf(expression: Expression) -> Leaf | None:
    """The array that an expression multiplies by, or divides by, positive constants and numbers of the program only."""
    if isinstance(expression, Leaf):
        return expression
    if not isinstance(expression, Node) or expression.kind not in (arith.MulfOp, arith.DivfOp):
        return None
    left, right = expression.operands
    if _is_scale(right):
        return _scaled_leaf(left)
    if expression.kind is arith.MulfOp and _is_scale(left):
        return _scaled_leaf(right)
    return None


def _is_scale(expression: Expression) -> bool:
    return positive_constant(expression) is not None or is_positive_scalar(expression)


def _maximum_of(maximum: ReduceOp, operand: SSAValue) -> ReduceOp:
    sizes = sizes_of(operand.type)
    kept = [axis for axis in axes_of(maximum.result.type) if axis in sizes]
    type = array_type(format_of(maximum.result.type), {axis: sizes[axis] for axis in kept})
    new = ReduceOp(maximum.kind.data, operand, maximum.over_axes, type)
    new.location = maximum.location
    base = operand.name_hint
    new.result.name_hint = fresh_hint(maximum.result, f"{base}_{maximum.kind.data}" if base else None)
    return new
