"""Registers that maps take beside their operands and results: for what they make of positions and loaded numbers on
slow units, which ptxas begins while products still run and holds until these are there; for divisions and powers on
their way; and for scans."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import arith, math
from xdsl.ir import BlockArgument, Operation, SSAValue

from treadle.dialects.diagram import FillOp, IndexOp, MapOp, ScanOp, YieldOp
from treadle.dialects.diagram.approximations import is_by_reciprocal
from treadle.dialects.diagram.array import axes_of, is_array
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.hierarchy import LoadOp


def held_ahead(op: MapOp | ScanOp) -> list[tuple[str, tuple[str, ...]]]:
    """What is held beside operands and results, and the axes of each. A scan stands beside what it is made of, which a
    step computes with again."""
    if isinstance(op, ScanOp):
        return [("scanned", axes_of(op.result.type))]
    found = [("ahead", axes) for axes in begun_ahead(op)]
    found += [("dividing", axes) for axes in divided(op)]
    return found + [("capped", axes) for axes in capped(op)]


def begun_ahead(op: MapOp) -> Iterator[tuple[str, ...]]:
    """The axes of each number that a map makes so, on its way to an operation that needs a product: of integers, or of
    functions that the special-function unit computes."""
    axes: dict[SSAValue, tuple[str, ...]] = {}
    slow: set[SSAValue] = set()
    for arg, operand in zip(op.body.block.args, op.inputs, strict=True):
        if _is_early(operand):
            axes[arg] = axes_of(operand.type) if is_array(operand.type) else ()
    for scalar in op.body.block.ops:
        if isinstance(scalar, YieldOp):
            continue
        if all(operand in axes for operand in scalar.operands):
            found = dict.fromkeys(axis for operand in scalar.operands for axis in axes[operand])
            axes |= dict.fromkeys(scalar.results, tuple(found))
            if _is_slow(scalar) or slow & set(scalar.operands):
                slow |= set(scalar.results)
            continue
        yield from (axes[operand] for operand in scalar.operands if operand in slow)


def divided(op: MapOp) -> Iterator[tuple[str, ...]]:
    """The axes of each division, and of powers and reciprocals that leave: ptxas has several elements on their way at a
    time, scaled before and after, or between a special-function unit and an address."""
    leaves = not any(isinstance(use.operation, DiagramOperation) for use in op.result.uses)
    return (axes_of(op.result.type) for scalar in op.body.block.ops if _is_on_its_way(scalar, leaves))


def capped(op: MapOp) -> Iterator[tuple[str, ...]]:
    """The axes of each `tanh` of what the rest of a step computes with: its elements stay, and several are on their
    way."""
    stays = any(isinstance(use.operation, DiagramOperation) for use in op.result.uses)
    return (axes_of(op.result.type) for scalar in op.body.block.ops if stays and isinstance(scalar, math.TanhOp))


def _is_on_its_way(scalar: Operation, leaves: bool) -> bool:
    if isinstance(scalar, math.ExpOp | math.Exp2Op) or is_by_reciprocal(scalar):
        return leaves
    return isinstance(scalar, arith.DivfOp)


def _is_early(value: SSAValue) -> bool:
    return isinstance(value, BlockArgument) or isinstance(value.owner, LoadOp | IndexOp | FillOp)


def _is_slow(scalar: Operation) -> bool:
    return isinstance(scalar, arith.SIToFPOp | arith.UIToFPOp) or scalar.name.startswith("math.")
