"""What the kernels of a program will take by the cost model, found before they are made.

Who has many programs to choose from, as PyTorch's door has that may cut a graph anywhere, asks of each how long it
takes, and makes the kernels of few. To know that, kernels need their sizes and their streams, no code. Most kernels are
in many of the programs, under other names, and are asked of once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from treadle.compiler.uncollected import uncollected
from treadle.derive import checked
from treadle.passes._structure import remember
from treadle.texts import Estimate
from treadle.untraced import untraced

if TYPE_CHECKING:
    from xdsl.dialects.builtin import ModuleOp
    from xdsl.dialects.func import FuncOp
    from xdsl.ir import SSAValue
    from xdsl.utils.arg_spec import ArgSpec

    from treadle.compiler.pipeline import Options
    from treadle.dialects.hierarchy import KernelOp
    from treadle.passes._structure import Structure

Cost: TypeAlias = "tuple[float | None, float]"
"""Of one kernel: microseconds, None if it does not fit, and bytes of arrays of the device."""

_PROGRAMS: dict[str, Estimate] = {}
"""By the key of their compilation: a graph is cut anew for what it saves."""

_KERNELS: dict[Structure, tuple[Cost, ...]] = {}
"""What became of kernels, each of which may have been cut into parts that another one merges."""


@untraced
@uncollected()
def estimate(program: ModuleOp, *, machine: str | None = None, arch: str | None = None) -> Estimate:
    """What `treadle.compile(program, machine=machine, arch=arch).estimate` is, or will be, of a valid program that is
    made of diagrams (TreadleError where a pass refuses, up to the last one that the cost model asks for); kept on
    disk."""
    from treadle.compiler.pipeline import Options
    from treadle.store import keep_estimate, kept_estimate, key_of

    options = Options(machine, arch)
    key = key_of(str(program), options)
    if (known := _PROGRAMS.get(key)) is not None:
        return known
    if (known := kept_estimate(key)) is None:
        known = _estimated(program.clone(), options)
        keep_estimate(key, known)
    return remember(_PROGRAMS, key, known)


def _estimated(module: ModuleOp, options: Options) -> Estimate:
    from treadle.compiler.errors import describe
    from treadle.compiler.machines import machine_of

    try:
        costs = _costs(module, options)
    except Exception as error:
        raise describe(error, module) from error
    times = [time for time, _ in costs if time is not None]
    launches = 1e6 * machine_of(module).launch * len(costs)
    time = sum(times) + launches if len(times) == len(costs) else None
    return Estimate(len(costs), time, sum(bytes for _, bytes in costs))


def _costs(module: ModuleOp, options: Options) -> list[Cost]:
    """Of all kernels, in their order."""
    from treadle.compiler.pipeline import LAST_HIERARCHY_PASS, LAST_PASS_OF_SEVERAL, through, try_passes
    from treadle.passes._functions import kernels

    function = checked(module, options)
    first = through(options, LAST_PASS_OF_SEVERAL)
    try_passes(module, first)
    found = kernels(function)
    rest = through(options, LAST_HIERARCHY_PASS)[len(first) :]
    if not all(map(_is_known_alone, found)):
        try_passes(module, rest)
        return _read(module)
    return [cost for kernel in found for cost in _costs_of(kernel, function, module, rest)]


def _is_known_alone(kernel: KernelOp) -> bool:
    """Whether what the model asks of a kernel is not said by what stands around it: how far a view goes, how long axes
    are together, or how long an axis is along which only constants lie."""
    from treadle.dialects.diagram import ReadOp
    from treadle.dialects.diagram.array import DYNAMIC, axes_of, sizes_of
    from treadle.dialects.diagram.collapse import Regrouping

    def told_around(value: SSAValue) -> bool:
        together = isinstance(value.owner, Regrouping) and DYNAMIC in sizes_of(value.type).values()
        return together or isinstance(value.owner, ReadOp)

    values = [result for op in kernel.walk() for result in op.results]
    inside = {axis for value in values for axis in axes_of(value.type)}
    border = {axis for value in (*kernel.inputs, *kernel.outputs) for axis in axes_of(value.type)}
    return inside <= border and not any(map(told_around, kernel.inputs))


def _costs_of(kernel: KernelOp, function: FuncOp, module: ModuleOp, rest: Sequence[ArgSpec]) -> tuple[Cost, ...]:
    from treadle.compiler.pipeline import try_passes
    from treadle.compiler.sizes import default_sizes
    from treadle.passes._structure import structure_of
    from treadle.passes.kernels.trial import alone

    structure = structure_of(kernel, module.attributes, default_sizes(function))
    if structure is not None and (known := _KERNELS.get(structure)) is not None:
        return known
    apart, _ = alone(module, function, kernel.clone())
    try_passes(apart, rest)
    found = tuple(_read(apart))
    return found if structure is None else remember(_KERNELS, structure, found)


def _read(module: ModuleOp) -> list[Cost]:
    """Of kernels with sizes and streams."""
    from treadle.compiler.explain.costs import time_and_memory
    from treadle.compiler.machines import machine_of
    from treadle.passes._functions import functions, kernels

    machine = machine_of(module)
    return [
        time_and_memory(kernel, function, machine) for function in functions(module) for kernel in kernels(function)
    ]


__all__ = ["estimate"]
