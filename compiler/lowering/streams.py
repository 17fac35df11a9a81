"""Streams: loops over pieces of an axis, and a turn for a last, smaller one."""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IndexType, IntAttr, StringAttr, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from treadle.compiler.lowering.fragments import fragment_of
from treadle.compiler.lowering.names import hinted, named, plain_name
from treadle.compiler.lowering.pending import Listed
from treadle.compiler.lowering.reductions import combined, kept_by_lanes
from treadle.compiler.lowering.runs import Run, RunWriter, in_turns, twins, yielded
from treadle.compiler.lowering.state import KernelLowering
from treadle.dialects import cuda
from treadle.dialects.cuda.kernel import TURN_REGISTERS
from treadle.dialects.diagram.array import DYNAMIC
from treadle.dialects.hierarchy import StreamOp, YieldOp
from treadle.dialects.hierarchy.stream import RECURS


def lower_stream(lowering: KernelLowering, op: StreamOp) -> None:
    for inner in op.initialise.block.ops:
        if not isinstance(inner, YieldOp):
            lowering.lower(inner)
    states = op.step.block.args
    state = [
        named(fragment_of(lowering, value, lowering.layouts.of(arg)), plain_name(arg))
        for value, arg in zip(yielded(op.initialise), states, strict=True)
    ]
    apart = [kept_by_lanes(lowering, op, i) for i in range(len(states))]
    lowering.apart |= {reduce for reduces in apart for reduce in reduces}
    lowering.twins |= twins(op)
    state = _full_axis(lowering, op, state) if op.fed is None else _selected(lowering, op, state)
    for arg, value, reduces in zip(op.finish.block.args, state, apart, strict=True):
        lowering.values[arg] = combined(lowering, reduces[0], value, arg) if reduces else value
    for inner in op.finish.block.ops:
        if not isinstance(inner, YieldOp):
            lowering.lower(inner)
    for output, value in zip(op.outputs, yielded(op.finish), strict=True):
        lowering.values[output] = lowering.values[value]


def _full_axis(lowering: KernelLowering, op: StreamOp, state: list[SSAValue]) -> list[SSAValue]:
    """All pieces of the axis."""
    axis, piece, size = op.axis, op.size, lowering.plan.sizes[op.axis]
    zero = lowering.index(0)
    if size == DYNAMIC:
        rest = lowering.emit(arith.RemUIOp(lowering.size(axis), lowering.index(piece))).result
        full = named(lowering.emit(arith.SubiOp(lowering.size(axis), rest)).result, f"{axis}_full")
    else:
        full = lowering.index(size // piece * piece)
    if size == DYNAMIC or size >= piece:
        state = _pieces_of(lowering, op, Run(op.step, zero, full, True), state)
    if size == DYNAMIC or size % piece:
        end = lowering.size(axis) if size == DYNAMIC else None
        state = _last_piece(lowering, op, full, end, state)
    return state


def _selected(lowering: KernelLowering, op: StreamOp, state: list[SSAValue]) -> list[SSAValue]:
    """The pieces that conditions leave."""

    def emit(new: Operation) -> SSAValue:
        return lowering.emit(new).results[0]

    divides = not _has_part(lowering, op)
    runs = RunWriter(op, emit, lowering.size(op.axis), lowering.scalar, divides).runs()
    listed = None if op.selection is None else lowering.listed[op.selection]
    if listed is not None:
        runs = in_turns(runs, listed, emit)
    for run in runs:
        if run.is_full or op.border is not None or listed is not None:
            state = _pieces_of(lowering, op, run, state, listed)
        else:
            with lowering.between(op.axis, run.begin, run.stop):
                state = _last_piece(lowering, op, run.start, run.end, state)
    return state


def _has_part(lowering: KernelLowering, op: StreamOp) -> bool:
    """Whether the last piece of a streamed axis may be smaller."""
    size = lowering.plan.sizes[op.axis]
    return size == DYNAMIC or size % op.size != 0


def _pieces_of(
    lowering: KernelLowering, op: StreamOp, run: Run, state: list[SSAValue], listed: Listed | None = None
) -> list[SSAValue]:
    """A loop over the pieces of a run; over turns, where the pieces are on a list."""
    body = Block(arg_types=[IndexType(), *(value.type for value in state)])
    named(body.args[0], f"{op.axis}0" if listed is None and not op.is_reverse else "turn")
    for arg, source in zip(body.args[1:], op.step.block.args, strict=True):
        hinted(arg, source)
    step = lowering.index(op.size if listed is None else 1)
    is_bounded = not run.is_full and _has_part(lowering, op)
    lowering.bounded |= {op.axis} if is_bounded else set()
    with lowering.inside(body), lowering.between(op.axis, run.begin, run.stop):
        position = body.args[0] if listed is None else _listed_at(lowering, op, listed, body.args[0])
        position = _from_the_end(lowering, op, run, position) if op.is_reverse else position
        lowering.emit(scf.YieldOp(*_step(lowering, op, run.region, position, list(body.args[1:]))))
    lowering.bounded -= {op.axis}
    loop = lowering.emit(scf.ForOp(run.start, run.end, step, state, body))
    loop.location = op.location
    which = ", those that are selected" if listed is not None else ""
    which += ", the last first" if op.is_reverse else ""
    which += f", {run.where}" if run.where else ""
    loop.attributes["comment"] = StringAttr(f"streaming: {op.axis} in pieces of {op.size}{which}")
    if op in lowering.turn_registers:
        loop.attributes[TURN_REGISTERS] = IntAttr(lowering.turn_registers[op])
    if op.recurs:
        loop.attributes[RECURS] = UnitAttr()
    for result, source in zip(loop.results, op.step.block.args, strict=True):
        hinted(result, source)
    return list(loop.results)


def _listed_at(lowering: KernelLowering, op: StreamOp, listed: Listed, turn: SSAValue) -> SSAValue:
    """Where the piece of a turn begins."""
    count = listed.count if listed.rest is not None else None
    at = lowering.emit(cuda.SelectedOp(listed.tile, turn, listed.step, count, listed.rest))
    return named(at.result, f"{op.axis}0")


def _from_the_end(lowering: KernelLowering, op: StreamOp, run: Run, turn: SSAValue) -> SSAValue:
    """The position of a turn where the last one is taken first."""
    last = lowering.emit(arith.SubiOp(run.end, lowering.index(1))).result
    return named(lowering.emit(arith.SubiOp(last, turn)).result, f"{op.axis}0")


def _last_piece(
    lowering: KernelLowering, op: StreamOp, start: SSAValue, end: SSAValue | None, state: list[SSAValue]
) -> list[SSAValue]:
    """The piece that is smaller, if it begins before `end`; None if it surely does."""
    lowering.bounded.add(op.axis)
    lowering.partial = op.axis
    try:
        if end is None:
            return _step(lowering, op, op.step, start, state)
        condition = lowering.emit(arith.CmpiOp(start, end, "ult")).result
        some = Block()
        with lowering.inside(some):
            lowering.emit(scf.YieldOp(*_step(lowering, op, op.step, start, state)))
        none = Block()
        with lowering.inside(none):
            lowering.emit(scf.YieldOp(*state))
        branch = lowering.emit(scf.IfOp(condition, [value.type for value in state], Region(some), Region(none)))
    finally:
        lowering.bounded.discard(op.axis)
        lowering.partial = None
    branch.location = op.location
    branch.attributes["comment"] = StringAttr(f"streaming: the last piece of {op.axis}, which is smaller")
    for result, source in zip(branch.results, op.step.block.args, strict=True):
        hinted(result, source)
    return list(branch.results)


def _step(
    lowering: KernelLowering, op: StreamOp, region: Region, position: SSAValue, state: list[SSAValue]
) -> list[SSAValue]:
    lowering.offsets[op.axis] = position
    for arg, value in zip(region.block.args, state, strict=True):
        lowering.values[arg] = value
    for inner in region.block.ops:
        if not isinstance(inner, YieldOp):
            lowering.lower(inner)
    del lowering.offsets[op.axis]
    return [
        fragment_of(lowering, value, lowering.layouts.of(arg))
        for value, arg in zip(yielded(region), op.step.block.args, strict=True)
    ]
