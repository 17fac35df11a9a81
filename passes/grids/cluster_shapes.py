"""Which cluster a kernel gets: of those that its grid and its copies allow the one that takes the least time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from treadle.compiler.cost.timing.clusters import Feeding, Shape, best_cluster, from_l2, shapes_along
from treadle.compiler.machines import Machine
from treadle.dialects import cuda
from treadle.passes._functions import function_of
from treadle.passes.grids.cluster_laws import Piece, Sides, alike, first_piece
from treadle.passes.grids.coordinates import Coordinate, arguments_of, coordinates_of, pieces_along
from treadle.passes.grids.renumber import lies_side_by_side
from treadle.passes.grids.sharing import AnySizes, Numbers, numbers_at, numbers_of_host
from treadle.passes.warps.laws import Reason

DIVIDES = "the blocks of a cluster are pieces that differ in one coordinate alone"

TRIALS = 3
"""Choices of sizes at which a number is looked at: one that is the same at all of them depends on none."""


@dataclass(frozen=True)
class Shapes:
    """The clusters of one kernel."""

    kernel: cuda.KernelOp
    roles: cuda.RolesOp
    launch: cuda.LaunchOp
    machine: Machine

    @cached_property
    def coordinates(self) -> list[Coordinate]:
        return coordinates_of(self.kernel)

    @cached_property
    def _hinted(self) -> Numbers:
        """The numbers of the host at the sizes that the function is made for."""
        return numbers_of_host(function_of(self.launch))

    @cached_property
    def _trials(self) -> list[Numbers]:
        return [numbers_at(function_of(self.launch), AnySizes(trial)) for trial in range(TRIALS)]

    @cached_property
    def _piece(self) -> Piece | None:
        arguments = arguments_of(self.kernel, self.launch, self._hinted)
        return first_piece(self.kernel, self.roles, arguments, self.machine)

    def pieces(self, place: Coordinate) -> int | None:
        """How many there are along a coordinate, whatever the sizes that are known at launch only."""
        first, *others = (self._pieces_at(place, numbers) for numbers in self._trials)
        return first if all(other == first for other in others) else None

    def _pieces_at(self, place: Coordinate, of_host: Numbers) -> int | None:
        return pieces_along(place, self.coordinates, self.kernel, self.launch, of_host)

    def is_known(self, shape: Sides) -> bool:
        """Whether it is known how many pieces there are along its coordinates, and that they are all of a grid, where
        they are numbered anew; else the launch finds out."""
        places = [place for place, _ in shape.sides]
        is_whole = lies_side_by_side(shape, self.coordinates) or all(map(self._is_whole, self._trials))
        return is_whole and all(self.pieces(place) is not None for place in places)

    def _is_whole(self, of_host: Numbers) -> bool:
        return self._pieces_at(self.coordinates[0], of_host) is not None

    def why_no_clusters(self, shape: Sides) -> Reason | None:
        """Why a cluster leaves blocks over, as far as that is known."""
        for place, count in shape.sides:
            pieces = self.pieces(place)
            if pieces is not None and pieces % count:
                fact = f"a cluster of {count} blocks does not divide the {pieces} pieces along {place}"
                return Reason(DIVIDES, fact)
        return None

    # -- unasked -----------------------------------------------------------------------------------

    def best(self, along: Sequence[str]) -> Sides | None:
        """What saves time, at the sizes that the function is made for: if that is possible along axes of which it is
        known how many pieces there are; None where nothing does."""
        able = [place for place in self._named(along) if self._is_able(Shape(((place, 2),)), self._hinted)]
        known = [place for place in able if self.pieces(place) is not None]
        return self._best_along(known) or self._best_along(able)

    def can_share(self, along: Sequence[str]) -> bool:
        """Whether blocks that differ along one of these axes read anything alike, however many there are."""
        shapes = [Shape(((place, 2),)) for place in self._named(along)]
        return any(not isinstance(alike(self.kernel, self.roles, shape), Reason) for shape in shapes)

    def _best_along(self, places: Sequence[Coordinate]) -> Sides | None:
        shapes = shapes_along(places)
        if not shapes or self._piece is None:
            return None
        made = [(self._is_able(shape, self._hinted), self._feeding(self._piece, shape)) for shape in shapes]
        number = int(best_cluster(self._piece.feeding(None, {}), made, self._piece.product_clocks, self.machine))
        return shapes[number - 1] if number else None

    def _is_able(self, shape: Sides, of_host: Numbers) -> bool:
        """Whether it divides the pieces, whose number is known, and its blocks share something."""
        if isinstance(alike(self.kernel, self.roles, shape), Reason):
            return False
        pieces = [(self._pieces_at(place, of_host), count) for place, count in shape.sides]
        return all(found is not None and found % count == 0 for found, count in pieces)

    def _feeding(self, piece: Piece, shape: Sides) -> Feeding:
        shared = alike(self.kernel, self.roles, shape)
        return piece.feeding(shape, {} if isinstance(shared, Reason) else shared)

    # -- asked for ---------------------------------------------------------------------------------

    def asked(self, size: Sequence[int], along: Sequence[str]) -> Sides | Reason:
        """The cluster of so many blocks along these axes; of one size along whichever of them is best, the innermost
        where that is not known."""
        places = self._named(along)
        if len(places) < len(along or size):
            names = ", ".join(place.name for place in self.coordinates)
            return Reason(DIVIDES, f"the grid has coordinates along {names}, not along {', '.join(along)}")
        if len(size) > 1:
            counts = dict(zip(along, size, strict=True))
            return Shape(tuple((place, counts[place.name]) for place in places if counts[place.name] > 1))
        shapes = [Shape(((place, size[0]),)) for place in reversed(places)]
        return min(shapes, key=self._preference)

    def _preference(self, shape: Sides) -> tuple[bool, bool, float]:
        """Sharing something comes first, then dividing the pieces, then the time."""
        shares = not isinstance(alike(self.kernel, self.roles, shape), Reason)
        divides = self.why_no_clusters(shape) is None
        clocks = 0.0 if self._piece is None else self._feeding(self._piece, shape).clocks(from_l2(self.machine))
        return not shares, not divides, clocks

    def _named(self, along: Sequence[str]) -> list[Coordinate]:
        return [place for place in self.coordinates if not along or place.name in along]
