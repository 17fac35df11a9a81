"""What stays in a sum, as an array."""

from __future__ import annotations

from xdsl.ir import Attribute, Operation, SSAValue

from treadle.dialects.diagram import CastOp
from treadle.dialects.diagram.array import (
    array_type,
    format_of,
    sizes_of,
    with_format,
)
from treadle.passes._functions import (
    fresh_hint,
)
from treadle.passes.expressions.scalars import (
    CASTS,
    Expression,
    Leaf,
    Node,
    build_map,
)


class Materialised:
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
