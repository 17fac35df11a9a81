"""Factors of which a copy brings the rows that a condition leaves (`hierarchy.bounded`), and zeros in their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import IndexType, i32
from xdsl.ir import SSAValue

from treadle.compiler.lowering.comparisons import into, total_of
from treadle.compiler.lowering.intervals import Sooner
from treadle.compiler.lowering.names import named
from treadle.compiler.lowering.pending import PendingLoad
from treadle.compiler.lowering.state import KernelLowering
from treadle.compiler.lowering.tiles import tile_of
from treadle.dialects import cuda
from treadle.dialects.cuda.layout import LANES, LayoutAttr, Mode
from treadle.dialects.diagram import WhereOp
from treadle.dialects.diagram.array import array_type, is_array, sizes_of
from treadle.dialects.diagram.linear import Atom, Linear
from treadle.dialects.hierarchy.bounded import Bounds, bounds_of


def copied_between(lowering: KernelLowering, op: WhereOp) -> SSAValue | None:
    """The tile to which a copy brings what a condition keeps, and zeros elsewhere; None if elements are tested. A step,
    or a group, has one position along the axis that data are along, so these are numbers there."""
    pending, bounds = lowering.values[op.operand], bounds_of(op)
    if bounds is None or not isinstance(pending, PendingLoad) or sizes_of(op.operand.type)[bounds.along] != 1:
        return None
    begins, ends = _ends_once(lowering, op, bounds)
    kept = [(axis, end) for axis, end in pending.bounds if axis != bounds.row]
    begun = [(axis, begin) for axis, begin in pending.begins if axis != bounds.row]
    tile = tile_of(lowering, lowering.twin(pending.op), op.result)
    copy = lowering.emit(
        cuda.CopyOp(
            pending.buffer,
            pending.offsets,
            tile,
            [*kept, (bounds.row, ends)],
            begins=[*begun, *([] if begins is None else [(bounds.row, begins)])],
            padding=pending.padding,
            scatter=pending.scatter,
        )
    )
    copy.location = pending.op.location
    copy.partial = lowering.partial_mark(pending.bounds)
    return tile


def _ends_once(lowering: KernelLowering, op: WhereOp, bounds: Bounds) -> tuple[SSAValue | None, SSAValue]:
    """The ends of a condition: where they are the same in all steps, computed before the first."""
    data = [lowering.values[value] for value in op.asked.values() if is_array(value.type)]
    if any(isinstance(each, PendingLoad) and each.block is not lowering.top for each in data):
        return _ends(lowering, bounds)
    key = lowering.twin(op)
    if key not in lowering.ends:
        with lowering.inside(lowering.top):
            lowering.ends[key] = _ends(lowering, bounds)
    return lowering.ends[key]


def _ends(lowering: KernelLowering, bounds: Bounds) -> tuple[SSAValue | None, SSAValue]:
    """From which row on, and before which, there are elements: of rows that the array has."""
    atoms = dict.fromkeys(term for form in (*bounds.begins, *bounds.ends) for term in form.atoms)
    terms: dict[Atom, SSAValue] = {term: _number(lowering, term) for term in atoms if isinstance(term, SSAValue)}
    size, begin, end = lowering.size(bounds.row), None, None
    if bounds.begins:
        begin = _one_of(lowering, bounds.begins, terms, arith.MaxSIOp)
        begin = named(lowering.emit(arith.MinSIOp(begin, size)).result, f"{bounds.row}_begins")
    if bounds.ends:
        end = _one_of(lowering, bounds.ends, terms, arith.MinSIOp)
        end = named(lowering.emit(arith.MinSIOp(end, size)).result, f"{bounds.row}_ends")
    return begin, size if end is None else end


def _one_of(
    lowering: KernelLowering, forms: Sequence[Linear], terms: Mapping[Atom, SSAValue], sooner: type[Sooner]
) -> SSAValue:
    emit, type = into(lowering.block), IndexType()
    found = [total_of(form, terms, type, emit) for form in forms]
    made = reduce(lambda one, other: emit(sooner(one, other)), found)
    return emit(arith.MaxSIOp(made, lowering.index(0)))


def _number(lowering: KernelLowering, value: SSAValue) -> SSAValue:
    """What data say in this step: every warp loads it."""
    if not is_array(value.type):
        return lowering.scalar(value)
    pending = lowering.values[value]
    assert isinstance(pending, PendingLoad)
    axes = sizes_of(value.type)
    layout = LayoutAttr((), (Mode("", LANES, 0),), (Mode("", lowering.plan.warp_count, 0),))
    type = array_type(i32, dict.fromkeys(axes, 1), "register", layout)
    padding, scatter = pending.padding, pending.scatter
    load = cuda.LoadOp(pending.buffer, pending.offsets, type, pending.bounds, padding=padding, scatter=scatter)
    load.location = pending.op.location
    named(lowering.emit(load).result, value.name_hint)
    zeros = [lowering.index(0)] * len(axes)
    return lowering.emit(tensor.ExtractOp(load.result, zeros, i32)).result
