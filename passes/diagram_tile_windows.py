"""`diagram-tile-windows`: rows in tiles, each with all that its windows reach, where that is faster."""

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
from treadle.passes.products.lines import in_lines, lines_in, unfold
from treadle.passes.products.tiled_windows import tile_windows
from treadle.passes.products.windows import ROWS, Windows, windows_in


@dataclass(frozen=True)
class DiagramTileWindowsPass(WhereFaster[Windows]):
    """Take rows in tiles, each with all that its windows reach, where something is reduced along axes of which two are
    in windows, and where that saves time. A stream is fed a range of one axis: of an image it would be fed whole lines,
    of which a window has a few places. So it is with neighbours in an image or a video (neighbourhood attention), and
    with pairs of keys that are both near their query (2-simplicial attention in windows).

    Before:

    ```
    !Q = tensor<20x16xf16, #diagram.array<[r, d]>>
    !K = tensor<24x16xf16, #diagram.array<[x, d]>>
    !L = tensor<24x16xf16, #diagram.array<[y, d]>>
    !pairs = tensor<24x24x16xf16, #diagram.array<[x, y, d]>>
    !S = tensor<20x24x24xf32, #diagram.array<[r, x, y]>>
    !m = tensor<20xf32, #diagram.array<[r]>>
    func.func @f(%Q: !Q, %K: !K, %L: !L) -> !m {
      %KL = diagram.map (%k = %K : !K, %l = %L : !L) -> !pairs {
        %kl = arith.mulf %k, %l : f16
        diagram.yield %kl : f16
      }
      %S = diagram.contract %Q, %KL over [d] accumulate f32 : !Q, !pairs -> !S
      %W = diagram.where %S if "r <= x and x <= r + 2 and r <= y and y <= r + 3" : !S
      %m = diagram.reduce max %W over [x, y] : !S -> !m
      func.return %m : !m
    }
    ```

    After `diagram-tile-windows{axes=x,y rows=4}`:

    ```
    !Q = tensor<20x16xf16, #diagram.array<[r, d]>>
    !tiles = tensor<5x4x16xf16, #diagram.array<[r_tile, r_in, d]>>
    !K = tensor<24x16xf16, #diagram.array<[x, d]>>
    !L = tensor<24x16xf16, #diagram.array<[y, d]>>
    !near = tensor<5x42x16xf16, #diagram.array<[r_tile, x_y_in, d]>>
    !S = tensor<5x4x42xf32, #diagram.array<[r_tile, r_in, x_y_in]>>
    !m_tiles = tensor<5x4xf32, #diagram.array<[r_tile, r_in]>>
    !m = tensor<20xf32, #diagram.array<[r]>>
    func.func @f(%Q: !Q, %K: !K, %L: !L) -> !m {
      %K_tiles = diagram.read %K at "4 * r_tile + x_y_in // 7, d" padded : !K -> !near
      %L_tiles = diagram.read %L at "4 * r_tile + x_y_in % 7, d" padded : !L -> !near
      %KL_tiles = diagram.map (%k = %K_tiles : !near, %l = %L_tiles : !near) -> !near {
        %kl = arith.mulf %k, %l : f16
        diagram.yield %kl : f16
      }
      %Q_tiles = diagram.read %Q at "4 * r_tile + r_in, d" padded : !Q -> !tiles
      %S_tiles = diagram.contract %Q_tiles, %KL_tiles over [d] accumulate f32 : !tiles, !near -> !S
      %W_tiles = diagram.where %S_tiles
          if "r_in <= x_y_in // 7 and x_y_in // 7 <= r_in + 2 and r_in <= x_y_in % 7 and x_y_in % 7 <= r_in + 3" : !S
      %m_tiles = diagram.reduce max %W_tiles over [x_y_in] : !S -> !m_tiles
      %m = diagram.read %m_tiles at "r // 4, r % 4" padded : !m_tiles -> !m
      func.return %m : !m
    }
    ```

    Legal: each row of a tile reduces what it did, in another order, for all that its windows have lies near the tile,
    and what else does is absent; so is what lies outside of the arrays. What maps make of that is made in tiles, and
    read where its rows lie by whatever else uses it. The condition says of two axes at least that their positions are
    from so many before a row, or a column, to so many behind it; what else it says may be anything. Rows and axes have
    static sizes, and what has all axes is as it is for `diagram-merge-reduced-axes`. An axis of lines of columns, for
    which all conditions ask as `x // 64` and `x % 64`, is two axes, `x_line` and `x_column`, where rows go in tiles.
    How many rows of each kind a tile has is what leaves the fewest pairs of a row and what lies near. The model times
    all kernels of the function both ways, with tiles of 128 rows and of 64: a tenth must be saved at the sizes that the
    program states, and no time lost where axes known only at launch are long."""

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
        return windows_in(in_lines(function), self.rows or ROWS[0])

    def names(self, each: Windows) -> Sequence[str]:
        return each.axes

    def rewrite(self, function: func.FuncOp, chosen: Sequence[Windows], why: str) -> None:
        if chosen:
            unfold(function, lines_in(function))
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

        function = in_lines(trial.function)
        tried = [windows_in(function, rows) for rows in ([self.rows] if self.rows else ROWS)]
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
        what = f"axis '{name}' is reduced together with others, two in windows around rows, all of static sizes"
        return f"nowhere {what}: {such_are(known)}"


__all__ = ["DiagramTileWindowsPass"]
