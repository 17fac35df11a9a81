"""`diagram-tile-windows`: rows in tiles, each with all that its windows along two axes reach, where that is faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import PassFailedException

from treadle.passes._decisions import decide
from treadle.passes._functions import note
from treadle.passes.kernels.function_trial import FunctionTrial
from treadle.passes.kernels.some_of import Times, fastest_of
from treadle.passes.kernels.where_faster import NONE, WhereFaster, such_are
from treadle.passes.products.tiled_windows import tile_windows
from treadle.passes.products.windows import ROWS, Windows, windows_in


@dataclass(frozen=True)
class DiagramTileWindowsPass(WhereFaster[Windows]):
    """TODO"""

    name = "diagram-tile-windows"
    option = "axes"
    then = (
        "diagram-merge-reduced-axes",
        "diagram-copy-operands",
        "diagram-merge-free-axes",
        "diagram-merge-depths",
    )

    axes: tuple[str, ...] = ()
    """Only these, and without asking the cost model; `none` for none."""
    rows: int = 0
    """Rows of a tile, a power of two; 0 for what the cost model finds best, or 128 of those that are asked for."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.rows < 0 or self.rows.bit_count() > 1:
            raise PassFailedException(f"the rows of a tile are a power of two, not {self.rows}")
        super().apply(ctx, op)

    def found_in(self, function: func.FuncOp) -> Sequence[Windows]:
        return windows_in(function, self.rows or ROWS[0])

    def names(self, each: Windows) -> Sequence[str]:
        return each.axes

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Windows], why: str) -> None:
        for axes, rows in [(each.axes, each.tile_rows) for each in chosen]:  # found anew, in a copy
            for each in [each for each in windows_in(function, rows) if each.axes == axes]:
                tile_windows(function, each, self.name, why)

    def fastest(self, trial: FunctionTrial, found: Sequence[Windows]) -> tuple[Sequence[Windows], str]:
        """Which to make in tiles, all of as many rows, and the times."""
        known: dict[tuple[tuple[str, ...], ...], Times] = {}

        def times(chosen: Sequence[Windows]) -> Times:
            key = tuple((*each.axes, str(each.tile_rows)) for each in chosen)
            if key not in known:
                known[key] = self.times(trial, chosen)
            return known[key]

        tried = [windows_in(trial.function, rows) for rows in ([self.rows] if self.rows else ROWS)]
        return fastest_of(min(tried, key=times), times, trial.longer)

    def _where_it_pays(self, module: ModuleOp, function: func.FuncOp, found: Sequence[Windows]) -> None:
        chosen, why = self.fastest(FunctionTrial(module, function), found)
        if not chosen:
            note(function, f"decline {self.name}", self.subject(found), self.wanted, why)
        self.rewrite(function, chosen, why)
        axes = tuple(axis for each in chosen for axis in each.axes)
        decide(function, axes=axes or (NONE,), rows=chosen[0].tile_rows if chosen else 0)

    def subject(self, found: Sequence[Windows]) -> str:
        return ", ".join(f"[{', '.join(each.axes)}]" for each in found)

    def why_not(self, module: ModuleOp, name: str, known: Sequence[str]) -> str:
        what = f"axis '{name}' is reduced together with another one, both in windows around rows, all of static sizes"
        return f"nowhere {what}: {such_are(known)}"


__all__ = ["DiagramTileWindowsPass"]
