"""The one door to the cost model: everything that pictures and pages ask of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

from treadle.compiler.cost import estimate, plan_of, sizes_of_kernel
from treadle.compiler.cost.kernel.roles import alignment_of, contractions_of
from treadle.compiler.cost.timing.overlap import overlaps
from treadle.compiler.cost.timing.schedule import Timeline
from treadle.compiler.errors import TreadleError
from treadle.compiler.explain import Explanation, KernelCost, explain
from treadle.compiler.machines import machine_of
from treadle.compiler.sizes import default_sizes
from treadle.dialects.diagram.array import axes_of
from treadle.dialects.hierarchy import KernelOp


def divisor_of_products(kernel: KernelOp) -> int:
    """What must divide the sides of the tiles of a kernel's products; 1 where it has none."""
    return alignment_of(contractions_of(kernel))


def product_axis_names(kernel: KernelOp) -> tuple[str, ...]:
    """Axes of the kernel's products."""
    products = contractions_of(kernel)
    return tuple(dict.fromkeys(axis for op in products for value in (op.lhs, op.rhs) for axis in axes_of(value.type)))


def explain_kernels(module: ModuleOp, sizes: Mapping[str, int]) -> Explanation | None:
    """What the model says of a module whose sizes are chosen; None where there is nothing to say yet."""
    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    decided = all(kernel.is_expanded or (kernel.schedule and kernel.schedule.is_decided) for kernel in kernels)
    if not kernels or not decided or "machine" not in module.attributes:
        return None
    return explain(module, machine_of(module), sizes)


@dataclass(frozen=True)
class Crossing:
    """How an array comes near or leaves, as the model has it."""

    times: int
    """How often, in one launch: once for each stream that reads it."""
    visited: tuple[str, ...] = ()
    """Axes of which only some pairs of pieces are visited, the stream's first; empty: all."""


def crossings_of(kernel: KernelOp) -> dict[tuple[str, bool], Crossing]:
    """By the name of the array and whether it is saved; empty before sizes are chosen."""
    if not kernel.is_expanded and not (kernel.schedule and kernel.schedule.is_decided):
        return {}
    found: dict[tuple[str, bool], Crossing] = {}
    for transfer in plan_of(kernel).transfers:
        key = (transfer.array, transfer.saves)
        fed = transfer.fed
        visited = () if fed is None else (fed.stream.axis, *(pieces.axis for pieces in fed.around))
        found[key] = Crossing(found[key].times + 1 if key in found else 1, visited)
    return found


def timelines_of(module: ModuleOp) -> Iterator[tuple[str, Timeline]]:
    """Of each stream of each explicit kernel that fits the machine: which of its warps uses which unit when."""
    machine = machine_of(module)
    for kernel in (op for op in module.walk() if isinstance(op, KernelOp)):
        plan = plan_of(kernel)
        time = estimate(plan, machine, sizes_of_kernel(kernel, parent_function(kernel), {}))
        found = () if time is None else overlaps(plan, machine, time.blocks_per_sm)
        for i, step in enumerate(found):
            stream = f", stream {i + 1} ({plan.streams[step.stream].axis})" if len(found) > 1 else ""
            yield f"@{plan.name} on {machine.name}{stream}, {step.warps} warps on a quarter of an SM", step.timeline


def parent_function(kernel: KernelOp) -> FuncOp:
    parent = kernel.parent_op()
    assert isinstance(parent, FuncOp)
    return parent


@dataclass(frozen=True)
class Total:
    """H and M of one level of one kernel as the model has them, in words."""

    transfer: str
    memory: str
    """Empty until the streams are expanded: before, the model does not say what is alive at one moment."""


def totals_of(module: ModuleOp, sizes: Mapping[str, int]) -> dict[tuple[str, str], Total]:
    """Totals by kernel and level; none before sizes are chosen."""
    try:
        explanation = explain_kernels(module, sizes)
    except TreadleError:  # a size that nobody knows: the picture then has no numbers
        return {}
    if explanation is None:
        return {}
    expanded = {op.kernel_name.data for op in module.walk() if isinstance(op, KernelOp) and op.is_expanded}
    return {
        (kernel.name, level.name): Total(
            bytes_text(level.transfer_bytes),
            f"{bytes_text(level.memory_bytes)} of {bytes_text(level.capacity_bytes)}"
            if kernel.name in expanded
            else "",
        )
        for kernel in explanation.kernels
        for level in kernel.levels
    }


def sizes_text(module: ModuleOp, given: Mapping[str, int]) -> str:
    """`q = 200, x = 333`: the sizes that numbers are for."""
    functions = (op for op in module.walk() if isinstance(op, FuncOp))
    known = {axis: size for function in functions for axis, size in default_sizes(function).items()}
    return ", ".join(f"{axis} = {size}" for axis, size in (known | dict(given)).items())


def capacities_of(module: ModuleOp) -> dict[str, str]:
    """How much each memory level of the module's machine holds; none where no machine is set."""
    if "machine" not in module.attributes:
        return {}
    machine = machine_of(module)
    texts = {name: bytes_text(level.capacity) for name, level in machine.levels.items()}
    shared = f"{bytes_text(machine.limits.shared_per_block)} a block"
    return texts | {"shared": shared, "register": f"{texts['register']} an SM"}


def bytes_text(size: int) -> str:
    """`163 KiB`, `2.2 MiB`, `80 GB`."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}" if size / scale < 1000 else f"{size / scale:.0f} {unit}"
    return f"{size} B"


__all__ = [
    "Explanation",
    "KernelCost",
    "Total",
    "bytes_text",
    "capacities_of",
    "divisor_of_products",
    "explain_kernels",
    "product_axis_names",
    "totals_of",
]
