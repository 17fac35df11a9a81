"""The coordinates of a block's piece: what the number of the block is split into, the last one fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from treadle.compiler.execution import number_of
from treadle.dialects import cuda
from treadle.dialects.diagram.array import axes_of

ACCESSES = cuda.TensorLoadOp | cuda.TensorStoreOp | cuda.PlacedAccess


@dataclass(frozen=True)
class Coordinate:
    """One of them: a remainder of what the faster ones leave, or all that is left."""

    value: SSAValue
    count: SSAValue | None
    """How many pieces there are along it; None for the outermost: as many as the others leave."""

    @property
    def hint(self) -> str:
        """What it is called, or what is made of it: where the piece begins. What is left of the block's number has the
        name of that."""
        made = [result.name_hint for use in self.value.uses for result in use.operation.results]
        names = [self.value.name_hint, *made] if self.count is not None else [*made, self.value.name_hint]
        return next(filter(None, names), "block")

    @property
    def axis(self) -> str | None:
        """The axis of an array that it is a position along, or the number of a piece of; None if there is none."""
        made = {result for use in self.value.uses for result in use.operation.results if _is_start(use.operation)}
        for value in (self.value, *made):
            for op in (use.operation for use in value.uses):
                if isinstance(op, ACCESSES) and value in op.offsets:
                    array = op.piece_type if isinstance(op, cuda.PlacedAccess) else op.map_type.buffer
                    return axes_of(array)[list(op.offsets).index(value)]
        return None

    @property
    def name(self) -> str:
        """Its axis, if it has one."""
        return self.axis or self.hint

    def __str__(self) -> str:
        return f"%{self.hint}"


def _is_start(op: Operation) -> bool:
    return isinstance(op, arith.MuliOp) and isinstance(op.rhs.owner, arith.ConstantOp)


def number_of_unit(kernel: cuda.KernelOp) -> cuda.BlockIndexOp | cuda.ClusterIndexOp | None:
    """What is split: the number of the block, or of its cluster; None for a kernel that does not ask for it."""
    ops = kernel.body.block.ops
    return next((op for op in ops if isinstance(op, cuda.BlockIndexOp | cuda.ClusterIndexOp)), None)


def coordinates_of(kernel: cuda.KernelOp) -> list[Coordinate]:
    """The outermost first."""
    unit = number_of_unit(kernel)
    if unit is None:
        return []
    found: list[Coordinate] = []
    rest: SSAValue | None = unit.result
    while rest is not None:
        inner = split_of(rest)
        found.append(Coordinate(rest, None) if inner is None else Coordinate(inner[0].result, inner[0].rhs))
        rest = None if inner is None or inner[1] is None else inner[1].result
    return found[::-1]


def split_of(value: SSAValue) -> tuple[arith.RemUIOp, arith.DivUIOp | None] | None:
    """The remainder and the quotient that a number is split into, if nothing else is made of it; there is no quotient
    where nobody asks for it."""
    users = [use.operation for use in value.uses]
    remainders = [op for op in users if isinstance(op, arith.RemUIOp) and op.lhs is value]
    quotients = [op for op in users if isinstance(op, arith.DivUIOp) and op.lhs is value]
    if len(remainders) != 1 or len(quotients) > 1 or len(users) > 1 + len(quotients):
        return None
    if quotients and same_number(quotients[0].rhs) != same_number(remainders[0].rhs):
        return None
    return remainders[0], quotients[0] if quotients else None


def same_number(value: SSAValue) -> int | SSAValue:
    """What two values have in common that are the same number."""
    owner = value.owner
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return owner.value.value.data
    return value


# -- how many ----------------------------------------------------------------------------------------


def pieces_along(
    coordinate: Coordinate,
    coordinates: Sequence[Coordinate],
    kernel: cuda.KernelOp,
    launch: cuda.LaunchOp,
    of_host: Mapping[SSAValue, int],
) -> int | None:
    """How many pieces there are along a coordinate, with these numbers in the host function; None if that is not
    known."""
    arguments = arguments_of(kernel, launch, of_host)
    if coordinate.count is not None:
        return number_of(coordinate.count, arguments)
    inner = [number_of(each.count, arguments) for each in coordinates if each.count is not None]
    grid, row = of_host.get(launch.grid), prod(count or 0 for count in inner)
    return grid // row if grid is not None and row and grid % row == 0 else None


def arguments_of(kernel: cuda.KernelOp, launch: cuda.LaunchOp, of_host: Mapping[SSAValue, int]) -> dict[SSAValue, int]:
    """The numbers that a kernel is given, as far as they are known."""
    pairs = zip(kernel.body.block.args, launch.arguments, strict=True)
    return {arg: of_host[given] for arg, given in pairs if given in of_host}
