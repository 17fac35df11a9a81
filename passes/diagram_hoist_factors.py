"""`diagram-hoist-factors`: move factors out of sums, and positive scales out of maxima."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import Float16Type, ModuleOp
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import ContractOp, ExtentOp, MapOp, ReduceOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import (
    array_type,
    axes_of,
    format_of,
    level_of,
    sizes_of,
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
from treadle.passes.expressions.infinities import is_number_of_nothing, may_be_infinite
from treadle.passes.expressions.moments import without_late_parts
from treadle.passes.expressions.peaks import Peaks
from treadle.passes.expressions.polynomials import key_of
from treadle.passes.expressions.powers import PASS, raise_power
from treadle.passes.expressions.reductions import operands_of, rebuilt
from treadle.passes.expressions.scalars import (
    Constant,
    Expression,
    Leaf,
    axes_in,
    build_map,
    leaves,
)
from treadle.passes.factors.maxima import hoist_from_condition, hoist_from_maximum
from treadle.passes.factors.reach import stay_in_range
from treadle.passes.factors.rest import Materialised
from treadle.passes.factors.rows import RowGuard, may_be_empty, witness_of
from treadle.passes.factors.scaled import is_peak, scale, without_constants_of_both
from treadle.passes.factors.split import Split, Splitter, depends_on_reduction, names_in
from treadle.passes.factors.tested_shares import NOTHING_ASKED, Asked, ask_of_scores
from treadle.passes.kernels.in_turn import split_sums_between
from treadle.passes.streams.present_rows import PresentRows


@dataclass(frozen=True)
class DiagramHoistFactorsPass(ModulePass):
    """Move a factor that is constant along a summed axis past the sum, if it is known only when a
    reduction over the same axis is finished; and a number past a sum of a product, and if positive past a maximum and a
    condition that stands before it.

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

    Legal over the reals: sum(f * g(x)) = f * sum(g(x)), also of what a condition makes zero (f is 1 in rows that one
    which is constant along the axis leaves out); and max(c * s(x)) = c * max(s(x)) for c > 0, which holds in floating
    point as well, because rounding is monotone. c may be a number of the program, if it says that it is above zero, as
    in `maximumf(c, 1.0e-30)`. A power is told from its peak, which is a factor that is constant along the axis:
    `exp(s - max(m, k)) = exp(s - m) exp(m - max(m, k))` with m = max(s) (`expressions.peaks`), and a share that is
    written as a power is one that is divided: `exp(u - log v) = exp(u) / v` (`factors.logarithms`). A sum of powers
    times a polynomial of what is late is one about what the stream has so far, and sums of derivatives
    (`expressions.moments`). Tests of shares ask of their scores (`factors.tested_shares`), and a sum over several axes
    is first one over those along which factors are told (`kernels.in_turn`). At last a factor of powers below their
    maximum moves into their exponents (`expressions.powers`).

    Guards:

    - A factor leaves a choice whose condition varies along the sum only if that is made of random bits alone, and what
      it divides by is above zero, on both sides of a choice of rows. (Data may leave out a whole row, which is zero
      then, whatever its scores are.) Powers whose sum divides them are multiplied by what is chosen.
    - A moved division is not done where the axis may be empty (0 / 0 would be NaN, the plain sum is 0), nor in rows of
      which a condition leaves nothing, if a sum tells which these are: the divisor, or in it one of powers that are 1
      at their extremum.
    - Past a rounding a factor moves only if what stays behind provably fits the narrower format
      (`expressions.misfit`), together with others that are constant along the axis and at most 1 if need be. A divisor
      that is at least 1 leaves what varies along the axis beside it: `exp(s - m) / l * t[x]`, where `t` has a bound.
    - The sum itself must not be kept in f16, where it might overflow without the factor.
    - Of several factors one leaves, unless what stays is bounded: `sum((x / m)^2)` keeps the range that it was scaled
      for, and of `(q / |q|) (k / |k|)` in f32 one quotient is summed (`factors.reach`).
    - A factor that may be absent stays, for the sum of nothing is there. A peak is 1 in rows without elements, if a
      formula tells which these are."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for block in diagram_blocks(function):
                split_sums_between(function, block, PASS)
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
        asked = _ask_of_scores(function, op, peaks) if isinstance(op, ReduceOp) else op
        op = _hoist_from_sum(function, op, peaks) if asked is op else asked
    elif isinstance(op, ReduceOp) and op.kind.data in ("max", "min"):
        hoist_from_maximum(function, op)
    elif isinstance(op, WhereOp):
        hoist_from_condition(function, op)
    if isinstance(op, ReduceOp) and op.parent is not None:
        _move_late_parts(function, op)


def _ask_of_scores(function: func.FuncOp, sum: ReduceOp, peaks: Peaks) -> ContractOp | ReduceOp:
    """The sum of what stays of one that tests shares, if it can ask of their scores; the sum itself of others."""

    def is_late(part: Expression) -> bool:
        return any(depends_on_reduction(leaf.value, sum.over_axes) for leaf in leaves(part))

    asked, name = ask_of_scores(sum, is_late), label(sum.result)
    if asked is None or sum.init is not None:
        return sum
    whole, hint = sum.operand, sum.operand.name_hint
    map = build_map(asked.summand, whole.type, fresh_hint(sum.result, hint), sum.location)
    Rewriter.insert_op(map, InsertPoint.before(sum))
    sum.operands[0] = map.result
    hoisted = _hoist_from_sum(function, sum, peaks, asked)
    if hoisted is sum:  # its divisors stay
        sum.operands[0] = whole
        return sum
    note(function, PASS, f"tests of shares in the sum {name}", "exp(s) is zero where s is -inf")
    return hoisted


def _move_late_parts(function: func.FuncOp, sum: ReduceOp) -> None:
    what = without_late_parts(sum, lambda value: depends_on_reduction(value, sum.over_axes))
    if what is not None:
        note(function, PASS, what, "Taylor's formula, exact for polynomials", "summed about what it is so far")


def _hoist_from_sum(
    function: func.FuncOp, sum: ContractOp | ReduceOp, peaks: Peaks, asked: Asked = NOTHING_ASKED
) -> ContractOp | ReduceOp:
    """The sum of what stays, or the sum itself."""
    if sum.init is not None:
        return sum
    operands = operands_of(sum)
    splits = _splits_in_range(function, sum, operands, Splitter(function, sum, peaks, asked))
    if not any(split.moves for split in splits) or any(isinstance(split.rest, Constant) for split in splits):
        return sum
    above, below = without_constants_of_both(
        [factor for split in splits for factor in split.above], [factor for split in splits for factor in split.below]
    )
    if not asked.divisors <= {key_of(factor) for factor in below}:
        return sum
    if (why := _why_they_stay(sum, operands, splits, above)) is not None:
        _stays(function, sum, *why)
        return sum
    rows, guarded = PresentRows(sum), bool(absences_of(operands))
    guard = _told_of_rows(sum, operands, splits, above, below, rows) if guarded else RowGuard([], None, [])
    if not isinstance(guard, RowGuard):
        _stays(function, sum, *guard)
        return sum
    if not guarded and not (not below and all(isinstance(factor, Constant) for factor in above)):
        guard = RowGuard(_extents(sum, operands), None, [])
    return _scale_after(function, sum, splits, (above, below), guard, rows)


def _splits_in_range(
    function: func.FuncOp, sum: ContractOp | ReduceOp, operands: Sequence[SSAValue], splitter: Splitter
) -> list[Split]:
    """What moves past a sum of each array, without what keeps numbers in the range of f32."""
    splits = [splitter.split(Leaf(operand)) for operand in operands]
    for i, split in enumerate(splits):
        if not stay_in_range(splits) and split.moves:
            _stays(function, sum, (*split.above, *split.below), "with others, they keep numbers in the range of f32")
            splits[i] = Split(Leaf(operands[i]))
    return splits


_Why: TypeAlias = tuple[Sequence[Expression], str]
"""Factors that stay in a sum, and why."""


def _why_they_stay(
    sum: ContractOp | ReduceOp, operands: Sequence[SSAValue], splits: Sequence[Split], above: Sequence[Expression]
) -> _Why | None:
    if isinstance(_sum_format(sum), Float16Type):
        return (), "it is kept in f16 and might overflow without them"
    if (infinite := next(filter(may_be_infinite, above), None)) is not None:
        return [infinite], "it may be infinite, and zero times infinity is no number"
    none = next((each for each in above if not is_number_of_nothing(each)), None)
    if none is not None and absences_of(operands):
        return [none], "every element of a row may be absent, where it may be no number and the sum is zero"
    if (lost := _axis_lost(sum, splits)) is not None:
        return (), f"nothing that would be left to sum varies along '{lost}'"
    return None


def _told_of_rows(
    sum: ContractOp | ReduceOp,
    operands: Sequence[SSAValue],
    splits: Sequence[Split],
    above: Sequence[Expression],
    below: Sequence[Expression],
    rows: PresentRows,
) -> RowGuard | _Why:
    """What tells rows without elements, of which conditions may leave nothing; or why factors stay, as nothing does."""
    witnesses = [witness_of(each, sum, [split.rest for split in splits], operands) for each in below]
    untold = next((each for each, found in zip(below, witnesses, strict=False) if found is None), None)
    peak = next((each for each in above if is_peak(each) and not isinstance(each, Constant)), None)
    there = rows.write() if peak is not None else None
    if there is None and (unsafe := untold or peak) is not None:
        if untold is None:
            return [unsafe], "a row without elements may make it no number"
        return [unsafe], "every element of a row may be absent, and then nothing says what it would divide"
    return RowGuard([], there, witnesses)


def _extents(sum: ContractOp | ReduceOp, operands: Sequence[SSAValue]) -> list[ExtentOp]:
    """The sizes of the axes of a sum that may have no element."""
    made = [ExtentOp(axis) for axis in sum.over_axes if may_be_empty(axis, operands)]
    for extent in made:
        extent.location = sum.location
        extent.result.name_hint = fresh_hint(sum.result, f"extent_{extent.axis.data}")
    return made


def _scale_after(
    function: func.FuncOp,
    sum: ContractOp | ReduceOp,
    splits: Sequence[Split],
    factors: tuple[Sequence[Expression], Sequence[Expression]],
    guard: RowGuard,
    rows: PresentRows,
) -> ContractOp | ReduceOp:
    """Replace a sum by one of what stays, which is returned, and a map that multiplies it by the factors above and
    divides by those below."""
    operands, (above, below), guarded = operands_of(sum), factors, bool(absences_of(operands_of(sum)))
    rests = [Materialised(split.rest, operand) for split, operand in zip(splits, operands, strict=True)]
    new_sum = _sum_of(sum, [rest.value for rest in rests])
    scaled = scale(Leaf(new_sum.results[0]), above, below, guard)
    new = build_map(scaled, sum.result.type, sum.result.name_hint, sum.location)
    noted = _noted_of_sum(sum, [*above, *below], splits, guard.extents, guarded and bool(below))
    made = [*(op for rest in rests for op in rest.ops), new_sum, *guard.extents, *rows.made, new]
    replace(sum, made, new.result)
    erase_unused(operands)
    note(function, PASS, *noted)
    return new_sum


def _axis_lost(sum: ContractOp | ReduceOp, splits: Sequence[Split]) -> str | None:
    """An axis of the sum that none of the arrays has which stay: only the map that takes them apart brings it."""
    kept = {axis for split in splits for axis in axes_in(split.rest)}
    return next((axis for axis in sum.over_axes if axis not in kept), None)


def _stays(function: func.FuncOp, sum: ContractOp | ReduceOp, factors: Sequence[Expression], reason: str) -> None:
    """Note why these factors stay in a sum, or all of them if none are given."""
    named = dict.fromkeys(label(leaf.value) for factor in factors for leaf in leaves(factor))
    verb = "stays" if len(factors) == 1 else "stay"
    note(function, PASS, f"{', '.join(named) or 'factors'} {verb} in the sum {label(sum.result)}", "refused", reason)


def _sum_format(sum: ContractOp | ReduceOp) -> Attribute:
    return sum.accumulate if isinstance(sum, ContractOp) else format_of(sum.result.type)


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


def _noted_of_sum(
    sum: ContractOp | ReduceOp,
    moved: Sequence[Expression],
    splits: Sequence[Split],
    guards: Sequence[ExtentOp],
    guarded: bool,
) -> tuple[str, str, str]:
    """What moved, by which law, and what that does to numbers."""
    names = dict.fromkeys(name for factor in moved for name in names_in(factor))
    subject = f"{', '.join(names)} past the sum {label(sum.result)} over [{', '.join(sum.over_axes)}]"
    reasons = [text for split in splits for text in split.rounded]
    reasons += [f"where axis '{extent.axis.data}' is empty the result stays 0" for extent in guards]
    reasons += ["where every element is absent the result stays 0"] if guarded else []
    return subject, "linearity of the sum", "; ".join(reasons)
