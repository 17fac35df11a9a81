"""How a printed kernel is launched, in words, for whoever compiles the file alone: grid, block, memory, entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import Operation, SSAValue

from treadle.dialects import cuda
from treadle.dialects.diagram.array import axes_of

WITHOUT_ASKING = 48 * 1024
"""Bytes of dynamic shared memory that a launch gets without asking for more."""


def launches_of(module: ModuleOp) -> dict[str, cuda.LaunchOp]:
    """The first launch of each kernel, by the name of the kernel."""
    launches: dict[str, cuda.LaunchOp] = {}
    for op in module.walk():
        if isinstance(op, cuda.LaunchOp):
            launches.setdefault(op.kernel.root_reference.data, op)
    return launches


def launch_lines(kernel: cuda.KernelOp, launch: cuda.LaunchOp | None, names: Mapping[SSAValue, str]) -> Iterator[str]:
    """What a launch of `kernel` must say; `names` are its parameters in C."""
    blocks = None if launch is None else _blocks(kernel, launch, names)
    grid = "" if blocks is None else f"{blocks} blocks along x, each of "
    shared = kernel.shared_bytes.data
    memory = f"{shared} bytes of dynamic shared memory" if shared else "no dynamic shared memory"
    clusters = "" if kernel.cluster == 1 else f"; {kernel.cluster} neighbouring blocks are a cluster"
    variants = cuda.alignments(kernel)
    aligned = [each for each in variants if each != cuda.ANY_STRIDES]
    more = [(cuda.variant_name(kernel, each), cuda.shared_bytes(kernel, each)) for each in variants]
    differing = ", ".join(f"{bytes} for {name}" for name, bytes in more if bytes != shared)
    memory += f" ({differing})" if differing else ""
    if max(bytes for _, bytes in more) > WITHOUT_ASKING:
        memory += " (cudaFuncAttributeMaxDynamicSharedMemorySize allows that)"
    yield f"Launch: {grid}{kernel.threads.data} threads; {memory}{clusters}."
    entries = [f"{cuda.variant_name(kernel, each)} ({each})" for each in aligned]
    if entries:
        strided = cuda.ANY_STRIDES
        others = f"; {cuda.variant_name(kernel, strided)} takes any strides" if strided in variants else ""
        yield (
            "The entry depends on the bytes of which the addresses, the strides and the rows of all arrays are "
            f"multiples: {', '.join(entries)}{others}."
        )


def _blocks(kernel: cuda.KernelOp, launch: cuda.LaunchOp, names: Mapping[SSAValue, str]) -> str | None:
    parameters = zip(launch.arguments, kernel.body.block.args, strict=False)
    return _expression(launch.grid, {given: names[arg] for given, arg in parameters if arg in names})


def _expression(value: SSAValue, known: Mapping[SSAValue, str]) -> str | None:
    """Index arithmetic of the host function as a formula; None for what has no short one."""
    if value in known:
        return known[value]
    owner = value.owner
    if not isinstance(owner, Operation):
        return None
    if isinstance(owner, memref.DimOp) and isinstance(owner.index.owner, arith.ConstantOp):
        return _axis(owner.source, owner.index.owner)
    if isinstance(owner, arith.ConstantOp) and isinstance(owner.value, IntegerAttr):
        return str(owner.value.value.data)
    operands = [_expression(operand, known) for operand in owner.operands]
    if len(operands) != 2 or None in operands:
        return None
    left, right = operands
    if isinstance(owner, arith.CeilDivUIOp):
        return f"ceil({left} / {right})"
    if isinstance(owner, arith.MinSIOp):
        return f"min({left}, {right})"
    return f"{left} * {right}" if isinstance(owner, arith.MuliOp) else None


def _axis(buffer: SSAValue, index: arith.ConstantOp) -> str | None:
    axes = axes_of(buffer.type)
    if not isinstance(index.value, IntegerAttr) or index.value.value.data >= len(axes):
        return None
    return axes[index.value.value.data]
