"""The cost model: transfers (H), memory (M) and a time estimate, read off the IR.

`plan_of(kernel)` reads a kernel, decorated with all sizes chosen or explicit; everything else asks the plan:
`transfer_values`, `transfer_bytes`, `transfer_expression` (H of a level), `footprint` and `peak_memory` (M),
`estimate` (time on a machine). `choose` tries the candidates of a decorated kernel and takes the one with
the best `merit`. `symbolic.py` and `leading.py` (not imported here: they need sympy) say H and M as expressions, and
how H falls with memory."""

from treadle.compiler.cost.choose import Choice, choose, nearest
from treadle.compiler.cost.memory import Footprint, footprint
from treadle.compiler.cost.merit import Merit, merit
from treadle.compiler.cost.peak import Memory, peak_memory
from treadle.compiler.cost.plan import Issue, Pieces, Plan, Tile, Transfer
from treadle.compiler.cost.read import plan_of, sizes_of_kernel
from treadle.compiler.cost.roles import ProductAxes, product_axes
from treadle.compiler.cost.sketch import Sketch, sketch_of
from treadle.compiler.cost.time import Estimate, Timing, estimate, timing
from treadle.compiler.cost.transfers import (
    LEVELS,
    sum_text,
    transfer_bytes,
    transfer_expression,
    transfer_values,
    transfers_at,
)
from treadle.compiler.cost.warpgroups import are_of_warpgroups

__all__ = [
    "LEVELS",
    "Choice",
    "Estimate",
    "Footprint",
    "Issue",
    "Memory",
    "Merit",
    "Pieces",
    "Plan",
    "ProductAxes",
    "Sketch",
    "Tile",
    "Timing",
    "Transfer",
    "are_of_warpgroups",
    "choose",
    "estimate",
    "footprint",
    "merit",
    "nearest",
    "peak_memory",
    "plan_of",
    "product_axes",
    "sizes_of_kernel",
    "sketch_of",
    "sum_text",
    "timing",
    "transfer_bytes",
    "transfer_expression",
    "transfer_values",
    "transfers_at",
]
