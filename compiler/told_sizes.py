"""Sizes of axes that no argument has: the reads of a program tell them, so nobody can choose them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from treadle.compiler.errors import at
from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
from treadle.dialects.diagram.collapse import Regrouping
from treadle.dialects.diagram.operation import DiagramOperation
from treadle.dialects.diagram.read import ReadOp
from treadle.dialects.hierarchy import KernelOp

Tells: TypeAlias = ReadOp | Regrouping


@dataclass(frozen=True)
class Told:
    """A size, and the operation that tells it."""

    size: int
    by: Tells


def told_sizes(function: FuncOp, known: Mapping[str, int]) -> dict[str, Told]:
    """The sizes of the axes of a function that only its reads and regroupings have, as they follow from those that are
    `known` of other axes: static ones, and those of arguments and of what other dialects make in it. A launch computes
    the same from the arrays that it is given; the first that has an axis decides, and others must fit."""
    ops = function.body.block.ops if function.body.blocks else ()
    telling = [op for op in ops if isinstance(op, Tells)]
    if not telling:
        return {}
    sizes = _static(function) | {axis: known[axis] for axis in _given(function) if axis in known}
    told: dict[str, Told] = {}
    for op in telling:
        if all(axis in sizes for value in op.operands for axis in axes_of(value.type)):
            new = {axis: Told(size, op) for axis, size in op.fitting(sizes).items() if axis not in sizes}
            told |= new
            sizes |= {axis: each.size for axis, each in new.items()}
    return told


def told_axes(function: FuncOp) -> frozenset[str]:
    """The axes whose sizes are told so, whatever those of others are."""
    if not function.body.blocks:
        return frozenset()
    return frozenset(told_sizes(function, dict.fromkeys(_given(function), 1)))


def check_told(function: FuncOp, given: Mapping[str, int], known: Mapping[str, int]) -> None:
    """Refuse a size for an axis to which a read gives another, with what is `known` of the sizes that nobody gave
    (TreadleError)."""
    sizes = {**known, **given}
    told = told_sizes(function, sizes)
    for axis, size in given.items():
        if axis in told and told[axis].size != size:
            raise at(told[axis].by, _why(axis, size, told[axis], sizes))


def _given(function: FuncOp) -> frozenset[str]:
    """The symbolic axes of arrays that a launch is given, or that other dialects make."""
    axes = (sizes_of(value.type).items() for value in _arrays(function) if not _is_derived(value))
    return frozenset(axis for sizes in axes for axis, size in sizes if size == DYNAMIC)


def _is_derived(value: SSAValue) -> bool:
    return isinstance(value.owner, DiagramOperation | KernelOp)


def _static(function: FuncOp) -> dict[str, int]:
    types = (sizes_of(value.type).items() for value in _arrays(function))
    return {axis: size for sizes in types for axis, size in sizes if size != DYNAMIC}


def _arrays(function: FuncOp) -> Iterator[SSAValue]:
    yield from function.body.block.args
    for op in function.body.block.ops:
        yield from op.results


def _why(axis: str, size: int, told: Told, known: Mapping[str, int]) -> str:
    op = told.by
    tellers = [other for other in _tellers(op, axis) if other in known]
    what = "read" if isinstance(op, ReadOp) else "regrouping"
    where = f" where {', '.join(f'{other} = {known[other]}' for other in tellers)}" if tellers else ""
    ways = [f"give {' or '.join(map(repr, tellers))} another size"] if tellers else []
    if isinstance(op, ReadOp) and size and (op.is_padded or size < told.size):  # who asks for 0 wants no such program
        ways.append(f"write {size} in place of '?' for '{axis}' in the types")
    return (
        f"axis '{axis}' cannot have {size} elements: no argument has it, so this {what} tells its size, "
        f"{told.size}{where}; {', or '.join(ways) or 'leave it away'}"
    )


def _tellers(op: Tells, axis: str) -> list[str]:
    """The symbolic axes from whose sizes that of an axis follows."""
    along = op.limits_of(axis) if isinstance(op, ReadOp) else axes_of(op.operand.type)
    sizes = {other: size for value in op.operands for other, size in sizes_of(value.type).items()}
    return [other for other in along if sizes[other] == DYNAMIC]


__all__ = ["Told", "check_told", "told_axes", "told_sizes"]
