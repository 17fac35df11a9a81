"""The adjoint of an affine read: each position gets the sum of all that was read at it.

`y[i, k] = x[i + k]` becomes `dx[j] = sum over i, k of dy[i, k] where j == i + k`. No position outside is ever asked
for, and which pieces a condition leaves is found where the sum is streamed."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ReadOp, ReduceOp, WhereOp
from treadle.dialects.diagram.array import array_type, sizes_of
from treadle.dialects.diagram.condition import Linear
from treadle.passes.expressions.scalars import Leaf, convert
from treadle.passes.gradients.backward import Backward
from treadle.passes.gradients.presence import conditions


def read(op: ReadOp, cotangent: SSAValue, backward: Backward) -> None:
    if conditions(op.operand, backward.laws):
        raise Refusal(op, "it reads an array of which elements are absent: no gradient of that is known")
    moved = {axis: form for axis, form in op.forms.items() if form != Linear({axis: 1})}
    sizes, target = sizes_of(op.operand.type), sizes_of(op.result.type)
    if clash := [axis for axis in moved if axis in target]:
        raise Refusal(
            op,
            f"axis '{clash[0]}' is an axis of what is read and of what reads it, at another position: rename one of "
            "them for a gradient",
        )
    hint = backward.hint(op.operand)
    backward.note(op.result, "the adjoint of a read adds up what was read at a position", f"at {op.place.text.data}")
    if not moved:
        return backward.add(op.operand, backward.spread(cotangent, op.operand))
    over = [axis for axis in target if axis not in sizes]
    terms = backward.map(convert(Leaf(cotangent), f32), {**sizes, **{axis: target[axis] for axis in over}}, hint)
    here = backward.write(WhereOp(terms, " and ".join(f"{axis} == {_text(moved[axis])}" for axis in moved)), hint)
    if over:
        here = backward.write(ReduceOp("add", here, over, array_type(f32, sizes)), hint)
    return backward.add(op.operand, here)


def _text(form: Linear) -> str:
    """A form as a condition has it: `2 * t + r + 1`."""
    terms = [f"{factor} * {axis}" if factor != 1 else str(axis) for axis, factor in form.terms.items()]
    return " + ".join([*terms, *([str(form.constant)] if form.constant or not terms else [])])
