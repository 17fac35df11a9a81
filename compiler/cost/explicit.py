"""The plan of a kernel whose streams are expanded: a walk over what stands there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from treadle.compiler.cost.names import name_of
from treadle.compiler.cost.plan import Pieces, Plan, Tile, Transfer, Work
from treadle.compiler.cost.roles import contractions_of, product_axes
from treadle.compiler.cost.work import axes_touched, is_tensor_product, shared_reads, unit_work, width_of
from treadle.dialects.diagram import ContractOp, ReduceOp
from treadle.dialects.diagram.array import axes_of, level_of, shape_of, sizes_of
from treadle.dialects.hierarchy import GroupOp, KernelOp, LoadOp, SaveOp, StreamOp


def plan_of_explicit(kernel: KernelOp) -> Plan:
    walk = _Walk(kernel)
    walk.block(kernel.body.block)
    return walk.plan()


@dataclass
class _Walk:
    kernel: KernelOp
    groups: tuple[Pieces, ...] = ()
    inside: tuple[Pieces, ...] = ()
    """The streams around the operation at hand."""
    streams: list[Pieces] = field(default_factory=list[Pieces])
    transfers: list[Transfer] = field(default_factory=list[Transfer])
    work: list[Work] = field(default_factory=list[Work])
    tiles: list[Tile] = field(default_factory=list[Tile])

    def plan(self) -> Plan:
        return Plan(
            self.kernel.kernel_name.data,
            self.groups,
            tuple(self.streams),
            self.warps,
            tuple(self.transfers),
            tuple(self.work),
            tuple(self.tiles),
            bool(contractions_of(self.kernel)),
        )

    @property
    def warps(self) -> Mapping[str, int]:
        return {} if self.kernel.schedule is None else self.kernel.schedule.warps.as_dict()

    def block(self, block: Block) -> None:
        for op in block.ops:
            self.operation(op)

    def operation(self, op: Operation) -> None:
        if isinstance(op, GroupOp):
            self.groups = _pieces(op.partition.as_dict())
            self.block(op.body.block)
        elif isinstance(op, StreamOp):
            self.stream(op)
        elif isinstance(op, LoadOp):
            self.crossing(op.source, op.result, saves=False)
            self.hold("shared" if level_of(op.result.type) == "shared" else "value", op.result)
        elif isinstance(op, SaveOp):
            self.crossing(op.destination, op.value, saves=True)
        else:
            self.compute(op)

    def stream(self, op: StreamOp) -> None:
        pieces = Pieces(op.axis, op.size)
        self.streams.append(pieces)
        around = self.inside
        self.block(op.initialise.block)
        self.inside = (*around, pieces)
        self.block(op.step.block)
        self.inside = around
        self.block(op.finish.block)

    def crossing(self, array: SSAValue, piece: SSAValue, saves: bool) -> None:
        axes = axes_of(array.type)
        again = tuple(pieces for pieces in (*self.groups, *self.inside) if pieces.axis not in axes)
        name = name_of(array, f"array{_number(array)}")
        level = level_of(piece.type) or "register"
        self.transfers.append(Transfer(name, level, saves, axes, width_of(array.type), again))

    def compute(self, op: Operation) -> None:
        volume = 1
        for size in _tile_sizes(op).values():
            volume *= size
        for unit, amount in unit_work(op).items():
            self.work.append(Work(unit, amount * volume, self.inside))
        if isinstance(op, ContractOp):
            self.product(op)
        elif isinstance(op, ReduceOp) and op.init is not None:
            self.hold("row", op.result)

    def product(self, op: ContractOp) -> None:
        self.hold("accumulator", op.result, width=4)
        row = product_axes(self.kernel, [pieces.axis for pieces in self.groups]).row
        for operand in (op.lhs, op.rhs):
            loaded = level_of(operand.type) == "shared"
            if not loaded and is_tensor_product(op) and row in axes_of(operand.type):
                self.hold("operand", operand)
                continue
            if not loaded:
                self.hold("shared", operand)
            axes, width = axes_of(operand.type), width_of(operand.type)
            read = shared_reads(axes, width, sizes_of(operand.type), self.warps)
            self.work.append(Work("shared", read, self.inside))

    def hold(self, role: str, value: SSAValue, width: int | None = None) -> None:
        self.tiles.append(Tile(role, shape_of(value.type), width or width_of(value.type)))


def _pieces(partition: Mapping[str, int]) -> tuple[Pieces, ...]:
    return tuple(Pieces(axis, size) for axis, size in partition.items())


def _tile_sizes(op: Operation) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for value in _values(op):
        sizes.update(sizes_of(value.type))
    assert sizes.keys() == set(axes_touched(op))
    return sizes


def _values(op: Operation) -> Iterable[SSAValue]:
    return (*op.operands, *op.results)


def _number(value: SSAValue) -> int:
    return value.index if isinstance(value, BlockArgument) else 0
