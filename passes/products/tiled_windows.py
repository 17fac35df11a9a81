"""Rows in tiles, each with all that its windows reach: what is made of both has axes of tiles, of the rows of one, and
of what lies near it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from xdsl.dialects import func
from xdsl.dialects.builtin import ArrayAttr, StringAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from treadle.dialects.diagram import CastOp, MapOp, ReadOp, WhereOp
from treadle.dialects.diagram.array import array_type, axes_of, format_of, is_array, sizes_of
from treadle.dialects.diagram.condition import (
    AtLeastZero,
    Both,
    Linear,
    quotient,
    remainder,
    resolved,
    spelled,
)
from treadle.dialects.diagram.linear import ONE
from treadle.dialects.diagram.place import axes_of_forms
from treadle.passes._functions import derived_hint, erase_unused, note
from treadle.passes._parts import Reducing
from treadle.passes.axes.names import axes_in, unused
from treadle.passes.expressions.conditions import at_places, parts_of, where_holds
from treadle.passes.products.digits import places_along, positions_along
from treadle.passes.products.read_at import read_at
from treadle.passes.products.windows import Reach, Windows

Digits = Callable[[str, Sequence[int]], list[Linear]]
"""Where positions along several axes stand that are one."""

LAW = "rows in tiles, each with all that its windows reach"


def tile_windows(function: func.FuncOp, found: Windows, rewrite: str, why: str) -> None:
    """Make what is reduced in windows tile by tile, and what is made of that element by element, which is then read
    where its rows lie."""
    tiling = _Tiling(function, found)
    members = tiling.members()
    before = [operand for op in members for operand in op.operands]
    for op in members:
        tiling.make(op)
    tiling.leave(members)
    erase_unused([*(result for op in members for result in op.results), *before])
    tile = ", ".join(f"{size} of {row}" for row, size in found.tile.items())
    note(function, rewrite, f"[{', '.join(found.axes)}] near tiles of {tile}", LAW, why)


@dataclass
class _Tiling:
    function: func.FuncOp
    found: Windows
    made: dict[SSAValue, SSAValue] = field(default_factory=dict[SSAValue, SSAValue])

    def members(self) -> list[Operation]:
        """What has both axes, or reduces them, and what maps make of that, in program order."""
        members = {*self.found.reduced.steps}
        for op in self.function.body.block.ops:
            if isinstance(op, MapOp | CastOp) and any(operand.owner in members for operand in op.operands):
                members.add(op)
        return [op for op in self.function.body.block.ops if op in members]

    def make(self, op: Operation) -> None:
        """Make what an operation gives in tiles, right before it."""
        new = self._kept(op) if isinstance(op, WhereOp) else self._copied(op)
        if isinstance(new, Reducing):
            over = dict.fromkeys(self.near if axis in self.found.axes else axis for axis in new.over_axes)
            new.properties["over"] = ArrayAttr(StringAttr(axis) for axis in over)
        new.results[0].name_hint = derived_hint(op.results[0], "tiles")
        self.made[op.results[0]] = self._put(new, op)

    def leave(self, members: list[Operation]) -> None:
        """Let everything else read what is made in tiles where its rows lie."""
        for op in members:
            (value,) = op.results
            others = [use for use in value.uses if use.operation not in members]
            if others:
                last = self.made[value].owner
                assert isinstance(last, Operation)
                read = ReadOp(last.results[0], self._place_of_rows(last.results[0]), value.type, padded=True)
                read.location = op.location
                Rewriter.insert_op(read, InsertPoint.after(last))
                read.result.name_hint = value.name_hint
                for use in others:
                    use.operation.operands[use.index] = read.result

    # -- axes ----------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> list[str]:
        """Of the axes of tiles, one for each axis of rows, of the rows of a tile, and of what lies near it."""
        rows, taken = self.found.rows, axes_in(self.function.body.block)
        wanted = [*(f"{row}_tile" for row in rows), f"{'_'.join(rows)}_in", f"{'_'.join(self.found.axes)}_in"]
        return [unused(name, taken) for name in wanted]

    @cached_property
    def tiles(self) -> dict[str, str]:
        return dict(zip(self.found.rows, self._names, strict=False))

    @property
    def within(self) -> str:
        return self._names[-2]

    @property
    def near(self) -> str:
        return self._names[-1]

    @cached_property
    def _sizes(self) -> dict[str, int]:
        tiles = {self.tiles[row]: -(-self.found.lengths[row] // size) for row, size in self.found.tile.items()}
        return {**tiles, self.within: self.found.tile_rows, self.near: prod(self.found.near)}

    def _standing(self, digits: Digits) -> dict[str, Linear]:
        """Where rows and what lies near them stand, by the axes of tiles."""
        tile = self.found.tile
        first = {row: Linear({self.tiles[row]: size}) for row, size in tile.items()}
        within = dict(zip(tile, digits(self.within, list(tile.values())), strict=True))
        places = {row: first[row].plus(within[row]) for row in tile}
        for each, near in zip(self.found.reaches, digits(self.near, self.found.near), strict=True):
            places[each.key] = near if each.row is None else first[each.row].plus(near).plus(ONE, -each.before)
        return places

    @cached_property
    def _places(self) -> dict[str, Linear]:
        """As a read says them."""
        return self._standing(places_along)

    def _axes(self, axes: Mapping[str, int]) -> dict[str, int]:
        """The axes of an array in tiles, those in the place of its own ones together, and their sizes."""
        asked = axes_of_forms([self._places[axis] for axis in axes if axis in self._places])
        ours = {axis: size for axis, size in self._sizes.items() if axis in asked}
        found = dict[str, int]()
        for axis, size in axes.items():
            found |= ours if axis in self._places else {axis: size}
        return found

    def _type(self, type: Attribute) -> Attribute:
        return array_type(format_of(type), self._axes(sizes_of(type)))

    def _place_of_rows(self, value: SSAValue) -> str:
        """Where the row of an array lies in tiles."""
        forms = dict[str, Linear]()
        inside = Linear()
        for row in self.found.rows:
            size = self.found.tile[row]
            forms[self.tiles[row]] = Linear({quotient(row, size): 1})
            inside = inside.times(size).plus(remainder(row, size))
        forms[self.within] = inside
        return ", ".join(spelled(forms.get(axis, Linear({axis: 1}))) for axis in axes_of(value.type))

    # -- operations ----------------------------------------------------------------------------------

    def _copied(self, op: Operation) -> Operation:
        new = op.clone({operand: self._given(operand, op) for operand in op.operands})
        Rewriter.replace_value_with_new_type(new.results[0], self._type(op.results[0].type))
        return new

    def _kept(self, op: WhereOp) -> WhereOp:
        """A condition by the axes of tiles, which holds nowhere outside of the arrays."""
        given = {value: self._given(value, op) for value in (op.operand, *op.inputs)}
        places = self._standing(positions_along)
        inside = [AtLeastZero(form) for each in self.found.reaches for form in self._inside(each, places[each.key])]
        holds = Both((*parts_of(at_places(op.holds, places)), *inside))
        holds = resolved(holds, lambda term: given.get(term) if isinstance(term, SSAValue) else None)
        return where_holds(given[op.operand], holds)

    def _inside(self, each: Reach, place: Linear) -> Iterator[Linear]:
        """What is at least zero inside of an array. Its windows reach beyond its begin and its end from rows that there
        are, or they do not: what rows of a tile have that are none is left there."""
        if each.row is not None and each.before > 0:
            yield place
        if each.row is not None and each.after > each.keys - self.found.lengths[each.row]:
            yield Linear({}, each.keys - 1).plus(place, -1)

    def _given(self, value: SSAValue, op: Operation) -> SSAValue:
        """What an operation is given in the place of an array."""
        if not is_array(value.type) or {*axes_of(value.type)}.isdisjoint(self._places):
            return value
        if value not in self.made:
            read = read_at(value, self._places, self._type(value.type), op)
            read.result.name_hint = derived_hint(value, "tiles")
            self.made[value] = self._put(read, op)
        return self.made[value]

    def _put(self, op: Operation, before: Operation) -> SSAValue:
        op.location = before.location
        Rewriter.insert_op(op, InsertPoint.before(before))
        return op.results[0]


__all__ = ["LAW", "tile_windows"]
