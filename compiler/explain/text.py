"""Explanations as a person likes to read them in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from textwrap import fill

from treadle.compiler.cost.timing.clusters import Shape
from treadle.compiler.cost.timing.links import Link
from treadle.compiler.explain.costs import Explanation, KernelCost, LevelCost, StepCost
from treadle.compiler.explain.symbols import Expressions, Symbols

WIDTH = 118


def explanation_text(explanation: Explanation) -> str:
    parts = [_kernel_text(kernel) for kernel in explanation.kernels]
    if not parts:
        return f"on {explanation.machine}\n\nno kernels: the program computes nothing"
    if len(parts) > 1:
        parts.append(_together(explanation))
    return "\n\n".join([f"on {explanation.machine}", *parts])


def symbols_text(kernels: Sequence[Symbols]) -> str:
    """Costs of kernels whose sizes are not known."""
    parts: list[str] = []
    for kernel in kernels:
        found = kernel.expressions
        rows = [("level", "H in values", "M in values"), *_symbol_rows(found)]
        lines = [f"kernel @{kernel.name}", *(f"  {line}" for line in aligned(rows, left={0, 1, 2}))]
        lines.append(_hanging("  ", f"at least, as the memory M of a group grows: {found.leading}"))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _symbol_rows(found: Expressions) -> Iterator[tuple[str, str, str]]:
    for level, transfer in found.transfer_values.items():
        yield level, transfer, found.memory_values[level]


def _together(explanation: Explanation) -> str:
    if explanation.time_us is None:
        return "together: not known, a kernel does not fit the machine"
    return (
        f"together: {number(explanation.levels[0].transfer_bytes)} bytes to and from device memory, "
        f"{explanation.time_us:.3g} us (estimate), of which {explanation.launch_us:.2g} us for "
        f"{len(explanation.kernels)} launches; slowest is bound by {explanation.bottleneck}"
    )


def _kernel_text(kernel: KernelCost) -> str:
    lines = [f"kernel @{kernel.name}   {sizes_text(kernel.sizes)}", f"  {schedule_text(kernel)}"]
    if kernel.why:
        lines.append(_hanging("  why: ", kernel.why))
    lines += [f"  {line}" for line in _table(kernel.levels)]
    lines.append(_hanging("  ", _block_text(kernel)))
    lines += [f"  {line}" for line in _links_table(kernel.links)]
    lines.append(_hanging("  ", _time_text(kernel)))
    lines += [_hanging("  ", line) for line in _details(kernel)]
    return "\n".join(lines)


def _details(kernel: KernelCost) -> Iterator[str]:
    if kernel.time_us is None:
        return
    limit = max(kernel.limits_us, key=lambda unit: kernel.limits_us[unit], default="")
    yield (
        f"limit: {kernel.limit_us:.3g} us ({limit} alone, everything else free); share of it: "
        f"{kernel.share_of_limit or 0:.0%}; tiles {kernel.tile_use:.0%} full, waves {kernel.wave_use:.0%}"
    )
    for i, step in enumerate(kernel.steps):
        stream = f" of stream {i + 1} ({sizes_text(step.stream)}; {step.number:.4g} a group)"
        yield _step_text(step, stream if len(kernel.steps) > 1 else "")
    if kernel.levers:
        moves = (f"{lever.what}: {lever.time_us:.3g} us" for lever in kernel.levers)
        yield f"what would move it: {'; '.join(moves)}"
    elif kernel.levers is not None:
        yield "what would move it: no one thing twice as large or fast"
    if kernel.expressions is not None:
        yield f"H of device memory, where sizes divide: {kernel.expressions.closed}"
        yield f"at least, as the memory M of a group grows: {kernel.expressions.leading}"


def _step_text(step: StepCost, stream: str) -> str:
    stages = ", ".join(f"{stage['unit']} {stage['clocks']:.0f}" for stage in step.stages)
    use = ", ".join(f"{unit} {part:.0%}" for unit, part in step.use.items())
    together = "it is alone there and takes" if step.warps == 1 else f"{step.warps} warps there overlap to"
    return (
        f"a step of one warp{stream}, in clocks of a quarter SM: {stages}; {together} {step.clocks:.0f} clocks, "
        f"busy with {use}"
    )


def _block_text(kernel: KernelCost) -> str:
    stages = f" in {kernel.stages} stages" if kernel.stages > 1 else ""
    spilled = f" ({kernel.registers_spilled} more in local memory)" if kernel.registers_spilled else ""
    limit = f" (more do not fit: {kernel.limited_by})" if kernel.limited_by else ""
    grid = f"{counted(kernel.blocks, 'block')}, {kernel.blocks_per_sm} on an SM{limit}, {kernel.waves:.2f} waves"
    if kernel.in_turns:
        pieces = counted(kernel.blocks, "piece")
        many = kernel.blocks_per_sm > 1
        each = f"{kernel.blocks_per_sm} blocks on each SM take" if many else "a block on each SM takes"
        grid = f"{pieces}, which {each} one after another, {kernel.waves:.2f} each"
    if kernel.cluster > 1:
        cluster = Shape(tuple(kernel.cluster_along.items()))
        grid += f"; in clusters of {cluster}, which bring each other {number(kernel.cluster_bytes)} bytes"
    return (
        f"a block: {number(kernel.shared_bytes)} bytes of shared memory with padding{stages}, about "
        f"{kernel.registers_per_thread} registers a thread{spilled}; {grid}"
    )


def schedule_text(kernel: KernelCost) -> str:
    streams = [f"stream {sizes_text(stream)}" for stream in kernel.stream]
    group = f"group {sizes_text(kernel.group)}" if kernel.group else "one group"
    warps = f"warps {sizes_text(kernel.warps)}" if kernel.warps else "one warp"
    shared = [f"a cluster shares it, each block {sizes_text(kernel.shared)}"] if kernel.shared else []
    return "; ".join([group, *streams, warps, *shared])


def _time_text(kernel: KernelCost) -> str:
    if kernel.time_us is None:
        return f"does not fit the machine: {kernel.does_not_fit}"
    units = ", ".join(f"{unit} {used:.3g}" for unit, used in kernel.units_us.items())
    return f"time (estimate): {kernel.time_us:.3g} us, bound by {kernel.bottleneck}; busy, in us: {units}"


def _table(levels: Sequence[LevelCost]) -> list[str]:
    head = ("level", "H values", "H bytes", "M bytes", "of", "H in values")
    rows = [
        (
            level.name,
            number(level.transfer_values),
            number(level.transfer_bytes),
            number(level.memory_bytes),
            number(level.capacity_bytes),
            level.transfer_expr,
        )
        for level in levels
    ]
    return aligned([head, *rows], left={0, 5})


def _links_table(links: Sequence[Link]) -> list[str]:
    """What passes between memories: the processors keep results until they are complete, so a memory sees the pieces
    that are worked on at a time as one group."""
    if not links:
        return []
    columns = {
        "between": [f"{link.source}, {link.target}" for link in links],
        "bytes": [number(link.bytes) for link in links],
        "us": [f"{link.time_us:.3g}" for link in links],
        "at least": ["" if link.least_us is None else f"{link.least_us:.3g}" for link in links],
        "near memory": [number(link.memory_bytes) for link in links],
        "as one group of": [sizes_text(link.group) or "everything" for link in links],
    }
    told = {head: cells for head, cells in columns.items() if any(cells)}
    return aligned([tuple(told), *zip(*told.values(), strict=True)], left={0, len(told) - 1})


def aligned(rows: Sequence[Sequence[str]], left: set[int]) -> list[str]:
    """Columns of one width each; those in `left` begin at the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(widths[i]) if i in left else cell.rjust(widths[i]) for i, cell in enumerate(row)).rstrip()
        for row in rows
    ]


def sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{axis} = {size}" for axis, size in sizes.items())


def number(value: int) -> str:
    return f"{value:,}"


def counted(value: int, thing: str) -> str:
    return f"{number(value)} {thing}{'' if value == 1 else 's'}"


def _hanging(head: str, text: str) -> str:
    return fill(text, WIDTH, initial_indent=head, subsequent_indent="    ", break_on_hyphens=False)
