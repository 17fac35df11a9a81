"""Plan how fragments change from one layout to another.

Four ways, cheapest first: the registers already hold what they should (nothing is done); they do under other numbers
(nothing is done either, once loops are unrolled); the elements are in other lanes of the same warp (shuffles, or
through shared memory without a barrier of the block); or in other warps (through shared memory)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from treadle.compiler.layouts.accesses import Access, copies, without_vector
from treadle.compiler.layouts.conflicts import wavefronts
from treadle.compiler.layouts.digits import LayoutError, Modes, cut_all, ordered, places
from treadle.compiler.layouts.exchange import Exchange, plan_exchange
from treadle.compiler.layouts.fragments import fragment
from treadle.compiler.layouts.maps import Map
from treadle.compiler.layouts.swizzle import choose_rows
from treadle.compiler.layouts.tiles import Tile
from treadle.compiler.layouts.vectors import widest_fragment
from treadle.dialects.cuda.layout import LANES, LayoutAttr

BARRIER = 30
"""Issue slots that a barrier of the block is taken to cost; an estimate, which leaves room for the warps' waiting."""
WARP_BARRIER = 2
"""The same for a barrier of the warp."""

TABLE = 15
"""Instructions by which a lane finds the one it reads in a table, bit by bit. Where a matrix says it, it is an address,
and those are counted on neither way."""

Way = Literal["same", "registers", "shuffle", "shared"]


@dataclass(frozen=True)
class Cost:
    """What a conversion costs a warp: instructions that it issues, and wavefronts of shared memory, through which
    shuffles go as well."""

    instructions: int = 0
    wavefronts: int = 0

    @property
    def total(self) -> int:
        """The sum, by which ways are compared: neither hides behind the other."""
        return self.instructions + self.wavefronts


@dataclass(frozen=True)
class Staging:
    """A way through shared memory: the tile, the vectors that are written and read, whether the warps keep to
    themselves."""

    tile: Tile
    write: Access
    read: Access
    within_warp: bool


@dataclass(frozen=True)
class Conversion:
    """How to change fragments from layout `source` to layout `target`.

    `permutation[i]` is the register of the same thread that becomes register i (ways `same` and `registers`);
    `exchange` is the shuffles, `staging` the way through shared memory."""

    source: LayoutAttr
    target: LayoutAttr
    way: Way
    cost: Cost
    permutation: tuple[int, ...] = ()
    exchange: Exchange | None = None
    staging: Staging | None = None
    others: tuple[tuple[Way, Cost], ...] = field(default=())

    def run(self, values: Any) -> list[list[list[Any]]]:
        """Execute the plan: `values[warp][lane][register]` in the source layout gives the same in the target's, lists
        or numpy arrays. The definition of what a plan means, for tests and for whoever prints it."""
        match self.way:
            case "same" | "registers":
                return [[[held[i] for i in self.permutation] for held in lanes] for lanes in values]
            case "shuffle":
                assert self.exchange is not None
                return [self.exchange.run(lanes) for lanes in values]
            case "shared":
                return self._run_staged(values)

    def _run_staged(self, values: Any) -> list[list[list[Any]]]:
        assert self.staging is not None
        tile, memory = self.staging.tile, dict[int, Any]()
        for at, coordinates in fragment(self.source).everywhere():
            memory[tile.address(coordinates)] = values[at["warp"]][at["lane"]][at["register"]]
        target = fragment(self.target)
        return [
            [
                [memory[tile.address(target(register=r, lane=lane, warp=warp))] for r in range(target.size("register"))]
                for lane in range(LANES)
            ]
            for warp in range(target.size("warp"))
        ]


def plan_conversion(
    source: LayoutAttr, target: LayoutAttr, element_bytes: int, warp_barriers: bool = True
) -> Conversion:
    """The cheapest way from one layout to another of the same tile (LayoutError if they do not cover the same
    coordinates, or one does not hold every element). Through shared memory, any axis may be that of the rows; without
    `warp_barriers` the block meets there in any case."""
    one, other = fragment(source), fragment(target)
    _check_same_tile(one, other)
    permutation = _permutation(source, target)
    if permutation is not None:
        way: Way = "same" if permutation == tuple(range(len(permutation))) else "registers"
        return Conversion(source, target, way, Cost(), permutation)
    plans = [_through_shared(source, target, row, element_bytes, warp_barriers) for row in one.axes or ("",)]
    if _same_warps(one, other):
        plans.append(by_shuffles(source, target, element_bytes))
    best = min(plans, key=lambda plan: plan.cost.total)
    others: tuple[tuple[Way, Cost], ...] = tuple((plan.way, plan.cost) for plan in plans if plan is not best)
    return Conversion(source, target, best.way, best.cost, (), best.exchange, best.staging, others)


def _check_same_tile(one: Map, other: Map) -> None:
    for each in (one, other):
        each.inverse()
    if one.extents() != other.extents():
        raise LayoutError(f"layouts cover different tiles: {one.extents()} and {other.extents()}")
    if one.size("warp") != other.size("warp"):
        raise LayoutError(f"layouts of {one.size('warp')} and {other.size('warp')} warps")


def _permutation(source: LayoutAttr, target: LayoutAttr) -> tuple[int, ...] | None:
    """For each register of the target the register of the source with the same element in the same thread; None if an
    element is not there."""
    one, other = fragment(source), fragment(target)
    if not one.without("register").same_as(other.without("register")):
        return None
    if ordered(one.modes("register")) != ordered(other.modes("register")):
        return None
    held = {_key(one(register=i)): i for i in range(one.size("register"))}
    return tuple(held[_key(other(register=i))] for i in range(other.size("register")))


def _key(coordinates: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((axis, position) for axis, position in coordinates.items() if position))


def _same_warps(one: Map, other: Map) -> bool:
    """Whether every warp holds the same elements under both."""
    mine, theirs = (each.without("register", "lane") for each in (one, other))
    within, without = ([m for name in ("register", "lane") for m in each.modes(name)] for each in (one, other))
    return mine.same_as(theirs) and ordered(within) == ordered(without)


# -- shuffles -------------------------------------------------------------------------------------


def by_shuffles(source: LayoutAttr, target: LayoutAttr, element_bytes: int) -> Conversion:
    """The cheapest way by shuffles alone (LayoutError if warps do not hold the same elements in both layouts)."""
    one, other = fragment(source), fragment(target)
    if not _same_warps(one, other):
        raise LayoutError("warps do not hold the same elements in both layouts")
    plans = (_exchanging(source, target, element_bytes, keeps) for keeps in (True, False))
    return min(plans, key=lambda plan: plan.cost.total)


def repeated(source: LayoutAttr, target: LayoutAttr, element_bytes: int) -> tuple[Modes, LayoutAttr, LayoutAttr]:
    """The register digits that both layouts have, in the order of the target, and what is left of the layouts without
    them: an exchange of that, repeated. Neighbours that travel together are no such digit."""
    kept = packing(fragment(source), fragment(target), element_bytes)
    mine, theirs = tuple(source.register), tuple(target.register)
    try:
        for axis in dict.fromkeys(mode.axis for mode in (*mine, *theirs) if mode.axis):
            own, others = places(mine, axis), places(theirs, axis)
            mine, theirs = cut_all(mine, others, axis), cut_all(theirs, own, axis)
    except LayoutError:
        return (), source, target
    common = tuple(mode for mode in theirs if mode in mine and mode.size > 1 and mode.stride >= kept)
    left = (tuple(mode for mode in modes if mode not in common) for modes in (mine, theirs))
    one, other = (LayoutAttr(modes, each.lane, each.warp) for modes, each in zip(left, (source, target), strict=True))
    return common, one, other


def _exchanging(source: LayoutAttr, target: LayoutAttr, element_bytes: int, keeps: bool) -> Conversion:
    """A shuffle moves 4 bytes: neighbours that stay neighbours in both layouts travel together, and what fills less is
    widened on the way."""
    one, other = fragment(source), fragment(target)
    exchange = plan_exchange(one, other, packing(one, other, element_bytes), keeps)
    shuffles = len(exchange.rounds)
    unpacking = 0 if exchange.width * element_bytes >= 4 else exchange.moved
    cost = Cost(shuffles + exchange.selects + TABLE * exchange.tables + unpacking, shuffles)
    return Conversion(source, target, "shuffle", cost, exchange=exchange)


def packing(one: Map, other: Map, element_bytes: int) -> int:
    """Elements that fill 4 bytes and are the fastest registers in both layouts; 1 if there are none."""
    width = 4 // element_bytes
    fastest = [each.modes("register")[-1:] for each in (one, other)]
    if width > 1 and all(modes and modes[0].stride == 1 and modes[0].size % width == 0 for modes in fastest):
        return width if fastest[0][0].axis == fastest[1][0].axis else 1
    return 1


# -- shared memory --------------------------------------------------------------------------------


def _through_shared(
    source: LayoutAttr, target: LayoutAttr, row: str, element_bytes: int, warp_barriers: bool
) -> Conversion:
    """The way through a tile whose rows run along one of the axes."""
    one, other = fragment(source), fragment(target)
    axes = (*(axis for axis in one.axes if axis != row), row)
    extents = tuple(one.extent(axis) for axis in axes)
    write = _vectors(one, row, element_bytes, once=copies(one) > 1)
    read = _vectors(other, row, element_bytes, once=False)
    tile = choose_rows(axes, extents, element_bytes, write, read).tile
    within = warp_barriers and _same_warps(one, other) and copies(one) == 1
    warps = max(one.size("warp"), 1)
    instructions = sum(each.count // each.width // (LANES * warps) for each in (write, read))
    passes = sum(wavefronts(each, tile).wavefronts for each in (write, read)) // warps
    cost = Cost(instructions + (WARP_BARRIER if within else BARRIER), passes)
    return Conversion(source, target, "shared", cost, staging=Staging(tile, write, read, within))


def _vectors(places: Map, axis: str | None, element_bytes: int, once: bool) -> Access:
    width = min(widest_fragment(places, axis), 16 // element_bytes)
    return Access(without_vector(places, axis or "", width) if width > 1 else places, axis, width, once)
