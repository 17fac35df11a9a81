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
from treadle.compiler.machines import load_machine
from treadle.dialects.hierarchy import KernelOp

MEMORY = [2**i for i in range(10, 23)]
"""Values that a group may hold, along the axis of `transfers`."""


def roofline(rows: Sequence[Row]) -> str:
    """FLOP a second over FLOP a byte of device memory: a roof for each machine, a point for each case."""
    figure, axes = _figure("FLOP for each byte of device memory", "TFLOP/s", "roofline (estimates)")
    points = [(each, intensity) for each in rows if (intensity := _intensity(each))]
    if not points:
        raise TreadleError("a roofline needs products: this program has none")
    least, most = min(x for _, x in points) / 8, max(x for _, x in points) * 8
    for name in dict.fromkeys(row.case.machine for row in rows):
        machine = load_machine(name)
        peak, bandwidth = machine.tensor_flops("f16"), machine.levels["device"].bandwidth
        bend = peak / bandwidth
        line = [x for x in (least, bend, most) if least <= x <= most]
        axes.plot(line, [min(peak, x * bandwidth) / 1e12 for x in line], label=f"{name}: f16, device memory")
    for row, intensity in points:
        time = row.explanation.time_us or 0
        flop = sum(kernel.flop for kernel in row.explanation.kernels)
        axes.plot([intensity], [flop / time / 1e6], "o", label=_label(row, rows))
    return _svg(figure, axes)


def _intensity(row: Row) -> float:
    moved = row.explanation.levels[0].transfer_bytes
    return sum(kernel.flop for kernel in row.explanation.kernels) / moved if row.explanation.time_us and moved else 0.0


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
    from treadle.compiler.cost.algebra import sympy
    from treadle.compiler.cost.leading import leading_terms
    from treadle.compiler.cost.symbolic import axis_symbol, symbolic_costs

    figure, axes = _figure("M: values that a group holds", "H: values", "transfers over memory")
    for kernel in (op for op in module.walk() if isinstance(op, KernelOp)):
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
    from treadle.compiler.cost.algebra import sympy
    from treadle.compiler.cost.symbolic import closed

    transfer, held = closed(costs.transfer("device")).subs(at), costs.peak("chip").subs(at)
    free = [piece for piece in (*costs.groups.values(), *costs.streams.values()) if transfer.has(piece)]
    rest = {piece: 1 for piece in (*costs.groups.values(), *costs.streams.values()) if piece not in free}
    values, holds = sympy.lambdify(free, transfer.subs(rest)), sympy.lambdify(free, held.subs(rest))
    powers = [2**i for i in range(17)]
    return min((values(*each) for each in product(powers, repeat=len(free)) if holds(*each) <= memory), default=None)


def _label(row: Row, rows: Sequence[Row]) -> str:
    varying = [a for a in row.case.sizes if len({each.case.sizes[a] for each in rows}) > 1]
    return ", ".join([row.case.machine, *(f"{axis} = {row.case.sizes[axis]}" for axis in varying), row.case.variant])


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
