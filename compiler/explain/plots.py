"""Plots as SVG, by matplotlib (the extra `plots`): roofline, time over a size, transfers over memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from io import StringIO
from itertools import product
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from treadle.compiler.errors import TreadleError
from treadle.compiler.explain.cases import Row
from treadle.dialects.hierarchy import KernelOp

MEMORY = [2**i for i in range(10, 23)]
"""Values that a group may hold, along the axis of `transfers`."""


def roofline(rows: Sequence[Row]) -> str:
    """FLOP a second over FLOP a byte of device memory: a roof for each machine, and a line of points for each machine
    and variant. What L2 keeps does not come from device memory, so no point is above its roof."""
    figure, axes = _figure("FLOP for each byte of device memory", "TFLOP/s", "roofline (estimates)")
    points = [(row, found) for row in rows if (found := intensity(row))]
    if not points:
        raise TreadleError("a roofline needs products: this program has none at these sizes")
    roofs = {(row.case.machine, format): roof(row, format) for row in rows for format in formats(row)}
    places = [*(peak / bandwidth for peak, bandwidth in roofs.values()), *(x for _, x in points)]
    least, most = min(places) / 8, max(places) * 4
    for (name, format), (peak, bandwidth) in roofs.items():
        ends = [least, peak / bandwidth, most]
        axes.plot(ends, [min(peak, x * bandwidth) / 1e12 for x in ends], label=f"{name}: {format}, device memory")
    for series in dict.fromkeys((row.case.machine, row.case.variant) for row, _ in points):
        line = [(row, x) for row, x in points if (row.case.machine, row.case.variant) == series]
        axes.plot([x for _, x in line], [teraflops(row) for row, _ in line], "o:", label=", ".join(series))
        for row, x in (line[0], line[-1]):
            if label := _varying(row, rows):
                axes.annotate(label, (x, teraflops(row)), (4, 4), textcoords="offset points", fontsize="x-small")
    return _svg(figure, axes)


def formats(row: Row) -> list[str]:
    """Those in which its kernels multiply."""
    units = dict.fromkeys(unit for kernel in row.explanation.kernels for unit in kernel.limits_us)
    return [unit.removeprefix("tensor ") for unit in units if unit == "float" or unit.startswith("tensor ")]


def roof(row: Row, format: str) -> tuple[float, float]:
    """FLOP a second of products in a format, and bytes a second of device memory."""
    machine = row.case.rates
    lanes = 2 * machine.rates.float * machine.sms * machine.clock
    peak = lanes if format == "float" else machine.tensor_flops(format)
    return peak, machine.levels["device"].bandwidth


def teraflops(row: Row) -> float:
    return sum(kernel.flop for kernel in row.explanation.kernels) / (row.explanation.time_us or 1) / 1e6


def intensity(row: Row) -> float:
    """FLOP for each byte that is moved to or from device memory; 0 where there are none, or the time is not known."""
    busy = sum(kernel.units_us.get("device memory", 0.0) for kernel in row.explanation.kernels)
    moved = busy / 1e6 * row.case.rates.levels["device"].bandwidth
    flop = sum(kernel.flop for kernel in row.explanation.kernels)
    return flop / moved if row.explanation.time_us and moved else 0.0


def time_over_size(rows: Sequence[Row]) -> str:
    """Time over the one size that varies, a line for each machine and variant."""
    varying = [axis for axis in rows[0].case.sizes if len({row.case.sizes[axis] for row in rows}) > 1]
    if len(varying) != 1:
        raise TreadleError("time is plotted over one size: give a range to one axis, as --size x=1024:131072:2x")
    (axis,) = varying
    figure, axes = _figure(axis, "time, us", f"time over {axis} (estimates)")
    for machine, variant in dict.fromkeys((row.case.machine, row.case.variant) for row in rows):
        line = [row for row in rows if (row.case.machine, row.case.variant) == (machine, variant)]
        known = [(row.case.sizes[axis], row.explanation.time_us) for row in line if row.explanation.time_us]
        axes.plot([x for x, _ in known], [time for _, time in known], "o-", label=f"{machine}, {variant}")
    return _svg(figure, axes)


def transfers(module: ModuleOp, sizes: Mapping[str, int]) -> str:
    """H of device memory over the memory of a group: the least that any pieces reach, and the derived leading term."""
    from treadle.compiler.cost.symbolic.algebra import sympy
    from treadle.compiler.cost.symbolic.costs import axis_symbol, symbolic_costs
    from treadle.compiler.cost.symbolic.leading import leading_terms

    kernels = [op for op in module.walk() if isinstance(op, KernelOp)]
    if not kernels:
        raise TreadleError("transfers are those of kernels: this program has none")
    figure, axes = _figure("M: values that a group holds", "H: values", "transfers over memory")
    for kernel in kernels:
        costs = symbolic_costs(kernel)
        least = leading_terms(costs)
        at = {axis_symbol(axis): size for axis, size in sizes.items()}
        reached = [(m, h) for m in MEMORY if (h := _least(costs, at, m)) is not None]
        name = kernel.kernel_name.data
        axes.plot([m for m, _ in reached], [h for _, h in reached], "o", label=f"@{name}: the best pieces")
        if all(term.alpha is not None for term in least.terms):
            memory = sympy.Symbol("M", positive=True)
            term: Any = sympy.Add(*(t.alpha * memory**-t.beta for t in least.terms)).subs(at)
            drawn = [float(term.subs(memory, m)) for m in MEMORY]
            axes.plot(MEMORY, drawn, "-", label=f"{least} (slope -{least.beta})")
    return _svg(figure, axes)


def _least(costs: Any, at: Mapping[Any, int], memory: int) -> float | None:
    """H at the best pieces, powers of two, whose group holds no more than `memory`."""
    from treadle.compiler.cost.symbolic.algebra import sympy
    from treadle.compiler.cost.symbolic.costs import closed

    transfer, held = closed(costs.transfer("device")).subs(at), costs.peak("chip").subs(at)
    free = [piece for piece in (*costs.groups.values(), *costs.streams.values()) if transfer.has(piece)]
    rest = {piece: 1 for piece in (*costs.groups.values(), *costs.streams.values()) if piece not in free}
    values, holds = sympy.lambdify(free, transfer.subs(rest)), sympy.lambdify(free, held.subs(rest))
    powers = [2**i for i in range(17)]
    return min((values(*each) for each in product(powers, repeat=len(free)) if holds(*each) <= memory), default=None)


def _varying(row: Row, rows: Sequence[Row]) -> str:
    varying = [axis for axis in row.case.sizes if len({each.case.sizes[axis] for each in rows}) > 1]
    return ", ".join(f"{axis} = {row.case.sizes[axis]}" for axis in varying)


def _figure(across: str, up: str, title: str) -> tuple[Any, Any]:
    try:
        matplotlib: Any = import_module("matplotlib")
        figures: Any = import_module("matplotlib.figure")
    except ImportError as error:
        raise TreadleError("plots need matplotlib: pip install 'treadle[plots]'") from error
    # The same plot is the same file: no random names, text that stays text.
    matplotlib.rcParams.update({"svg.hashsalt": "treadle", "svg.fonttype": "none"})
    figure = figures.Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log", xlabel=across, ylabel=up, title=title)
    axes.grid(visible=True, which="major", alpha=0.3)
    return figure, axes


def _svg(figure: Any, axes: Any) -> str:
    axes.legend(fontsize="small")
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()
