"""What a group of a decorated kernel holds."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.kernel.operands import (
    computes_with,
    is_needed_first,
    left_operand,
    only_limits,
)
from treadle.compiler.cost.kernel.roles import lies_along_columns, role_of_met, role_of_sums
from treadle.compiler.cost.kernel.rows import made_in, met_in, reduced_later
from treadle.compiler.cost.kernel.tasks import ADDRESS, Holding
from treadle.compiler.cost.kernel.work import width_of
from treadle.compiler.cost.reading.ahead import held_ahead
from treadle.compiler.cost.reading.decorated import Decorated
from treadle.dialects.diagram import MapOp, ReduceOp, RenameOp, ScanOp, SwapOp
from treadle.dialects.diagram.accumulators import begins_with_product
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy.bounded import is_factor, loaded_factor, users_of_factor
from treadle.dialects.hierarchy.schedule import promoted_every


class Holdings:
    """Of one kernel, by what it is held for."""

    def __init__(self, at: Decorated, recurs: bool = False):
        """`recurs`: the kernel stands for a recurrence, each step of which reduces all that it reduces."""
        self.at = at
        self.recurs = recurs

    def all(self) -> list[Holding]:
        return [
            *self._of_inputs(),
            *self._of_products(),
            *self._of_rows(),
            *self._of_parts(),
            *self._of_results(),
            *self._of_swaps(),
            *self._of_renames(),
        ]

    def _of_inputs(self) -> list[Holding]:
        held: list[Holding] = []
        for value, times in self.at.use.inputs.items():
            axes, width = axes_of(value.type), width_of(value.type)
            if only_limits(value):
                held.append(Holding("limit", axes, width))
                continue
            if not self.at.comes_to_shared(value):
                held += self._of_loaded(value)
                continue
            # The second stream has tiles of its own in shared memory.
            role = "staged" if self.at.stream in axes else "shared"
            held += [Holding(role, axes, width)] * times
            if is_factor(value) or self.at.lies_in_rows(axes):
                held += self._read_back_in_rows(value)
            else:
                held.append(self._met(value))
        return held

    def _met(self, value: SSAValue) -> Holding:
        """What lies as the result of a product that it meets."""
        axes, width = axes_of(value.type), width_of(value.type)
        along_columns = lies_along_columns(axes, self.at.stream, self.at.roles.row, self.at.products)
        return Holding(role_of_met(value, along_columns, self.at.roles.row, self.at.roles.single), axes, width)

    def _of_loaded(self, value: SSAValue) -> Iterator[Holding]:
        axes = axes_of(value.type)
        if not self.at.lies_in_rows(axes):
            yield self._met(value)
            return
        streams = self.at.use.fed_in.get(value)
        users = {use.operation for use in value.uses}
        if streams is None:
            in_steps = any(op in step for op in users for step in self.at.use.steps)
            yield self._in_rows("value" if in_steps else "loaded", value, None, met_in(value, users))
            return
        for stream in streams:
            step = self.at.use.steps[stream]
            role = "next" if is_needed_first(users, step) else "loaded"
            met = met_in(value, users.intersection(step))
            yield self._in_rows(role, value, stream, met)
            yield Holding("address", axes[:-1], ADDRESS, stream, axes_of(met.type), reduced_later(met))

    def _in_rows(self, role: str, value: SSAValue, stream: int | None, largest: SSAValue) -> Holding:
        """What lies in the lanes as a larger array does."""
        axes = axes_of(largest.type)
        return Holding(role, axes_of(value.type), width_of(value.type), stream, axes, reduced_later(largest))

    def _read_back_in_rows(self, value: SSAValue) -> Iterator[Holding]:
        """What steps read back of a tile, to compute with it."""
        axes, users = axes_of(value.type), {*users_of_factor(value)}
        for stream in self.at.use.fed_in.get(value, ()):
            users_there = users.intersection(self.at.use.steps[stream])
            if computes_with(users_there) and self.at.lies_in_rows(axes):
                yield self._in_rows("loaded", value, stream, met_in(value, users_there))

    def _of_products(self) -> list[Holding]:
        held = list(self._kept())
        for op in self.at.products:
            axes = axes_of(op.result.type)
            streams = self.at.streams_of(op)
            if not begins_with_product(op):  # in whose place it would be
                passing = [Holding("passing", axes, 4, stream) for stream in streams]
                held += passing if self.at.stream in axes else [Holding("carried", axes, 4)]
            if promoted_every(self.at.kernel.schedule, op):
                held += [Holding("partial", axes, 4, stream) for stream in streams]
            for operand in (op.lhs, op.rhs):
                if isinstance(loaded_factor(operand).owner, Operation):
                    roles = ("shared", "moving") if self.at.in_shared(op, operand) else ("passing",)
                    held += [self._of_operand(role, operand, each) for role in roles for each in streams]
        return held + self._ahead()

    def _kept(self) -> Iterator[Holding]:
        """Left operands that a stream finds in registers, once for all its products."""
        kept = [op for op in self.at.products if self.at.left_of(op) == "kept"]
        for left in dict.fromkeys(left_operand(op, self.at.roles.row) for op in kept):
            yield Holding("kept", axes_of(left.type), width_of(left.type))

    def _of_operand(self, role: str, operand: SSAValue, stream: int | None) -> Holding:
        axes = axes_of(operand.type)
        if role == "moving" and self.at.lies_in_rows(axes):
            return self._in_rows(role, operand, stream, made_in(operand, self.at.stream))
        return Holding(role, axes, width_of(operand.type), stream)

    def _ahead(self) -> list[Holding]:
        made = [op for op in self.at.operations if isinstance(op, MapOp | ScanOp) and self.at.products]
        found = [(role, op, axes) for op in made for role, axes in held_ahead(op)]
        kept = [each for each in found if self.at.stream in each[2] and self.at.roles.row in each[2]]
        return [Holding(role, axes, 4, stream) for role, op, axes in kept for stream in self.at.streams_of(op)]

    def _of_rows(self) -> list[Holding]:
        """The state of the stream's reductions; what is reduced at once, little is left of."""
        reductions = [op for op in self.at.operations if isinstance(op, ReduceOp) and self.at.stream in op.over_axes]
        repairing = self.at.repairing()
        return [self.of_row(op, op.result in repairing) for op in reductions] + list(self._reduced())

    def _reduced(self) -> Iterator[Holding]:
        """What steps reduce along other axes than the stream's, beside products."""
        for op in self.at.operations:
            if isinstance(op, ReduceOp) and self.at.stream not in op.over_axes:
                along = axes_of(op.operand.type)
                if self.at.lies_in_rows(along):
                    for stream in self.at.streams_of(op):
                        yield Holding("reduced", axes_of(op.result.type), width_of(op.result.type), stream, along)

    def of_row(self, op: ReduceOp, repairs: bool = False) -> Holding:
        """Where what it reduces lies in rows over the lanes, fewer of them share a row."""
        axes, along = axes_of(op.result.type), axes_of(op.operand.type)
        if self.at.lies_in_rows(along):
            return Holding("repairing" if repairs else "state", axes, 4, None, along)
        if not self.at.products:
            return Holding("row", axes, 4, None, along)
        return Holding(role_of_sums(axes, self.at.roles), axes, 4)

    def _of_parts(self) -> Iterator[Holding]:
        """What warps hold of results whose rows they share: of those that repair others, in every step of a stream."""
        if self.at.products:
            return
        repairing = self.at.repairing()
        for op in self.at.operations:
            if isinstance(op, ReduceOp):
                of_steps = self.at.stream in op.over_axes and op.result in repairing
                axes, width = axes_of(op.result.type), width_of(op.result.type)
                streams = (0,) if self.recurs else self.at.streams_of(op) if of_steps else (None,)
                yield from (Holding("parts", axes, width, each, reduced=tuple(op.over_axes)) for each in streams)

    def _of_swaps(self) -> Iterator[Holding]:
        """What is made of the first blocks of pairs is there beside both, until that of the second ones is: half."""
        for op in self.at.operations:
            if isinstance(op, SwapOp):
                yield Holding("value", axes_of(op.result.type), width_of(op.result.type) // 2)

    def _of_renames(self) -> Iterator[Holding]:
        """A tile through which elements go to where they are under other names."""
        for op in self.at.operations:
            if isinstance(op, RenameOp):
                yield Holding("shared", axes_of(op.operand.type), width_of(op.operand.type))

    def _of_results(self) -> list[Holding]:
        """Results on their way out; where there are products the accumulators are counted already."""
        if not self.at.products:
            return [Holding("value", axes_of(value.type), width_of(value.type)) for value in self.at.results]
        return [
            Holding(
                "turned" if axes_of(value.type)[-1:] == (self.at.roles.row,) else "leaving",
                axes_of(value.type),
                width_of(value.type),
            )
            for value in self.at.results
            if self.at.leaves(value)
        ]
