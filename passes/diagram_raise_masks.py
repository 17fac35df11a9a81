"""`diagram-raise-masks`: what a choice by positions replaces by identities of reductions is absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass

from treadle.dialects.diagram import FillOp, WhereOp
from treadle.dialects.diagram.absence import absences_of
from treadle.dialects.diagram.array import axes_of
from treadle.passes._functions import erase_unused, fresh_hint, functions, kernels, label, note, replace
from treadle.passes.expressions.scalars import Constant, Expression, Leaf, build_map, substitute
from treadle.passes.masks.choices import Choice, Chooser, choosers
from treadle.passes.masks.identities import identities

PASS = "diagram-raise-masks"
LAW = "an identity of every reduction may be absent"


@dataclass(frozen=True)
class DiagramRaiseMasksPass(ModulePass):
    """Make a condition of a choice by positions that puts a constant in the place of the other elements, where that
    becomes the identity of every reduction that takes it. What is absent is not computed, and pieces of which nothing
    is left are not visited.

    Before:

    ```
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !m = tensor<?xf32, #diagram.array<[q]>>
    !q = tensor<?xi32, #diagram.array<[q]>>
    !x = tensor<?xi32, #diagram.array<[x]>>
    func.func @f(%S: !S) -> !m {
      %q = diagram.index -> !q
      %x = diagram.index -> !x
      %T = diagram.map (%s = %S : !S, %i = %q : !q, %j = %x : !x) -> !S {
        %none = arith.constant 0xff800000 : f32
        %sees = arith.cmpi sle, %j, %i : i32
        %t = arith.select %sees, %s, %none : f32
        diagram.yield %t : f32
      }
      %m = diagram.reduce max %T over [x] : !S -> !m
      func.return %m : !m
    }
    ```

    After:

    ```
    !S = tensor<?x?xf32, #diagram.array<[q, x]>>
    !m = tensor<?xf32, #diagram.array<[q]>>
    func.func @f(%S: !S) -> !m {
      %T = diagram.where %S if "x <= q" : !S
      %m = diagram.reduce max %T over [x] : !S -> !m
      func.return %m : !m
    }
    ```

    Legal: a reduction with an identity in the place of an element is the reduction without that element. The
    constant is followed through casts and maps by the kinds of numbers that it may become: it must be -inf in a
    maximum, inf in a minimum, 0 in a sum or a product that is summed, wherever inputs are finite, and nothing else but
    NaN where they are not (`passes.masks.identities`).

    Guards:

    - Every use ends in such a reduction, along an axis whose positions are compared. What is returned, or read at
      other positions, stays as it is.
    - Where something is told from a maximum of such elements, `exp(t - m)`, each row must have one that is kept:
      `x <= q` keeps x = 0. So of positions known only at launch a window is not made a condition, as x may end before
      q. In a row of nothing but -inf that is NaN, and zeros would be silent.
    - -1e9 is no -inf: its power is small, not zero, and in a row without other elements all are alike."""

    name = PASS

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            if len(function.body.blocks) == 1 and not kernels(function):
                _raise_masks(function, function.body.block)


def _raise_masks(function: func.FuncOp, block: Block) -> None:
    found = choosers(block)
    if not found:
        return
    raised, refused = identities(block, found)
    written: dict[SSAValue, SSAValue] = {}
    for map, chooser in found.items():
        if chosen := [choice for choice in chooser.choices if choice in raised]:
            before = map.result
            written[before] = _raise(function, chooser, chosen, written)
    for choice, reason in refused.items():
        subject = f"the choice of {label(choice.map.result)} by '{choice.condition.text}'"
        note(function, f"decline {PASS}", subject, LAW, reason)


def _raise(
    function: func.FuncOp, chooser: Chooser, choices: Sequence[Choice], written: Mapping[SSAValue, SSAValue]
) -> SSAValue:
    """Put a condition behind a map in the place of choices in it; `written` stands for arrays that are no more."""
    op = chooser.map
    before = list(op.inputs)
    kept = substitute(chooser.where((), choices), lambda leaf: Leaf(written.get(leaf.value, leaf.value)))
    made, value = _computed(kept, op)
    by_text = {choice.condition.text: choice.condition for choice in choices}
    known = {where.condition.text.data for where in absences_of([value]) if not where.inputs}
    for condition in by_text.values():
        if condition.text in known:
            continue
        where = WhereOp(value, condition.text, condition.inputs)
        where.location = op.location
        made.append(where)
        value = where.result
    replace(op, made, value)
    erase_unused(before)
    texts = " and ".join(f"'{text}'" for text in by_text)
    fills = " and ".join(dict.fromkeys(f"{choice.fill.number:g}" for choice in choices))
    note(function, PASS, f"{label(value)} where {texts}", LAW, f"elsewhere {fills}, which no reduction of it counts")
    return value


def _computed(expression: Expression, op: Operation) -> tuple[list[Operation], SSAValue]:
    """The array of an expression, as the result of a map is laid out, and the operations that make it."""
    result = op.results[0]
    if isinstance(expression, Leaf) and expression.value.type == result.type:
        return [], expression.value
    if isinstance(expression, Constant) and axes_of(result.type):
        made: Operation = FillOp(expression.attribute, result.type)
    else:
        made = build_map(expression, result.type, location=op.location)
    made.results[0].name_hint = fresh_hint(result, result.name_hint)
    made.location = op.location
    return [made], made.results[0]
