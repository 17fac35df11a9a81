"""Operations that could be one kernel, with a size for each axis: what they move and multiply, and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from xdsl.ir import Operation, SSAValue

from treadle.compiler.machines import Machine
from treadle.dialects.diagram import ContractOp
from treadle.dialects.diagram.array import DYNAMIC, axes_of, format_of, sizes_of
from treadle.dialects.diagram.formats import number_format
from treadle.passes._parts import Part

Cluster = frozenset[Operation]
Sizes: TypeAlias = Mapping[str, int]

LONG = 4096
"""What an axis that is known only at launch has at least, where parts must be no slower. The two ends of a scale: what
is repeated grows with an axis, and few groups become many."""


@dataclass(frozen=True)
class Sized:
    """A part of a program that could be one kernel, and the likely size of every axis."""

    part: Part
    limit: int
    """The largest axis that a group holds whole."""
    sizes: Sizes
    machine: Machine

    @property
    def ops(self) -> Cluster:
        return frozenset(self.part.ops)

    def elements(self, value: SSAValue) -> int:
        return prod(max(1, self.sizes[axis]) for axis in sizes_of(value.type))

    def bytes(self, value: SSAValue) -> int:
        return self.elements(value) * number_format(format_of(value.type)).bytes

    @property
    def products(self) -> list[ContractOp]:
        return [op for op in self.part.reducing if isinstance(op, ContractOp)]

    @property
    def least_time(self) -> float:
        """In seconds: every array once, or all multiplications."""
        arrays = (*self.part.read, *self.part.leaving)
        return max(self.moving_time(sum(map(self.bytes, arrays))), self.multiplying_time(self.products))

    def moving_time(self, bytes: int) -> float:
        """In seconds, to or from the memory of the device."""
        return bytes / self.machine.levels["device"].bandwidth

    def multiplying_time(self, products: Iterable[ContractOp]) -> float:
        """In seconds, at the rate of 16-bit products."""
        return sum(2 * self._multiplications(op) for op in products) / self.machine.tensor_flops("f16")

    def _multiplications(self, op: ContractOp) -> int:
        return prod(max(1, self.sizes[axis]) for axis in {*axes_of(op.lhs.type), *axes_of(op.rhs.type)})

    @property
    def longer(self) -> dict[str, int]:
        """The same sizes, but for axes that are known only at launch, and may be long."""
        static = self.part.sizes
        return {axis: size if static[axis] != DYNAMIC else max(size, LONG) for axis, size in self.sizes.items()}

    @property
    def at(self) -> str:
        """For which sizes of those axes something is told."""
        stated = [f"{axis} = {self.sizes[axis]}" for axis, size in self.part.sizes.items() if size == DYNAMIC]
        return f" at {', '.join(stated)}" if stated else ""


__all__ = ["LONG", "Cluster", "Sized", "Sizes"]
