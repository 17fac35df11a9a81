"""What device memory and the processors take together, where tiles go round between both.

Each place of a ring is filled by memory, then used by its block, and then filled again. While few tiles are on their
way, all of them are at one of the two now and then, and the other has nothing to do. So where both have about as much
to do, neither hides all of the other. A closed line of two stations with `a` and `b` clocks to do, on which `n` tiles
go round, takes `(a^(n+1) - b^(n+1)) / (a^n - b^n)`, or `a (n + 1) / n` if both have as much (J. P. Buzen,
"Computational Algorithms for Closed Queueing Networks with Exponential Servers", Communications of the ACM 16(9), 1973;
`line.py` has what that follows from as well)."""

from __future__ import annotations

from treadle.compiler.amounts import Amount, choice, most
from treadle.compiler.cost.kernel.plan import Plan
from treadle.compiler.cost.levels.memory import Footprint
from treadle.compiler.cost.timing.line import clocks_of_line


def tiles_in_flight(plan: Plan, needs: Footprint, blocks: Amount) -> Amount:
    """Places of the tiles that steps load, of so many blocks on an SM, where warps that do nothing else fill them as
    they get free; 0 where a warp asks for a tile itself, once in each of its turns."""
    of_block = sum(tile.role == "staged" for tile in plan.tiles) * needs.stages
    return choice(needs.producers > 0, of_block * blocks, 0)


def clocks_beside_memory(processors: Amount, memory: Amount, tiles: Amount) -> Amount:
    """Until so many tiles have gone round so often that processors and memory have done all that each has to do, in so
    many clocks if it were alone: no less than either. 0 where no tiles go round."""
    return choice(tiles > 0, clocks_of_line((processors, memory), tiles) / most(tiles, 1), 0)
