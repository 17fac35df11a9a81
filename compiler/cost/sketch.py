"""A decorated kernel, read once; then a plan for any sizes of its pieces, quickly: choosing tries hundreds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from xdsl.ir import Operation, SSAValue

from treadle.compiler.cost.names import name_of
from treadle.compiler.cost.plan import Pieces, Plan, Tile, Transfer, Work
from treadle.compiler.cost.roles import ProductAxes, product_axes, stream_use
from treadle.compiler.cost.work import axes_touched, is_tensor_product, shared_reads, unit_work, width_of
from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, shape_of
from treadle.dialects.hierarchy import KernelOp
from treadle.dialects.hierarchy.schedule import ScheduleAttr


@dataclass(frozen=True)
class _Crossing:
    array: str
    level: str
    saves: bool
    axes: tuple[str, ...]
    width: int
    streamed: bool


@dataclass(frozen=True)
class _Labour:
    unit: str
    amount: int
    axes: tuple[str, ...]
    times: int
    """How many streams do it."""
    streamed: bool


@dataclass(frozen=True)
class _Holding:
    role: str
    axes: tuple[str, ...]
    width: int


@dataclass(frozen=True)
class Sketch:
    """What a decorated kernel does, by axis; `plan` puts in the sizes of the pieces."""

    name: str
    sizes: Mapping[str, int]
    """Every axis, in order of appearance; DYNAMIC where symbolic."""
    group: tuple[str, ...]
    stream: str | None
    whole: tuple[str, ...]
    roles: ProductAxes
    alignment: int
    """Tiles of products have sides that are multiples of this: whole axes are padded to it."""
    has_products: bool
    streams: int
    """How often the axis is streamed."""
    arrays: tuple[tuple[tuple[str, ...], int], ...]
    """Axes and bytes of a value of each array at device level."""
    batch: frozenset[str]
    """Axes that some product has in both operands and its result."""
    reduced: frozenset[str]
    """Axes that something is reduced over."""
    crossings: tuple[_Crossing, ...]
    labours: tuple[_Labour, ...]
    holdings: tuple[_Holding, ...]
    shared_operands: tuple[tuple[tuple[str, ...], int, int, bool], ...]
    """Axes, width, number of streams that read it, and whether it is read in each step."""

    def plan(self, tiles: Mapping[str, int], warps: Mapping[str, int]) -> Plan:
        padded = {axis: self._padded(axis, size) for axis, size in tiles.items()}
        groups = tuple(Pieces(axis, tiles[axis]) for axis in self.group)
        streams = () if self.stream is None else (Pieces(self.stream, tiles[self.stream]),)
        work = [
            Work(labour.unit, labour.amount * _volume(labour.axes, padded), streams if labour.streamed else ())
            for labour in self.labours
            for _ in range(labour.times)
        ]
        work += [
            Work("shared", shared_reads(axes, width, padded, warps), streams if streamed else ())
            for axes, width, times, streamed in self.shared_operands
            for _ in range(times)
        ]
        return Plan(
            self.name,
            groups,
            streams * self.streams,
            warps,
            tuple(self._transfer(crossing, groups) for crossing in self.crossings),
            tuple(work),
            tuple(
                Tile(holding.role, tuple(padded[axis] for axis in holding.axes), holding.width)
                for holding in self.holdings
            ),
            self.has_products,
        )

    def _padded(self, axis: str, size: int) -> int:
        if axis not in self.whole:
            return size
        return -(-max(size, 1) // self.alignment) * self.alignment

    def _transfer(self, crossing: _Crossing, groups: tuple[Pieces, ...]) -> Transfer:
        again = tuple(pieces for pieces in groups if pieces.axis not in crossing.axes)
        return Transfer(crossing.array, crossing.level, crossing.saves, crossing.axes, crossing.width, again)


def sketch_of(kernel: KernelOp, schedule: ScheduleAttr) -> Sketch:
    group = tuple(schedule.group.as_dict())
    stream = next(iter(schedule.stream.as_dict()), None)
    return _Reader(kernel, group, stream, tuple(schedule.whole.as_dict())).sketch()


class _Reader:
    """Gathers a sketch from one decorated kernel."""

    def __init__(self, kernel: KernelOp, group: tuple[str, ...], stream: str | None, whole: tuple[str, ...]):
        self.kernel = kernel
        self.group = group
        self.stream = stream
        self.whole = whole
        *self.operations, terminator = kernel.body.block.ops
        self.results = tuple(terminator.operands)
        self.products = [op for op in self.operations if isinstance(op, ContractOp)]
        self.use = stream_use(kernel, stream)
        self.roles = product_axes(kernel, group)

    def sketch(self) -> Sketch:
        values = [*self.kernel.body.block.args, *(op.results[0] for op in self.operations)]
        sizes: dict[str, int] = {}
        for value in values:
            sizes.update(zip(axes_of(value.type), shape_of(value.type), strict=True))
        outside = [*self.use.inputs, *self.results]
        return Sketch(
            name=self.kernel.kernel_name.data,
            sizes=sizes,
            group=self.group,
            stream=self.stream,
            whole=self.whole,
            roles=self.roles,
            alignment=self._alignment(),
            has_products=bool(self.products),
            streams=self.use.streams,
            arrays=tuple((axes_of(value.type), width_of(value.type)) for value in outside),
            batch=frozenset(axis for op in self.products for axis in _batch_axes(op)),
            reduced=frozenset(
                axis for op in self.operations if isinstance(op, ContractOp | ReduceOp) for axis in op.over_axes
            ),
            crossings=(*self._loads(), *self._saves()),
            labours=tuple(self._labours()),
            holdings=tuple(self._holdings()),
            shared_operands=tuple(self._shared_operands()),
        )

    def _alignment(self) -> int:
        if not self.products:
            return 1
        return 16 if any(width_of(op.lhs.type) == 2 for op in self.products) else 8

    def _feeds_product(self, value: SSAValue) -> bool:
        return any(isinstance(use.operation, ContractOp) and use.index < 2 for use in value.uses)

    def _loads(self) -> list[_Crossing]:
        return [
            _Crossing(
                name_of(value, f"input{i}"),
                "shared" if self._feeds_product(value) else "register",
                False,
                axes_of(value.type),
                width_of(value.type),
                self.stream in axes_of(value.type),
            )
            for i, (value, times) in enumerate(self.use.inputs.items())
            for _ in range(times)
        ]

    def _saves(self) -> list[_Crossing]:
        return [
            _Crossing(
                name_of(value, f"output{i}"),
                "register",
                True,
                axes_of(value.type),
                width_of(value.type),
                self.stream in axes_of(value.type),
            )
            for i, value in enumerate(self.results)
        ]

    def _labours(self) -> list[_Labour]:
        labours: list[_Labour] = []
        seen_reduction = False
        for op in self.operations:
            axes = axes_touched(op)
            streamed = self.stream in axes
            for unit, amount in unit_work(op).items():
                labours.append(_Labour(unit, amount, axes, self.use.operations[op], streamed))
            if isinstance(op, ContractOp | ReduceOp) and self.stream in op.over_axes:
                if seen_reduction:
                    # A cascade: in each step the state so far is repaired, a multiplication a value.
                    labours.append(_Labour("float", 1, axes_of(op.result.type), 1, True))
                seen_reduction = True
        return labours

    def _shared_operands(self) -> list[tuple[tuple[str, ...], int, int, bool]]:
        operands: list[tuple[tuple[str, ...], int, int, bool]] = []
        for op in self.products:
            streamed = self.stream in axes_touched(op)
            for operand in (op.lhs, op.rhs):
                if self._in_shared(op, operand):
                    times = self.use.operations[op]
                    operands.append((axes_of(operand.type), width_of(operand.type), times, streamed))
        return operands

    def _in_shared(self, product: ContractOp, operand: SSAValue) -> bool:
        """Inputs always; a computed operand if it is the columns' one, or if CUDA cores multiply."""
        if not isinstance(operand.owner, Operation):
            return True
        return not is_tensor_product(product) or self.roles.row not in axes_of(operand.type)

    def _holdings(self) -> list[_Holding]:
        return [*self._held_inputs(), *self._held_products(), *self._held_rows(), *self._held_values()]

    def _held_inputs(self) -> list[_Holding]:
        held: list[_Holding] = []
        for value, times in self.use.inputs.items():
            role = "shared" if self._feeds_product(value) else "value"
            # The second stream has tiles of its own in shared memory; registers are free again by then.
            count = times if role == "shared" else 1
            held += [_Holding(role, axes_of(value.type), width_of(value.type))] * count
        return held

    def _held_products(self) -> list[_Holding]:
        held: list[_Holding] = []
        for op in self.products:
            held.append(_Holding("accumulator", axes_of(op.result.type), 4))
            for operand in (op.lhs, op.rhs):
                if isinstance(operand.owner, Operation):
                    role = "shared" if self._in_shared(op, operand) else "operand"
                    held.append(_Holding(role, axes_of(operand.type), width_of(operand.type)))
        return held

    def _held_rows(self) -> list[_Holding]:
        """The state of reductions."""
        return [_Holding("row", axes_of(op.result.type), 4) for op in self.operations if isinstance(op, ReduceOp)]

    def _held_values(self) -> list[_Holding]:
        """Results on their way out; where there are products the accumulators are counted already."""
        if self.products:
            return []
        return [_Holding("value", axes_of(value.type), width_of(value.type)) for value in self.results]


def _batch_axes(op: ContractOp) -> set[str]:
    return set(axes_of(op.lhs.type)) & set(axes_of(op.rhs.type)) & set(axes_of(op.result.type))


def _volume(axes: tuple[str, ...], tiles: Mapping[str, int]) -> int:
    return prod(tiles[axis] for axis in axes)
