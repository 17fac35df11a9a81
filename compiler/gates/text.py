"""Reports and gates as lines for a reader."""

from __future__ import annotations

from collections.abc import Iterator

from treadle.compiler.gates.checks import check
from treadle.compiler.gates.report import KernelReport


def report_lines(report: KernelReport) -> Iterator[str]:
    """What a kernel takes, and its main loop."""
    yield f"@{report.kernel}, for {report.machine.name}"
    if report.resources is not None:
        resources = report.resources
        yield (
            f"  {resources.registers} registers, {resources.spilled_bytes} bytes spilled a thread; "
            f"{report.shared:,} bytes of shared memory ({resources.shared_bytes} static, "
            f"{report.dynamic_shared:,} dynamic)"
        )
        yield (
            f"  blocks of {report.warps} warps: an SM holds {_plural(report.blocks_on_sm or 0, 'block')}, "
            f"{_plural(report.warps_on_sm or 0, 'warp')}"
        )
    if report.loop is not None:
        yield from (f"  {line}" for line in _loop(report))
    elif report.code is not None and report.step is not None:
        yield "  no main loop: nvcc knows how few turns it has, and has written them out; no gates of a turn are asked"


def _loop(report: KernelReport) -> Iterator[str]:
    loop, step = report.loop, report.step
    assert loop is not None
    units, unit = (report.scores, "score") if report.scores else (float(loop.products), "product")
    made = f", {units:g} scores a lane" if report.scores else ""
    tile = ", ".join(f"{axis} = {size}" for axis, size in step.tile.items() if size != 1) if step else ""
    yield f"main loop at 0x{loop.address:x}, one turn of a warp (a block's tile: {tile}){made}"
    yield from (f"  {line}" for line in loop.lines(units, unit))


def gate_lines(report: KernelReport) -> Iterator[str]:
    """Each gate, and whether it is met."""
    for gate in check(report):
        yield f"  {'   ' if gate.ok else '>> '}{gate}"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
