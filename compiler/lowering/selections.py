"""Lists of the pieces that data leave of a stream (`hierarchy.select`): the block makes them, turns read them."""

from __future__ import annotations

from itertools import product

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IndexType, MemRefType, StringAttr, i32
from xdsl.ir import Block, Operation, Region, SSAValue

from treadle.compiler.lowering.comparisons import test_of
from treadle.compiler.lowering.names import named
from treadle.compiler.lowering.pending import Listed
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import declare
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode, RowsAttr
from treadle.dialects.cuda.selections import COUNTS
from treadle.dialects.diagram.array import DYNAMIC, ArrayEncoding, array_type, axes_of, is_array
from treadle.dialects.diagram.condition import LAST_POSITION, Condition, Term, terms_of
from treadle.dialects.hierarchy import SelectOp


def lower_select(lowering: KernelLowering, op: SelectOp) -> None:
    """List where the pieces begin that are selected, and say how many turns a stream of them has."""
    emit, axis, size = lowering.emit, op.axis, lowering.plan.sizes[op.axis]
    piece = lowering.index(op.size)
    lowest = emit(arith.MaxSIOp(lowering.scalar(op.first), lowering.index(0))).result
    first = emit(arith.MuliOp(emit(arith.DivSIOp(lowest, piece)).result, piece)).result
    end = emit(arith.MinSIOp(lowering.scalar(op.end), lowering.size(axis))).result
    behind = rest = None
    if size == DYNAMIC or size > op.room.data * op.size:
        rest = named(emit(arith.AddiOp(first, lowering.index(op.room.data * op.size))).result, f"{axis}_unknown")
        beyond = emit(arith.SubiOp(emit(arith.MaxSIOp(end, rest)).result, rest)).result
        behind = emit(arith.CeilDivUIOp(beyond, piece)).result
        end = emit(arith.MinSIOp(end, rest)).result
    places = [COUNTS + op.room.data]
    type = MemRefType(i32, places, memory_space=ArrayEncoding([axis], "shared", RowsAttr(places, places[0])))
    tile = named(declare(lowering, cuda.SharedOp(0, type)).result, "pieces_shared")
    select = emit(cuda.SelectOp(tile, first, end, op.size, Region(_Question(lowering, op).block())))
    select.location = op.location
    text = f"the pieces of {axis}, {op.size} apart, in which '{op.condition.text.data}' may hold"
    select.attributes["comment"] = StringAttr(text)
    count = named(select.count, "selected")
    turns = count if behind is None else named(emit(arith.AddiOp(count, behind)).result, f"{axis}_turns")
    lowering.listed[op.result] = Listed(tile, count, turns, rest, op.size)


class _Question:
    """What a thread asks of its piece: whether a condition may hold in one of its cells."""

    def __init__(self, lowering: KernelLowering, op: SelectOp):
        self.lowering = lowering
        self.op = op
        self.cells = op.cells.as_dict()
        self.body = Block(arg_types=[IndexType()])
        self.known: dict[tuple[Term, tuple[int, ...]], SSAValue] = {}

    def block(self) -> Block:
        piece = named(self.body.args[0], f"{self.op.axis}0")
        outside = self.lowering.offsets.get(self.op.axis)
        self.lowering.offsets[self.op.axis] = piece
        with self.lowering.inside(self.body):
            kept: SSAValue | None = None
            for cell in product(*(range(count) for count in self.op.counts.values())):
                found = self._cell(dict(zip(self.cells, cell, strict=True)))
                kept = found if kept is None else self._add(arith.OrIOp(kept, found))
            assert kept is not None
            self.lowering.emit(cuda.KeepOp(kept))
        del self.lowering.offsets[self.op.axis]
        if outside is not None:
            self.lowering.offsets[self.op.axis] = outside
        return self.body

    def _cell(self, cell: dict[str, int]) -> SSAValue:
        """Whether the condition may hold in a cell, and the cell is there."""
        asked: Condition = self.op.asked
        terms = {term: self._term(term, cell) for term in dict.fromkeys(terms_of(asked))}
        last = {term: self._last(term) for term in terms if isinstance(term, str)}
        found = test_of(asked, terms, self._add, last)
        for axis, number_of_cell in cell.items():
            if number_of_cell and self._may_be_outside(axis):
                is_there = self._add(arith.CmpiOp(self._term(axis, cell), self.lowering.size(axis), "slt"))
                found = self._add(arith.AndIOp(found, is_there))
        return found

    def _term(self, term: Term, cell: dict[str, int]) -> SSAValue:
        if isinstance(term, SSAValue) and not is_array(term.type):
            return self.lowering.scalar(term)
        axes = (term,) if isinstance(term, str) else axes_of(term.type) if isinstance(term, SSAValue) else ()
        key = term, tuple(cell[axis] for axis in axes)
        if key not in self.known:
            self.known[key] = self._position(term, cell) if isinstance(term, str) else self._element(term, cell)
        return self.known[key]

    def _position(self, axis: str, cell: dict[str, int]) -> SSAValue:
        first, ahead = self.lowering.offset(axis), cell[axis] * self.cells[axis]
        return first if not ahead else self._add(arith.AddiOp(first, self.lowering.index(ahead)))

    def _element(self, term: Term, cell: dict[str, int]) -> SSAValue:
        assert isinstance(term, SSAValue)
        axes, lowering = axes_of(term.type), self.lowering
        layout = LayoutAttr((), (Mode("", LANES, 0),), (Mode("", lowering.plan.warp_count, 0),))
        type = array_type(i32, dict.fromkeys(axes, 1), "register", layout)
        places = [self._term(axis, cell) for axis in axes]
        bounds = [(axis, lowering.size(axis)) for axis in axes if axis == self.op.axis or self._ends_before(axis, cell)]
        padding, scatter = lowering.padding_of(term), lowering.scattered.get(term)
        load = cuda.LoadOp(lowering.scalar(term), places, type, bounds, padding=padding, scatter=scatter)
        load.location = self.op.location
        lowering.emit(load)
        zeros = [lowering.index(0)] * len(axes)
        return self._add(tensor.ExtractOp(load.result, zeros, i32))

    def _ends_before(self, axis: str, cell: dict[str, int]) -> bool:
        return cell[axis] > 0 and self._may_be_outside(axis)

    def _may_be_outside(self, axis: str) -> bool:
        return axis == self.op.axis or axis in self.lowering.bounded

    def _last(self, axis: str) -> int:
        size = self.lowering.plan.sizes[axis]
        return LAST_POSITION if size == DYNAMIC else size + self.lowering.plan.pieces[axis]

    def _add(self, op: Operation) -> SSAValue:
        return self.lowering.emit(op).results[0]
