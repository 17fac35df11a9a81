"""The axes in the place of two that a product sums over, and its factors read along them: piece by piece of the inner
axis, for each index of the outer one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from xdsl.dialects import func
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, ContractOp, ExpandOp, MapOp, ReadOp, WhereOp
from treadle.dialects.diagram.array import DYNAMIC, array_type, axes_of, format_of, is_array, sizes_of, with_format
from treadle.dialects.diagram.condition import Both, Condition, Linear, quotient, remainder, resolved, spelled
from treadle.passes._functions import derived_hint, erase_unused
from treadle.passes.axes.names import axes_in, unused
from treadle.passes.expressions.conditions import inputs_of
from treadle.passes.expressions.conditions import spelled as spelled_condition
from treadle.passes.products.converted import source_in
from treadle.passes.products.kept import along_pieces, with_ranges


@dataclass
class Pieces:
    """The axes in the place of two, and the arrays that have them."""

    function: func.FuncOp
    rewrite: str
    """Under whose name it is noted what data say of conditions."""
    op: Operation
    """What they are read for, before which that stands."""
    sizes: Mapping[str, int]
    """Of the axes of both factors."""
    outer: str
    inner: str
    count: int
    """Pieces of the inner axis."""
    piece: int
    number: str
    """The axis that counts the pieces of the inner one."""
    within: str
    """The axis of the elements of a piece."""
    whole: str
    """The axis of all pieces, of every index of the outer one."""
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    @classmethod
    def of(
        cls, function: func.FuncOp, rewrite: str, axes: tuple[str, str], piece: int, op: Operation, product: ContractOp
    ) -> Pieces:
        outer, inner = axes
        sizes = sizes_of(product.rhs.type) | sizes_of(product.lhs.type)
        block = op.parent
        assert isinstance(block, Block)
        taken = axes_in(block)
        names = [f"{inner}_piece", f"{inner}_within", f"{outer}_{inner}"]
        number, within, whole = (unused(name, taken) for name in names)
        pieces = sizes[inner] // piece
        return cls(function, rewrite, op, sizes, outer, inner, pieces, piece, number, within, whole)

    def read(self, value: SSAValue) -> SSAValue:
        """An array of these axes in the place of the two."""
        if not {self.outer, self.inner} & {*(axes_of(value.type) if is_array(value.type) else ())}:
            return value
        if value not in self.made:
            self.made[value] = self._read_as(value, value.type)
        return self.made[value]

    def keep(self, where: WhereOp, factor: SSAValue) -> SSAValue:
        """What a condition keeps of a factor with these axes."""
        where = with_ranges(self.function, where, self.outer, self.rewrite)
        asked = {
            value: self._read(value) if self.outer in (axes_of(value.type) if is_array(value.type) else ()) else value
            for value in where.inputs
        }
        holds, within = (self._restated(each, asked) for each in (where.holds, where.may_hold))
        names = inputs_of(Both((holds, within)))
        texts = spelled_condition(holds, names), None if where.within is None else spelled_condition(within, names)
        text, told = texts
        used = inputs_of(holds) if told is None else names
        given = {names[value]: value for value in used}
        kept = self._put(WhereOp(factor, text, given, within=told), where.result, "rows")
        erase_unused([where.result])
        return kept

    def _read_as(self, value: SSAValue, type: Attribute, is_kept: bool = False) -> SSAValue:
        """What is read of a value, in the format of a type. What was converted there and back is read as it was, and a
        condition keeps what is converted as it keeps what was before: a factor whose condition stands at what is
        loaded is one that copies bring."""
        op, format = value.owner, format_of(type)
        if isinstance(op, WhereOp):
            return self.keep(op, self._read_as(op.operand, type, is_kept=True))
        source = source_in(value, format)
        source = None if source is None or not self._lies_as(source, type) else source
        lies = is_kept and format_of(value.type) == format and self._lies_as(value, type)
        if lies and (source is None or format_of(source.type) != format):
            return self._read(value)  # which another kernel saves
        if source is not None:
            return self._read_as(source, type, is_kept)
        read = self._computed(op) if isinstance(op, MapOp | CastOp) else self._read(value)
        if format_of(read.type) == format:
            return read
        return self._put(CastOp(read, with_format(read.type, format)), value, "depth")

    def _lies_as(self, value: SSAValue, type: Attribute) -> bool:
        """Whether what is read of a value has the axes that are wanted: one that lacks the outer axis is read again."""
        return {*axes_of(self._type(value.type))} == {*axes_of(self._type(type))}

    def _restated(self, condition: Condition, asked: Mapping[SSAValue, SSAValue]) -> Condition:
        along = along_pieces(condition, self.outer, self.whole, self.count)
        return resolved(along, lambda term: asked.get(term) if isinstance(term, SSAValue) else None)

    def _computed(self, op: MapOp | CastOp) -> SSAValue:
        operands = [self.read(operand) for operand in op.operands]
        copy = op.clone(dict(zip(op.operands, operands, strict=True)))
        Rewriter.insert_op(copy, InsertPoint.before(self.op))
        copy.results[0].name_hint = derived_hint(op.results[0], "depth")
        return Rewriter.replace_value_with_new_type(copy.results[0], self._type(op.results[0].type))

    def _read(self, value: SSAValue) -> SSAValue:
        apart = value
        if self.inner in axes_of(value.type):
            view = ExpandOp(value, self.inner, [self.number, self.within], self._expanded(value))
            apart = self._put(view, value, "pieces")
        places = {
            self.outer: Linear({quotient(self.whole, self.count): 1}),
            self.number: remainder(self.whole, self.count),
        }
        forms = [places.get(axis, Linear({axis: 1})) for axis in axes_of(apart.type)]
        place = ", ".join(map(spelled, forms))
        return self._put(ReadOp(apart, place, self._type(apart.type), padded=True), value, "depth")

    def _put(self, op: Operation, read: SSAValue, what: str) -> SSAValue:
        op.location = self.op.location
        Rewriter.insert_op(op, InsertPoint.before(self.op))
        op.results[0].name_hint = derived_hint(read, what)
        return op.results[0]

    def _expanded(self, value: SSAValue) -> Attribute:
        found = dict[str, int]()
        for axis, size in sizes_of(value.type).items():
            found |= {self.number: self.count, self.within: self.piece} if axis == self.inner else {axis: size}
        return array_type(format_of(value.type), found)

    def _type(self, type: Attribute) -> Attribute:
        """Of what is read: of an array of the two axes, one of them, or the first of them and what the other became."""
        sizes = self.sizes
        length = DYNAMIC if sizes[self.outer] == DYNAMIC else sizes[self.outer] * self.count
        found = dict[str, int]()
        for axis, size in sizes_of(type).items():
            if axis in (self.outer, self.inner, self.number):
                found[self.whole] = length
            if axis == self.inner:
                found[self.within] = self.piece
            if axis not in (self.outer, self.inner, self.number):
                found[axis] = size
        return array_type(format_of(type), found)


__all__ = ["Pieces"]
