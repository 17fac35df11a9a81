"""How the `hierarchy` dialect runs: kernels, groups, streams, and the loads and saves that are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import tensor
from xdsl.dialects.builtin import i32
from xdsl.interpreter import (
    Interpreter,
    PythonValues,
    ReturnedValues,
    TerminatorValue,
    impl,
    impl_terminator,
    register_impls,
)
from xdsl.ir import Attribute

from treadle.compiler.errors import at
from treadle.dialects import hierarchy
from treadle.dialects.diagram.array import axes_of, format_of, level_of
from treadle.dialects.diagram.padding import scattered_read
from treadle.runtime.interpreter.arrays import AnyArray, Array, AxisMismatch, Numbers, array_of, bytes_of, dtype_of
from treadle.runtime.interpreter.functions import SessionFunctions
from treadle.runtime.interpreter.scope import Scope
from treadle.runtime.interpreter.selections import Asking, Selected
from treadle.runtime.interpreter.session import Tally

NOBODY = -1
"""The group that saved an element which none has saved."""


@dataclass
class Destination:
    """A result of a kernel while it is saved to: NaN until it is, and for each element the group that
    saved it."""

    axes: tuple[str, ...]
    value: AnyArray
    writer: NDArray[np.int64]

    @staticmethod
    def empty(type: Attribute, scope: Scope) -> Destination:
        shape = tuple(scope.whole_size(axis) for axis in axes_of(type))
        dtype = dtype_of(format_of(type))
        poison = np.nan if dtype.kind == "f" else np.iinfo(dtype).min or np.iinfo(dtype).max
        return Destination(axes_of(type), np.full(shape, poison, dtype), np.full(shape, NOBODY, np.int64))

    def place(self, flags: NDArray[np.bool_], offset: tuple[int, ...] | None = None) -> str:
        """`[q=3, e=0]`: the first element where `flags` holds."""
        first = np.unravel_index(int(np.argmax(flags)), flags.shape)
        offset = offset or (0,) * len(self.axes)
        entries = (f"{a}={int(i) + o}" for a, i, o in zip(self.axes, first, offset, strict=True))
        return f"[{', '.join(entries)}]"


@register_impls
class HierarchyFunctions(SessionFunctions):
    """A decorated kernel runs as its body does; an expanded one runs tile by tile and is counted."""

    @impl(hierarchy.KernelOp)
    def run_kernel(self, interpreter: Interpreter, op: hierarchy.KernelOp, args: PythonValues) -> PythonValues:
        name = op.kernel_name.data
        tally = self.session.tally = Tally(name)
        for value in (*op.inputs, *op.outputs):
            self.session.scope.learn(value.type)
        if op.is_expanded:
            results = self._run_expanded(interpreter, op, args)
        else:
            for value in (result for inner in op.body.block.ops for result in inner.results):
                self.session.scope.learn(value.type)
            results = interpreter.run_ssacfg_region(op.body, args, name)
        self.session.transfers.append(tally.counts())
        return results

    def _run_expanded(self, interpreter: Interpreter, op: hierarchy.KernelOp, args: PythonValues) -> PythonValues:
        if self.session.bounded:
            raise at(op, "error bounds are worked out on the algorithm, before its streams are expanded")
        destinations = [Destination.empty(value.type, self.session.scope) for value in op.destinations]
        interpreter.run_ssacfg_region(op.body, (*args, *destinations), op.kernel_name.data)
        for i, destination in enumerate(destinations):
            missed = destination.writer == NOBODY
            if missed.any():
                name = op.destinations[i].name_hint or f"result{i}"
                raise at(
                    op,
                    f"{int(missed.sum())} elements of {name} were never saved; "
                    f"the first is {name}{destination.place(missed)}",
                )
        return tuple(Array(d.axes, Numbers(d.value)) for d in destinations)

    @impl(hierarchy.GroupOp)
    def run_group(self, interpreter: Interpreter, op: hierarchy.GroupOp, args: PythonValues) -> PythonValues:
        scope, parts = self.session.scope, op.partition.as_dict()
        for pieces in product(*(tuple(scope.split(axis, size)) for axis, size in parts.items())):
            with scope.within(dict(zip(parts, pieces, strict=True))):
                interpreter.run_ssacfg_region(op.body, (), "group")
            self.session.tally.group += 1
        return ()

    @impl(hierarchy.StreamOp)
    def run_stream(self, interpreter: Interpreter, op: hierarchy.StreamOp, args: PythonValues) -> PythonValues:
        scope = self.session.scope
        limits = [int(cast(Numbers, limit).value) for limit in args[: len(op.limits)]]
        selected = None if op.selection is None else cast(Selected, args[-1])
        state = interpreter.run_ssacfg_region(op.initialise, (), "initialise")
        pieces = list(scope.split(op.axis, op.size))
        for piece in reversed(pieces) if op.is_reverse else pieces:
            if limits and not (piece.start < limits[1] and piece.stop > limits[0]):
                continue
            if selected is not None and piece.start not in selected.starts:
                continue
            is_whole = op.border is None or (piece.start >= limits[2] and piece.stop <= limits[3])
            is_whole = is_whole and (op.border is None or selected is None or piece.start < selected.known)
            region = op.step if is_whole or op.border is None else op.border
            self.session.tally.steps["step" if is_whole else "border"] += 1
            with scope.within({op.axis: piece}):
                state = interpreter.run_ssacfg_region(region, state, "step" if is_whole else "border")
        return interpreter.run_ssacfg_region(op.finish, state, "finish")

    @impl(hierarchy.SelectOp)
    def run_select(self, interpreter: Interpreter, op: hierarchy.SelectOp, args: PythonValues) -> PythonValues:
        scope = self.session.scope
        low, high = (int(cast(Numbers, limit).value) for limit in args[:2])
        pieces = [piece for piece in scope.split(op.axis, op.size) if piece.start < high and piece.stop > low]
        known, others = pieces[: op.room.data], pieces[op.room.data :]
        asking = Asking(op, self.session, dict(zip(op.inputs, args[2:], strict=True)))
        starts = [piece.start for piece in known if asking.may_hold(piece)]
        end = known[-1].stop if known else 0
        return (Selected(frozenset([*starts, *(piece.start for piece in others)]), end),)

    @impl(hierarchy.LoadOp)
    def run_load(self, interpreter: Interpreter, op: hierarchy.LoadOp, args: PythonValues) -> PythonValues:
        source = array_of(args[0])
        place = self._place(source.axes)
        piece = Array(source.axes, source.numbers.reshaped(lambda data: data[place]))
        count, level = piece.numbers.value.size * _blocks_without(op, source.axes), level_of(op.result.type) or "?"
        self.session.tally.loaded[level] += count
        self.session.tally.loaded_bytes[level] += count * bytes_of(format_of(op.result.type))
        self._count_entries(op, piece)
        return (piece,)

    def _count_entries(self, op: hierarchy.LoadOp, piece: Array) -> None:
        """What is read to find the elements of an array that is scattered: an entry for each of its positions."""
        given = hierarchy.given_for(op.source)
        scattered = None if given is None else scattered_read(given)
        if scattered is None:
            return
        for entry in scattered.entries:
            count = prod(piece.sizes[axis] for axis in entry.axes) * _blocks_without(op, entry.axes)
            self.session.tally.loaded["register"] += count
            self.session.tally.loaded_bytes["register"] += count * bytes_of(i32)

    @impl(hierarchy.SaveOp)
    def run_save(self, interpreter: Interpreter, op: hierarchy.SaveOp, args: PythonValues) -> PythonValues:
        piece, destination = array_of(args[0]).filled(0), cast(Destination, args[1])
        place, group = self._place(destination.axes), self.session.tally.group
        value, writer = piece.aligned(destination.axes).value, destination.writer[place]
        if value.shape != writer.shape:
            raise AxisMismatch(f"a piece of shape {value.shape} is saved where {writer.shape} is meant")
        clash = (writer != NOBODY) & (writer != group)
        if clash.any():
            start = tuple(part.start for part in place)
            raise at(op, f"two groups save the same element, {destination.place(clash, start)}")
        destination.value[place] = value
        destination.writer[place] = group
        count, level = value.size, level_of(op.value.type) or "?"
        self.session.tally.saved[level] += count
        self.session.tally.saved_bytes[level] += count * bytes_of(format_of(op.value.type))
        return ()

    @impl(hierarchy.PieceOp)
    def run_piece(self, interpreter: Interpreter, op: hierarchy.PieceOp, args: PythonValues) -> PythonValues:
        piece = self.session.scope.piece(op.axis.data)
        return tuple(Numbers(np.asarray(position, np.int64)) for position in (piece.start, piece.stop))

    @impl(tensor.ExtractOp)
    def run_extract(self, interpreter: Interpreter, op: tensor.ExtractOp, args: PythonValues) -> PythonValues:
        place = tuple(int(cast(Numbers, index).value) for index in args[1:])
        return (array_of(args[0]).numbers.reshaped(lambda data: data[place]),)

    @impl_terminator(hierarchy.YieldOp)
    def run_yield(
        self, interpreter: Interpreter, op: hierarchy.YieldOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()

    def _place(self, axes: tuple[str, ...]) -> tuple[slice, ...]:
        """Where the current pieces of some axes lie in a whole array."""
        return tuple(self.session.scope.piece(axis) for axis in axes)


def _blocks_without(op: hierarchy.LoadOp, axes: Sequence[str]) -> int:
    """How many blocks of a cluster each load a piece of an array with these axes: those that share another one."""
    parent = op.parent_op()
    while parent is not None and not isinstance(parent, hierarchy.KernelOp):
        parent = parent.parent_op()
    if parent is None or parent.schedule is None:
        return 1
    whole, parts = parent.schedule.whole.as_dict(), parent.schedule.cluster.as_dict()
    return prod(-(-whole[axis] // part) for axis, part in parts.items() if axis not in axes)
