"""`diagram-compose-maps`: maps that only feed a map become one with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp, f32, i32
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass

from treadle.dialects.diagram import CastOp, MapOp
from treadle.dialects.diagram.array import axes_of, format_of
from treadle.dialects.diagram.formats import BYTES, holds
from treadle.passes._functions import (
    diagram_blocks,
    erase_dead,
    erase_unused,
    functions,
    label,
    note,
    replace,
    unite_equal,
)
from treadle.passes._static_axes import fold_empty_axes, fold_extents
from treadle.passes.expressions.dots import expand_dots
from treadle.passes.expressions.scalars import (
    CHEAP,
    Expression,
    Leaf,
    Node,
    build_map,
    convert,
    expression_of,
    forgets_absences,
    is_plain,
    leaves,
    substitute,
    walk,
)
from treadle.passes.expressions.truths import choosing_directly


@dataclass(frozen=True)
class DiagramComposeMapsPass(ModulePass):
    """Make one map of a map and the maps that only it uses, so that what lies between is never stored;
    unite equal operations, and drop unused ones, and those along axes that have no elements.

    Before:

    ```
    !x = tensor<?xf32, #diagram.array<[i]>>
    func.func @f(%x: !x) -> !x {
      %s = diagram.map (%a = %x : !x) -> !x {
        %b = math.sin %a : f32
        diagram.yield %b : f32
      }
      %y = diagram.map (%c = %s : !x) -> !x {
        %d = arith.mulf %c, %c : f32
        diagram.yield %d : f32
      }
      func.return %y : !x
    }
    ```

    After:

    ```
    !x = tensor<?xf32, #diagram.array<[i]>>
    func.func @f(%x: !x) -> !x {
      %y = diagram.map (%x_1 = %x : !x) -> !x {
        %b = math.sin %x_1 : f32
        %d = arith.mulf %b, %b : f32
        diagram.yield %d : f32
      }
      func.return %y : !x
    }
    ```

    Legal: a map of a map is the map of the composition (a weave is a functor). No work is done twice: the
    inner map has one user, and either the axes of the result already (so it is evaluated as often as
    before) or a cheap body. A widening cast is exact, so a map may read the narrow array itself; a rounding
    (f32 to f16) is part of the algorithm and stays. Along an axis whose size is 0 a sum is 0, as every combination is
    its neutral element; an array that has such an axis holds nothing. A known size of an axis that only maps have is a
    number. A contraction that multiplies no matrices is a map that multiplies, and a sum. What chooses by a mask, which
    is a truth value that was made a number, asks for the truth value itself (`expressions.truths`).
    """

    name = "diagram-compose-maps"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for function in functions(op):
            for block in diagram_blocks(function):
                fold_empty_axes(function, block, self.name)
                fold_extents(function, block, self.name)
                if block.parent_op() is function:
                    expand_dots(function, block, self.name)
                unite_equal(block)
                erase_dead(block)
                _compose_all(function, block)
                unite_equal(block)
                erase_dead(block)


def _compose_all(function: func.FuncOp, block: Block) -> None:
    """Producers come first in a block, so one walk sees every map with its operands composed already. A map is
    written once, when all that it absorbs is known: long chains take no time for what lies between."""
    composed: dict[SSAValue, Expression] = {}
    absorptions: dict[SSAValue, list[_Absorption]] = {}
    for op in list(block.ops):
        if isinstance(op, MapOp) and is_plain(op):
            _compose(op, composed, absorptions)
    written: dict[SSAValue, SSAValue] = {}
    for value, done in absorptions.items():
        written[value] = _write(value, composed[value], written)
        erase_unused(value for each in reversed(done) for value in each.values)
        for each in done:
            if each.names:
                note(function, "diagram-compose-maps", f"{each.names} into {each.into}", "maps compose")


@dataclass(frozen=True)
class _Absorption:
    """A map takes over what gives some of its operands."""

    values: tuple[SSAValue, ...]
    names: str
    """Of the maps among them."""
    into: str


def _compose(
    outer: MapOp, composed: dict[SSAValue, Expression], absorptions: dict[SSAValue, list[_Absorption]]
) -> None:
    """Say in `composed` what a map computes that absorbs some of its operands, and take over their absorptions."""
    expression = expression_of(outer)
    if forgets_absences(outer, expression):
        return
    absorbed = [value for value in dict.fromkeys(outer.inputs) if _is_absorbed(value, outer, composed)]
    if not absorbed and len(set(outer.inputs)) == len(outer.inputs) == len(leaves(expression)):
        return
    inner = {value: _inner(value, composed) for value in absorbed}
    composed[outer.result] = choosing_directly(substitute(expression, lambda leaf: inner.get(leaf.value, leaf)))
    names = ", ".join(label(value) for value in absorbed if isinstance(value.owner, MapOp))
    first, *others = [absorptions.pop(value) for value in absorbed if value in absorptions] or [[]]
    for other in others:
        first += other
    first.append(_Absorption(tuple(absorbed), names, label(outer.result)))
    absorptions[outer.result] = first


def _write(value: SSAValue, expression: Expression, written: Mapping[SSAValue, SSAValue]) -> SSAValue:
    """Put a map that computes the expression in the place of the one that gave `value`."""
    outer = value.owner
    assert isinstance(outer, MapOp)

    def resolve(leaf: Leaf) -> SSAValue:
        return written.get(leaf.value, leaf.value)

    new = build_map(expression, value.type, value.name_hint, outer.location, resolve)
    new.attributes |= outer.attributes
    replace(outer, [new], new.result)
    return new.result


def _inner(value: SSAValue, composed: Mapping[SSAValue, Expression]) -> Expression:
    """What an absorbed operand computes."""
    owner = value.owner
    if isinstance(owner, MapOp):
        return composed[value] if value in composed else expression_of(owner)
    assert isinstance(owner, CastOp)
    return convert(Leaf(owner.operand), format_of(value.type))


def _is_absorbed(value: SSAValue, outer: MapOp, composed: Mapping[SSAValue, Expression]) -> bool:
    owner = value.owner
    if isinstance(owner, CastOp):
        return is_widening(owner)
    if not isinstance(owner, MapOp) or not is_plain(owner) or forgets_absences(owner, expression_of(owner)):
        return False
    if any(use.operation is not outer for use in value.uses):
        return False
    same_axes = set(axes_of(value.type)) == set(axes_of(outer.result.type))
    return same_axes or _is_cheap(_inner(value, composed))


def is_widening(cast: CastOp) -> bool:
    """Whether a cast is exact: from a narrower format to f32, or from integers of 8 bits to i32."""
    source, target = format_of(cast.operand.type), format_of(cast.result.type)
    return (target == f32 != source and holds(target, source)) or (str(source) in BYTES and target == i32)


def _is_cheap(expression: Expression) -> bool:
    return all(part.kind in CHEAP for part in walk(expression) if isinstance(part, Node))
