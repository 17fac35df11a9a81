"""The cost model: transfers (H), memory (M) and a time estimate, read off the IR.

`plan_of(kernel)` reads a kernel, decorated with all sizes chosen or explicit; everything else asks the plan:
`transfer_values`, `transfer_bytes`, `transfer_expression` (H of a level), `footprint` and `peak_memory` (M),
`estimate` (time on a machine). `choose` tries the candidates of a decorated kernel and takes the one with
the best `merit`. Of the folders each uses those before it: `kernel` (what a plan says), `levels` (H and M), `reading`
(plans from the IR), `timing`, `choice`; and `symbolic`, not imported here, which needs sympy, says H and M as
expressions, and how H falls with memory."""

from treadle.compiler.cost.choice.choose import Choice, choose, nearest
from treadle.compiler.cost.choice.merit import Merit, merit
from treadle.compiler.cost.choice.stated import Stated
from treadle.compiler.cost.kernel.plan import Issue, Pieces, Plan, Tile, Transfer
from treadle.compiler.cost.kernel.roles import ProductAxes, product_axes
from treadle.compiler.cost.kernel.warpgroups import are_of_warpgroups
from treadle.compiler.cost.levels.memory import Footprint, footprint
from treadle.compiler.cost.levels.peak import Memory, peak_memory
from treadle.compiler.cost.levels.transfers import (
    LEVELS,
    sum_text,
    transfer_bytes,
    transfer_expression,
    transfer_values,
    transfers_at,
)
from treadle.compiler.cost.reading.plans import plan_of, sizes_of_kernel
from treadle.compiler.cost.reading.sketch import Sketch, sketch_of
from treadle.compiler.cost.timing.time import Estimate, Timing, estimate, timing

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
    "Stated",
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
