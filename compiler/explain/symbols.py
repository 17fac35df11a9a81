"""Costs in symbols, for explanations: an axis by its name, `g_q` a group's size, `s_x` a stream's, `w_q` warps, `c_x`
what a block of a cluster has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.cost.timing.links import Bound
from treadle.compiler.machines import Machine, machine_of
from treadle.dialects.hierarchy import KernelOp


@dataclass(frozen=True)
class Expressions:
    transfer_values: Mapping[str, str]
    """H of each level, of the whole launch, exact at every size."""
    transfer_values_of_group: Mapping[str, str]
    memory_values: Mapping[str, str]
    """M of each level, of one group; `chip` is shared memory and registers together."""
    operations: Mapping[str, str]
    """By unit: FLOP of tensor cores, instructions of a lane, bytes through shared memory."""
    closed: str
    """H of device memory where sizes divide."""
    leading: str
    """The least H as the memory M of a group (in values) grows: alpha M^-beta, terms added up."""
    leading_bytes: str
    """The same where H and M are both in bytes."""
    exponent: str
    """beta of the term that memory helps; 0 where it helps none."""


def expressions_of(kernel: KernelOp, machine: Machine) -> tuple[Expressions, Bound]:
    """Of an explicit kernel, as that machine runs it, and H* in bytes; imports sympy."""
    from treadle.compiler.cost.symbolic.costs import CHIP, closed, symbolic_costs
    from treadle.compiler.cost.symbolic.leading import leading_terms

    costs = symbolic_costs(kernel, machine)
    least, in_bytes = leading_terms(costs), leading_terms(costs, in_bytes=True)
    levels = ("device", "shared", "register")
    expressions = Expressions(
        transfer_values={level: str(costs.transfer(level)) for level in levels},
        transfer_values_of_group={level: str(costs.transfer_of_group(level)) for level in levels},
        memory_values={level: str(costs.peak(level)) for level in (*levels, CHIP)},
        operations={unit: str(count) for unit, count in costs.operations.items()},
        closed=str(closed(costs.transfer("device"))),
        leading=str(least),
        leading_bytes=str(in_bytes),
        exponent=str(least.beta),
    )
    return expressions, in_bytes


@dataclass(frozen=True)
class Symbols:
    """The costs of one kernel, none of its sizes known."""

    name: str
    expressions: Expressions

    def as_dict(self) -> dict[str, object]:
        found = self.expressions
        levels = [
            {
                "name": level,
                "transfer_values": None,
                "transfer_expr": found.transfer_values[level],
                "memory_bytes": None,
                "memory_expr": found.memory_values[level],
            }
            for level in found.transfer_values
        ]
        return {"name": self.name, "levels": levels, "expressions": asdict(found)}


def symbols_of(module: ModuleOp) -> list[Symbols]:
    """Of every explicit kernel."""
    kernels = (op for op in module.walk() if isinstance(op, KernelOp))
    machine = machine_of(module)
    return [Symbols(kernel.kernel_name.data, expressions_of(kernel, machine)[0]) for kernel in kernels]
