"""Reads at places that no strides say, and sums that are scattered there: each is the adjoint of the other."""

from __future__ import annotations

from xdsl.dialects.builtin import f32
from xdsl.ir import SSAValue

from treadle.compiler.errors import Refusal
from treadle.dialects.diagram import ReadOp, ScatterOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, sizes_of
from treadle.dialects.diagram.place import axes_of_forms
from treadle.passes.expressions.scalars import Leaf, build_map
from treadle.passes.gradients.backward import Backward
from treadle.passes.gradients.presence import conditions


def scattered_read(op: ReadOp, cotangent: SSAValue, backward: Backward) -> None:
    """Every element gets the sum of all that was read of it."""
    if conditions(op.operand, backward.laws):
        raise Refusal(op, "it reads an array of which elements are absent: no gradient of that is known")
    backward.note(op.result, "the adjoint of a read adds up what was read at a position", f"at {op.place.text.data}")
    given = _in_f32(cotangent, axes_of(op.result.type), backward)
    type = array_type(f32, sizes_of(op.operand.type))
    backward.add(op.operand, backward.write(ScatterOp(given, op.place, type, op.named), backward.hint(op.operand)))


def scatter(op: ScatterOp, cotangent: SSAValue, backward: Backward) -> None:
    """An element moves the sum that it is added to; what is added to none moves nothing."""
    backward.note(op.result, "what is added up moves its sum", f"at {op.place.text.data}")
    if op.init is not None:
        backward.add(op.init, cotangent)
    hint, kept = backward.hint(op.operand), axes_of_forms(op.place.forms)
    given = _in_f32(cotangent, axes_of(op.result.type), backward)
    if isinstance(given.owner, ReadOp):  # of which only kernels know the zeros around
        given = backward.write(build_map(Leaf(given), given.type, given.name_hint, op.location), given.name_hint)
    sizes = {axis: size for axis, size in sizes_of(op.operand.type).items() if axis in kept}
    read = ReadOp(given, op.place, array_type(f32, sizes), padded=True, inputs=op.named)
    backward.add(op.operand, backward.spread(backward.write(read, hint), op.operand))


def _in_f32(cotangent: SSAValue, axes: tuple[str, ...], backward: Backward) -> SSAValue:
    """A cotangent in f32, with its axes in this order; zeros in the place of what is absent."""
    if conditions(cotangent, backward.laws):
        cotangent = backward.filled(cotangent)
    sizes = sizes_of(cotangent.type)
    if set(sizes) != set(axes):
        raise AssertionError(f"a cotangent along {[*sizes]} of what lies along {axes}")
    type = array_type(f32, {axis: sizes[axis] for axis in axes})
    if format_of(cotangent.type) == f32 and cotangent.type == type:
        return cotangent
    return backward.as_type(cotangent, type)
