"""The walk back through a diagram: cotangents of its values, from those of its results to those of its arguments.

The *cotangent* of a value says what a change of each of its elements changes in the end: an array of f32 with the axes
of the value. Where the value is absent, what stands in the cotangent says nothing; where the cotangent is absent, it is
zero. So an operation that is linear in the cotangent needs no care for absent elements of it, and a sum of two does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr, LocationAttr, UnknownLoc, f16, f32
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from treadle.compiler.sizes import UNKNOWN_SIZE
from treadle.dialects.diagram import CastOp, FillOp, LawOp, ReduceOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array, sizes_of, with_format
from treadle.dialects.diagram.formats import EIGHT_BIT, holds
from treadle.passes._functions import label
from treadle.passes.expressions.scalars import Expression, Leaf, Node, build_map, convert, number, total
from treadle.passes.gradients.presence import Asked, conditions, conditions_of


@dataclass
class Backward:
    """What is known on the way back, and the operations that have been written."""

    block: Block
    laws: Mapping[str, LawOp]
    active: Set[SSAValue]
    """The values whose cotangents are asked for: floats that depend on an argument of interest."""
    unit: str
    """A name for an axis with one element, along which absent elements become zeros of a sum."""
    likely: Mapping[str, int] = field(default_factory=dict[str, int])
    """Sizes of axes, as far as the program states them."""
    steps: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Subject, law and reason of each rewrite."""
    location: LocationAttr = field(default_factory=UnknownLoc)
    found: dict[SSAValue, list[SSAValue]] = field(default_factory=dict[SSAValue, list[SSAValue]])
    in_format: dict[tuple[SSAValue, Attribute], SSAValue] = field(
        default_factory=dict[tuple[SSAValue, Attribute], SSAValue]
    )

    def length(self, axis: str, size: int) -> int:
        """How long an axis is likely to be."""
        return size if size != DYNAMIC else self.likely.get(axis, UNKNOWN_SIZE)

    # -- writing ---------------------------------------------------------------------------------

    def write(self, op: Operation, hint: str | None) -> SSAValue:
        """Append an operation; its first result."""
        op.location = self.location
        op.results[0].name_hint = hint
        self.block.add_op(op)
        return op.results[0]

    def map(self, expression: Expression, sizes: Mapping[str, int], hint: str | None) -> SSAValue:
        """An array that an expression says: of f32, or, without a map, the one that it is already."""
        inner = (
            expression.operands[0] if isinstance(expression, Node) and expression.kind is arith.ExtFOp else expression
        )
        if isinstance(inner, Leaf) and sizes_of(inner.value.type).keys() == sizes.keys():
            return inner.value
        return self.write(build_map(expression, array_type(f32, sizes), hint, self.location), hint)

    def note(self, subject: SSAValue, law: str, reason: str = "") -> None:
        self.steps.append((f"gradient through {label(subject)}", law, reason))

    # -- cotangents ------------------------------------------------------------------------------

    def add(self, value: SSAValue, cotangent: SSAValue) -> None:
        """A use of a value contributes to its cotangent."""
        if value in self.active:
            self.found.setdefault(value, []).append(cotangent)

    def cotangent(self, value: SSAValue) -> SSAValue | None:
        """The cotangent of a value once all its uses have contributed; None if nothing depends on it."""
        parts = self.found.get(value, [])
        if not parts:
            return None
        if len(parts) == 1:
            return parts[0]
        parts = self._together(value, parts)
        expression: Expression = convert(Leaf(parts[0]), f32)
        for part in parts[1:]:
            expression = total(expression, convert(Leaf(part), f32))
        self.note(value, "the derivative of a sum is the sum of the derivatives", f"{len(parts)} uses")
        whole = self.map(expression, sizes_of(value.type), self.hint(value))
        self.found[value] = [whole]
        return whole

    def _together(self, value: SSAValue, parts: Iterable[SSAValue]) -> list[SSAValue]:
        """Parts of a sum that are absent together, or where the value is; others with zeros in place of what they
        lack."""
        asked = {part: conditions(part, self.laws) for part in parts}
        fine = conditions(value, self.laws)
        fine |= {each for each in conditions_of(asked, self.laws) if all(each in some for some in asked.values())}
        return [part if asked[part] <= fine else self.filled(part) for part in parts]

    def hint(self, value: SSAValue) -> str | None:
        return f"d{value.name_hint}" if value.name_hint else None

    # -- what rules need -------------------------------------------------------------------------

    def spread(self, cotangent: SSAValue, value: SSAValue) -> SSAValue:
        """A cotangent repeated along the axes of a value that it lacks."""
        if set(axes_of(cotangent.type)) == set(axes_of(value.type)):
            return cotangent
        return self.map(convert(Leaf(cotangent), f32), sizes_of(value.type), self.hint(value))

    def restricted(self, cotangent: SSAValue, asked: Iterable[Asked]) -> SSAValue:
        """A cotangent without the elements at which a condition does not hold."""
        known = conditions(cotangent, self.laws)
        for condition in sorted(asked, key=lambda each: each.condition.text.data):
            if condition not in known:
                cotangent = self.write(condition.of(cotangent), cotangent.name_hint)
        return cotangent

    def present(self, cotangent: SSAValue, value: SSAValue) -> SSAValue:
        """A cotangent that is there wherever a value is, and nowhere else."""
        asked = conditions(value, self.laws)
        if not conditions(cotangent, self.laws) <= asked:
            cotangent = self.filled(cotangent)
        return self.restricted(cotangent, asked)

    def filled(self, cotangent: SSAValue) -> SSAValue:
        """Zeros in the place of what is absent: a sum over one element passes over it."""
        sizes, hint = sizes_of(cotangent.type), cotangent.name_hint
        column = build_map(convert(Leaf(cotangent), f32), array_type(f32, {**sizes, self.unit: 1}), hint, self.location)
        self.note(cotangent, "what is absent adds nothing")
        return self.write(ReduceOp("add", self.write(column, hint), [self.unit], array_type(f32, sizes)), hint)

    def zeros(self, value: SSAValue) -> SSAValue:
        """The gradient of what makes no difference, in the format of an argument."""
        format = format_of(value.type)
        zero = number(0.0, format).attribute
        assert isinstance(zero, FloatAttr)
        return self.write(FillOp(zero, array_type(format, sizes_of(value.type))), self.hint(value))

    def as_type(self, value: SSAValue, type: Attribute, hint: str | None = None) -> SSAValue:
        """A value in another format, or order of axes: what it was widened from, where that is it."""
        if value.type == type:
            return value
        if (source := widened_from(value)) is not None and source.type == type:
            return source
        key = (value, type)
        if key not in self.in_format:
            self.in_format[key] = self.write(CastOp(value, type), hint or value.name_hint)
        return self.in_format[key]

    def factors(self, cotangent: SSAValue, other: SSAValue) -> tuple[SSAValue, SSAValue]:
        """A cotangent and a factor of a contraction in one format: that of the factor, but f16 for 8 bits."""
        format = format_of(other.type)
        if str(format) in EIGHT_BIT:
            format = f16
            other = self._in(other, format)
        return self._in(cotangent, format), other

    def _in(self, value: SSAValue, format: Attribute) -> SSAValue:
        if format_of(value.type) == format:
            return value
        name = f"{value.name_hint}_{format}" if value.name_hint else None
        return self.as_type(value, with_format(value.type, format), name)


def widened_from(value: SSAValue) -> SSAValue | None:
    """The narrower array that a value is, in a format that holds all its numbers."""
    op = value.owner
    if not isinstance(op, CastOp) or not holds(format_of(value.type), format_of(op.operand.type)):
        return None
    return op.operand


def is_argument(value: SSAValue) -> bool:
    return isinstance(value, BlockArgument)


def cotangent_type(type: Attribute) -> Attribute:
    """Of a gradient of an argument, or a cotangent of a result: an array, also where the argument is a scalar."""
    return type if is_array(type) else array_type(format_of(type), {})
