"""Cases side by side, as a table: one line a case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from treadle.compiler.explain.cases import Row
from treadle.compiler.explain.costs import KernelCost
from treadle.compiler.explain.text import aligned, number, sizes_text

CASE = ("machine", "given", "variant")
HEAD = (*CASE, "kernels", "pieces", "H device", "H shared", "M shared", "time", "of limit", "by")
LEFT = (*CASE, "pieces", "by")


def table_text(rows: Sequence[Row]) -> str:
    """H in bytes, M in bytes of a block (with stages and padding), time in microseconds (an estimate)."""
    cells = [HEAD, *(_cells(row) for row in rows)]
    # What is the same in every case is said once.
    shown = [i for i, head in enumerate(HEAD) if head not in CASE or _varies(cells, i)]
    left = {column for column, i in enumerate(shown) if HEAD[i] in LEFT}
    lines = aligned([[row[i] for i in shown] for row in cells], left)
    fixed = [cells[1][i] for i in (0, 1, 2) if i not in shown and cells[1][i] not in ("", "as written")]
    unit = "H and M in bytes, time in us (estimates, launches included)"
    return "\n".join([f"{'on ' + ', '.join(fixed) + '; ' if fixed else ''}{unit}", *lines])


def _varies(cells: Sequence[Sequence[str]], column: int) -> bool:
    return len({row[column] for row in cells[1:]}) > 1


def _cells(row: Row) -> tuple[str, ...]:
    found = row.explanation
    # A program without kernels moves nothing, at no level.
    moved = {level.name: level.transfer_bytes for level in found.levels}
    time = "-" if found.time_us is None else f"{found.time_us:.4g}"
    share = "-" if row.share_of_limit is None else f"{row.share_of_limit:.0%}"
    return (
        found.machine,
        sizes_text(row.case.sizes),
        row.case.variant,
        str(len(found.kernels)),
        "; ".join(_pieces(found.kernels)),
        number(moved.get("device", 0)),
        number(moved.get("shared", 0)),
        number(max((kernel.shared_bytes for kernel in found.kernels), default=0)),
        time,
        share,
        found.bottleneck,
    )


def _pieces(kernels: Sequence[KernelCost]) -> Iterator[str]:
    """The pieces of a few kernels; what is cut into ones goes without saying."""
    if len(kernels) > 2:
        yield "..."
        return
    for kernel in kernels:
        cut: Mapping[str, int] = {**kernel.group, **{a: n for stream in kernel.stream for a, n in stream.items()}}
        yield " ".join(f"{axis}={size}" for axis, size in cut.items() if size > 1) or "1"


__all__ = ["table_text"]
